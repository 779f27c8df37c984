//! Facts from objects: every field that decisions use.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::decide::Etcd;
use crate::facts::{DisruptionWindow, StartMode, WindowWait};
use crate::testing::{LINEAGE, NOW, Scene, change, claim_uid, id, member, name, pod_uid};
use evenkeel_runtime::{Engine, Plan};

/// Returns the facts about the first member's pod after this change.
fn pod_with(with: Value) -> PodFacts {
    let mut scene = Scene::converged(1);
    change(scene.pod(0), with);
    scene.facts().pods.present().unwrap()[0].clone()
}

/// Returns the facts about the first member's PVC after this change.
fn claim_with(with: Value) -> ClaimFacts {
    let mut scene = Scene::converged(1);
    change(scene.claim(0), with);
    scene.facts().claims.present().unwrap()[0].clone()
}

/// Returns the problem of the first member's pod with this status.
fn problem_with(status: Value) -> Option<String> {
    let mut scene = Scene::converged(1);
    change(scene.pod(0), json!({ "status": status }));
    scene.facts().details[&Serial(0)].pod_problem.clone()
}

fn container(state: Value, restarts: i32) -> Value {
    json!([{ "name": "etcd", "state": state, "restartCount": restarts, "image": "", "imageID": "", "ready": false }])
}

fn waiting(reason: &str, message: &str) -> Value {
    json!({ "containerStatuses": container(json!({ "waiting": { "reason": reason, "message": message } }), 1) })
}

#[test]
fn a_converged_cluster_has_an_empty_plan() {
    for spec in [json!({}), json!({ "storage": { "onDelete": "Delete" } })] {
        let plan: Plan<Etcd> = Etcd::decide(&Scene::with(3, spec).facts());
        assert!(plan.is_noop() && plan.waits.is_empty(), "{plan:?}");
    }
}

#[test]
fn the_facts_of_a_running_pod() {
    let pod = pod_with(json!({}));
    assert_eq!(
        (pod.serial, pod.epoch, pod.uid),
        (Serial(0), member(0).epoch, pod_uid(0))
    );
    assert_eq!(pod.start_mode, StartMode::ExistingData);
    assert!(pod.joined_gate && pod.is_ready && pod.is_routed && pod.is_owned);
    assert!(!pod.is_terminating && !pod.is_finished && pod.crashing_since.is_none());
    assert!(pod.created_at < NOW, "{:?}", pod.created_at);
}

#[test]
fn a_pod_without_a_status_is_new_and_not_ready() {
    let pod = pod_with(json!({ "status": null, "metadata": { "creationTimestamp": null } }));
    assert!(!pod.joined_gate && !pod.is_ready && !pod.is_finished && pod.crashing_since.is_none());
    assert_eq!(pod.created_at, NOW);
}

#[test]
fn finished_terminating_and_orphaned_pods_are_distinguished() {
    for phase in ["Succeeded", "Failed"] {
        assert!(
            pod_with(json!({ "status": { "phase": phase } })).is_finished,
            "{phase}"
        );
    }
    for phase in ["Pending", "Running", "Unknown"] {
        assert!(
            !pod_with(json!({ "status": { "phase": phase } })).is_finished,
            "{phase}"
        );
    }
    assert!(
        pod_with(json!({ "metadata": { "deletionTimestamp": "2027-01-15T07:59:00Z" } }))
            .is_terminating
    );
    assert!(!pod_with(json!({ "metadata": { "ownerReferences": [] } })).is_owned);
    let role = |role: Value| {
        pod_with(json!({ "metadata": { "labels": { labels::ROLE: role } } })).is_routed
    };
    assert!(role(json!(labels::ROLE_VOTER)) && !role(json!("learner")) && !role(json!(null)));
}

#[test]
fn the_facts_of_a_joined_claim() {
    let claim = claim_with(json!({}));
    assert_eq!((claim.serial, claim.uid), (Serial(0), claim_uid(0)));
    assert_eq!(
        claim.joined_on,
        claim.volume.map(|volume| (claim_uid(0), volume))
    );
    assert!(claim.is_joined_volume() && !claim.is_terminating && !claim.is_lost && !claim.is_owned);
}

