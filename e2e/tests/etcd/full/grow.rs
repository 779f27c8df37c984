//! Growing when something is in the way: no node for the newcomer, or a newcomer that dies just when it gets its vote.

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::MemberPod;
use evenkeel_e2e::operator::Operator;
use evenkeel_history::WorkloadConfig;
use serde_json::json;

use crate::look::{LONG, follower, formed, ids, leader, says, until_whole};
use crate::middle::{Stops, comes_to_rest, intent_in, kill_and_restart, member_pod, pod_of, spec};
use crate::noted::take_pod_and_claim;

#[test]
fn a_newcomer_that_no_node_takes_is_told_and_holds_up_neither_healing_nor_drains() {
    let story = Story::begin("no-room");
    let mut operator = Operator::start(&story);
    // One member a node, and three nodes.
    let apart =
        "version: 3.6.16\nmembers: 3\nstorage: {size: 1Gi}\nscheduling: {spread: {require: true}}";
    let cluster = formed(&story, apart, 3);
    let (members, workload) = (ids(&cluster), cluster.workload());
    cluster.patch(&json!({"members": 5}));
    story.within(LONG, "it says that no node takes the newcomer", || {
        cluster.condition("Degraded") == ("True".to_owned(), "Unschedulable".to_owned())
    });
    assert!(
        cluster.status()["summary"].to_string().contains("nodes"),
        "{:#}",
        cluster.status()
    );

    // A pod that goes comes back, whoever drains.
    let victim = follower(&story, &cluster);
    let is_back = |victim: &MemberPod| {
        cluster
            .pods()
            .iter()
            .any(|pod| pod.name == victim.name && pod.uid != victim.uid && pod.ready)
    };
    let is_all_there =
        || ids(&cluster).len() == 4 && members.keys().all(|name| ids(&cluster).contains_key(name));
    story.eventually("the budget lets one go", || {
        story.evict(&victim.name).is_ok()
    });
    story.within(LONG, "the member is back", || is_back(&victim));
    story.within(LONG, "there are three, and a newcomer", is_all_there);

    // While nobody asks the newcomer to make way, it gets the place of the next one that goes; and has to give it back.
    story.eventually("a newcomer waits for a node", || {
        cluster.pods().iter().any(|pod| pod.node.is_empty())
    });
    let victim = follower(&story, &cluster);
    operator.stands_still_while(|| {
        story.eventually("the budget lets one go", || {
            story.evict(&victim.name).is_ok()
        });
        story.within(LONG, "the newcomer has the place", || {
            let pods = cluster.pods();
            pods.len() == 3
                && pods
                    .iter()
                    .all(|pod| !pod.node.is_empty() && pod.name != victim.name)
        });
    });
    story.within(LONG, "the member has its place back", || is_back(&victim));
    story.within(LONG, "there are three, and a newcomer", is_all_there);

    // One whose data is gone makes room for the newcomer.
    let lost = follower(&story, &cluster);
    story.kubectl(&[
        "delete",
        &format!("pod/{}", lost.name),
        &format!("pvc/{}", lost.name),
        "--wait=false",
    ]);
    story.within(LONG, "the newcomer has its place", || {
        let list = cluster.try_etcdctl(&["member", "list", "--write-out=json"]);
        let list = list
            .map(|list| evenkeel_e2e::etcd::members(&list))
            .unwrap_or_default();
        let voters = list.iter().filter(|member| !member.learner).count();
        voters == 3 && list.iter().all(|member| member.name != lost.name)
    });
    // Back to what fits.
    cluster.patch(&json!({"members": 3}));
    until_whole(&story, &cluster, 3);
    assert!(
        ids(&cluster)
            .iter()
            .filter(|(name, _)| members.contains_key(*name))
            .count()
            == 2
    );
    comes_to_rest(&operator);
    workload.finish();
    cluster.holds_the_same_everywhere();
}

