//! Members on cordoned nodes: they are given longer before they are replaced.

use std::collections::BTreeMap;

use evenkeel_api::labels;
use evenkeel_kit::nodes::NodeState;
use evenkeel_kit::volumes::VolumeLocation;
use evenkeel_runtime::UnixTime;
use serde_json::json;

use super::next_deadline;
use crate::identity::MembershipChange;
use crate::names::Serial;
use crate::plan::EtcdDisruption;
use crate::testing::{NOW, Scene, change, name};

/// Returns the states of three nodes, of which this one is cordoned.
fn cordoned(name: &str) -> Option<BTreeMap<String, NodeState>> {
    let state = |node: &str| NodeState {
        name: node.to_owned(),
        hostname: Some(node.to_owned()),
        is_ready: true,
        is_cordoned: node == name,
        ..NodeState::default()
    };
    let nodes = ["node-0", "node-1", "node-2"];
    Some(nodes.map(|node| (node.to_owned(), state(node))).into())
}

/// Returns a cluster whose member 2 has waited for this many seconds for the cordoned node of its volume.
fn drained(seconds: i64) -> Scene {
    let mut scene = Scene::converged(3);
    scene.make_unreachable(2, seconds);
    let since = jiff::Timestamp::from_second(NOW.0 - seconds).unwrap();
    let joined = json!({ "type": labels::GATE_JOINED, "status": "True", "lastTransitionTime": since.to_string() });
    let unschedulable = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "1 node(s) were unschedulable", "lastTransitionTime": since.to_string() });
    change(
        scene.pod(2),
        json!({ "metadata": { "creationTimestamp": since.to_string() }, "spec": { "nodeName": null },
            "status": { "phase": "Pending", "conditions": [joined, unschedulable] } }),
    );
    let volume = VolumeLocation::Node("node-2".to_owned());
    scene.observed.volume_locations.insert(name(2), volume);
    scene.observed.nodes = cordoned("node-2");
    scene
}

fn replaces(scene: &Scene) -> bool {
    scene.asked().is_some_and(|intent| {
        intent.is_replacement && intent.change == MembershipChange::Remove(Serial(2))
    })
}

/// Returns in how many seconds the clock alone changes the decision.
fn seconds_left(scene: &Scene) -> Option<i64> {
    let (facts, plan) = (scene.facts(), scene.plan());
    next_deadline(&facts, &plan).map(|deadline| deadline.0 - NOW.0)
}

#[test]
fn a_member_whose_volume_is_on_a_cordoned_node_is_given_an_hour() {
    let scene = drained(301);
    assert!(scene.plan().is_noop(), "{:?}", scene.plan());
    assert_eq!(seconds_left(&scene), Some(3600 - 301));
    assert!(!replaces(&drained(3599)));
    assert!(replaces(&drained(3600)));
}

#[test]
fn the_spec_sets_the_time_for_cordoned_nodes() {
    let mut scene = drained(600);
    scene.edit_spec(json!({ "heal": { "replaceDrainedAfter": "10m" } }));
    assert!(replaces(&scene));
    scene.edit_spec(json!({ "heal": { "replaceAfter": "20m" } }));
    assert!(!replaces(&scene), "replaceAfter is the minimum");
    assert_eq!(seconds_left(&scene), Some(600));
}

#[test]
fn a_member_whose_pod_is_on_a_cordoned_node_is_given_an_hour() {
    let mut scene = Scene::converged(3);
    scene.make_unreachable(2, 301);
    assert!(replaces(&scene));
    scene.observed.nodes = cordoned("node-2");
    assert!(!replaces(&scene));
    scene.observed.nodes = cordoned("node-1");
    assert!(replaces(&scene), "another node is cordoned");
}

#[test]
fn a_member_on_an_uncordoned_node_is_given_the_usual_time_anew() {
    let mut scene = drained(3000);
    scene.observed.nodes = None;
    // The observation counts from the moment at which the node was uncordoned.
    let uncordoned = UnixTime(NOW.0 - 10);
    scene.state.unreachable_since.insert(Serial(2), uncordoned);
    assert!(!replaces(&scene));
    assert_eq!(seconds_left(&scene), Some(290));
}

#[test]
fn a_member_that_crashes_on_a_cordoned_node_is_replaced_as_elsewhere() {
    let mut scene = Scene::converged(3);
    scene.crashes(2, 301);
    scene.observed.nodes = cordoned("node-2");
    assert!(replaces(&scene));
}

#[test]
fn a_member_whose_cordoned_node_was_deleted_is_replaced_at_once() {
    let mut scene = drained(10);
    let gone = VolumeLocation::Gone;
    scene.observed.volume_locations.insert(name(2), gone);
    scene.observed.nodes = None;
    let asked = scene.asked().map(|intent| intent.change);
    assert_eq!(asked, Some(MembershipChange::Remove(Serial(2))));
}

#[test]
fn an_uncordoned_node_is_reserved_for_its_voter_again() {
    let mut scene = drained(3000);
    scene.edit_spec(json!({ "members": 4 }));
    scene.turn(|identity| identity.next_serial = Serial(4));
    scene.add_claim(3, false);
    let list = [0, 1, 2, 3].map(Serial).into();
    scene.add_pod(3, &crate::facts::StartMode::Join(list));
    scene.list_member(3, true, false);
    change(scene.pod(3), json!({ "spec": { "nodeName": null } }));
    let frees_node = |scene: &Scene| {
        let disruption = scene.plan().disruption;
        matches!(
            disruption,
            Some(EtcdDisruption::DeletePod {
                serial: Serial(3),
                ..
            })
        )
    };
    assert!(!frees_node(&scene), "no pod can take a cordoned node");
    scene.observed.nodes = None;
    scene.state.unreachable_since.insert(Serial(2), NOW);
    assert!(frees_node(&scene));
}