#[test]
fn a_claim_with_another_volume_is_not_the_joined_one() {
    assert!(
        !claim_with(json!({ "spec": { "volumeName": "pv-other" } })).is_joined_volume(),
        "another volume"
    );
    assert!(
        !claim_with(json!({ "spec": { "volumeName": "" } })).is_joined_volume(),
        "not bound"
    );
    let joined = |on: Value| {
        claim_with(json!({ "metadata": { "annotations": { labels::JOINED_VOLUME: on } } }))
    };
    let restored = joined(json!(format!("{}/pv-0", Uid(99))));
    assert!(
        restored.joined_on.is_some() && !restored.is_joined_volume(),
        "recorded on an earlier claim of this name"
    );
    let garbled = joined(json!("malformed"));
    assert!(
        garbled.joined_on.is_some() && !garbled.is_joined_volume(),
        "the member has joined, and not on this volume"
    );
    assert!(joined(json!(null)).joined_on.is_none());
}

#[test]
fn a_claim_is_lost_with_its_volume_or_its_node() {
    assert!(claim_with(json!({ "status": { "phase": "Lost" } })).is_lost);
    let mut scene = Scene::converged(2);
    scene.observed.volume_locations.extend([
        (name(0), VolumeLocation::Node("a".to_owned())),
        (name(1), VolumeLocation::Gone),
    ]);
    let lost: Vec<_> = scene
        .facts()
        .claims
        .present()
        .unwrap()
        .iter()
        .map(|claim| claim.is_lost)
        .collect();
    assert_eq!(lost, [false, true]);
}

#[test]
fn objects_of_another_lineage_are_no_facts() {
    let mut scene = Scene::converged(2);
    let other_lineage = json!({ "metadata": { "annotations": { labels::LINEAGE: "00000008" } } });
    change(scene.pod(1), other_lineage.clone());
    change(scene.claim(1), other_lineage);
    // The problem of another lineage's pod is not reported either.
    change(
        scene.pod(1),
        json!({ "status": waiting("CreateContainerError", "no such device") }),
    );
    let facts = scene.facts();
    assert_eq!(facts.pods.present().unwrap().len(), 1);
    assert_eq!(facts.claims.present().unwrap().len(), 1);
    assert!(
        !facts.details.contains_key(&Serial(1)),
        "{:?}",
        facts.details
    );
}

#[test]
fn objects_without_readable_member_annotations_are_no_facts() {
    for key in [labels::LINEAGE, labels::EPOCH, labels::SERIAL] {
        for value in [json!(null), json!("minus one")] {
            let mut scene = Scene::converged(1);
            let with = json!({ "metadata": { "annotations": { key: value } } });
            change(scene.pod(0), with.clone());
            change(scene.claim(0), with);
            let facts = scene.facts();
            assert_eq!(facts.pods.present(), Some(&vec![]), "{key}");
            assert_eq!(facts.claims.present(), Some(&vec![]), "{key}");
        }
    }
}

#[test]
fn without_an_identity_every_labelled_object_is_a_fact() {
    let mut scene = Scene::converged(1);
    scene.observed.identity = None;
    let facts = scene.facts();
    assert!(
        facts.identity.is_absent(),
        "it was read, and does not exist"
    );
    assert_eq!(facts.pods.present().unwrap().len(), 1);
    assert_eq!(facts.claims.present().unwrap().len(), 1);
    assert!(scene.observed.member_index().is_none());
}

#[test]
fn member_details_contain_node_version_and_leader() {
    let facts = Scene::converged(2).facts();
    let (first, second) = (&facts.details[&Serial(0)], &facts.details[&Serial(1)]);
    assert_eq!(first.node.as_deref(), Some("node-0"));
    assert_eq!(first.version.as_deref(), Some("3.6.16"));
    assert!(first.is_leader && !second.is_leader && first.pod_problem.is_none());
    let mut scene = Scene::converged(2);
    scene.state.leader = Some(id(9));
    assert!(
        !scene.facts().details.values().any(|about| about.is_leader),
        "the leader is not a listed member"
    );
}

