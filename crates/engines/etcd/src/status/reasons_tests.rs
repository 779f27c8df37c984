//! Why things are done, told for each kind of thing.

use std::collections::BTreeSet;

use evenkeel_runtime::UnixTime;
use serde_json::json;

use crate::facts::{Drift, OwnedObject, StartMode};
use crate::testing::{NOW, Scene, change, claim_uid, name, pod_uid};

/// What is done, and why, as the status tells it.
fn told(scene: &Scene) -> (String, String) {
    let status = scene.status();
    (status.doing, status.because)
}

#[test]
fn a_pod_comes_back_because_it_is_gone_and_its_data_is_there() {
    let mut scene = Scene::converged(3);
    scene.observed.pods.remove(&pod_uid(2));
    scene.stops_answering(2);
    let why = format!("the pod of {} is gone, and its data is there", name(2));
    assert_eq!(
        told(&scene),
        (format!("creating the pod of {}", name(2)), why)
    );
}

#[test]
fn a_member_is_removed_for_what_became_of_it() {
    let because = |scene: &Scene| told(scene).1;
    let mut scene = Scene::converged(3);
    scene.observed.pods.remove(&pod_uid(2));
    scene.observed.claims.remove(&claim_uid(2));
    scene.stops_answering(2);
    assert_eq!(because(&scene), "its claim is gone, and its data with it");

    let mut scene = Scene::converged(3);
    change(
        scene.claim(2),
        json!({ "spec": { "volumeName": "another" } }),
    );
    scene.stops_answering(2);
    assert!(
        because(&scene).contains("not the one it joined on"),
        "{}",
        because(&scene)
    );

    let mut scene = Scene::converged(3);
    scene.is_out_of_reach(2, 300);
    assert!(because(&scene).starts_with("for 5m neither the operator nor the leader has heard it"));

    let mut scene = Scene::converged(3);
    scene.crashes(2, 300);
    assert!(
        because(&scene).starts_with("its etcd has ended at every start for 5m"),
        "{}",
        because(&scene)
    );

    let mut scene = Scene::with_newcomer();
    change(scene.pod(3), json!({ "spec": { "nodeName": "node-2" } }));
    scene.is_refused(
        2,
        Some(crate::observe::volumes::VolumeLocation::Node(
            "node-2".to_owned(),
        )),
    );
    assert!(because(&scene).contains(&name(2)), "{}", because(&scene));

    let mut scene = Scene::with(5, json!({ "members": 3 }));
    assert_eq!(
        because(&scene),
        "it is to be removed",
        "clients are led away first"
    );
    change(
        scene.pod(4),
        json!({ "metadata": { "labels": { evenkeel_api::labels::ROLE: null } } }),
    );
    assert_eq!(because(&scene), "there are 5 members, and 3 are wanted");
}

#[test]
fn members_are_added_and_promoted_for_what_was_counted() {
    let mut scene = Scene::with(3, json!({ "members": 5 }));
    assert_eq!(
        told(&scene).1,
        "3 of 5 members are there, and everyone with a vote serves"
    );
    scene = Scene::with_newcomer();
    scene.has_claim(3, true);
    scene.has_pod(3, &StartMode::ExistingData);
    change(
        scene.pod(3),
        json!({ "metadata": { "labels": { evenkeel_api::labels::ROLE: null } } }),
    );
    scene.is_listed(3, true, true);
    scene.state(3);
    let (doing, why) = told(&scene);
    assert_eq!(doing, format!("giving {} its vote", name(3)));
    assert_eq!(
        why,
        "it serves and has caught up, and 3 of 3 with a vote are well"
    );
}

#[test]
fn an_object_is_made_because_it_is_missing() {
    let mut scene = Scene::converged(3);
    scene
        .observed
        .tls
        .drift
        .insert(OwnedObject::ClientTls, Drift::Missing);
    assert_eq!(
        told(&scene).1,
        "the Secret orders-etcd-client-tls is missing"
    );
}

#[test]
fn a_decision_is_explained_in_full() {
    let mut scene = Scene::converged(3);
    scene.observed.pods.remove(&pod_uid(2));
    scene.stops_answering(2);
    scene
        .observed
        .tls
        .drift
        .insert(OwnedObject::ClientTls, Drift::Differs);
    let explained = super::super::explain(&scene.observed, &scene.facts(), &scene.plan());
    assert_eq!(explained.actions.len(), 2, "{explained:?}");
    assert_eq!(explained.reasons.len(), 2, "{explained:?}");
    assert!(
        explained.reasons[1].contains("is not as it should be"),
        "{explained:?}"
    );
    let quiet = Scene::converged(3);
    let explained = super::super::explain(&quiet.observed, &quiet.facts(), &quiet.plan());
    assert_eq!(explained, evenkeel_runtime::Explanation::default());
}

#[test]
fn certificates_are_told_by_their_secrets() {
    let mut scene = Scene::converged(3);
    scene
        .observed
        .tls
        .ends
        .insert(OwnedObject::ServerTls, UnixTime(NOW.0 + 60));
    let told = scene.status().certificates;
    let secrets: BTreeSet<_> = told.iter().map(|one| one.secret.as_str()).collect();
    assert_eq!(secrets, BTreeSet::from(["orders-etcd-server-tls"]));
    assert_eq!(told[0].expires.0.as_second(), NOW.0 + 60);
    assert_eq!(
        scene.plan(),
        Scene::converged(3).plan(),
        "nothing is decided by it"
    );
}
