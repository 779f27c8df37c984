//! Tests of the report.

use evenkeel_api::EtcdCluster;
use serde_json::{Value, json};

use super::*;
use crate::operator_status::LeaseHolder;

const NOW: &str = "2026-11-16T12:00:00Z";

pub(crate) fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn condition_json(type_: &str, status: &str, reason: &str) -> Value {
    json!({ "type": type_, "status": status, "reason": reason, "message": format!("about {reason}"),
        "lastTransitionTime": "2026-11-16T11:50:00Z" })
}

/// Creates `shop/orders` with these members: name, role, and whether the member is healthy.
pub(crate) fn cluster(ready: &str, degraded: bool, members: &[(&str, &str, bool)]) -> EtcdCluster {
    let members = members.iter().map(|(name, role, healthy)| {
        json!({ "name": name, "id": format!("{name}-id"), "role": role, "healthy": healthy, "version": "3.6.16",
            "node": "node-1", "message": if *healthy { "" } else { "etcd does not respond" } })
    });
    let members: Vec<_> = members.collect();
    let (status, reason) = if degraded {
        ("True", "MemberDown")
    } else {
        ("False", "AsExpected")
    };
    serde_json::from_value(json!({
        "apiVersion": "evenkeel.dev/v1alpha1", "kind": "EtcdCluster",
        "metadata": { "name": "orders", "namespace": "shop", "generation": 1, "creationTimestamp": "2026-11-16T10:00:00Z" },
        "spec": { "version": "3.6.16", "members": 3 },
        "status": {
            "summary": "Healthy", "ready": "3/3", "leader": "orders-a", "observedGeneration": 1, "memberList": members,
            "conditions": [condition_json("Ready", ready, "Serving"), condition_json("Degraded", status, reason)],
            "certificates": [{ "secret": "orders-etcd-client-tls", "expires": "2027-11-16T12:00:00Z" }],
        },
    }))
    .unwrap()
}

pub(crate) fn report(cluster: &EtcdCluster) -> Report {
    Report::new(
        cluster,
        &ClusterMetrics::default(),
        &OperatorStatus::Running(LeaseHolder::default()),
        now(),
    )
}

pub(crate) fn not_running() -> OperatorStatus {
    OperatorStatus::NotRunning {
        namespace: "evenkeel-system".to_owned(),
        lease: "Lease evenkeel-system/evenkeel-operator was last renewed 3d ago".to_owned(),
    }
}

#[test]
fn the_failure_tolerance_is_the_one_of_the_status() {
    let three = [
        ("orders-a", "Voter", true),
        ("orders-b", "Voter", true),
        ("orders-c", "Voter", true),
    ];
    let report_with = |ready: &str, degraded: bool, tolerance: Option<i32>| {
        let mut cluster = cluster(ready, degraded, &three);
        cluster.status.as_mut().unwrap().failure_tolerance = tolerance;
        report(&cluster)
    };
    let all = report_with("True", false, Some(1));
    assert_eq!(
        (
            all.failure_tolerance,
            all.exit_code(),
            all.headline().as_str()
        ),
        (Some(1), 0, "available, tolerates 1 member failure")
    );
    let one_down = report_with("True", true, Some(0));
    assert_eq!(
        (one_down.exit_code(), one_down.headline().as_str()),
        (EXIT_DEGRADED, "available, tolerates no member failure")
    );
    let unknown = report_with("True", false, None);
    assert_eq!(
        (unknown.failure_tolerance, unknown.headline().as_str()),
        (None, "available, failure tolerance unknown")
    );
}

#[test]
fn without_an_operator_the_status_does_not_prove_availability() {
    let three = [
        ("orders-a", "Voter", true),
        ("orders-b", "Voter", true),
        ("orders-c", "Voter", true),
    ];
    let cluster = cluster("True", false, &three);
    let operator = not_running();
    let report = Report::new(&cluster, &ClusterMetrics::default(), &operator, now());
    assert_eq!(
        (
            report.available,
            report.failure_tolerance,
            report.exit_code()
        ),
        (None, None, EXIT_UNAVAILABLE)
    );
}

#[test]
fn unknown_readiness_is_not_reported_as_available() {
    let unknown = report(&cluster("Unknown", false, &[]));
    assert_eq!(
        (
            unknown.available,
            unknown.failure_tolerance,
            unknown.exit_code()
        ),
        (None, None, EXIT_UNAVAILABLE)
    );
    let not_ready = report(&cluster("False", true, &[]));
    assert_eq!(
        (not_ready.headline().as_str(), not_ready.exit_code()),
        ("NOT available: clients cannot write", EXIT_UNAVAILABLE)
    );
}

#[test]
fn a_missing_operator_is_noted() {
    let mut cluster = cluster("True", false, &[]);
    assert!(report(&cluster).notes.is_empty() && report(&cluster).not_ready_messages.is_empty());
    cluster.metadata.generation = Some(2);
    assert!(report(&cluster).notes[0].contains("generation 2 of the spec"));
    let operator = not_running();
    let report_without = Report::new(&cluster, &ClusterMetrics::default(), &operator, now());
    assert!(
        report_without.notes[0].contains("no operator is running"),
        "{:?}",
        report_without.notes
    );
    cluster.status = None;
    assert!(
        report(&cluster).notes[0].contains("no operator has reconciled this cluster in the 2h"),
        "{:?}",
        report(&cluster).notes
    );
}

#[test]
fn the_certificate_that_expires_first_is_summarized() {
    let mut cluster = cluster("True", false, &[]);
    assert_eq!(
        report(&cluster).certificate_summary(),
        "valid; next expiry in 365d (orders-etcd-client-tls), auto-renewed"
    );
    let status = cluster.status.as_mut().unwrap();
    status.certificates[0].expires.0 = "2026-11-18T12:00:00Z".parse().unwrap();
    assert_eq!(
        report(&cluster).certificate_summary(),
        "orders-etcd-client-tls expires in 2d, on 2026-11-18"
    );
    cluster.status.as_mut().unwrap().certificates[0].expires.0 =
        "2026-11-15T12:00:00Z".parse().unwrap();
    assert!(report(&cluster).certificate_summary().contains("EXPIRED"));
    cluster.status.as_mut().unwrap().certificates.clear();
    assert_eq!(report(&cluster).certificate_summary(), "none reported");
}
