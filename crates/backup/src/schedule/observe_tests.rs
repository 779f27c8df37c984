use evenkeel_api::BackupPhase;
use serde_json::json;

use super::*;
use crate::schedule::testing::{at, location};

const NOW: &str = "2026-11-18T12:10:00Z";

fn objects() -> ScheduleObjects {
    let schedule = json!({
        "apiVersion": "evenkeel.dev/v1alpha1", "kind": "BackupSchedule",
        "metadata": { "name": "orders", "namespace": "shop", "uid": "u1", "creationTimestamp": "2026-11-18T12:00:05Z" },
        "spec": { "cluster": { "kind": "EtcdCluster", "name": "orders" }, "store": "prod", "schedule": "@hourly" },
        "status": { "lastScheduled": "2026-11-18T12:00:05Z" },
    });
    let store = json!({
        "apiVersion": "evenkeel.dev/v1alpha1", "kind": "BackupStore",
        "metadata": { "name": "prod", "namespace": "shop" },
        "spec": { "volume": { "claim": "backups" } },
        "status": { "conditions": [{ "type": "Ready", "status": "True", "reason": "Available", "message": "",
            "lastTransitionTime": NOW }] },
    });
    ScheduleObjects {
        schedule: serde_json::from_value(schedule).unwrap(),
        backups: vec![],
        store: Some(serde_json::from_value(store).unwrap()),
        pods: vec![],
        cluster: None,
    }
}

fn backup(name: &str, cluster: &str, schedule: Option<&str>) -> Backup {
    let mut backup: Backup = serde_json::from_value(json!({
        "apiVersion": "evenkeel.dev/v1alpha1", "kind": "Backup",
        "metadata": { "name": name, "namespace": "shop", "uid": name, "annotations": { (labels::RUN): "2" } },
        "spec": { "cluster": { "name": cluster }, "store": "prod" },
        "status": { "phase": "Complete", "size": "25.1Mi", "location": location(name), "finishedAt": NOW,
            "proven": { "at": NOW, "version": "3.6.16", "seconds": 3 } },
    }))
    .unwrap();
    if let Some(schedule) = schedule {
        let label = (labels::SCHEDULE.to_owned(), schedule.to_owned());
        backup.metadata.labels = Some([label].into());
    }
    backup
}

fn pod(name: &str, owner: &str, annotations: serde_json::Value) -> Pod {
    serde_json::from_value(json!({ "metadata": {
        "name": name, "namespace": "shop", "uid": "p1", "annotations": annotations,
        "ownerReferences": [{ "apiVersion": "v1", "kind": "BackupSchedule", "name": "orders", "uid": owner }],
    } }))
    .unwrap()
}

#[test]
fn backups_of_the_cluster_and_names_of_the_schedule_are_observed() {
    let mut objects = objects();
    objects.backups = vec![
        backup("orders-20261118t120005z", "orders", Some("orders")),
        backup("by-hand", "orders", None),
        backup("orders-20261118t130000z", "baskets", None),
        backup("baskets-1", "baskets", Some("baskets")),
    ];
    let facts = objects.facts(at(NOW));
    let seen: Vec<_> = facts
        .backups
        .iter()
        .map(|it| (it.name.as_str(), it.is_own, it.due.is_some()))
        .collect();
    assert_eq!(
        seen,
        [
            ("orders-20261118t120005z", true, true),
            ("by-hand", false, false),
            ("orders-20261118t130000z", false, true),
        ]
    );
    let own = &facts.backups[0];
    assert_eq!((own.run, own.phase), (2, BackupPhase::Complete));
    assert_eq!(own.proven, Some(at(NOW)));
    assert!(
        own.size > 26_000_000 && own.size < 27_000_000,
        "{}",
        own.size
    );
    assert_eq!(
        facts.recorded.last_scheduled,
        Some(at("2026-11-18T12:00:05Z"))
    );
    assert!(facts.store.present().unwrap().is_ready);
    assert!(facts.cluster.is_absent());
}

#[test]
fn a_pod_of_another_owner_is_not_observed() {
    let mut objects = objects();
    let annotations = || json!({ (labels::DRILL_OF): "b1", (labels::DUE): "1800000000" });
    objects.pods = vec![pod("orders-drill", "u2", annotations())];
    assert_eq!(objects.facts(at(NOW)).drill, None);
    objects.pods = vec![pod("orders-drill", "u1", annotations())];
    let drill = objects.facts(at(NOW)).drill.unwrap();
    assert_eq!(
        (drill.backup.as_str(), drill.due),
        ("b1", UnixTime(1_800_000_000))
    );
}

#[test]
fn the_places_that_pods_read_are_observed() {
    let request = json!({
        "store": { "directory": "/store" }, "deadlineSeconds": 60,
        "task": { "fetch": { "location": "place", "file": "/work/backup", "engine": "etcd", "version": "3.6.16",
            "spacePercent": 220 } },
    });
    let mut objects = objects();
    objects.pods = vec![pod("restore", "u9", json!({ "any": request.to_string() }))];
    assert_eq!(
        objects.facts(at(NOW)).reading,
        BTreeSet::from(["place".to_owned()])
    );
    objects.pods[0].status = Some(serde_json::from_value(json!({ "phase": "Succeeded" })).unwrap());
    assert!(objects.facts(at(NOW)).reading.is_empty());
}
