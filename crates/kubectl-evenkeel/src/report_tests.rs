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
    let (held, reason) = if degraded { ("True", "MemberDown") } else { ("False", "AsExpected") };
    serde_json::from_value(json!({
        "apiVersion": "evenkeel.dev/v1alpha1", "kind": "EtcdCluster",
        "metadata": { "name": "orders", "namespace": "shop", "generation": 1, "creationTimestamp": "2026-11-16T10:00:00Z" },
        "spec": { "version": "3.6.16", "members": 3 },
        "status": {
            "phrase": "Healthy", "ready": "3/3", "leader": "orders-a", "observedGeneration": 1, "memberList": told,
            "conditions": [condition_of("Ready", ready, "Serving"), condition_of("Degraded", held, reason)],
            "certificates": [{ "secret": "orders-client-tls", "expires": "2027-11-16T12:00:00Z" }],
        },
    }))
    .unwrap()
}

pub(crate) fn report(cluster: &EtcdCluster) -> Report {
    Report::of(cluster, &Live::default(), &Overseer::AtWork, now())
}

#[test]
fn what_may_still_fail_is_counted_among_those_with_a_vote() {
    let three = [("orders-a", "Voter", true), ("orders-b", "Voter", true), ("orders-c", "Voter", true)];
    let told = report(&cluster("True", false, &three));
    assert_eq!((told.survives, told.code()), (Some(1), 0));
    assert_eq!(told.verdict(), "writable, survives 1 more failure");
    let mut two = three;
    two[2].2 = false;
    let told = report(&cluster("True", true, &two));
    assert_eq!((told.survives, told.code()), (Some(0), AMISS));
    let with_learner = [three[0], three[1], three[2], ("orders-d", "Learner", true)];
    assert_eq!(report(&cluster("True", false, &with_learner)).survives, Some(1));
    // One that leaves and is down counts against the others as long as etcd lists it.
    let leaving = [three[0], three[1], three[2], ("orders-d", "Leaving", false)];
    assert_eq!(report(&cluster("True", false, &leaving)).survives, Some(0));
}

#[test]
fn what_is_not_known_is_not_taken_for_good() {
    let told = report(&cluster("Unknown", false, &[]));
    assert_eq!((told.writable, told.survives, told.code()), (None, None, NOT_WRITABLE));
    let told = report(&cluster("False", true, &[]));
    assert_eq!((told.verdict().as_str(), told.code()), ("NOT writable", NOT_WRITABLE));
}

#[test]
fn an_operator_that_does_not_look_is_noticed() {
    let mut cluster = cluster("True", false, &[]);
    assert!(report(&cluster).notes.is_empty());
    cluster.metadata.generation = Some(2);
    assert!(report(&cluster).notes[0].contains("last edit"));
    let away = Overseer::Away("the last one was heard 60m ago".to_owned());
    let told = Report::of(&cluster, &Live::default(), &away, now());
    assert!(told.notes[0].contains("no operator is at work"), "{:?}", told.notes);
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
    assert_eq!(report(&cluster).certs(), "good; the first to expire is orders-client-tls, in 365d");
    let status = cluster.status.as_mut().unwrap();
    status.certificates[0].expires.0 = "2026-11-18T12:00:00Z".parse().unwrap();
    assert_eq!(report(&cluster).certs(), "orders-client-tls expires in 2d, on 2026-11-18");
    cluster.status.as_mut().unwrap().certificates[0].expires.0 = "2026-11-15T12:00:00Z".parse().unwrap();
    assert!(report(&cluster).certs().contains("EXPIRED"));
    cluster.status.as_mut().unwrap().certificates.clear();
    assert_eq!(report(&cluster).certs(), "nothing is known of them");
}
