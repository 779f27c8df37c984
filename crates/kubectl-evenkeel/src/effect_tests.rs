use serde_json::{Value, json};

use super::*;
use crate::operator_status::LeaseHolder;

fn now() -> Timestamp {
    "2026-11-17T15:05:00Z".parse().unwrap()
}

fn running() -> OperatorStatus {
    OperatorStatus::Running(LeaseHolder::default())
}

fn not_running() -> OperatorStatus {
    OperatorStatus::NotRunning {
        namespace: Some("evenkeel-system".to_owned()),
        lease: "Lease evenkeel-system/evenkeel-operator was released and has no holder".to_owned(),
    }
}

fn cluster(spec: Value, status: Value) -> EtcdCluster {
    let mut spec = spec;
    spec["version"] = json!("3.6.16");
    serde_json::from_value(json!({
        "apiVersion": "evenkeel.dev/v1alpha1", "kind": "EtcdCluster", "metadata": { "name": "orders" },
        "spec": spec, "status": status,
    }))
    .unwrap()
}

fn condition_json(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({ "type": type_, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-11-17T15:00:00Z" })
}

fn progressing(reason: &str) -> Value {
    json!({ "conditions": [condition_json("Progressing", "True", reason, "")] })
}

/// A window from 02:00 to 04:00 UTC, every day.
fn nightly() -> Value {
    let days = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
    json!({ "windows": [{ "days": days, "start": "02:00", "duration": "2h" }] })
}

fn situation<'c>(cluster: &'c EtcdCluster, operator: &'c OperatorStatus) -> Situation<'c> {
    Situation {
        cluster,
        operator,
        restart: None,
        now: now(),
    }
}

const REQUESTED: &str = "orders: restart requested. The operator restarts the members one by one, the leader last. \
    `kubectl evenkeel status orders` shows the progress.\n";

#[test]
fn a_restart_that_begins_at_once_has_one_line() {
    let cluster = cluster(json!({}), json!({}));
    assert_eq!(situation(&cluster, &running()).restart(), REQUESTED);
}

#[test]
fn a_restart_names_everything_that_it_waits_for() {
    let lost = condition_json(
        "Ready",
        "False",
        "QuorumLost",
        "1 of 3 voting members responds.",
    );
    let cluster = cluster(
        json!({ "paused": true, "maintenance": nightly() }),
        json!({ "conditions": [lost] }),
    );
    assert_eq!(
        situation(&cluster, &running()).restart(),
        format!(
            "{REQUESTED}The restart waits until:\n\
             \x20 - the cluster is resumed: `kubectl evenkeel resume orders`\n\
             \x20 - the quorum is restored. 1 of 3 voting members responds.\n\
             \x20 - the maintenance window opens at 2026-11-18 02:00 UTC (in 10h55m)\n"
        )
    );
}

#[test]
fn without_an_operator_a_restart_waits_for_one() {
    let old = condition_json("Ready", "False", "QuorumLost", "an old message");
    let cluster = cluster(json!({}), json!({ "conditions": [old] }));
    let text = situation(&cluster, &not_running()).restart();
    assert!(
        text.contains("  - an operator runs: Lease evenkeel-system/evenkeel-operator was released"),
        "{text}"
    );
    assert!(
        !text.contains("an old message"),
        "conditions without an operator are outdated: {text}"
    );
    let unknown = OperatorStatus::Unknown("needs list on leases".to_owned());
    let text = situation(&cluster, &unknown).restart();
    assert!(
        text.contains("Note: it is unknown whether an operator is running: needs list on leases."),
        "{text}"
    );
}

#[test]
fn a_restart_waits_for_unhealthy_members() {
    let members = json!([
        { "name": "orders-a", "role": "Voter", "healthy": true },
        { "name": "orders-b", "role": "Voter", "healthy": false },
    ]);
    let cluster = cluster(json!({}), json!({ "memberList": members }));
    let text = situation(&cluster, &running()).restart();
    assert!(
        text.contains("  - all members are healthy, not yet: orders-b\n"),
        "{text}"
    );
}

#[test]
fn a_change_under_way_is_named() {
    let upgrading = cluster(json!({}), progressing("Upgrading"));
    let text = situation(&upgrading, &running()).restart();
    assert!(
        text.ends_with("Note: an upgrade is under way. Members that were restarted already are restarted again.\n"),
        "{text}"
    );
    let scaling = cluster(json!({}), progressing("Scaling"));
    let text = situation(&scaling, &running()).restart();
    assert!(
        text.ends_with("Note: scaling is under way. The operator finishes it first.\n"),
        "{text}"
    );
    let again = |completed| {
        Situation {
            restart: Some(RestartProgress {
                completed,
                total: 3,
            }),
            ..situation(&upgrading, &running())
        }
        .restart()
    };
    let text = again(1);
    assert!(
        text.contains("Note: a restart is under way already: 1 of 3 members were restarted."),
        "{text}"
    );
    let text = again(0);
    assert!(
        text.contains("Note: an earlier restart has not begun yet. Both requests"),
        "{text}"
    );
    assert_eq!(after_transfer(&upgrading).len(), 1);
    assert!(after_transfer(&cluster(json!({}), json!({}))).is_empty());
}

#[test]
fn a_pause_names_what_stops() {
    let healthy = cluster(json!({}), json!({}));
    assert_eq!(
        situation(&healthy, &running()).pause(),
        "orders: paused. The operator neither heals nor changes the cluster; its members keep running.\n"
    );
    let upgrading = cluster(json!({}), progressing("Upgrading"));
    let text = situation(&upgrading, &running()).pause();
    assert!(
        text.contains(
            "Note: an upgrade is under way and stops. A member that is being restarted stays down"
        ),
        "{text}"
    );
    let text = situation(&upgrading, &not_running()).pause();
    assert!(
        text.contains("no operator is running") && !text.contains("under way"),
        "{text}"
    );
}

#[test]
fn the_end_of_a_pause_does_not_promise_an_operator() {
    let cluster = cluster(json!({ "paused": true }), json!({}));
    assert_eq!(
        situation(&cluster, &running()).resume(),
        "orders: resumed. The operator manages the cluster again.\n"
    );
    let text = situation(&cluster, &not_running()).resume();
    assert!(
        text.contains("resumed, but no operator is running"),
        "{text}"
    );
}

#[test]
fn an_invalid_window_is_not_evaluated() {
    let maintenance = json!({ "windows": [{ "days": ["Mon"], "start": "02:00", "duration": "2h",
        "timeZone": "Europe/Berln" }] });
    let cluster = cluster(json!({ "maintenance": maintenance }), json!({}));
    let text = situation(&cluster, &running()).restart();
    assert!(
        text.contains("Europe/Berln") && text.contains("accepted last apply"),
        "{text}"
    );
}

#[test]
fn a_cluster_that_is_being_deleted_is_not_changed() {
    let mut cluster = cluster(json!({}), json!({}));
    assert!(require_not_deleted(&cluster).is_ok());
    cluster.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now()));
    let error = require_not_deleted(&cluster).unwrap_err();
    assert!(error.message.contains("Nothing was changed"), "{error}");
}

#[test]
fn remaining_times_have_two_units() {
    let texts = [9, 69, 3_909, 100_000].map(remaining);
    assert_eq!(texts, ["9s", "1m09s", "1h05m", "1d3h"]);
}
