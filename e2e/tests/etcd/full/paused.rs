//! A rollout that is paused: it does not continue, nothing is recovered, and the status stays correct.

use std::collections::BTreeSet;
use std::time::Instant;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use serde_json::{Value, json};

use crate::assertions::{create_orders, follower, member_ids, wait_until_ok};
use crate::interrupts::{HeldWrites, wait_converged, wait_idle};
use crate::rollouts::{
    QUIET_TIME, assert_no_pod_changes, changed_pods, count_with_memory, drop_held, evicted_pod,
    memory_request, wait_all_have_memory,
};
use crate::upgrade::{spec, uids};

/// Whether the status reports the pause, and what ends it.
fn is_paused(cluster: &Cluster<'_>) -> bool {
    let status = cluster.status();
    status["summary"] == "Paused"
        && cluster.condition("Progressing") == ("False".to_owned(), "Paused".to_owned())
        && status["waitingFor"]
            .to_string()
            .contains("spec.paused to be set to false")
}

/// Returns the status of a member.
fn member_status(status: &Value, member: &str) -> Value {
    let mut members = status["memberList"].as_array().into_iter().flatten();
    members
        .find(|one| one["name"] == member)
        .cloned()
        .unwrap_or_default()
}

#[test]
fn a_paused_rollout_restarts_no_member_and_continues_when_resumed() {
    let story = Story::begin("paused");
    let operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec("3.6.16", 3), 3);
    let (workload, members, before) = (cluster.workload(), member_ids(&cluster), uids(&cluster));
    let held_writes = HeldWrites::before(operator.proxy(), evicted_pod);
    cluster.patch(&memory_request("96Mi"));
    let (first, held) = held_writes.next();
    held_writes.release(&first);
    held.resume();
    // When the next member is about to be evicted, the first one is back.
    let (_, held) = held_writes.next();
    cluster.patch(&json!({ "paused": true }));
    drop_held(&operator, held);
    wait_until_ok(
        "the status reports the pause and three ready members",
        || {
            let status = cluster.status();
            let reported = is_paused(&cluster)
                && status["ready"] == "3/3"
                && status["failureTolerance"]["members"] == 1;
            if reported {
                Ok(())
            } else {
                Err(format!("{status:#}"))
            }
        },
    );
    let paused = Instant::now();
    assert_no_pod_changes(&cluster, QUIET_TIME);
    assert_eq!(
        changed_pods(&cluster, &before),
        BTreeSet::from([first]),
        "another member was restarted"
    );
    assert_eq!(count_with_memory(&story, "96Mi"), 1);

    // Faults during the pause are reported, but not recovered.
    let lost = follower(&story, &cluster);
    story.kubectl(&["delete", "pod", &lost.name]);
    wait_until_ok(
        "the status reports the missing member and that clients are served",
        || {
            let status = cluster.status();
            let of_it = member_status(&status, &lost.name);
            let missed = of_it["healthy"] == false && of_it["message"] == "its pod does not exist";
            let counted = status["ready"] == "2/3" && status["failureTolerance"]["members"] == 0;
            let says = |kind: &str, reason: &str| {
                cluster.condition(kind) == ("True".to_owned(), reason.to_owned())
            };
            // No member is being restarted.
            let reported =
                says("Ready", "Serving") && says("Degraded", "MemberDown") && is_paused(&cluster);
            if missed && counted && reported {
                Ok(())
            } else {
                Err(format!("{status:#}"))
            }
        },
    );
    assert_no_pod_changes(&cluster, QUIET_TIME / 2);
    assert_eq!(
        cluster.pods().len(),
        2,
        "a pod was created during the pause"
    );
    let protected_writes: Vec<_> = operator
        .proxy()
        .writes_since(paused)
        .into_iter()
        .filter(|written| {
            written.write.is_to("pods") || written.write.is_to("persistentvolumeclaims")
        })
        .collect();
    assert!(protected_writes.is_empty(), "{protected_writes:#?}");

    cluster.patch(&json!({ "paused": false }));
    wait_all_have_memory(&story, "96Mi", 3);
    wait_converged(&story, &cluster, 3);
    assert_eq!(member_ids(&cluster), members, "the members differ");
    assert_eq!(
        changed_pods(&cluster, &before).len(),
        3,
        "not all members were restarted"
    );
    wait_idle(&operator);
    workload.finish();
    cluster.wait_same_data();
}
