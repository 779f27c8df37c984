//! Learners and voters that need the same node.

use evenkeel_kit::volumes::VolumeLocation;
use serde_json::json;

use crate::facts::StartMode;
use crate::identity::MembershipChange;
use crate::names::Serial;
use crate::plan::{DeleteReason, EtcdDisruption, EtcdPatch};
use crate::testing::{NOW, Scene, change, name, pod_uid};

#[test]
fn an_unscheduled_learner_frees_the_node_for_a_returning_voter() {
    let mut scene = Scene::with_newcomer();
    change(scene.pod(3), json!({ "spec": { "nodeName": null } }));
    scene.stop_answering(2);
    let frees_node = EtcdDisruption::DeletePod {
        pod: pod_uid(3),
        serial: Serial(3),
        why: DeleteReason::FreesNode,
    };
    change(
        scene.pod(2),
        json!({ "metadata": { "deletionTimestamp": "2027-01-15T08:00:00Z" } }),
    );
    assert_eq!(
        scene.plan().disruption,
        Some(frees_node.clone()),
        "as soon as the voter is terminating"
    );
    scene.observed.pods.remove(&pod_uid(2));
    let plan = scene.plan();
    assert_eq!(plan.disruption, Some(frees_node));
    assert_eq!(
        plan.create.len(),
        1,
        "the voter's pod is created in the same plan: {plan:?}"
    );
    scene.observed.pods.remove(&pod_uid(3));
    assert_eq!(
        scene.plan().create.len(),
        1,
        "the learner's pod only when the voter has a node"
    );
    scene.add_pod(2, &StartMode::ExistingData);
    assert_eq!(scene.plan().create.len(), 1);
    assert!(scene.plan().disruption.is_none());
}

#[test]
fn a_learner_with_a_node_keeps_it() {
    let mut scene = Scene::with_newcomer();
    scene.observed.pods.remove(&pod_uid(2));
    scene.stop_answering(2);
    assert!(scene.plan().disruption.is_none(), "{:?}", scene.plan());
}

fn on(node: &str) -> Option<VolumeLocation> {
    Some(VolumeLocation::Node(node.to_owned()))
}

/// A learner runs on the node of the third member, whose volume is there.
fn with_blocking_learner() -> Scene {
    let mut scene = Scene::with_newcomer();
    change(scene.pod(3), json!({ "spec": { "nodeName": "node-2" } }));
    scene.make_unschedulable(2, on("node-2"));
    scene
}

fn removes_learner(scene: &Scene) -> bool {
    scene.asked().is_some_and(|intent| {
        intent.change == MembershipChange::Remove(Serial(3)) && !intent.is_replacement
    })
}

#[test]
fn a_learner_on_the_node_of_a_voter_is_removed() {
    let mut scene = with_blocking_learner();
    assert!(removes_learner(&scene), "{:?}", scene.plan());
    // The same for a learner that has started and could be promoted.
    scene.list_member(3, true, true);
    scene.state(3);
    assert!(removes_learner(&scene), "{:?}", scene.plan());
    scene.list_member(3, false, true);
    assert!(scene.asked().is_none(), "a voter stays: {:?}", scene.plan());
}

#[test]
fn nodes_are_compared_by_the_hostname_that_volumes_use() {
    let mut scene = with_blocking_learner();
    change(scene.pod(3), json!({ "spec": { "nodeName": "i-0a1b" } }));
    assert!(!removes_learner(&scene));
    scene
        .observed
        .hostnames
        .insert("i-0a1b".to_owned(), "node-2".to_owned());
    assert!(removes_learner(&scene));
}

#[test]
fn a_learner_on_another_node_stays_unless_the_voter_can_run_there() {
    let mut scene = with_blocking_learner();
    change(scene.pod(3), json!({ "spec": { "nodeName": "node-3" } }));
    assert!(!removes_learner(&scene), "the voter waits for its own node");
    scene.observed.volume_locations.clear();
    assert!(
        !removes_learner(&scene),
        "the topology of its volume is unknown: perhaps one zone only"
    );
    scene
        .observed
        .volume_locations
        .insert(name(2), VolumeLocation::Anywhere);
    assert!(
        !removes_learner(&scene),
        "another node may be about to join"
    );
    scene.observed.now = evenkeel_runtime::UnixTime(NOW.0 + 60);
    assert!(removes_learner(&scene), "every node can mount its volume");
}

#[test]
fn a_voter_that_was_not_ready_for_long_reserves_no_node() {
    let mut scene = with_blocking_learner();
    let long_ago = jiff::Timestamp::from_second(NOW.0 - 301)
        .unwrap()
        .to_string();
    change(
        scene.pod(2),
        json!({ "metadata": { "creationTimestamp": long_ago } }),
    );
    assert!(!removes_learner(&scene));
}

#[test]
fn without_a_quorum_the_learners_pod_frees_the_node_of_a_voter() {
    let mut scene = with_blocking_learner();
    scene.lose_quorum(&[1, 2]);
    let frees_node = EtcdDisruption::DeletePod {
        pod: pod_uid(3),
        serial: Serial(3),
        why: DeleteReason::FreesNode,
    };
    assert_eq!(scene.plan().disruption, Some(frees_node.clone()));
    let long_ago = jiff::Timestamp::from_second(NOW.0 - 9999)
        .unwrap()
        .to_string();
    change(
        scene.pod(2),
        json!({ "metadata": { "creationTimestamp": long_ago } }),
    );
    assert_eq!(
        scene.plan().disruption,
        Some(frees_node),
        "without a quorum the voter cannot be replaced"
    );
    scene.add_pod(3, &StartMode::ExistingData);
    change(scene.pod(3), json!({ "spec": { "nodeName": "node-2" } }));
    assert!(
        scene.plan().disruption.is_none(),
        "it may be a voter: {:?}",
        scene.plan()
    );
}

#[test]
fn a_displaced_learner_with_a_local_volume_is_removed_in_time() {
    let mut scene = Scene::with_newcomer();
    scene.make_unschedulable(3, on("node-2"));
    let long_ago = NOW.0 - 300;
    scene
        .state
        .unreachable_since
        .insert(Serial(3), evenkeel_runtime::UnixTime(long_ago));
    assert!(scene.asked().is_none(), "not at once");
    let long_ago = jiff::Timestamp::from_second(long_ago).unwrap().to_string();
    change(
        scene.pod(3),
        json!({ "metadata": { "creationTimestamp": long_ago } }),
    );
    assert!(removes_learner(&scene), "{:?}", scene.plan());
    scene.observed.volume_locations.clear();
    assert!(
        scene.asked().is_none(),
        "it has no volume yet: another learner would also wait"
    );
}

#[test]
fn a_removed_member_on_the_same_node_does_not_count_as_sharing() {
    let mut scene = Scene::with(4, json!({ "members": 3 }));
    scene.turn(|identity| identity.next_serial = Serial(5));
    // The last member is no longer listed, and its pod is terminating.
    scene.add_pod(4, &StartMode::ExistingData);
    change(
        scene.pod(4),
        json!({ "metadata": { "deletionTimestamp": "2027-01-15T08:00:00Z" } }),
    );
    for (serial, node) in [(0, "x"), (1, "x"), (2, "z"), (3, "y"), (4, "y")] {
        change(scene.pod(serial), json!({ "spec": { "nodeName": node } }));
    }
    let plan = scene.plan();
    assert!(
        plan.patch
            .contains(&EtcdPatch::DetachClients { pod: pod_uid(1) }),
        "the first member leads: {plan:?}"
    );
}