#[test]
fn the_problem_of_a_pod_names_etcd_or_the_image() {
    let crashing = problem_with(waiting("CrashLoopBackOff", "back-off 40s"));
    assert_eq!(
        crashing.as_deref(),
        Some("etcd keeps crashing (CrashLoopBackOff). See its log")
    );
    let pulling = problem_with(waiting("ErrImagePull", "not found"));
    assert_eq!(
        pulling.as_deref(),
        Some("the image gcr.io/etcd-development/etcd:v3.6.16 cannot be pulled")
    );
    assert_eq!(problem_with(json!({})), None);
}

#[test]
fn a_held_pod_has_no_problem() {
    let mut scene = Scene::converged(1);
    scene.add_pod(0, &StartMode::Held);
    let data = scene.pod(0).metadata.annotations.as_ref().unwrap()[labels::DATA_SUB_PATH].clone();
    let message = format!(
        "failed to prepare subPath for volumeMount \"data\": {data} must be a relative path"
    );
    change(
        scene.pod(0),
        json!({ "status": waiting("CreateContainerConfigError", &message) }),
    );
    let facts = scene.facts();
    assert_eq!(facts.details[&Serial(0)].pod_problem, None);
    assert_eq!(facts.pods.present().unwrap()[0].start_mode, StartMode::Held);
}

fn reference(kind: &str, name: &str, uid: Uid, controller: Value) -> Value {
    json!({ "ownerReferences": [{ "apiVersion": "v1", "kind": kind, "name": name, "uid": uid.to_string(),
        "controller": controller }] })
}

#[test]
fn claim_and_identity_are_owned_only_if_the_spec_says_delete() {
    let owners = |on_delete: &str| {
        let facts = Scene::with(1, json!({ "storage": { "onDelete": on_delete } })).facts();
        let claim = &facts.claims.present().unwrap()[0];
        (facts.identity_owner, claim.is_owned)
    };
    assert_eq!(owners("Keep"), (OwnedBy::Unowned, false));
    assert_eq!(owners("Delete"), (OwnedBy::Resource, true));
}

#[test]
fn objects_of_a_deleted_resource_count_as_terminating() {
    let mut scene = Scene::with(1, json!({ "storage": { "onDelete": "Delete" } }));
    scene.observed.desired.uid = Uid(99);
    let facts = scene.facts();
    assert_eq!(facts.identity_owner, OwnedBy::PreviousResource);
    assert!(
        facts.claims.present().unwrap()[0].is_terminating
            && facts.pods.present().unwrap()[0].is_terminating
    );
}

#[test]
fn a_service_drifts_if_it_is_missing_changed_or_foreign() {
    let drift = |scene: &Scene| scene.facts().drift;
    assert_eq!(drift(&Scene::converged(3)), BTreeMap::new());
    let mut scene = Scene::converged(3);
    scene.observed.peer_service = None;
    assert_eq!(
        drift(&scene),
        BTreeMap::from([(OwnedObject::PeerService, Drift::Missing)])
    );

    let client = |with: Value| {
        let mut scene = Scene::converged(3);
        change(scene.observed.client_service.as_mut().unwrap(), with);
        drift(&scene).get(&OwnedObject::ClientService).copied()
    };
    let defaulted = json!({ "spec": { "clusterIP": "10.96.0.7", "sessionAffinity": "None" },
        "metadata": { "resourceVersion": "7", "annotations": { "theirs": "yes" } } });
    assert_eq!(
        client(defaulted),
        None,
        "defaults and foreign annotations are ignored"
    );
    assert_eq!(
        client(json!({ "spec": { "selector": { labels::ROLE: "learner" } } })),
        Some(Drift::Differs)
    );
    assert_eq!(
        client(json!({ "spec": { "type": "NodePort" } })),
        Some(Drift::Differs)
    );
    let previous = json!({ "metadata": reference("EtcdCluster", "orders", Uid(9), json!(true)) });
    assert_eq!(
        client(previous),
        Some(Drift::Differs),
        "it is adopted from a previous resource"
    );
    assert_eq!(
        client(json!({ "metadata": { "labels": null } })),
        Some(Drift::NotOwned)
    );
}

