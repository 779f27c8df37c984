//! The selection of the Restore that is carried out.

use evenkeel_api::{Restore, RestoreStatus};
use serde_json::{Value, json};

use super::*;
use crate::identity::NextEpoch;
use crate::names::{Epoch, Serial};
use crate::testing::Scene;

fn identity() -> Identity {
    let scene = Scene::converged(3);
    let (_, identity) = scene.observed.identity.unwrap();
    Identity {
        cluster_id: Some(ClusterId(0xabc)),
        ..identity
    }
}

fn restore(name: &str, created: &str, spec: Value) -> Restore {
    let mut all = json!({
        "cluster": { "kind": "EtcdCluster", "name": "orders" },
        "from": { "backup": "nightly" },
        "replaces": "abc",
        "keepOldDataFor": "2h",
    });
    for (key, value) in spec.as_object().unwrap() {
        all[key] = value.clone();
    }
    serde_json::from_value(json!({
        "apiVersion": "evenkeel.dev/v1alpha1", "kind": "Restore",
        "metadata": { "name": name, "namespace": "shop", "creationTimestamp": created },
        "spec": all,
    }))
    .unwrap()
}

fn name(restores: &[Restore], identity: &Identity) -> Option<String> {
    select(restores, identity).and_then(|request| request.origin.in_place)
}

const EARLY: &str = "2026-11-18T10:00:00Z";
const LATE: &str = "2026-11-18T11:00:00Z";

#[test]
fn the_oldest_restore_of_this_cluster_id_is_selected() {
    let restores = [
        restore("b", LATE, json!({})),
        restore("other", EARLY, json!({ "replaces": "def" })),
        restore("a", LATE, json!({})),
    ];
    assert_eq!(name(&restores, &identity()).as_deref(), Some("a"));
    let selected = select(&restores, &identity()).unwrap();
    assert_eq!(selected.keep_seconds, 7200);
    assert_eq!(selected.replaces, ClusterId(0xabc));
}

#[test]
fn a_restore_under_way_is_not_overtaken() {
    let restores = [
        restore("first", EARLY, json!({})),
        restore("second", LATE, json!({})),
    ];
    let mut identity = identity();
    identity.next_epoch = Some(Box::new(NextEpoch {
        epoch: Epoch(2),
        seed: Serial(3),
        restore: RestoreOrigin::in_place("second", "nightly", ClusterId(0xabc)),
    }));
    assert_eq!(name(&restores, &identity).as_deref(), Some("second"));
}

#[test]
fn a_restore_runs_once() {
    let mut done = restore("done", EARLY, json!({}));
    done.status = Some(RestoreStatus {
        phase: RestorePhase::Undone,
        ..RestoreStatus::default()
    });
    assert_eq!(name(&[done], &identity()), None);
    // The restored cluster has another ID.
    let restored = Identity {
        cluster_id: Some(ClusterId(0xdef)),
        ..identity()
    };
    assert_eq!(name(&[restore("again", EARLY, json!({}))], &restored), None);
}

#[test]
fn an_undo_is_selected_until_it_is_done() {
    let before = identity();
    let origin = RestoreOrigin::in_place("back", "nightly", ClusterId(0xabc));
    let mut replaced = before.clone();
    replaced.begin_epoch(Epoch(2), Serial(3), Some(origin.clone()));
    replaced.bootstrapped = true;
    replaced.cluster_id = Some(ClusterId(0xdef));
    replaced.replaced = Some(before.as_replaced(origin.clone(), 3, 7200));
    let undo = restore("back", EARLY, json!({ "undo": true }));
    let other = restore("other", EARLY, json!({ "replaces": "def" }));
    let selected = select(&[other, undo.clone()], &replaced).unwrap();
    assert!(selected.undo);
    assert_eq!(selected.origin.in_place.as_deref(), Some("back"));
    let undone = Identity {
        replaced: Some(replaced.as_replaced(origin, 3, 7200)),
        highest_epoch: Some(Epoch(2)),
        ..before
    };
    assert_eq!(name(&[undo], &undone), None);
    let again = restore("back", LATE, json!({}));
    assert_eq!(name(&[again], &undone), None, "created again");
}

#[test]
fn an_invalid_restore_is_ignored() {
    let restores = [restore(
        "odd",
        EARLY,
        json!({ "replaces": "not hexadecimal" }),
    )];
    assert_eq!(name(&restores, &identity()), None);
    assert!(is_of_cluster(&restores[0], "orders"));
    assert!(!is_of_cluster(&restores[0], "other"));
}
