use serde_json::json;

use super::*;
use crate::scene::{Scene, names as members};

fn store(name: &str) -> BackupStore {
    serde_json::from_value(
        json!({ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "BackupStore",
        "metadata": { "name": name }, "spec": { "volume": { "claim": "backups" } } }),
    )
    .unwrap()
}

fn schedule(store: &str) -> BackupSchedule {
    serde_json::from_value(
        json!({ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "BackupSchedule",
        "metadata": { "name": store },
        "spec": { "cluster": { "name": "orders" }, "store": store, "schedule": "@hourly" } }),
    )
    .unwrap()
}

fn choose(named: Option<&str>, schedules: &[&str], stores: &[&str]) -> Result<String, CliError> {
    let schedules: Vec<_> = schedules.iter().map(|name| schedule(name)).collect();
    let stores: Vec<_> = stores.iter().map(|name| store(name)).collect();
    let choices = StoreChoices {
        cluster: "orders",
        namespace: "shop",
        schedules: schedules.iter().collect(),
        stores: &stores,
    };
    choices.choose(named).map(ResourceExt::name_any)
}

#[test]
fn the_flag_comes_before_the_schedule_and_the_only_store() {
    assert_eq!(choose(Some("b"), &["a"], &["a", "b"]), Ok("b".to_owned()));
    assert_eq!(choose(None, &["a", "a"], &["a", "b"]), Ok("a".to_owned()));
    assert_eq!(choose(None, &[], &["b"]), Ok("b".to_owned()));
}

#[test]
fn an_ambiguous_or_missing_store_is_an_error_that_lists_the_stores() {
    let error = choose(None, &[], &["a", "b"]).unwrap_err();
    assert_eq!(
        error.message,
        "several BackupStores in namespace shop: a, b; choose one with --store"
    );
    assert_eq!(error.exit_code, EXIT_USAGE);
    let error = choose(None, &["b", "a"], &["a", "b"]).unwrap_err();
    assert!(
        error.message.contains("have several stores: a, b"),
        "{error}"
    );
    let error = choose(Some("x"), &[], &["a", "b"]).unwrap_err();
    assert_eq!(error.message, "BackupStore x not found in namespace shop");
    assert_eq!(error.help.as_deref(), Some("existing stores: a, b"));
    assert_eq!(error.exit_code, EXIT_NOT_FOUND);
    let error = choose(None, &[], &[]).unwrap_err();
    assert_eq!(error.message, "namespace shop has no BackupStore");
    assert!(
        error
            .help
            .unwrap()
            .contains("kubectl explain backupstore.spec")
    );
}

#[test]
fn a_store_that_was_not_checked_is_no_error() {
    let mut store = store("a");
    assert_eq!(readiness(&store), StoreReadiness::NotChecked);
    store.metadata.generation = Some(2);
    let condition = json!({ "type": "Ready", "status": "False", "reason": "Unreachable", "message": "Text.",
        "lastTransitionTime": "2026-11-18T11:00:06Z" });
    store.status =
        serde_json::from_value(json!({ "observedGeneration": 1, "conditions": [condition] }))
            .unwrap();
    assert_eq!(readiness(&store), StoreReadiness::NotChecked);
    store.metadata.generation = Some(1);
    assert_eq!(
        readiness(&store),
        StoreReadiness::NotReady("Unreachable: Text".to_owned())
    );
}

#[test]
fn a_missing_operator_and_a_lost_quorum_are_named_at_once() {
    let store = store("a");
    let error = |scene: &Scene| require_possible(&scene.report(), &store);
    assert_eq!(error(&Scene::healthy()), Ok(()));
    let mut scene = Scene::healthy();
    scene.view_only();
    assert_eq!(error(&scene), Ok(()), "an unknown state is no error");
    let mut scene = Scene::healthy();
    scene.stop_operator();
    let missing = error(&scene).unwrap_err();
    assert_eq!(
        missing.message,
        "no operator is running: Lease evenkeel-system/evenkeel-operator was last renewed 3d ago. Nothing was created"
    );
    let mut scene = Scene::healthy();
    scene.no_answer(members()[0]);
    scene.no_answer(members()[1]);
    scene.no_quorum(members()[2]);
    let lost = error(&scene).unwrap_err();
    assert!(
        lost.message
            .starts_with("EtcdCluster orders has no quorum: 0 of 3 voters answer."),
        "{lost}"
    );
    let creating = error(&Scene::new()).unwrap_err();
    assert!(creating.message.contains("bootstrap"), "{creating}");
}
