//! Facts from objects: every field that a decision rests on.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::decide::Etcd;
use crate::facts::{DisruptionWindow, StartMode};
use crate::testing::{
    LINEAGE, NOW, RESOURCE, Scene, change, claim_uid, desired, id, member, name, pod_uid,
};
use evenkeel_runtime::{Engine, Plan};

/// The facts about the pod of the first member, after this was laid over it.
fn pod_with(with: Value) -> crate::facts::PodFacts {
    let mut scene = Scene::converged(1);
    change(scene.pod(0), with);
    scene.facts().pods.present().unwrap()[0].clone()
}

/// The facts about its claim, likewise.
fn claim_with(with: Value) -> ClaimFacts {
    let mut scene = Scene::converged(1);
    change(scene.claim(0), with);
    scene.facts().claims.present().unwrap()[0].clone()
}

/// What is told of its pod, likewise.
fn trouble_with(status: Value) -> Option<String> {
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
fn a_converged_cluster_is_seen_as_such_and_nothing_is_done_about_it() {
    for spec in [json!({}), json!({ "storage": { "onDelete": "Delete" } })] {
        let plan: Plan<Etcd> = Etcd::decide(&Scene::with(3, spec).facts());
        assert!(plan.is_noop() && plan.waits.is_empty(), "{plan:?}");
    }
}

#[test]
fn a_pod_that_is_up_is_read_as_it_is() {
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
fn a_pod_that_nobody_has_reported_on_is_not_ready_and_new() {
    let pod = pod_with(json!({ "status": null, "metadata": { "creationTimestamp": null } }));
    assert!(!pod.joined_gate && !pod.is_ready && !pod.is_finished && pod.crashing_since.is_none());
    assert_eq!(pod.created_at, NOW);
}

#[test]
fn pods_that_end_go_or_are_nobodys_are_told_apart() {
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
fn a_condition_that_is_not_true_does_not_hold() {
    for status in ["False", "Unknown"] {
        let conditions =
            ["Ready", labels::GATE_JOINED].map(|it| json!({ "type": it, "status": status }));
        let pod = pod_with(json!({ "status": { "conditions": conditions } }));
        assert!(!pod.is_ready && !pod.joined_gate, "{status}");
    }
}

#[test]
fn a_container_that_ended_again_and_again_is_crashing_since_it_was_last_ready() {
    let status = |state: Value, restarts: i32, ready: &str| {
        json!({ "status": {
            "containerStatuses": container(state, restarts),
            "conditions": [
                { "type": "ContainersReady", "status": ready, "lastTransitionTime": "2027-01-15T07:30:00Z" },
            ],
        } })
    };
    let backs_off = || json!({ "waiting": { "reason": "CrashLoopBackOff" } });
    let since = pod_with(status(backs_off(), 2, "False")).crashing_since;
    assert_eq!(since, Some(UnixTime(NOW.0 - 30 * 60)));
    assert_eq!(
        pod_with(status(backs_off(), 1, "False")).crashing_since,
        None,
        "once is an accident"
    );
    assert_eq!(
        pod_with(status(json!({ "running": {} }), 7, "False")).crashing_since,
        None,
        "it runs now"
    );
    assert_eq!(
        pod_with(status(backs_off(), 7, "True")).crashing_since,
        None,
        "a kubelet that has not caught up"
    );
    let pulling = json!({ "waiting": { "reason": "ImagePullBackOff" } });
    assert_eq!(
        pod_with(status(pulling, 7, "False")).crashing_since,
        None,
        "its image, not its data"
    );
    let mut other = status(backs_off(), 7, "False");
    other["status"]["containerStatuses"][0]["name"] = json!("istio-proxy");
    assert_eq!(
        pod_with(other).crashing_since,
        None,
        "somebody else's container"
    );
}

#[test]
fn a_claim_is_read_with_its_volume_and_what_its_member_joined_on() {
    let claim = claim_with(json!({}));
    assert_eq!((claim.serial, claim.uid), (Serial(0), claim_uid(0)));
    assert_eq!(
        claim.joined_on,
        claim.volume.map(|volume| (claim_uid(0), volume))
    );
    assert!(claim.is_joined_volume() && !claim.is_terminating && !claim.is_lost && !claim.is_owned);
}

#[test]
fn a_claim_on_anything_but_what_its_member_joined_on_is_not_its_own() {
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
        "written on a claim of this name before"
    );
    let garbled = joined(json!("who knows"));
    assert!(
        garbled.joined_on.is_some() && !garbled.is_joined_volume(),
        "it has joined, and not on this"
    );
    assert!(joined(json!(null)).joined_on.is_none());
}

#[test]
fn a_claim_is_lost_when_kubernetes_says_so_or_its_node_is_no_more() {
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
fn objects_of_another_history_under_the_same_name_are_no_facts() {
    let mut scene = Scene::converged(2);
    let strange = json!({ "metadata": { "annotations": { labels::LINEAGE: "00000008" } } });
    change(scene.pod(1), strange.clone());
    change(scene.claim(1), strange);
    // What another history's pod is held up by is not this cluster's trouble either.
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
fn objects_that_do_not_say_whose_they_are_are_no_facts() {
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
fn without_an_identity_whatever_is_left_is_a_fact() {
    let mut scene = Scene::converged(1);
    scene.observed.identity = None;
    let facts = scene.facts();
    assert!(facts.identity.is_absent(), "it was looked for");
    assert_eq!(facts.pods.present().unwrap().len(), 1);
    assert_eq!(facts.claims.present().unwrap().len(), 1);
    assert!(scene.observed.member_index().is_none());
}

#[test]
fn what_is_said_of_a_member_names_its_node_version_and_who_leads() {
    let facts = Scene::converged(2).facts();
    let (first, second) = (&facts.details[&Serial(0)], &facts.details[&Serial(1)]);
    assert_eq!(first.node.as_deref(), Some("node-0"));
    assert_eq!(first.version.as_deref(), Some("3.6.16"));
    assert!(first.is_leader && !second.is_leader && first.pod_problem.is_none());
    let mut scene = Scene::converged(2);
    scene.state.leader = Some(id(9));
    assert!(
        !scene.facts().details.values().any(|about| about.is_leader),
        "a leader that is nobody's here"
    );
}

#[test]
fn what_holds_a_pod_up_is_told_in_words_that_do_not_change_by_themselves() {
    let unscheduled = |reason: &str, message: Value| {
        let kind = "PodScheduled";
        json!({ "conditions": [{ "type": kind, "status": "False", "reason": reason, "message": message }] })
    };
    let full = "0/3 nodes are available: 3 Insufficient cpu.";
    assert_eq!(
        trouble_with(unscheduled("Unschedulable", json!(full))).as_deref(),
        Some(full)
    );
    assert!(trouble_with(unscheduled("Unschedulable", json!(null))).is_some());
    assert_eq!(
        trouble_with(unscheduled("SchedulingGated", json!("gated"))),
        None
    );

    let back_off = trouble_with(waiting(
        "CrashLoopBackOff",
        "back-off 40s restarting failed container",
    ));
    let said = "etcd keeps ending soon after it is started (CrashLoopBackOff): see its log";
    assert_eq!(
        back_off.as_deref(),
        Some(said),
        "its message counts seconds"
    );
    let pulls =
        ["ErrImagePull", "ImagePullBackOff"].map(|reason| trouble_with(waiting(reason, reason)));
    assert_eq!(pulls[0], pulls[1], "the two come in turns");
    let said = pulls[0].clone().unwrap();
    assert_eq!(
        said,
        "the image gcr.io/etcd-development/etcd:v3.6.16 cannot be pulled"
    );

    let said = trouble_with(waiting(
        "CreateContainerConfigError",
        "secret \"orders-etcd-peer-tls\" not found",
    ));
    assert_eq!(
        said.as_deref(),
        Some("CreateContainerConfigError: secret \"orders-etcd-peer-tls\" not found")
    );
    for ordinary in ["ContainerCreating", "PodInitializing"] {
        assert_eq!(trouble_with(waiting(ordinary, "")), None, "{ordinary}");
    }
    assert_eq!(trouble_with(json!({})), None);
}

#[test]
fn a_pod_that_waits_as_it_should_has_no_trouble() {
    let mut scene = Scene::converged(1);
    scene.has_pod(0, &StartMode::Held);
    let data = scene.pod(0).metadata.annotations.as_ref().unwrap()[labels::DATA_SUB_PATH].clone();
    let complaint = format!(
        "failed to prepare subPath for volumeMount \"data\": {data} must be a relative path"
    );
    change(
        scene.pod(0),
        json!({ "status": waiting("CreateContainerConfigError", &complaint) }),
    );
    let facts = scene.facts();
    assert_eq!(facts.details[&Serial(0)].pod_problem, None);
    assert_eq!(facts.pods.present().unwrap()[0].start_mode, StartMode::Held);
}

fn metadata(with: Value) -> ObjectMeta {
    let mut metadata = serde_json::from_value(
        json!({ "name": "orders-etcd-peer", "labels": { labels::CLUSTER: "orders" } }),
    )
    .unwrap();
    change(&mut metadata, with);
    metadata
}

fn reference(kind: &str, name: &str, uid: Uid, controller: Value) -> Value {
    json!({ "ownerReferences": [{ "apiVersion": "v1", "kind": kind, "name": name, "uid": uid.to_string(),
        "controller": controller }] })
}

#[test]
fn whose_an_object_is_is_told_by_label_and_controller() {
    let desired = desired(json!({}));
    let of = |with: Value| ownership(&desired, &metadata(with));
    assert_eq!(
        of(reference("EtcdCluster", "orders", RESOURCE, json!(true))),
        Ownership::ThisResource
    );
    assert_eq!(
        of(reference("EtcdCluster", "orders", Uid(9), json!(true))),
        Ownership::PreviousResource
    );
    assert_eq!(
        of(json!({})),
        Ownership::PreviousResource,
        "an earlier resource's that was orphaned"
    );
    assert_eq!(
        of(reference("ConfigMap", "x", Uid(9), json!(null))),
        Ownership::PreviousResource,
        "nobody controls it"
    );
    assert_eq!(
        of(reference("EtcdCluster", "billing", Uid(9), json!(true))),
        Ownership::Other
    );
    assert_eq!(
        of(reference("Deployment", "orders", Uid(9), json!(true))),
        Ownership::Other
    );
    let mut labelled = reference("EtcdCluster", "orders", RESOURCE, json!(true));
    labelled["labels"] = json!({ labels::CLUSTER: "billing" });
    assert_eq!(of(labelled), Ownership::Other, "the label says otherwise");
    assert_eq!(
        of(json!({ "labels": null })),
        Ownership::Other,
        "it was there before us"
    );
}

#[test]
fn what_goes_with_the_resource_is_told_by_any_reference_to_it() {
    let desired = desired(json!({}));
    let goes_with = |object: Value| owned_by(&desired.name, desired.uid, &metadata(object));
    assert_eq!(
        goes_with(reference("EtcdCluster", "orders", RESOURCE, json!(null))),
        OwnedBy::Resource
    );
    assert_eq!(
        goes_with(reference("EtcdCluster", "orders", Uid(9), json!(true))),
        OwnedBy::PreviousResource
    );
    assert_eq!(
        goes_with(reference("EtcdCluster", "billing", Uid(9), json!(true))),
        OwnedBy::Nobody
    );
    assert_eq!(goes_with(json!({})), OwnedBy::Nobody, "it was orphaned");
    let owned = |spec: Value| {
        let facts = Scene::with(1, spec).facts();
        (
            facts.identity_owner,
            facts.claims.present().unwrap()[0].is_owned,
        )
    };
    assert_eq!(
        owned(json!({ "storage": { "onDelete": "Keep" } })),
        (OwnedBy::Nobody, false)
    );
    assert_eq!(
        owned(json!({ "storage": { "onDelete": "Delete" } })),
        (OwnedBy::Resource, true)
    );
}

#[test]
fn what_went_with_a_resource_that_is_no_more_is_on_its_way_out() {
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
fn a_service_is_amiss_when_it_is_missing_changed_or_somebody_elses() {
    let amiss = |scene: &Scene| scene.facts().drift;
    assert_eq!(amiss(&Scene::converged(3)), BTreeMap::new());
    let mut scene = Scene::converged(3);
    scene.observed.peer_service = None;
    assert_eq!(
        amiss(&scene),
        BTreeMap::from([(OwnedObject::PeerService, Drift::Missing)])
    );

    let client = |with: Value| {
        let mut scene = Scene::converged(3);
        change(scene.observed.client_service.as_mut().unwrap(), with);
        amiss(&scene).get(&OwnedObject::ClientService).copied()
    };
    let filled_in = json!({ "spec": { "clusterIP": "10.96.0.7", "sessionAffinity": "None" },
        "metadata": { "resourceVersion": "7", "annotations": { "theirs": "yes" } } });
    assert_eq!(client(filled_in), None, "what Kubernetes fills in is fine");
    assert_eq!(
        client(json!({ "spec": { "selector": { labels::ROLE: "learner" } } })),
        Some(Drift::Differs)
    );
    assert_eq!(
        client(json!({ "spec": { "type": "NodePort" } })),
        Some(Drift::Differs)
    );
    let earlier = json!({ "metadata": reference("EtcdCluster", "orders", Uid(9), json!(true)) });
    assert_eq!(
        client(earlier),
        Some(Drift::Differs),
        "an earlier resource's is taken over"
    );
    assert_eq!(
        client(json!({ "metadata": { "labels": null } })),
        Some(Drift::NotOwned)
    );
}

#[test]
fn a_budget_is_read_as_the_number_it_guards_or_as_something_else() {
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
    assert!(scene.facts().drift.is_empty(), "it is ours, and put right");
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
fn certificates_that_are_amiss_are_told_beside_the_services() {
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
fn members_are_registered_under_the_names_and_urls_of_their_history() {
    let register = Scene::converged(2).observed.member_index().unwrap();
    assert_eq!(register.by_name(&name(1)), Some(Serial(1)));
    let url = |serial: u16| peer_url("orders", "shop", &name(serial));
    assert_eq!(register.by_peer_url(&url(1)), Some(Serial(1)));
    assert_eq!(
        register.by_peer_url(&url(2)),
        None,
        "a serial that was never used"
    );
    let other = member_name("orders", Lineage(LINEAGE.0 + 1), Serial(1));
    assert_eq!(register.by_name(&other), None);
}

/// When members may be disturbed at this time on 2027-01-15, a Friday, with a window from two to five in Berlin that day.
fn disrupt_at(time: &str) -> DisruptionWindow {
    let window =
        json!({ "days": ["Fri"], "start": "02:00", "duration": "3h", "timeZone": "Europe/Berlin" });
    let mut scene = Scene::with(3, json!({ "maintenance": { "windows": [window] } }));
    let now: jiff::Timestamp = format!("2027-01-15T{time}Z").parse().unwrap();
    scene.observed.now = UnixTime(now.as_second());
    scene.facts().cluster.disruption
}

#[test]
fn members_may_be_disturbed_while_a_window_is_open_and_otherwise_from_when_the_next_one_opens() {
    let from = |text: &str| {
        DisruptionWindow::NotBefore(UnixTime(
            text.parse::<jiff::Timestamp>().unwrap().as_second(),
        ))
    };
    assert_eq!(disrupt_at("00:59:59"), from("2027-01-15T01:00:00Z"));
    assert_eq!(disrupt_at("01:00:00"), DisruptionWindow::Allowed);
    assert_eq!(disrupt_at("03:59:59"), DisruptionWindow::Allowed);
    assert_eq!(disrupt_at("04:00:00"), from("2027-01-22T01:00:00Z"));
    assert_eq!(
        Scene::converged(3).facts().cluster.disruption,
        DisruptionWindow::Allowed,
        "there are no windows"
    );
}

#[test]
fn whoever_is_brought_forward_to_when_a_window_opens_waits_no_longer() {
    let from = DisruptionWindow::NotBefore(NOW);
    assert_eq!(from.waits_until(UnixTime(NOW.0 - 1)), Some(NOW));
    assert_eq!(from.waits_until(NOW), None);
    assert_eq!(DisruptionWindow::Allowed.waits_until(NOW), None);
}

#[test]
fn facts_that_were_noted_before_there_were_windows_can_still_be_read() {
    let facts = Scene::converged(1).facts();
    let mut noted = serde_json::to_value(&facts).unwrap();
    noted["cluster"]
        .as_object_mut()
        .unwrap()
        .remove("disrupt")
        .unwrap();
    assert_eq!(serde_json::from_value::<EtcdFacts>(noted).unwrap(), facts);
}
