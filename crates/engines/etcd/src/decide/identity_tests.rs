//! The situations of an identity, one test each. The decisions that follow are tested with the
//! whole of `decide`.

use evenkeel_api::labels;
use serde_json::json;

use super::*;
use crate::desired::DesiredCluster;
use crate::identity::Uid;
use crate::observe::etcd::EtcdState;
use crate::testing::{CLUSTER, NOW, Scene, change, pod_uid};

const TERMINATING: &str = "2027-01-15T07:59:00Z";

/// Returns the name of the situation's variant.
fn situation(facts: &EtcdFacts) -> String {
    let debug = format!("{:?}", IdentitySituation::of(facts));
    debug
        .split(|it: char| !it.is_alphanumeric())
        .next()
        .unwrap_or_default()
        .to_owned()
}

fn without_identity() -> Scene {
    let mut scene = Scene::converged(3);
    scene.observed.identity = None;
    scene.state = EtcdState::default();
    scene
}

#[test]
fn a_deleted_resource_comes_before_everything_else() {
    let mut scene = Scene::with(3, json!({ "paused": true }));
    change(
        &mut scene.observed.resource,
        json!({ "metadata": { "deletionTimestamp": TERMINATING } }),
    );
    scene.observed.desired = DesiredCluster::of(&scene.observed.resource).unwrap();
    assert_eq!(situation(&scene.facts()), "ResourceDeleted");
}

#[test]
fn a_paused_cluster_is_not_examined() {
    let scene = Scene::with(3, json!({ "paused": true }));
    assert_eq!(situation(&scene.facts()), "Paused");
}

#[test]
fn unknown_objects_are_not_absent() {
    let mut facts = Scene::converged(3).facts();
    facts.identity = Observed::Unknown;
    assert_eq!(situation(&facts), "Unreadable");
    let mut facts = Scene::nothing(json!({})).facts();
    facts.pods = Observed::Unknown;
    assert_eq!(situation(&facts), "Unreadable");
}

#[test]
fn an_object_of_another_owner_in_the_place_of_the_identity_is_a_conflict() {
    let mut scene = Scene::nothing(json!({}));
    scene.observed.identity_taken = true;
    assert_eq!(situation(&scene.facts()), "NameConflict");
}

#[test]
fn objects_of_a_previous_resource_are_awaited_with_and_without_an_identity() {
    let mut owned = Scene::with(3, json!({ "storage": { "onDelete": "Delete" } }));
    owned.observed.desired.uid = Uid(99);
    assert_eq!(situation(&owned.facts()), "PreviousResourceTerminating");
    let mut facts = without_identity().facts();
    let claims = facts.claims.present_mut().into_iter().flatten();
    claims.for_each(|claim| claim.is_terminating = true);
    let pods = facts.pods.present_mut().into_iter().flatten();
    pods.for_each(|pod| pod.is_terminating = true);
    assert_eq!(situation(&facts), "PreviousResourceTerminating");
}

#[test]
fn claims_of_different_clusters_are_inconsistent() {
    let mut scene = without_identity();
    let other = json!({ "metadata": { "annotations": { labels::LINEAGE: "00000bad" } } });
    change(scene.claim(1), other);
    assert_eq!(situation(&scene.facts()), "Inconsistent");
}

#[test]
fn a_resource_without_objects_is_new_unless_its_status_names_a_cluster() {
    let mut facts = Scene::nothing(json!({})).facts();
    assert_eq!(situation(&facts), "New");
    facts.cluster.status_cluster_id = Some(CLUSTER);
    assert_eq!(situation(&facts), "DataLost");
}

#[test]
fn a_deleted_identity_is_rebuilt_from_claims_and_pods() {
    assert_eq!(situation(&without_identity().facts()), "Deleted");
}

#[test]
fn an_identity_from_before_the_end_of_bootstrap_is_outdated() {
    let mut scene = Scene::converged(3);
    scene.turn(|identity| identity.bootstrapped = false);
    assert_eq!(situation(&scene.facts()), "Outdated");
}

#[test]
fn a_recreated_resource_adopts_a_bootstrapped_cluster() {
    let mut scene = Scene::converged(3);
    scene.turn(|identity| identity.resource_uid = Uid(98));
    assert_eq!(situation(&scene.facts()), "Adopted");
}

#[test]
fn a_recreated_resource_abandons_an_unfinished_bootstrap() {
    let mut scene = Scene::with(1, json!({ "members": 3 }));
    scene.make_bootstrap_unfinished();
    scene.turn(|identity| identity.resource_uid = Uid(98));
    assert_eq!(situation(&scene.facts()), "Abandoned");
}

#[test]
fn an_identity_from_before_the_last_members_has_outdated_serials() {
    let mut scene = Scene::converged(3);
    scene.turn(|identity| identity.next_serial = Serial(2));
    assert_eq!(situation(&scene.facts()), "SerialsOutdated");
}

#[test]
fn the_identity_of_a_converged_cluster_is_current() {
    let mut scene = Scene::converged(3);
    assert_eq!(situation(&scene.facts()), "Current");
    scene.observed.pods.remove(&pod_uid(1));
    scene.observed.now = NOW.after(DELETION_GRACE);
    assert_eq!(situation(&scene.facts()), "Current");
}
