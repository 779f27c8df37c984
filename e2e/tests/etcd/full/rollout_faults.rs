//! Faults during a rollout, at each member's turn: a user deletes pods, the edit is reverted, the operator dies between an intent and
//! its effect, a node is lost. The rollout ends with the desired state, and no client loses an acknowledged write.

mod alone;

use std::collections::BTreeSet;
use std::time::Instant;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::{Cluster, MemberPod, members};
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::proxy::{HeldWrite, ObjectCounts, Verdict};
use evenkeel_e2e::workload::format_stats;
use serde_json::json;

use crate::assertions::{
    CLUSTER_LIMIT, create_orders, endpoint_status, leader, member_ids, wait_until_ok,
};
use crate::full::lost_nodes::{RestoreNodes, wait_lost};
use crate::interrupts::{
    HeldWrites, intent_written, kill_and_restart, wait_converged, wait_healthy_through, wait_idle,
};
use crate::plugin::evenkeel;
use crate::rollouts::{
    changed_pods, count_with_memory, drop_held, evicted_pod, memory_request, memory_requests,
    pod_counts,
};
use crate::upgrade::{all_run, claims, spec, uids};

/// The moment at which a user deletes the pod of the member whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// When the pod is about to be evicted.
    Before,
    /// As soon as the pod has been created again.
    Coming,
    /// When the pod is Ready again.
    Back,
}

/// Returns the next member whose turn it is, while all members are healthy. An eviction that the operator decided before it saw the
/// deletion is not let through: the operator decides again.
fn next_turn(
    held_writes: &HeldWrites<'_>,
    cluster: &Cluster<'_>,
    deleted: &BTreeSet<String>,
) -> (MemberPod, HeldWrite) {
    loop {
        let (name, held) = held_writes.next();
        let pods = cluster.pods();
        if pods.len() == 3
            && pods
                .iter()
                .all(|pod| pod.ready && !deleted.contains(&pod.uid))
        {
            return (cluster.pod(&name), held);
        }
    }
}

/// Deletes the pod of the member whose turn it is at the given stage. Returns the pod's uid.
fn delete_at_stage(
    story: &Story,
    cluster: &Cluster<'_>,
    stage: Stage,
    (turn, held): (&MemberPod, HeldWrite),
) -> String {
    let delete = || story.kubectl(&["delete", "pod", &turn.name, "--wait=false"]);
    if stage == Stage::Before {
        delete();
        // The eviction comes too late: its precondition is for another state of the pod.
        held.resume();
        return turn.uid.clone();
    }
    held.resume();
    let mut new: Option<MemberPod> = None;
    story.within(
        CLUSTER_LIMIT,
        &format!("{} is created again", turn.name),
        || {
            let is_new = |pod: &MemberPod| pod.name == turn.name && pod.uid != turn.uid;
            let far_enough = |pod: &MemberPod| pod.ready || stage == Stage::Coming;
            new = cluster
                .pods()
                .into_iter()
                .find(|pod| is_new(pod) && far_enough(pod));
            new.is_some()
        },
    );
    delete();
    new.map(|pod| pod.uid).unwrap_or_default()
}

/// Restarts three members while a user deletes the pod of each at its turn.
fn delete_pods_at_each_turn(story: &Story, stage: Stage) {
    let operator = Operator::start(story);
    let cluster = create_orders(story, &spec("3.6.16", 3), 3);
    let (members, volumes, before) = (member_ids(&cluster), claims(&cluster), uids(&cluster));
    let workload = cluster.workload();
    wait_idle(&operator);
    let (began, since) = (Instant::now(), workload.now());
    let held_writes = HeldWrites::before(operator.proxy(), evicted_pod);
    assert_eq!(evenkeel(story, &["restart", "orders"]).code, 0);
    let (mut turns, mut deleted) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..3 {
        let (turn, held) = next_turn(&held_writes, &cluster, &deleted);
        held_writes.release(&turn.name);
        deleted.insert(delete_at_stage(story, &cluster, stage, (&turn, held)));
        println!("{}: deleted {} {stage:?}", story.namespace(), turn.name);
        turns.insert(turn.name);
    }
    assert_eq!(turns.len(), 3, "not each member had one turn: {turns:?}");
    wait_until_ok("all three members have new pods", || {
        let now = uids(&cluster);
        let all_new = now
            .iter()
            .all(|(name, uid)| before.get(name) != Some(uid) && !deleted.contains(uid));
        if now.len() == 3 && all_new {
            Ok(())
        } else {
            Err(format!("{now:?}"))
        }
    });
    operator.proxy().pass();
    wait_converged(story, &cluster, 3);
    assert_eq!(member_ids(&cluster), members, "the members differ");
    assert_eq!(claims(&cluster), volumes, "the PVCs differ");
    wait_idle(&operator);
    // A pod that is recreated after a user deleted it has the new template, and is not restarted again.
    let by_us = match stage {
        Stage::Before => ObjectCounts {
            created: 1,
            deleted: 0,
        },
        Stage::Coming | Stage::Back => ObjectCounts {
            created: 2,
            deleted: 1,
        },
    };
    let object_counts = pod_counts(&operator.proxy().writes_since(began));
    assert!(
        object_counts.len() == 3
            && object_counts
                .values()
                .all(|object_counts| *object_counts == by_us),
        "{stage:?}: {object_counts:?}"
    );
    println!(
        "{}",
        format_stats(&format!("deleted {stage:?}"), &workload.stats(since))
    );
    workload.finish();
    cluster.wait_same_data();
}

#[test]
fn pods_deleted_before_their_eviction_are_not_restarted_twice() {
    delete_pods_at_each_turn(&Story::begin("roll-before"), Stage::Before);
}

