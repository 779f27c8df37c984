//! The reasons of actions, and the explanation of plans.

use std::collections::BTreeSet;

use evenkeel_runtime::UnixTime;
use serde_json::json;

use crate::facts::{Drift, OwnedObject, StartMode};
use crate::testing::{NOW, Scene, change, claim_uid, name, pod_uid};

/// Returns the current action and its reason from the status.
fn current(scene: &Scene) -> (String, String) {
    let operation = scene.status().operation.unwrap();
    (operation.message, operation.reason)
}

#[test]
fn the_reason_for_a_recreated_pod_is_its_data() {
    let mut scene = Scene::converged(3);
    scene.observed.pods.remove(&pod_uid(2));
    scene.stop_answering(2);
    let reason = format!(
        "PersistentVolumeClaim {} exists and the pod does not",
        name(2)
    );
    assert_eq!(
        current(&scene),
        (format!("creating Pod {}", name(2)), reason)
    );
}

#[test]
fn the_reason_for_a_removal_names_the_loss() {
    let reason = |scene: &Scene| current(scene).1;
    let mut scene = Scene::converged(3);
    scene.observed.pods.remove(&pod_uid(2));
    scene.observed.claims.remove(&claim_uid(2));
    scene.stop_answering(2);
    assert_eq!(
        reason(&scene),
        format!(
            "PersistentVolumeClaim {} is gone, and its data with it",
            name(2)
        )
    );

    let mut scene = Scene::converged(3);
    change(
        scene.claim(2),
        json!({ "spec": { "volumeName": "another" } }),
    );
    scene.stop_answering(2);
    assert!(
        reason(&scene).contains("is not the one that the member joined on"),
        "{}",
        reason(&scene)
    );

    let mut scene = Scene::converged(3);
    scene.make_unreachable(2, 300);
    assert_eq!(
        reason(&scene),
        format!(
            "neither the operator nor the leader has reached member {} for 5m, and its pod is not Ready",
            name(2)
        )
    );

    let mut scene = Scene::converged(3);
    scene.crashes(2, 300);
    assert_eq!(
        reason(&scene),
        format!("etcd in Pod {} has crashed at every start for 5m", name(2))
    );

    let mut scene = Scene::with_newcomer();
    change(scene.pod(3), json!({ "spec": { "nodeName": "node-2" } }));
    scene.make_unschedulable(
        2,
        Some(evenkeel_kit::volumes::VolumeLocation::Node(
            "node-2".to_owned(),
        )),
    );
    assert!(reason(&scene).contains(&name(2)), "{}", reason(&scene));

    let mut scene = Scene::with(5, json!({ "members": 3 }));
    assert_eq!(
        reason(&scene),
        format!("the operator removes {} next", name(4)),
        "clients are detached first"
    );
    change(
        scene.pod(4),
        json!({ "metadata": { "labels": { evenkeel_api::labels::ROLE: null } } }),
    );
    assert_eq!(reason(&scene), "5 members exist and spec.members is 3");
}

#[test]
fn the_reasons_for_an_add_and_a_promotion_name_the_counts() {
    let mut scene = Scene::with(3, json!({ "members": 5 }));
    assert_eq!(
        current(&scene).1,
        "3 of 5 members exist and all voters are healthy"
    );
    scene = Scene::with_newcomer();
    scene.add_claim(3, true);
    scene.add_pod(3, &StartMode::ExistingData);
    change(
        scene.pod(3),
        json!({ "metadata": { "labels": { evenkeel_api::labels::ROLE: null } } }),
    );
    scene.list_member(3, true, true);
    scene.state(3);
    let (action, reason) = current(&scene);
    assert_eq!(action, format!("promoting learner {} to voter", name(3)));
    assert_eq!(
        reason,
        format!(
            "learner {} has caught up and 3 of 3 voters are healthy",
            name(3)
        )
    );
}

#[test]
fn the_reason_for_a_created_object_is_that_it_is_missing() {
    let mut scene = Scene::converged(3);
    scene
        .observed
        .tls
        .drift
        .insert(OwnedObject::ClientTls, Drift::Missing);
    assert_eq!(
        current(&scene).1,
        "Secret orders-etcd-client-tls is missing or unusable"
    );
}

#[test]
fn an_explanation_has_every_action_and_reason() {
    let mut scene = Scene::converged(3);
    scene.observed.pods.remove(&pod_uid(2));
    scene.stop_answering(2);
    scene
        .observed
        .tls
        .drift
        .insert(OwnedObject::ClientTls, Drift::Differs);
    let explanation = super::super::explain(&scene.observed, &scene.facts(), &scene.plan());
    assert_eq!(explanation.actions.len(), 2, "{explanation:?}");
    assert_eq!(explanation.reasons.len(), 2, "{explanation:?}");
    assert!(
        explanation.reasons[1].contains("differs from its desired state"),
        "{explanation:?}"
    );
    let idle = Scene::converged(3);
    let explanation = super::super::explain(&idle.observed, &idle.facts(), &idle.plan());
    assert_eq!(explanation, evenkeel_runtime::Explanation::default());
}

#[test]
fn certificates_are_listed_by_secret() {
    let mut scene = Scene::converged(3);
    scene
        .observed
        .tls
        .expires_at
        .insert(OwnedObject::ServerTls, UnixTime(NOW.0 + 60));
    let certificates = scene.status().certificates;
    let secrets: BTreeSet<_> = certificates
        .iter()
        .map(|certificate| certificate.secret.as_str())
        .collect();
    assert_eq!(secrets, BTreeSet::from(["orders-etcd-server-tls"]));
    assert_eq!(certificates[0].expires.0.as_second(), NOW.0 + 60);
    assert_eq!(
        scene.plan(),
        Scene::converged(3).plan(),
        "no decision depends on it"
    );
}
