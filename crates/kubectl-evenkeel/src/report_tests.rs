//! How a cluster is told, from what there is.

use evenkeel_api::EtcdCluster;
use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-11-16T12:00:00Z";

pub(crate) fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn condition_of(kind: &str, holds: &str, reason: &str) -> Value {
    json!({ "type": kind, "status": holds, "reason": reason, "message": format!("about {reason}"),
        "lastTransitionTime": "2026-11-16T11:50:00Z" })
}

/// `shop/orders` with these members, each with its role and whether it serves.
pub(crate) fn cluster(ready: &str, degraded: bool, members: &[(&str, &str, bool)]) -> EtcdCluster {
    let told = members.iter().map(|(name, role, healthy)| {
        json!({ "name": name, "id": format!("{name}-id"), "role": role, "healthy": healthy, "version": "3.6.16",
            "node": "node-1", "message": if *healthy { "" } else { "etcd does not answer" } })
    });
    let told: Vec<_> = told.collect();
    let (held, reason) = if degraded {
        ("True", "MemberDown")
    } else {
        ("False", "AsExpected")
    };
    serde_json::from_value(json!({
        "apiVersion": "evenkeel.dev/v1alpha1", "kind": "EtcdCluster",
        "metadata": { "name": "orders", "namespace": "shop", "generation": 1, "creationTimestamp": "2026-11-16T10:00:00Z" },
        "spec": { "version": "3.6.16", "members": 3 },
        "status": {
            "phrase": "Healthy", "ready": "3/3", "leader": "orders-a", "observedGeneration": 1, "memberList": told,
            "conditions": [condition_of("Ready", ready, "Serving"), condition_of("Degraded", held, reason)],
            "certificates": [{ "secret": "orders-etcd-client-tls", "expires": "2027-11-16T12:00:00Z" }],
        },
    }))
    .unwrap()
}

pub(crate) fn report(cluster: &EtcdCluster) -> Report {
    Report::of(cluster, &Live::default(), &Overseer::AtWork, now())
}

#[test]
fn what_may_still_fail_is_what_the_operator_counted() {
    let three = [
        ("orders-a", "Voter", true),
        ("orders-b", "Voter", true),
        ("orders-c", "Voter", true),
    ];
    let told = |ready: &str, degraded: bool, survives: Option<i32>| {
        let mut cluster = cluster(ready, degraded, &three);
        cluster.status.as_mut().unwrap().survives = survives;
        report(&cluster)
    };
    let all = told("True", false, Some(1));
    assert_eq!(
        (all.survives, all.code(), all.verdict().as_str()),
        (Some(1), 0, "writable, survives 1 more failure")
    );
    let one_down = told("True", true, Some(0));
    assert_eq!(
        (one_down.code(), one_down.verdict().as_str()),
        (AMISS, "writable, survives no further failure")
    );
    let unknown = told("True", false, None);
    assert_eq!(
        (unknown.survives, unknown.verdict().as_str()),
        (None, "writable")
    );
}

#[test]
fn an_operator_that_is_away_does_not_vouch_for_what_it_saw_last() {
    let three = [
        ("orders-a", "Voter", true),
        ("orders-b", "Voter", true),
        ("orders-c", "Voter", true),
    ];
    let cluster = cluster("True", false, &three);
    let away = Overseer::Away("the last one was heard 3d ago".to_owned());
    let told = Report::of(&cluster, &Live::default(), &away, now());
    assert_eq!(
        (told.writable, told.survives, told.code()),
        (None, None, NOT_WRITABLE)
    );
}

#[test]
fn what_is_not_known_is_not_taken_for_good() {
    let told = report(&cluster("Unknown", false, &[]));
    assert_eq!(
        (told.writable, told.survives, told.code()),
        (None, None, NOT_WRITABLE)
    );
    let told = report(&cluster("False", true, &[]));
    assert_eq!(
        (told.verdict().as_str(), told.code()),
        ("NOT writable", NOT_WRITABLE)
    );
}

#[test]
fn an_operator_that_does_not_look_is_noticed() {
    let mut cluster = cluster("True", false, &[]);
    assert!(report(&cluster).notes.is_empty() && report(&cluster).about_clients.is_empty());
    cluster.metadata.generation = Some(2);
    assert!(report(&cluster).notes[0].contains("last edit"));
    let away = Overseer::Away("the last one was heard 60m ago".to_owned());
    let told = Report::of(&cluster, &Live::default(), &away, now());
    assert!(
        told.notes[0].contains("no operator is at work"),
        "{:?}",
        told.notes
    );
    cluster.status = None;
    assert!(
        report(&cluster).notes[0].contains("no operator has looked at it in the 2h"),
        "{:?}",
        report(&cluster).notes
    );
}

#[test]
fn certificates_are_told_by_the_first_that_ends() {
    let mut cluster = cluster("True", false, &[]);
    assert_eq!(
        report(&cluster).certs(),
        "good; the first to expire is orders-etcd-client-tls, in 365d"
    );
    let status = cluster.status.as_mut().unwrap();
    status.certificates[0].expires.0 = "2026-11-18T12:00:00Z".parse().unwrap();
    assert_eq!(
        report(&cluster).certs(),
        "orders-etcd-client-tls expires in 2d, on 2026-11-18"
    );
    cluster.status.as_mut().unwrap().certificates[0].expires.0 =
        "2026-11-15T12:00:00Z".parse().unwrap();
    assert!(report(&cluster).certs().contains("EXPIRED"));
    cluster.status.as_mut().unwrap().certificates.clear();
    assert_eq!(report(&cluster).certs(), "nothing is known of them");
}
