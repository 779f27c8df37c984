//! Ownership of the data: until bootstrap is finished the resource owns it, then the spec decides.

use evenkeel_api::labels;
use serde_json::json;

use crate::build;
use crate::identity::Identity;
use crate::names::Serial;
use crate::plan::{EtcdCreate, EtcdDisruption, EtcdPatch, IdentityChange, OwnerTarget};
use crate::testing::{Scene, change, claim_uid};

/// Returns a cluster of three healthy voters whose bootstrap is about to finish.
fn about_to_finish(on_delete: &str) -> Scene {
    let spec = json!({ "members": 3, "storage": { "onDelete": on_delete } });
    let mut scene = Scene::with(3, spec);
    scene.make_bootstrap_unfinished();
    own_claims(&mut scene);
    scene
}

fn own_claims(scene: &mut Scene) {
    let owners = json!([build::owner_reference(&scene.observed.desired)]);
    for serial in 0..3 {
        change(
            scene.claim(serial),
            json!({ "metadata": { "ownerReferences": owners } }),
        );
    }
}

fn orphan_identity(scene: &mut Scene) {
    let (object, _) = scene.observed.identity.as_mut().unwrap();
    object.metadata.owner_references = None;
}

fn finishes(scene: &Scene) -> bool {
    matches!(
        scene.plan().disruption,
        Some(EtcdDisruption::UpdateIdentity {
            why: IdentityChange::FinishBootstrap,
            ..
        })
    )
}

/// Returns the changes of owners in the plan.
fn owner_changes(scene: &Scene) -> Vec<(OwnerTarget, bool)> {
    let patches = scene.plan().patch.into_iter();
    let changes = patches.filter_map(|patch| match patch {
        EtcdPatch::SetOwner { target, owned } => Some((target, owned)),
        _ => None,
    });
    changes.collect()
}

#[test]
fn kept_data_is_released_before_bootstrap_is_finished_the_identity_first() {
    let mut scene = about_to_finish("Keep");
    assert!(!finishes(&scene));
    assert_eq!(owner_changes(&scene), [(OwnerTarget::Identity, false)]);
    orphan_identity(&mut scene);
    assert!(!finishes(&scene));
    let claims = [0, 1, 2].map(|serial| (OwnerTarget::Claim(claim_uid(serial)), false));
    assert_eq!(owner_changes(&scene), claims);
    for serial in 0..3 {
        scene.claim(serial).metadata.owner_references = None;
    }
    assert!(finishes(&scene), "{:?}", scene.plan());
    assert_eq!(owner_changes(&scene), []);
}

#[test]
fn data_that_is_deleted_with_the_resource_stays_owned() {
    let scene = about_to_finish("Delete");
    assert!(finishes(&scene), "{:?}", scene.plan());
    assert_eq!(owner_changes(&scene), []);
}

#[test]
fn a_claim_that_is_being_deleted_does_not_hold_up_bootstrap() {
    let mut scene = about_to_finish("Keep");
    orphan_identity(&mut scene);
    for serial in 0..2 {
        scene.claim(serial).metadata.owner_references = None;
    }
    change(
        scene.claim(2),
        json!({ "metadata": { "deletionTimestamp": "2027-01-15T07:59:00Z" } }),
    );
    assert!(finishes(&scene), "{:?}", scene.plan());
}

#[test]
fn no_owner_is_added_to_kept_data_before_bootstrap_is_finished() {
    let mut scene = about_to_finish("Keep");
    orphan_identity(&mut scene);
    scene.claim(1).metadata.owner_references = None;
    scene.stop_answering(1);
    scene.stop_answering(2);
    assert!(!finishes(&scene), "too few voters are healthy");
    assert_eq!(owner_changes(&scene), []);
}

#[test]
fn new_claims_are_owned_until_bootstrap_is_finished() {
    let owned = |scene: &Scene| {
        let mut creates = scene.plan().create.into_iter();
        creates.find_map(|create| match create {
            EtcdCreate::Claim { owned, .. } => Some(owned),
            _ => None,
        })
    };
    let without_claim = |bootstrapped: bool, on_delete: &str| {
        let spec = json!({ "members": 4, "storage": { "onDelete": on_delete } });
        let mut scene = Scene::with(3, spec);
        if !bootstrapped {
            scene.make_bootstrap_unfinished();
        }
        scene.turn(|identity| identity.next_serial = Serial(4));
        scene.list_member(3, true, false);
        owned(&scene)
    };
    assert_eq!(without_claim(false, "Keep"), Some(true));
    assert_eq!(without_claim(true, "Keep"), Some(false));
    assert_eq!(without_claim(false, "Delete"), Some(true));
    assert_eq!(without_claim(true, "Delete"), Some(true));
}

#[test]
fn the_identity_is_owned_until_bootstrap_is_finished() {
    let scene = Scene::converged(1);
    let identity = &scene.observed.identity.as_ref().unwrap().1;
    let owners = |bootstrapped: bool| {
        let identity = Identity {
            bootstrapped,
            ..identity.clone()
        };
        let object = build::identity(&scene.observed.desired, &identity).unwrap();
        object.metadata.owner_references.unwrap_or_default().len()
    };
    assert_eq!((owners(false), owners(true)), (1, 0));
}

#[test]
fn clients_are_first_routed_when_kept_data_is_not_owned() {
    let attaches = |scene: &Scene| {
        let patches = scene.plan().patch;
        patches
            .iter()
            .filter(|patch| matches!(patch, EtcdPatch::AttachClients { .. }))
            .count()
    };
    // An identity that was rebuilt during bootstrap counts as bootstrapped.
    let mut scene = about_to_finish("Keep");
    scene.turn(|identity| identity.bootstrapped = true);
    assert_eq!(attaches(&scene), 0);
    assert_eq!(owner_changes(&scene).len(), 3);
    // Clients were routed before: the spec was edited from Delete to Keep.
    let role = json!({ "metadata": { "labels": { labels::ROLE: labels::ROLE_VOTER } } });
    change(scene.pod(0), role);
    assert_eq!(attaches(&scene), 2);
}

#[test]
fn no_member_joins_on_a_claim_that_is_being_deleted() {
    let mut scene = Scene::with(2, json!({ "members": 3 }));
    scene.turn(|identity| identity.next_serial = Serial(3));
    scene.add_claim(2, false);
    scene.list_member(2, true, false);
    let creates_pod = |scene: &Scene| {
        let create = scene.plan().create.into_iter();
        create
            .filter(|create| matches!(create, EtcdCreate::Pod { .. }))
            .count()
    };
    assert_eq!(creates_pod(&scene), 1);
    let deleted = json!({ "metadata": { "deletionTimestamp": "2026-11-18T00:00:00Z" } });
    change(scene.claim(2), deleted);
    assert_eq!(creates_pod(&scene), 0);
}
