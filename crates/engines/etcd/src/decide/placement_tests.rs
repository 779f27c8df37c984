//! Newcomers and voters that want the same place.

use serde_json::json;

use crate::facts::StartMode;
use crate::identity::MembershipChange;
use crate::names::Serial;
use crate::observe::volumes::VolumeLocation;
use crate::plan::{DeleteReason, EtcdDisruption, EtcdPatch};
use crate::testing::{NOW, Scene, change, name, pod_uid};

#[test]
fn a_newcomer_without_a_node_makes_way_for_a_voter_that_comes_back() {
    let mut scene = Scene::with_newcomer();
    change(scene.pod(3), json!({ "spec": { "nodeName": null } }));
    scene.stops_answering(2);
    let makes_way = EtcdDisruption::DeletePod {
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
        Some(makes_way.clone()),
        "already when the voter goes"
    );
    scene.observed.pods.remove(&pod_uid(2));
    let plan = scene.plan();
    assert_eq!(plan.disruption, Some(makes_way));
    assert_eq!(
        plan.create.len(),
        1,
        "the voter's pod is created beside: {plan:?}"
    );
    scene.observed.pods.remove(&pod_uid(3));
    assert_eq!(
        scene.plan().create.len(),
        1,
        "and the newcomer's only when the voter has a place"
    );
    scene.has_pod(2, &StartMode::ExistingData);
    assert_eq!(scene.plan().create.len(), 1);
    assert!(scene.plan().disruption.is_none());
}

#[test]
fn a_newcomer_that_has_a_node_keeps_it() {
    let mut scene = Scene::with_newcomer();
    scene.observed.pods.remove(&pod_uid(2));
    scene.stops_answering(2);
    assert!(scene.plan().disruption.is_none(), "{:?}", scene.plan());
}

fn on(node: &str) -> Option<VolumeLocation> {
    Some(VolumeLocation::Node(node.to_owned()))
}

/// The newcomer is where the third member was, on whose node its volume is.
fn taken() -> Scene {
    let mut scene = Scene::with_newcomer();
    change(scene.pod(3), json!({ "spec": { "nodeName": "node-2" } }));
    scene.is_refused(2, on("node-2"));
    scene
}

fn gives_back(scene: &Scene) -> bool {
    scene.asked().is_some_and(|intent| {
        intent.change == MembershipChange::Remove(Serial(3)) && !intent.is_replacement
    })
}

#[test]
fn a_newcomer_that_has_a_voters_place_is_removed() {
    let mut scene = taken();
    assert!(gives_back(&scene), "{:?}", scene.plan());
    // Also when it has started meanwhile, and could get its vote.
    scene.is_listed(3, true, true);
    scene.state(3);
    assert!(gives_back(&scene), "{:?}", scene.plan());
    scene.is_listed(3, false, true);
    assert!(
        scene.asked().is_none(),
        "as a voter it stays: {:?}",
        scene.plan()
    );
}

#[test]
fn a_node_is_told_by_what_volumes_call_it() {
    let mut scene = taken();
    change(scene.pod(3), json!({ "spec": { "nodeName": "i-0a1b" } }));
    assert!(!gives_back(&scene));
    scene
        .observed
        .hostnames
        .insert("i-0a1b".to_owned(), "node-2".to_owned());
    assert!(gives_back(&scene));
}

#[test]
fn a_newcomer_elsewhere_stays_unless_the_voter_could_be_there_as_well() {
    let mut scene = taken();
    change(scene.pod(3), json!({ "spec": { "nodeName": "node-3" } }));
    assert!(!gives_back(&scene), "the voter waits for its own node");
    scene.observed.volume_locations.clear();
    assert!(
        !gives_back(&scene),
        "nobody knows from where its volume can be reached: from its zone only, perhaps"
    );
    scene
        .observed
        .volume_locations
        .insert(name(2), VolumeLocation::Anywhere);
    assert!(!gives_back(&scene), "another node may be on its way");
    scene.observed.now = evenkeel_runtime::UnixTime(NOW.0 + 60);
    assert!(
        gives_back(&scene),
        "its volume can be reached from everywhere"
    );
}

#[test]
fn a_voter_that_was_away_for_too_long_has_no_claim_on_a_place() {
    let mut scene = taken();
    let long_ago = jiff::Timestamp::from_second(NOW.0 - 301)
        .unwrap()
        .to_string();
    change(
        scene.pod(2),
        json!({ "metadata": { "creationTimestamp": long_ago } }),
    );
    assert!(!gives_back(&scene));
}

#[test]
fn without_a_quorum_the_newcomers_pod_goes_from_a_voters_place() {
    let mut scene = taken();
    scene.loses_its_quorum(&[1, 2]);
    let makes_way = EtcdDisruption::DeletePod {
        pod: pod_uid(3),
        serial: Serial(3),
        why: DeleteReason::FreesNode,
    };
    assert_eq!(scene.plan().disruption, Some(makes_way.clone()));
    let long_ago = jiff::Timestamp::from_second(NOW.0 - 9999)
        .unwrap()
        .to_string();
    change(
        scene.pod(2),
        json!({ "metadata": { "creationTimestamp": long_ago } }),
    );
    assert_eq!(
        scene.plan().disruption,
        Some(makes_way),
        "and however long that takes: nobody can replace the voter"
    );
    scene.has_pod(3, &StartMode::ExistingData);
    change(scene.pod(3), json!({ "spec": { "nodeName": "node-2" } }));
    assert!(
        scene.plan().disruption.is_none(),
        "it may have a vote: {:?}",
        scene.plan()
    );
}

#[test]
fn a_newcomer_that_had_to_leave_a_voters_place_and_has_its_volume_there_is_removed_in_the_end() {
    let mut scene = Scene::with_newcomer();
    scene.is_refused(3, on("node-2"));
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
    assert!(gives_back(&scene), "{:?}", scene.plan());
    scene.observed.volume_locations.clear();
    assert!(
        scene.asked().is_none(),
        "its volume is nowhere yet: another one would do no better"
    );
}

#[test]
fn whoever_shares_a_node_with_one_that_was_removed_stays_before_those_who_share_theirs() {
    let mut scene = Scene::with(4, json!({ "members": 3 }));
    scene.turn(|identity| identity.next_serial = Serial(5));
    // The last one is no longer in etcd's list, and its pod is about to go.
    scene.has_pod(4, &StartMode::ExistingData);
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
        "the first one leads: {plan:?}"
    );
}
