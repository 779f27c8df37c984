//! The stories of this topic that `make test-all` runs.

use super::*;

/// Has the newest member lead, who would be the first to go if it did not.
fn newest_leads(story: &Story, cluster: &Cluster<'_>) -> MemberPod {
    let serial = |pod: &str| {
        story
            .field(&["pod", pod], r".metadata.annotations.evenkeel\.dev/serial")
            .parse::<u64>()
            .unwrap()
    };
    let newest = cluster
        .pods()
        .into_iter()
        .max_by_key(|pod| serial(&pod.name))
        .unwrap();
    let id = cluster
        .member_list()
        .into_iter()
        .find(|member| member.name == newest.name)
        .unwrap()
        .id;
    let id = format!("{id:x}");
    story.eventually("the newest leads", || {
        let leads = leader(story, cluster);
        if leads.name == newest.name {
            return true;
        }
        // It may be refused, and somebody else may be elected: the next look tells.
        let _ = cluster.etcdctl_at(&leads.ip, &["move-leader", &id]);
        false
    });
    newest
}

/// How many elections there have been, by a member's word.
fn term(story: &Story, cluster: &Cluster<'_>, pod: &MemberPod) -> u64 {
    let mut term = None;
    story.eventually(&format!("{} answers", pod.name), || {
        term = says(cluster, pod).and_then(|said| said["header"]["raft_term"].as_u64());
        term.is_some()
    });
    term.expect("else the wait had not ended")
}

#[test]
fn whoever_leads_stays_when_there_are_others_to_go() {
    let story = Story::begin("leads");
    let _operator = Operator::start(&story);
    let cluster = formed(&story, &SPEC.replace("members: 1", "members: 3"), 3);
    let workload = cluster.workload();
    std::thread::sleep(Duration::from_secs(2));
    // Somebody else may be elected before the operator has decided, and then the newest may go. But to remove who leads makes
    // for an election, too: so it is tried again, and has to stay in one of three times.
    let stayed = (1..=3).any(|round| {
        let newest = newest_leads(&story, &cluster);
        let before = term(&story, &cluster, &newest);
        story.kubectl(&["scale", "etcd/orders", "--replicas=1"]);
        until_whole(&story, &cluster, 1);
        let left = cluster.pods().remove(0);
        let after = term(&story, &cluster, &left);
        if left.name == newest.name {
            return true;
        }
        assert_ne!(
            after, before,
            "{} led all the time, and was removed",
            newest.name
        );
        println!(
            "round {round}: {} led in term {before}, and {} is left in term {after}",
            newest.name, left.name
        );
        story.kubectl(&["scale", "etcd/orders", "--replicas=3"]);
        until_whole(&story, &cluster, 3);
        false
    });
    assert!(stayed, "whoever led was removed each time");
    workload.finish();
}

#[test]
fn edits_in_the_middle_of_a_change_become_the_target_at_once() {
    let story = Story::begin("rescaled");
    let operator = Operator::start(&story);
    let cluster = formed(&story, SPEC, 1);
    let workload = cluster.workload();
    let lists = |members: usize| {
        let listed = || cluster.try_etcdctl(&["member", "list", "--write-out=json"]);
        story.within(LONG, &format!("etcd lists {members} members"), || {
            listed().is_ok_and(|printed| evenkeel_e2e::etcd::members(&printed).len() == members)
        });
    };
    cluster.patch(&json!({"members": 5}));
    lists(2);
    // With a learner on its way: it is taken back, and another one comes.
    cluster.patch(&json!({"members": 1}));
    lists(1);
    cluster.patch(&json!({"members": 3}));
    lists(3);
    cluster.patch(&json!({"members": 2}));
    ends_well(&story, &cluster, 2);
    comes_to_rest(&operator);
    workload.finish();
    cluster.holds_the_same_everywhere();
}
