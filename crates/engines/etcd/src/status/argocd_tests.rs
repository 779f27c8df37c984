//! The health script for Argo CD in `deploy/argocd`, run by Lua 5.1 as Argo CD does, on the status
//! of scenes.

use evenkeel_api::EtcdCluster;
use evenkeel_runtime::Observed;
use mlua::{Lua, LuaSerdeExt, Table};
use serde_json::{Value, json};

use crate::testing::{Scene, claim_uid, pod_uid};

/// Returns the script from the ConfigMap.
fn script() -> String {
    let map = include_str!("../../../../../deploy/argocd/health.yaml");
    let (_, script) = map
        .split_once("resource.customizations.health.evenkeel.dev_EtcdCluster: |\n")
        .unwrap();
    script
        .lines()
        .map(|line| line.strip_prefix("    ").unwrap_or(line))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns health and message of a resource.
fn evaluate(resource: &Value) -> (String, String) {
    let lua = Lua::new();
    lua.globals()
        .set("obj", lua.to_value(resource).unwrap())
        .unwrap();
    let result: Table = lua.load(script()).eval().unwrap();
    (
        result.get("status").unwrap(),
        result.get("message").unwrap(),
    )
}

/// Returns health and message of a scene.
fn health(scene: &Scene) -> (String, String) {
    evaluate(&resource(scene))
}

fn resource(scene: &Scene) -> Value {
    let resource = EtcdCluster {
        status: Some(scene.status()),
        ..scene.observed.resource.clone()
    };
    serde_json::to_value(resource).unwrap()
}

fn changed(change: impl FnOnce(&mut Scene)) -> Scene {
    let mut scene = Scene::converged(3);
    change(&mut scene);
    scene
}

#[test]
fn a_converged_cluster_is_healthy() {
    assert_eq!(
        health(&Scene::converged(3)),
        ("Healthy".to_owned(), "Healthy".to_owned())
    );
}

#[test]
fn a_cluster_that_acts_is_progressing_with_its_action() {
    let scenes = [
        (
            Scene::nothing(json!({})),
            "Creating: The operator is creating ConfigMap orders-etcd-identity.",
        ),
        (
            Scene::with(3, json!({ "members": 5 })),
            "Adding a member: 3 of 5: The operator is adding member",
        ),
        (
            changed(|scene| scene.observed.client_service = None),
            "The operator is creating Service orders-etcd-client.",
        ),
    ];
    for (scene, expected) in scenes {
        let (status, message) = health(&scene);
        assert_eq!(status, "Progressing", "{message}");
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_cluster_with_a_problem_is_degraded_even_if_it_acts_or_is_paused() {
    let lose_data = |scene: &mut Scene| {
        scene.observed.claims.remove(&claim_uid(1));
        scene.observed.pods.remove(&pod_uid(1));
        scene.stop_answering(1);
    };
    let mut paused = Scene::with(3, json!({ "paused": true }));
    paused.stop_answering(1);
    let scenes = [
        (changed(|scene| scene.stop_answering(1)), "is not healthy"),
        (
            changed(|scene| scene.lose_quorum(&[0, 1])),
            "Quorum lost: 1 of 3 voters responds: 1 of 3 voters responds. Clients cannot read or write",
        ),
        (changed(lose_data), "Replacing"),
        (paused, "Paused: "),
        (
            changed(|scene| scene.state.client_read = Observed::Absent),
            "Not serving: All members are healthy, but a read through Service orders-etcd-client fails.",
        ),
    ];
    for (scene, expected) in scenes {
        let (status, message) = health(&scene);
        assert_eq!(status, "Degraded", "{message}");
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_paused_cluster_without_problems_is_suspended() {
    let (status, message) = health(&Scene::with(3, json!({ "paused": true })));
    assert_eq!(
        (status.as_str(), message.as_str()),
        (
            "Suspended",
            "Paused: The operator waits for spec.paused to be set to false."
        )
    );
}

#[test]
fn a_resource_that_was_not_observed_yet_is_progressing() {
    let mut new = resource(&Scene::converged(3));
    new.as_object_mut().unwrap().remove("status");
    assert_eq!(evaluate(&new).0, "Progressing");
    let mut edited = resource(&Scene::converged(3));
    edited["metadata"]["generation"] = json!(2);
    assert_eq!(
        evaluate(&edited),
        (
            "Progressing".to_owned(),
            "the operator has not reconciled the last edit yet".to_owned()
        )
    );
    let mut unknown = resource(&Scene::converged(3));
    unknown["status"]["conditions"][0]["status"] = json!("Unknown");
    assert_eq!(
        evaluate(&unknown).0,
        "Progressing",
        "the first client read is pending"
    );
    unknown["status"]
        .as_object_mut()
        .unwrap()
        .remove("conditions");
    assert_eq!(evaluate(&unknown).0, "Progressing");
}