#[test]
fn a_rollout_waits_for_pods_deleted_while_they_start() {
    delete_pods_at_each_turn(&Story::begin("roll-coming"), Stage::Coming);
}

#[test]
fn a_rollout_waits_for_pods_deleted_when_they_are_ready() {
    delete_pods_at_each_turn(&Story::begin("roll-back"), Stage::Back);
}

/// Returns the versions that the members report.
fn versions(cluster: &Cluster<'_>) -> Vec<String> {
    let version = |pod: &MemberPod| {
        endpoint_status(cluster, pod)?["version"]
            .as_str()
            .map(str::to_owned)
    };
    cluster
        .pods()
        .iter()
        .map(|pod| version(pod).unwrap_or_default())
        .collect()
}

/// Reverts an upgrade to the next minor when this number of members run it. etcd permits that as long as one member still runs the
/// earlier minor.
fn revert_upgrade_after(story: &Story, restarted: usize) {
    let operator = Operator::start(story);
    let cluster = create_orders(story, &spec("3.5.35", 3), 3);
    let (members, volumes, before) = (member_ids(&cluster), claims(&cluster), uids(&cluster));
    let workload = cluster.workload();
    let held_writes = HeldWrites::before(operator.proxy(), evicted_pod);
    cluster.patch(&json!({ "version": "3.6.16" }));
    for _ in 0..restarted {
        let (name, held) = held_writes.next();
        held_writes.release(&name);
        held.resume();
    }
    // The next member has its turn only when the restarted ones are back.
    let (next, held) = held_writes.next();
    let run = versions(&cluster);
    assert_eq!(
        run.iter().filter(|version| *version == "3.6.16").count(),
        restarted,
        "{run:?}"
    );
    assert_eq!(
        run.iter().filter(|version| *version == "3.5.35").count(),
        3 - restarted,
        "{run:?}"
    );
    let moved = changed_pods(&cluster, &before);
    cluster.patch(&json!({ "version": "3.5.35" }));
    drop_held(&operator, held);
    wait_until_ok("all members run the earlier version again", || {
        // Asked only when the status reports it: a query is three processes.
        let run = if all_run(&cluster, "3.5.35") {
            versions(&cluster)
        } else {
            Vec::new()
        };
        let back = run.len() == 3 && run.iter().all(|version| version == "3.5.35");
        if back {
            Ok(())
        } else {
            Err(format!("{run:?}: {:#}", cluster.status()))
        }
    });
    wait_converged(story, &cluster, 3);
    assert_eq!(cluster.status()["version"], "3.5.35");
    assert_eq!(member_ids(&cluster), members, "the members differ");
    assert_eq!(claims(&cluster), volumes, "the PVCs differ");
    assert!(
        !moved.contains(&next),
        "{next} was restarted before its turn"
    );
    assert_eq!(
        changed_pods(&cluster, &before),
        moved,
        "another member was restarted"
    );
    wait_idle(&operator);
    workload.finish();
    cluster.wait_same_data();
}

#[test]
fn an_upgrade_reverted_after_one_of_three_restores_the_old_version() {
    revert_upgrade_after(&Story::begin("back-after-one"), 1);
}

#[test]
fn an_upgrade_reverted_after_two_of_three_restores_the_old_version() {
    revert_upgrade_after(&Story::begin("back-after-two"), 2);
}

#[test]
fn ephemeral_members_are_replaced_one_by_one_despite_operator_crashes() {
    let story = Story::begin("roll-killed");
    let mut operator = Operator::start(&story);
    let cluster = create_orders(
        &story,
        &spec("3.6.16", 3).replace("{size: 1Gi}", "{ephemeral: true}"),
        3,
    );
    let (workload, before) = (cluster.workload(), member_ids(&cluster));
    wait_idle(&operator);
    let recorded_intents = |operator: &Operator| operator.log().matches("intent recorded").count();
    let (began, recorded_before) = (Instant::now(), recorded_intents(&operator));
    operator
        .proxy()
        .rule(|write| match intent_written(write, "orders") {
            Some(_) => Verdict::HoldAfter,
            None => Verdict::Pass,
        });
    cluster.patch(&memory_request("96Mi"));
    let mut intents = Vec::new();
    // Also healthy before the operator has seen the edit.
    while cluster
        .pods()
        .iter()
        .any(|pod| before.contains_key(&pod.name))
    {
        assert!(
            began.elapsed() < 5 * CLUSTER_LIMIT,
            "not all members are replaced after {intents:?}"
        );
        wait_healthy_through(&mut operator, &cluster, 3, |operator, held| {
            let intent = intent_written(&held.write, "orders").unwrap();
            assert_eq!(held.answered, Some(200), "{intent:?} is not recorded");
            kill_and_restart(&story, operator, held);
            println!("{}: killed after recording {intent:?}", story.namespace());
            intents.push(intent.kind);
        });
    }
    operator.proxy().pass();
    wait_converged(&story, &cluster, 3);
    assert_eq!(
        intents,
        ["Add", "Promote", "Remove"].repeat(3),
        "a member was removed before another joined"
    );
    assert_eq!(
        recorded_intents(&operator),
        recorded_before,
        "the operator logged a recorded intent before it was killed"
    );
    assert_eq!(count_with_memory(&story, "96Mi"), 3);
    wait_idle(&operator);
    let object_counts = pod_counts(&operator.proxy().writes_since(began));
    let once = |object_counts: &ObjectCounts| object_counts.created + object_counts.deleted == 1;
    assert!(
        object_counts.len() == 6 && object_counts.values().all(once),
        "not three pods created and three deleted: {object_counts:?}"
    );
    workload.finish();
    cluster.wait_same_data();
}
