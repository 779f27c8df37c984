//! The stories of this topic for `make test-all`.

use super::*;

/// Makes the newest member the leader, which would otherwise be removed first.
fn make_newest_leader(story: &Story, cluster: &Cluster<'_>) -> MemberPod {
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
    story.eventually("the newest member is the leader", || {
        let current_leader = leader(story, cluster);
        if current_leader.name == newest.name {
            return true;
        }
        // Ignored: the transfer may be rejected, and another member may be elected; the next round shows it.
        let _ = cluster.etcdctl_at(&current_leader.ip, &["move-leader", &id]);
        false
    });
    newest
}

/// Returns the raft term that a member reports.
fn term(story: &Story, cluster: &Cluster<'_>, pod: &MemberPod) -> u64 {
    let mut term = None;
    story.eventually(&format!("{} answers", pod.name), || {
        term =
            endpoint_status(cluster, pod).and_then(|output| output["header"]["raft_term"].as_u64());
        term.is_some()
    });
    term.expect("the wait found the term")
}

#[test]
fn scaling_down_removes_followers_before_the_leader() {
    let story = Story::begin("leader-stays");
    let _operator = Operator::start(&story);
    let cluster = create_orders(&story, &SPEC.replace("members: 1", "members: 3"), 3);
    let workload = cluster.workload();
    std::thread::sleep(Duration::from_secs(2));
    // Another member may be elected before the operator has decided, and then the newest may be removed. As the removal of a leader causes
    // an election, too, the two cannot be told apart: the newest must stay in one of three rounds.
    let stayed = (1..=3).any(|round| {
        let newest = make_newest_leader(&story, &cluster);
        let before = term(&story, &cluster, &newest);
        story.kubectl(&["scale", "etcd/orders", "--replicas=1"]);
        wait_healthy(&story, &cluster, 1);
        let left = cluster.pods().remove(0);
        let after = term(&story, &cluster, &left);
        if left.name == newest.name {
            return true;
        }
        assert_ne!(
            after, before,
            "{} was the leader all the time, and was removed",
            newest.name
        );
        println!(
            "round {round}: {} was the leader in term {before}, and {} is left in term {after}",
            newest.name, left.name
        );
        story.kubectl(&["scale", "etcd/orders", "--replicas=3"]);
        wait_healthy(&story, &cluster, 3);
        false
    });
    assert!(stayed, "the leader was removed in each round");
    workload.finish();
}

#[test]
fn an_edit_during_scaling_is_the_target_at_once() {
    let story = Story::begin("rescaled");
    let operator = Operator::start(&story);
    let cluster = create_orders(&story, SPEC, 1);
    let workload = cluster.workload();
    let lists = |members: usize| {
        let listed = || cluster.try_etcdctl(&["member", "list", "--write-out=json"]);
        story.within(
            CLUSTER_LIMIT,
            &format!("etcd lists {members} members"),
            || listed().is_ok_and(|printed| evenkeel_e2e::etcd::members(&printed).len() == members),
        );
    };
    cluster.patch(&json!({"members": 5}));
    lists(2);
    // With a pending learner: it is removed, and another one is added.
    cluster.patch(&json!({"members": 1}));
    lists(1);
    cluster.patch(&json!({"members": 3}));
    lists(3);
    cluster.patch(&json!({"members": 2}));
    wait_converged(&story, &cluster, 2);
    wait_idle(&operator);
    workload.finish();
    cluster.wait_same_data();
}
