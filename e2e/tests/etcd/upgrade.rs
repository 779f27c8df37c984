//! Rollouts, one member at a time: another version, another image, other resources, or a restart only; while clients work, and while
//! the operator is killed.

mod full;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::proxy::{Verdict, Write};
use serde_json::{Value, json};

use crate::alarms;
use crate::assertions::{
    CLUSTER_LIMIT, create_orders, events, leader, member_ids, wait_healthy, wait_until_ok,
};
use crate::interrupts::{kill_and_restart, wait_converged, wait_healthy_through, wait_idle};
use crate::plan::{DecidedAction, decided_actions, decided_since};
use crate::plugin::evenkeel;

/// Returns a spec with small requests.
pub(crate) fn spec(version: &str, members: usize) -> String {
    format!(
        "version: {version}\nmembers: {members}\nstorage: {{size: 1Gi}}\nresources: {{requests: {{cpu: 10m, memory: 64Mi}}}}"
    )
}

/// Returns the restarts since an earlier call of `decided_actions`, in order.
fn restarts(story: &Story, before: &[DecidedAction]) -> Vec<Value> {
    let since = decided_since(story, "orders", before).into_iter();
    let mut restarts: Vec<Value> = since
        .filter(|action| action.name == "restart-member")
        .map(|action| action.target["RestartMember"].clone())
        .collect();
    // A leader that has transferred leadership, and whose eviction was rejected, is restarted as a follower.
    restarts.dedup_by(|again, first| again["serial"] == first["serial"]);
    restarts
}

/// Whether the status reports this version for every member.
pub(crate) fn all_run(cluster: &Cluster<'_>, version: &str) -> bool {
    let status = cluster.status();
    let members = status["memberList"].as_array().cloned().unwrap_or_default();
    !members.is_empty() && members.iter().all(|member| member["version"] == version)
}

/// Upgrades a cluster of three, and asserts on the statuses and the order of restarts.
fn upgraded(story: &Story, cluster: &Cluster<'_>, version: &str) {
    let (members, claims, before) = (
        member_ids(cluster),
        claims(cluster),
        decided_actions(story, "orders"),
    );
    let alarms = alarms::Recorder::start(story, cluster);
    let mut summaries: Vec<String> = Vec::new();
    cluster.patch(&json!({ "version": version }));
    wait_until_ok("all members run the new version", || {
        let status = cluster.status();
        let summary = status["summary"].as_str().unwrap_or_default().to_owned();
        if summaries.last() != Some(&summary) {
            summaries.push(summary);
        }
        if all_run(cluster, version) {
            Ok(())
        } else {
            Err(format!("{status:#}"))
        }
    });
    wait_healthy(story, cluster, members.len());
    alarms.assert_none();
    println!("{}: {version}: {summaries:?}", story.namespace());
    assert!(
        summaries
            .iter()
            .any(|summary| summary.starts_with("Upgrading ")),
        "{summaries:?}"
    );
    assert!(
        summaries
            .iter()
            .any(|summary| summary.ends_with(", leader last")),
        "{summaries:?}"
    );
    assert_eq!(member_ids(cluster), members, "the members differ");
    assert_eq!(self::claims(cluster), claims, "the PVCs differ");
    let restarts = restarts(story, &before);
    assert_eq!(
        restarts.len(),
        3,
        "not each member was restarted once: {restarts:?}"
    );
    assert!(
        restarts.iter().all(|restart| restart["serial"].is_u64()),
        "{restarts:?}"
    );
    assert!(
        restarts[..2]
            .iter()
            .all(|restart| restart["transfer_to"].is_null()),
        "the leader was not restarted last: {restarts:?}"
    );
    assert_eq!(cluster.status()["version"], version);
}

/// Returns the PVCs of the pods, by the pods' names.
pub(crate) fn claims(cluster: &Cluster<'_>) -> BTreeMap<String, String> {
    cluster
        .pods()
        .into_iter()
        .map(|pod| (pod.name, pod.claim))
        .collect()
}

