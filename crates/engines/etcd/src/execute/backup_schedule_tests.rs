//! The BackupSchedule of a cluster follows `spec.backup`.

use evenkeel_api::BackupSchedule;
use evenkeel_runtime::{Action, Engine, Plan};
use http::Method;
use serde_json::Value;

use super::super::tests::executed;
use super::*;
use crate::Etcd;
use crate::facts::Drift;
use crate::plan::EtcdWait;
use crate::testing::{Scene, change};

const APPLY: EtcdApply = EtcdApply::Object(OwnedObject::BackupSchedule);

fn policy() -> Value {
    json!({ "store": "prod", "schedule": "@daily", "drill": "@weekly", "keep": { "last": 3 } })
}

/// Returns a converged cluster with this policy, and the BackupSchedule of that one.
fn scene(backup: Option<Value>, existing: Option<Value>) -> Scene {
    let mut scene = Scene::with(3, json!({ "members": 3, "backup": backup }));
    let other = Scene::with(3, json!({ "members": 3, "backup": existing }));
    scene.observed.backup_schedule = build::backup_schedule(&other.observed.desired).unwrap();
    if let Some(schedule) = &mut scene.observed.backup_schedule {
        let stored = json!({ "metadata": { "uid": "u1", "resourceVersion": "7" },
            "status": { "backups": 4 } });
        change(schedule, stored);
    }
    scene
}

fn drift(scene: &Scene) -> Option<Drift> {
    scene
        .facts()
        .drift
        .get(&OwnedObject::BackupSchedule)
        .copied()
}

fn decide(scene: &Scene) -> Plan<Etcd> {
    Etcd::decide(&scene.facts())
}

async fn writes(scene: Scene) -> Vec<(Method, String, Value)> {
    let answer = |method: &Method, _: &str, body: &Value| {
        let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" });
        (
            200,
            if *method == Method::DELETE {
                status
            } else {
                body.clone()
            },
        )
    };
    let (outcome, requests) = executed(scene, Action::Apply(&APPLY), answer).await;
    assert_eq!(outcome.unwrap(), Outcome::Done);
    requests
}

#[test]
fn the_schedule_drifts_with_the_policy() {
    assert_eq!(drift(&scene(None, None)), None);
    assert_eq!(drift(&scene(Some(policy()), None)), Some(Drift::Missing));
    assert_eq!(drift(&scene(Some(policy()), Some(policy()))), None);
    let mut without_drill = policy();
    without_drill.as_object_mut().unwrap().remove("drill");
    let edited = scene(Some(without_drill), Some(policy()));
    assert_eq!(
        drift(&edited),
        Some(Drift::Differs),
        "a removed field counts"
    );
    assert_eq!(
        drift(&scene(None, Some(policy()))),
        Some(Drift::Differs),
        "unwanted"
    );
}

#[test]
fn a_schedule_of_another_owner_is_neither_changed_nor_deleted() {
    for backup in [Some(policy()), None] {
        let mut scene = scene(backup.clone(), Some(policy()));
        let schedule = scene.observed.backup_schedule.as_mut().unwrap();
        change(
            schedule,
            json!({ "metadata": { "labels": null, "ownerReferences": null } }),
        );
        let plan = decide(&scene);
        assert!(!plan.apply.contains(&APPLY), "{plan:?}");
        let conflict = EtcdWait::NameConflict(OwnedObject::BackupSchedule);
        assert_eq!(plan.waits.contains(&conflict), backup.is_some(), "{plan:?}");
    }
}

#[test]
fn a_missing_or_foreign_schedule_does_not_delay_the_bootstrap() {
    let with = |drift: Option<Drift>| {
        let mut scene = scene(None, None);
        scene.make_bootstrap_unfinished();
        let mut facts = scene.facts();
        facts
            .drift
            .extend(drift.map(|drift| (OwnedObject::BackupSchedule, drift)));
        Etcd::decide(&facts)
    };
    let expected = with(None);
    for drift in [Drift::Missing, Drift::NotOwned] {
        let plan = with(Some(drift));
        assert_eq!(
            (&plan.create, &plan.disruption),
            (&expected.create, &expected.disruption)
        );
        assert_eq!(plan.apply.contains(&APPLY), drift == Drift::Missing);
    }
}

#[tokio::test]
async fn a_schedule_is_created_replaced_and_deleted() {
    let requests = writes(scene(Some(policy()), None)).await;
    let [(Method::POST, path, body)] = &requests[..] else {
        panic!("{requests:?}");
    };
    assert!(path.ends_with("/namespaces/shop/backupschedules"), "{path}");
    let created: BackupSchedule = serde_json::from_value(body.clone()).unwrap();
    assert_eq!(created.metadata.name.as_deref(), Some("orders-etcd"));
    assert_eq!(created.spec.cluster.name, "orders");
    assert_eq!(created.spec.policy.keep.last, 3);
    assert_eq!(
        created.metadata.owner_references.unwrap()[0].kind,
        "EtcdCluster"
    );

    let edited = json!({ "store": "other", "schedule": "@daily" });
    let requests = writes(scene(Some(edited), Some(policy()))).await;
    let [(Method::PUT, _, body)] = &requests[..] else {
        panic!("{requests:?}");
    };
    assert_eq!(body["metadata"]["resourceVersion"], "7");
    assert_eq!(
        (&body["spec"]["store"], &body["spec"]["drill"]),
        (&json!("other"), &Value::Null)
    );

    let requests = writes(scene(None, Some(policy()))).await;
    let [(Method::DELETE, path, body)] = &requests[..] else {
        panic!("{requests:?}");
    };
    assert!(path.ends_with("/backupschedules/orders-etcd"), "{path}");
    assert_eq!(
        body["preconditions"],
        json!({ "uid": "u1", "resourceVersion": "7" })
    );
}
