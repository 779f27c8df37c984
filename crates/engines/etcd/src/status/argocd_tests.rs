//! What Argo CD makes of a cluster: its script in `deploy/argocd`, run by Lua 5.1 as Argo CD does, on what people are told.

use evenkeel_api::EtcdCluster;
use evenkeel_runtime::Observed;
use mlua::{Lua, LuaSerdeExt, Table};
use serde_json::{Value, json};

use crate::testing::{Scene, claim_uid, pod_uid};

/// The script, as it stands in the ConfigMap.
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

/// Health and message of a resource.
fn asked(resource: &Value) -> (String, String) {
    let lua = Lua::new();
    lua.globals()
        .set("obj", lua.to_value(resource).unwrap())
        .unwrap();
    let told: Table = lua.load(script()).eval().unwrap();
    (told.get("status").unwrap(), told.get("message").unwrap())
}

/// The same of a scene, as Kubernetes would have it.
fn health(scene: &Scene) -> (String, String) {
    asked(&resource(scene))
}

fn resource(scene: &Scene) -> Value {
    let told = EtcdCluster {
        status: Some(scene.status()),
        ..scene.observed.resource.clone()
    };
    serde_json::to_value(told).unwrap()
}

fn broken(how: impl FnOnce(&mut Scene)) -> Scene {
    let mut scene = Scene::converged(3);
    how(&mut scene);
    scene
}

#[test]
fn a_cluster_that_serves_and_has_all_that_it_wants_is_healthy() {
    assert_eq!(
        health(&Scene::converged(3)),
        ("Healthy".to_owned(), "Healthy".to_owned())
    );
}

#[test]
fn one_that_is_created_scaled_or_healed_is_progressing_and_says_with_what() {
    let scenes = [
        (
            Scene::nothing(json!({})),
            "Beginning: giving the cluster its identity",
        ),
        (
            Scene::with(3, json!({ "members": 5 })),
            "Adding a member: 3 of 5: adding",
        ),
        (
            broken(|scene| scene.observed.client_service = None),
            "bringing services and certificates up to date",
        ),
    ];
    for (scene, words) in scenes {
        let (status, message) = health(&scene);
        assert_eq!(status, "Progressing", "{message}");
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn one_that_is_amiss_is_degraded_also_while_it_is_healed_or_paused() {
    let gone = |scene: &mut Scene| {
        scene.observed.claims.remove(&claim_uid(1));
        scene.observed.pods.remove(&pod_uid(1));
        scene.stops_answering(1);
    };
    let mut paused = Scene::with(3, json!({ "paused": true }));
    paused.stops_answering(1);
    let scenes = [
        (broken(|scene| scene.stops_answering(1)), "does not serve"),
        (
            broken(|scene| scene.loses_its_quorum(&[0, 1])),
            "No quorum: 1 of 3 answer: a majority of voters must answer",
        ),
        (broken(gone), "Replacing"),
        (paused, "Paused: "),
        (
            broken(|scene| scene.state.client_read = Observed::Absent),
            "Not serving: a read through the client Service was not answered",
        ),
    ];
    for (scene, words) in scenes {
        let (status, message) = health(&scene);
        assert_eq!(status, "Degraded", "{message}");
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn one_that_is_paused_and_well_is_suspended() {
    let (status, message) = health(&Scene::with(3, json!({ "paused": true })));
    assert_eq!(
        (status.as_str(), message.as_str()),
        (
            "Suspended",
            "Paused: spec.paused is set: nothing is changed until it is false"
        )
    );
}

#[test]
fn what_nobody_has_looked_at_is_progressing_whatever_was_said_before() {
    let mut new = resource(&Scene::converged(3));
    new.as_object_mut().unwrap().remove("status");
    assert_eq!(asked(&new).0, "Progressing");
    let mut edited = resource(&Scene::converged(3));
    edited["metadata"]["generation"] = json!(2);
    assert_eq!(
        asked(&edited),
        (
            "Progressing".to_owned(),
            "the last edit has not been looked at yet".to_owned()
        )
    );
    let mut unknown = resource(&Scene::converged(3));
    unknown["status"]["conditions"][0]["status"] = json!("Unknown");
    assert_eq!(
        asked(&unknown).0,
        "Progressing",
        "at first sight nobody knows"
    );
    unknown["status"]
        .as_object_mut()
        .unwrap()
        .remove("conditions");
    assert_eq!(asked(&unknown).0, "Progressing");
}