#[test]
fn a_newcomer_that_gets_all_as_a_snapshot_joins_though_nobody_writes_any_more() {
    let story = Story::begin("idle");
    let operator = Operator::start(&story);
    let cluster = formed(&story, &spec(3), 3);
    // More than etcd keeps in its log for those who come late, and more than it lets a member be behind.
    let many = WorkloadConfig {
        pinned_clients: 18,
        all_members_clients: 6,
        service_clients: 6,
        keys: 36,
        ..WorkloadConfig::default()
    };
    let workload = cluster.workload_with(WorkloadConfig {
        operations_per_second: 3_000.0,
        operations_per_key: 100,
        ..many
    });
    story.within(3 * LONG, "so much was written", || {
        let header = says(&cluster, &leader(&story, &cluster)).unwrap_or_default();
        header["raftAppliedIndex"]
            .as_u64()
            .is_some_and(|index| index > 7_000)
    });
    workload.finish();
    let lost = follower(&story, &cluster);
    take_pod_and_claim(&story, &lost.name);
    story.within(LONG, "it is replaced", || {
        let list = cluster.try_etcdctl(&["member", "list", "--write-out=json"]);
        let list = list
            .map(|list| evenkeel_e2e::etcd::members(&list))
            .unwrap_or_default();
        list.len() == 3 && list.iter().all(|member| member.name != lost.name)
    });
    until_whole(&story, &cluster, 3);
    comes_to_rest(&operator);
    // Not each time: it may have heard of the next change of the membership just in time.
    println!(
        "a lease was granted to advance its log: {}",
        operator.log_has("granted a short lease")
    );
    cluster.holds_the_same_everywhere();
}

#[test]
fn a_learner_that_dies_when_it_is_to_get_its_vote_breaks_nothing() {
    let story = Story::begin("dying");
    let mut operator = Operator::start(&story);
    let cluster = formed(&story, &spec(1), 1);
    let workload = cluster.workload();
    let stops = Stops::before(operator.proxy(), |write| {
        intent_in(write, "orders")
            .filter(|intent| intent.kind == "Promote")
            .map(|intent| intent.serial.to_string())
    });
    cluster.patch(&json!({"members": 3}));
    // The first dies while the operator is about to ask for its vote. etcd looks at its log only, and would give it: of two
    // votes one would then be left, and nobody could write.
    let (serial, stopped) = stops.next();
    let learner = pod_of(&story, "orders", serial.parse().unwrap());
    let pod = story.lab().pod(story.namespace(), &learner).unwrap();
    pod.freeze(Some("etcd"), None).unwrap();
    // Longer than what was seen counts as seen just now.
    std::thread::sleep(std::time::Duration::from_secs(5));
    stops.let_go(&serial);
    stopped.go_on();
    story.eventually("it is told that the learner must catch up, or join", || {
        let told = cluster.status()["waitingFor"].to_string();
        told.contains(&learner) || cluster.status()["summary"].to_string().contains(&learner)
    });
    let since = workload.now();
    std::thread::sleep(std::time::Duration::from_secs(5));
    let stats = workload.stats(since);
    println!(
        "with a dead learner: {}",
        evenkeel_e2e::watched::told("orders", &stats)
    );
    let list = cluster.member_list();
    assert!(
        list.iter()
            .any(|member| member.learner && member.name == learner),
        "{list:?}"
    );
    pod.thaw(Some("etcd"), None).unwrap();
    // The second one's vote is asked for by an operator that dies before it can.
    let (next, stopped) = stops.next();
    stops.let_go(&next);
    kill_and_restart(&story, &mut operator, stopped);
    until_whole(&story, &cluster, 3);
    assert!(
        member_pod(&story, "orders", serial.parse().unwrap()).is_some(),
        "it is still a member"
    );
    comes_to_rest(&operator);
    workload.finish();
    cluster.holds_the_same_everywhere();
}