#[test]
fn min_available_is_read_from_the_pod_disruption_budget() {
    let mut scene = Scene::converged(5);
    assert_eq!(scene.facts().pdb_min_available, Observed::Present(Some(3)));
    change(
        scene.observed.pdb.as_mut().unwrap(),
        json!({ "spec": { "minAvailable": 1 } }),
    );
    assert_eq!(scene.facts().pdb_min_available, Observed::Present(Some(1)));
    change(
        scene.observed.pdb.as_mut().unwrap(),
        json!({ "spec": { "minAvailable": "50%" } }),
    );
    assert_eq!(scene.facts().pdb_min_available, Observed::Present(None));
    assert!(scene.facts().drift.is_empty(), "it is ours, and is updated");
    change(
        scene.observed.pdb.as_mut().unwrap(),
        json!({ "metadata": { "labels": null } }),
    );
    assert_eq!(
        scene.facts().drift,
        BTreeMap::from([(OwnedObject::PodDisruptionBudget, Drift::NotOwned)])
    );
    scene.observed.pdb = None;
    assert_eq!(scene.facts().pdb_min_available, Observed::Absent);
}

#[test]
fn drift_contains_secrets_and_services() {
    let mut scene = Scene::converged(3);
    scene
        .observed
        .tls
        .drift
        .insert(OwnedObject::PeerTls, Drift::Differs);
    scene.observed.client_service = None;
    let facts = scene.facts();
    assert_eq!(facts.drift.len(), 2);
    assert_eq!(facts.drift[&OwnedObject::PeerTls], Drift::Differs);
}

#[test]
fn the_index_contains_names_and_urls_of_the_lineage() {
    let index = Scene::converged(2).observed.member_index().unwrap();
    assert_eq!(index.by_name(&name(1)), Some(Serial(1)));
    let url = |serial: u16| peer_url("orders", "shop", &name(serial));
    assert_eq!(index.by_peer_url(&url(1)), Some(Serial(1)));
    assert_eq!(
        index.by_peer_url(&url(2)),
        None,
        "a serial that is not in use"
    );
    let other = member_name("orders", Lineage(LINEAGE.0 + 1), Serial(1));
    assert_eq!(index.by_name(&other), None);
}

/// Returns the disruption window at this time on 2027-01-15, a Friday, with a window from 02:00 to 05:00 in Berlin.
fn window_at(time: &str) -> DisruptionWindow {
    let window =
        json!({ "days": ["Fri"], "start": "02:00", "duration": "3h", "timeZone": "Europe/Berlin" });
    let mut scene = Scene::with(3, json!({ "maintenance": { "windows": [window] } }));
    let now: jiff::Timestamp = format!("2027-01-15T{time}Z").parse().unwrap();
    scene.observed.now = UnixTime(now.as_second());
    scene.facts().cluster.disruption
}

#[test]
fn disruptions_are_allowed_only_in_an_open_window() {
    let from = |text: &str| {
        DisruptionWindow::NotBefore(UnixTime(
            text.parse::<jiff::Timestamp>().unwrap().as_second(),
        ))
    };
    assert_eq!(window_at("00:59:59"), from("2027-01-15T01:00:00Z"));
    assert_eq!(window_at("01:00:00"), DisruptionWindow::Allowed);
    assert_eq!(window_at("03:59:59"), DisruptionWindow::Allowed);
    assert_eq!(window_at("04:00:00"), from("2027-01-22T01:00:00Z"));
    assert_eq!(
        Scene::converged(3).facts().cluster.disruption,
        DisruptionWindow::Allowed,
        "no windows are configured"
    );
}

#[test]
fn at_the_opening_of_a_window_there_is_nothing_to_wait_for() {
    let from = DisruptionWindow::NotBefore(NOW);
    let waits = Some(WindowWait::Opens(NOW));
    assert_eq!(from.wait(UnixTime(NOW.0 - 1)), waits);
    assert_eq!(from.wait(NOW), None);
    assert_eq!(DisruptionWindow::Allowed.wait(NOW), None);
}

#[test]
fn facts_without_a_disruption_window_can_be_read() {
    let facts = Scene::converged(1).facts();
    let mut stored = serde_json::to_value(&facts).unwrap();
    stored["cluster"]
        .as_object_mut()
        .unwrap()
        .remove("disruption")
        .unwrap();
    assert_eq!(serde_json::from_value::<EtcdFacts>(stored).unwrap(), facts);
}