#[test]
fn three_members_are_upgraded_from_3_5_to_3_6_to_3_7_while_clients_write() {
    let story = Story::begin("upgraded");
    let operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec("3.5.35", 3), 3);
    let workload = cluster.workload();
    for version in ["3.6.16", "3.7.3"] {
        let since = workload.now();
        upgraded(&story, &cluster, version);
        println!(
            "to {version}: {}",
            evenkeel_e2e::workload::format_stats("orders", &workload.stats(since))
        );
    }
    let assert_rejected = |version: &str, says: &str| {
        let patch = json!({ "spec": { "version": version } }).to_string();
        let output =
            story.try_kubectl(&["patch", "etcd/orders", "--type=merge", "--patch", &patch]);
        let output = output.expect_err("the edit is rejected");
        assert!(output.contains(says), "{version}: {output}");
    };
    assert_rejected("3.6.16", "3.6");
    assert_rejected("3.8.0", "not supported by this release of Evenkeel");
    wait_idle(&operator);
    workload.finish();
    cluster.wait_same_data();
}

/// Returns the uids of a cluster's pods, by name.
pub(crate) fn uids(cluster: &Cluster<'_>) -> BTreeMap<String, String> {
    cluster
        .pods()
        .into_iter()
        .map(|pod| (pod.name, pod.uid))
        .collect()
}

/// Asserts that an image that does not exist stops the rollout at its first member, and that reverting it restores that member.
fn stop_at_bad_image(story: &Story, members: usize) {
    let operator = Operator::start(story);
    let cluster = create_orders(story, &spec("3.6.16", members), members);
    let workload = (members > 2).then(|| cluster.workload());
    let before = uids(&cluster);
    let image = image_repository(story);
    cluster.patch(&json!({ "image": { "repository": "nowhere.invalid/etcd" } }));
    let reason = if members > 2 {
        "RolloutStopped"
    } else {
        "QuorumLost"
    };
    wait_until_ok(
        "the status reports the stopped rollout and the image",
        || {
            let (degraded, status) = (cluster.condition("Degraded"), cluster.status());
            let format_stats = degraded.1 == reason;
            let named = status
                .to_string()
                .contains("the image nowhere.invalid/etcd:v3.6.16 cannot be pulled");
            if format_stats && named {
                Ok(())
            } else {
                Err(format!("{degraded:?}: {status:#}"))
            }
        },
    );
    let protected_writes = uids(&cluster)
        .iter()
        .filter(|(name, uid)| before.get(*name) != Some(*uid))
        .count();
    assert_eq!(protected_writes, 1, "not exactly one member was restarted");
    let since = workload
        .as_ref()
        .map(evenkeel_e2e::workload::CheckedWorkload::now);
    std::thread::sleep(Duration::from_secs(5));
    if let (Some(workload), Some(since)) = (&workload, since) {
        assert!(
            workload.stats(since).acknowledged_writes > 0,
            "no write was acknowledged"
        );
    }
    cluster.patch(&json!({ "image": { "repository": image } }));
    wait_converged(story, &cluster, members);
    let protected_writes = uids(&cluster)
        .iter()
        .filter(|(name, uid)| before.get(*name) != Some(*uid))
        .count();
    assert_eq!(protected_writes, 1, "another member was restarted");
    wait_idle(&operator);
    if let Some(workload) = workload {
        workload.finish();
        cluster.wait_same_data();
    }
}

fn image_repository(story: &Story) -> Value {
    story.get(&["etcd/orders"])["spec"]["image"]["repository"].clone()
}

#[test]
fn a_bad_image_stops_at_one_of_three_and_reverting_restores_it() {
    stop_at_bad_image(&Story::begin("bad-image-3"), 3);
}

pub(crate) fn is_eviction(write: &Write) -> bool {
    write.verb == "POST" && write.is_to("pods") && write.subresource() == Some("eviction")
}
