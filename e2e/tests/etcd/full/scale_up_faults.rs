//! Scaling up under faults: no node for the new member, or a learner that dies when it is about to be promoted.

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::MemberPod;
use evenkeel_e2e::operator::Operator;
use evenkeel_history::WorkloadConfig;
use serde_json::json;

use crate::assertions::{
    CLUSTER_LIMIT, create_orders, endpoint_status, follower, leader, member_ids, wait_healthy,
};
use crate::intents::delete_pod_and_claim;
use crate::interrupts::{
    HeldWrites, intent_written, kill_and_restart, member_pod, pod_name, spec, wait_idle,
};

#[test]
fn an_unschedulable_new_member_blocks_neither_recovery_nor_drains() {
    let story = Story::begin("no-room");
    let mut operator = Operator::start(&story);
    // One member per node, and three nodes.
    let apart =
        "version: 3.6.16\nmembers: 3\nstorage: {size: 1Gi}\nscheduling: {spread: {require: true}}";
    let cluster = create_orders(&story, apart, 3);
    let (members, workload) = (member_ids(&cluster), cluster.workload());
    cluster.patch(&json!({"members": 5}));
    story.within(
        CLUSTER_LIMIT,
        "Degraded has the reason Unschedulable",
        || cluster.condition("Degraded") == ("True".to_owned(), "Unschedulable".to_owned()),
    );
    assert!(
        cluster.status()["summary"].to_string().contains("nodes"),
        "{:#}",
        cluster.status()
    );

    // An evicted pod comes back.
    let victim = follower(&story, &cluster);
    let is_back = |victim: &MemberPod| {
        cluster
            .pods()
            .iter()
            .any(|pod| pod.name == victim.name && pod.uid != victim.uid && pod.ready)
    };
    let all_are_listed = || {
        member_ids(&cluster).len() == 4
            && members
                .keys()
                .all(|name| member_ids(&cluster).contains_key(name))
    };
    story.eventually("the budget allows the eviction", || {
        story.evict(&victim.name).is_ok()
    });
    story.within(CLUSTER_LIMIT, "the member is back", || is_back(&victim));
    story.within(
        CLUSTER_LIMIT,
        "the three members and the new one are listed",
        all_are_listed,
    );

    // While the operator is frozen, the pending pod gets the place of the next evicted one, and must give it back.
    story.eventually("the new member's pod is pending", || {
        cluster.pods().iter().any(|pod| pod.node.is_empty())
    });
    let victim = follower(&story, &cluster);
    operator.while_frozen(|| {
        story.eventually("the budget allows the eviction", || {
            story.evict(&victim.name).is_ok()
        });
        story.within(CLUSTER_LIMIT, "the new member's pod is scheduled", || {
            let pods = cluster.pods();
            pods.len() == 3
                && pods
                    .iter()
                    .all(|pod| !pod.node.is_empty() && pod.name != victim.name)
        });
    });
    story.within(CLUSTER_LIMIT, "the member has its place back", || {
        is_back(&victim)
    });
    story.within(
        CLUSTER_LIMIT,
        "the three members and the new one are listed",
        all_are_listed,
    );

    // A member without data makes room for the new one.
    let lost = follower(&story, &cluster);
    story.kubectl(&[
        "delete",
        &format!("pod/{}", lost.name),
        &format!("pvc/{}", lost.name),
        "--wait=false",
    ]);
    story.within(
        CLUSTER_LIMIT,
        "the new member replaces the lost one",
        || {
            let list = cluster.try_etcdctl(&["member", "list", "--write-out=json"]);
            let list = list
                .map(|list| evenkeel_e2e::etcd::members(&list))
                .unwrap_or_default();
            let voters = list.iter().filter(|member| !member.learner).count();
            voters == 3 && list.iter().all(|member| member.name != lost.name)
        },
    );
    // Scaled down to the number of nodes.
    cluster.patch(&json!({"members": 3}));
    wait_healthy(&story, &cluster, 3);
    assert!(
        member_ids(&cluster)
            .iter()
            .filter(|(name, _)| members.contains_key(*name))
            .count()
            == 2
    );
    wait_idle(&operator);
    workload.finish();
    cluster.wait_same_data();
}

#[test]
fn a_new_member_that_receives_a_snapshot_joins_an_idle_cluster() {
    let story = Story::begin("idle");
    let operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec(3), 3);
    // More entries than etcd keeps in its log for slow followers.
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
    story.within(3 * CLUSTER_LIMIT, "7000 entries are applied", || {
        let header = endpoint_status(&cluster, &leader(&story, &cluster)).unwrap_or_default();
        header["raftAppliedIndex"]
            .as_u64()
            .is_some_and(|index| index > 7_000)
    });
    workload.finish();
    let lost = follower(&story, &cluster);
    delete_pod_and_claim(&story, &lost.name);
    story.within(CLUSTER_LIMIT, "the lost member is replaced", || {
        let list = cluster.try_etcdctl(&["member", "list", "--write-out=json"]);
        let list = list
            .map(|list| evenkeel_e2e::etcd::members(&list))
            .unwrap_or_default();
        list.len() == 3 && list.iter().all(|member| member.name != lost.name)
    });
    wait_healthy(&story, &cluster, 3);
    wait_idle(&operator);
    // Not in every run: the next membership change may reach the new member in time.
    println!(
        "a lease was granted to advance the log: {}",
        operator.log_has("granted a short lease")
    );
    cluster.wait_same_data();
}

#[test]
fn a_learner_that_fails_before_its_promotion_does_not_break_the_cluster() {
    let story = Story::begin("dying");
    let mut operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec(1), 1);
    let workload = cluster.workload();
    let held_writes = HeldWrites::before(operator.proxy(), |write| {
        intent_written(write, "orders")
            .filter(|intent| intent.kind == "Promote")
            .map(|intent| intent.serial.to_string())
    });
    cluster.patch(&json!({"members": 3}));
    // The first learner is frozen when the operator is about to promote it. etcd checks only the learner's log, and would promote it: of
    // two voters one would then be left, and no client could write.
    let (serial, held) = held_writes.next();
    let learner = pod_name(&story, "orders", serial.parse().unwrap());
    let pod = story.lab().pod(story.namespace(), &learner).unwrap();
    pod.freeze(Some("etcd"), None).unwrap();
    // Longer than an observation counts as fresh.
    std::thread::sleep(std::time::Duration::from_secs(5));
    held_writes.release(&serial);
    held.resume();
    story.eventually("the status names the learner", || {
        let format_stats = cluster.status()["waitingFor"].to_string();
        format_stats.contains(&learner)
            || cluster.status()["summary"].to_string().contains(&learner)
    });
    let since = workload.now();
    std::thread::sleep(std::time::Duration::from_secs(5));
    let stats = workload.stats(since);
    println!(
        "with a dead learner: {}",
        evenkeel_e2e::workload::format_stats("orders", &stats)
    );
    let list = cluster.member_list();
    assert!(
        list.iter()
            .any(|member| member.learner && member.name == learner),
        "{list:?}"
    );
    pod.thaw(Some("etcd"), None).unwrap();
    // The operator is killed when it is about to promote the second one.
    let (next, held) = held_writes.next();
    held_writes.release(&next);
    kill_and_restart(&story, &mut operator, held);
    wait_healthy(&story, &cluster, 3);
    assert!(
        member_pod(&story, "orders", serial.parse().unwrap()).is_some(),
        "the learner has no pod"
    );
    wait_idle(&operator);
    workload.finish();
    cluster.wait_same_data();
}
