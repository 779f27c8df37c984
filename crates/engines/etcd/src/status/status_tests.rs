//! The status in the situations that users meet, decided from scenes.

use evenkeel_api::conditions::ConditionType::{Degraded, Progressing, Ready};
use evenkeel_runtime::Observed;
use serde_json::json;

use super::*;
use crate::desired::DesiredCluster;
use crate::facts::{Drift, OwnedObject, StartMode};
use crate::identity::{Intent, MembershipChange, Uid};
use crate::names::Serial;
use crate::testing::{NOW, Scene, change, claim_uid, condition, name, pod_uid};

/// Formats a status in one line: summary, ready members and the three conditions.
pub(super) fn line(status: &EtcdClusterStatus) -> String {
    let conditions = [Ready, Progressing, Degraded].map(|about| {
        let (holds, reason, _) = condition(status, about);
        format!("{holds} {reason}")
    });
    format!(
        "{} | {} | {}",
        status.summary,
        status.ready,
        conditions.join(" | ")
    )
}

/// Returns the current step of the operation; empty without an operation.
pub(super) fn step(status: &EtcdClusterStatus) -> &str {
    let operation = status.operation.as_ref();
    operation.map_or("", |operation| &operation.message)
}

/// Returns the status of a scene after a check of its texts.
pub(super) fn status_of(scene: &Scene) -> EtcdClusterStatus {
    let status = scene.status();
    check_texts(&status);
    status
}

/// Words that texts for users do not use, besides those in hack/retired-words.
const RETIRED_WORDS: &[&str] = &[
    "anew",
    "authority",
    "everyone",
    "goes",
    "going",
    "mend",
    "mended",
    "ours",
    "refused",
    "silent",
    "taken",
    "tells",
    "told",
    "wanted",
];

pub(crate) fn is_plain(text: &str) {
    for debris in [
        "Some(", "None", "Serial", "MemberId", "Uid", "Intent", "::", "{ ", "\\", "  ", ": :", "()",
    ] {
        assert!(
            !text.contains(debris),
            "`{debris}` in a text for users: {text}"
        );
    }
    for word in RETIRED_WORDS {
        let mut words = text.split(|it: char| !it.is_ascii_alphabetic() && it != '\'');
        assert!(
            words.all(|it| !it.eq_ignore_ascii_case(word)),
            "`{word}` in a text for users: {text}"
        );
    }
    let mut words = text.split(|it: char| !it.is_ascii_alphanumeric());
    let decimal = words.any(|word| word.len() > 8 && word.chars().all(|it| it.is_ascii_digit()));
    assert!(!decimal, "a long decimal number: {text}");
    let ends = text.ends_with([' ', ':', ',', ';']) || text.starts_with([' ', ':', ',']);
    assert!(!ends && !text.is_empty(), "half a sentence: `{text}`");
}

/// Checks that a text names an action: it begins with a gerund.
pub(crate) fn is_gerund_phrase(text: &str) {
    let first = text.split(' ').next().unwrap_or_default();
    assert!(first.ends_with("ing"), "an action, not a state: {text}");
}

/// Checks that a text consists of sentences.
pub(crate) fn is_sentence(text: &str) {
    let starts = text.starts_with(char::is_uppercase)
        || text.starts_with("etcd ")
        || text.starts_with("spec.")
        || text.starts_with(char::is_numeric);
    assert!(starts && text.ends_with('.'), "no sentence: {text}");
}

pub(super) fn check_texts(status: &EtcdClusterStatus) {
    let conditions = status.conditions.iter().map(|condition| &condition.message);
    let mut texts: Vec<_> = conditions
        .chain(&status.waiting_for)
        .chain([&status.summary])
        .collect();
    texts.extend(status.operation.iter().map(|operation| &operation.message));
    texts.extend(status.next_action.iter().map(|next| &next.message));
    texts.extend(status.problems.iter().map(|problem| &problem.message));
    let advice = status.problems.iter().map(|problem| &problem.advice);
    texts.extend(advice.filter(|text| !text.is_empty()));
    texts.extend(
        status
            .member_list
            .iter()
            .map(|member| &member.message)
            .filter(|text| !text.is_empty()),
    );
    texts.into_iter().for_each(|text| is_plain(text));
    if let Some(operation) = &status.operation {
        is_gerund_phrase(&operation.message);
        if !operation.reason.is_empty() {
            is_plain(&operation.reason);
        }
    }
    for problem in &status.problems {
        if !problem.message.starts_with("failed to ") && !problem.message.starts_with("cannot ") {
            is_sentence(&problem.message);
        }
        if !problem.advice.is_empty() {
            is_sentence(&problem.advice);
        }
    }
    for wait in &status.waiting_for {
        // A wait may quote a rejection after its noun phrase.
        let phrase = wait.split(": ").next().unwrap();
        assert!(!phrase.contains(" must "), "no noun phrase: {wait}");
    }
    let next = status.next_action.iter();
    assert!(
        next.clone()
            .all(|next| next.message.starts_with("operator ")),
        "{next:?}"
    );
    for condition in &status.conditions {
        if !condition.message.starts_with("failed to ") && !condition.message.starts_with("cannot ")
        {
            is_sentence(&condition.message);
        }
    }
    assert!(
        status.summary.starts_with(char::is_uppercase),
        "{}",
        status.summary
    );
    assert!(
        status.summary.chars().count() <= 160,
        "too long for a column: {}",
        status.summary
    );
    let has_text = status.operation.is_some();
    let is_progressing = condition(status, Progressing).0 == "True";
    assert!(
        !is_progressing || has_text,
        "it progresses without a text: {status:#?}"
    );
    for about in [Progressing, Degraded] {
        let (holds, _, message) = condition(status, about);
        let is_default = [MATCHES_SPEC, NO_PROBLEM].contains(&message);
        assert!(holds == "False" || !is_default, "{about}: {message}");
    }
}

/// A cluster of three whose seed has just formed it.
fn bootstrapping() -> Scene {
    let mut scene = Scene::with(1, json!({ "members": 3 }));
    scene.make_bootstrap_unfinished();
    scene.state.client_read = Observed::Unknown;
    scene
}

/// A cluster of three whose third member is a learner that joins.
pub(super) fn joining() -> Scene {
    let mut scene = Scene::with(2, json!({ "members": 3 }));
    scene.turn(|identity| identity.next_serial = Serial(3));
    scene.list_member(2, true, false);
    scene.add_claim(2, false);
    scene.add_pod(2, &StartMode::Join([0, 1, 2].map(Serial).into()));
    scene
}

fn cannot_pull_image(scene: &mut Scene, serial: u16) {
    let state = json!({ "waiting": { "reason": "ImagePullBackOff" } });
    let container = json!([{ "name": "etcd", "state": state, "restartCount": 0, "image": "", "imageID": "", "ready": false }]);
    change(
        scene.pod(serial),
        json!({ "status": { "containerStatuses": container } }),
    );
}

pub(super) fn finds_no_node(scene: &mut Scene, serial: u16) {
    let message = "0/3 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/unreachable: }, 2 Insufficient cpu. \
        preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod.";
    let condition = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message });
    change(
        scene.pod(serial),
        json!({ "spec": { "nodeName": null }, "status": { "phase": "Pending", "conditions": [condition] } }),
    );
}

#[test]
fn a_new_resource_is_bootstrapping() {
    let status = status_of(&Scene::nothing(json!({})));
    assert_eq!(
        line(&status),
        "Creating | 0/3 | False Bootstrapping | True Bootstrapping | False AsExpected"
    );
    assert_eq!(step(&status), "creating ConfigMap orders-etcd-identity");
}

#[test]
fn a_bootstrap_counts_its_members_and_names_a_pod_problem() {
    let status = status_of(&bootstrapping());
    assert_eq!(
        line(&status),
        "Bootstrapping 1 of 3 | 1/3 | False Bootstrapping | True Bootstrapping | False AsExpected"
    );
    assert_eq!(
        step(&status),
        format!("adding member {} as a learner", name(1))
    );

    let mut scene = bootstrapping();
    scene.add_claim(1, false);
    scene.add_pod(1, &StartMode::Held);
    cannot_pull_image(&mut scene, 1);
    let status = status_of(&scene);
    let image = "the image gcr.io/etcd-development/etcd:v3.6.16 cannot be pulled";
    assert_eq!(
        status.summary,
        format!("Bootstrapping 1 of 3: {}: {image}", name(1))
    );
}

#[test]
fn a_member_that_is_being_added_is_joining_and_not_leaving() {
    let mut scene = bootstrapping();
    scene.add_claim(1, false);
    scene.add_pod(1, &StartMode::Held);
    assert_eq!(
        status_of(&scene).member_list[1].role,
        MemberRole::Joining,
        "prepared"
    );
    let intent = Intent::new(MembershipChange::Add(Serial(1)), [Serial(0)].into(), NOW);
    scene.turn(|identity| *identity = identity.with_intent(&intent));
    assert_eq!(
        status_of(&scene).member_list[1].role,
        MemberRole::Joining,
        "its serial is used, and etcd lists it soon"
    );
}

#[test]
fn a_converged_cluster_is_healthy_without_action_and_waits() {
    let status = status_of(&Scene::converged(3));
    assert_eq!(
        line(&status),
        "Healthy | 3/3 | True Serving | False Converged | False AsExpected"
    );
    assert_eq!(
        (
            &status.operation,
            &status.next_action,
            status.waiting_for.len()
        ),
        (&None, &None, 0)
    );
    assert_eq!(status.problems, []);
    assert_eq!(
        (status.members, status.selector.as_str()),
        (3, "etcd.evenkeel.dev/cluster=orders")
    );
    assert_eq!(
        (status.leader, status.cluster_id.as_str()),
        (name(0), "cafe000000000001")
    );
    let first = &status.member_list[0];
    assert_eq!(
        (&first.name, first.role, first.healthy),
        (&name(0), MemberRole::Voter, true)
    );
    assert_eq!(
        (first.id.as_str(), first.node.as_str()),
        ("8e9e05c521646900", "node-0"),
        "as etcdctl writes it"
    );
    assert_eq!(
        (first.version.as_str(), first.message.as_str()),
        ("3.6.16", "")
    );
}

#[test]
fn the_status_of_a_converged_cluster_stays_the_same_byte_for_byte() {
    let mut scene = Scene::converged(3);
    let first = serde_json::to_string(&scene.status()).unwrap();
    for seconds in [1, 86_400, 864_000] {
        scene.set_status(serde_json::from_str(&first).unwrap());
        scene.observed.now = UnixTime(NOW.0 + seconds);
        assert_eq!(serde_json::to_string(&scene.status()).unwrap(), first);
    }
}

#[test]
fn no_status_changes_by_itself() {
    let changed = |change: fn(&mut Scene)| {
        let mut scene = Scene::converged(3);
        change(&mut scene);
        scene
    };
    let scenes = [
        changed(|scene| scene.stop_answering(1)),
        changed(|scene| scene.lose_quorum(&[0, 1])),
        changed(|scene| scene.observed.client_service = None),
        changed(|scene| scene.observed.identity = None),
        changed(|scene| finds_no_node(scene, 2)),
        bootstrapping(),
        joining(),
    ];
    for mut scene in scenes {
        let first = scene.status();
        scene.set_status(first.clone());
        scene.observed.now = UnixTime(NOW.0 + 1);
        assert_eq!(scene.status(), first);
    }
}

#[test]
fn a_restarted_operator_keeps_ready_until_its_first_client_read() {
    let mut scene = Scene::converged(3);
    scene.set_status(scene.status());
    scene.state.client_read = Observed::Unknown;
    assert_eq!(
        line(&status_of(&scene)),
        "Healthy | 3/3 | True Serving | False Converged | False AsExpected"
    );
    scene.lose_quorum(&[0, 1]);
    scene.state.client_read = Observed::Unknown;
    assert_eq!(
        condition(&status_of(&scene), Ready).0,
        "False",
        "a lost quorum is reported at once"
    );
}

#[test]
fn one_member_down_is_named_and_clients_are_served() {
    let mut scene = Scene::converged(3);
    scene.stop_answering(1);
    let status = status_of(&scene);
    let summary = format!("Recovering {}", name(1));
    assert_eq!(
        line(&status),
        format!("{summary} | 2/3 | True Serving | False Waiting | True MemberDown")
    );
    assert_eq!(
        status.problems[0].message,
        format!(
            "Member {} is not healthy: etcd does not respond on node node-1.",
            name(1)
        )
    );
    assert_eq!(status.problems[0].member, name(1));
    assert_eq!(
        condition(&status, Progressing).2,
        format!(
            "The operator is waiting for member {} to become healthy.",
            name(1)
        )
    );
    assert_eq!(
        status.member_list[1].message,
        "etcd does not respond on node node-1"
    );
    assert!(!status.member_list[1].healthy && status.member_list[1].role == MemberRole::Voter);
}

#[test]
fn a_terminating_or_finished_pod_is_reported() {
    let mut scene = Scene::converged(3);
    change(
        scene.pod(1),
        json!({ "metadata": { "deletionTimestamp": "2027-01-15T07:59:00Z" } }),
    );
    let status = status_of(&scene);
    assert_eq!(condition(&status, Progressing).1, "Recovering");
    assert_eq!(
        status.waiting_for,
        [format!("pod {} to be deleted", name(1))]
    );
    assert_eq!(
        status.member_list[1].message,
        "its pod is Terminating since 2027-01-15T07:59:00Z"
    );

    let mut scene = Scene::converged(3);
    change(scene.pod(1), json!({ "status": { "phase": "Failed" } }));
    scene.stop_answering(1);
    let status = status_of(&scene);
    let operation = status.operation.unwrap();
    assert_eq!(
        (operation.message, operation.reason),
        (
            format!("deleting Pod {}", name(1)),
            format!("Pod {} has terminated and must be recreated", name(1))
        )
    );
    assert_eq!(status.member_list[1].message, "its pod has terminated");
}

#[test]
fn a_member_whose_data_is_gone_is_being_replaced() {
    let mut scene = Scene::converged(3);
    scene.observed.claims.remove(&claim_uid(1));
    scene.observed.pods.remove(&pod_uid(1));
    scene.stop_answering(1);
    let status = status_of(&scene);
    let summary = format!("Replacing {}: its data is lost", name(1));
    assert_eq!(
        line(&status),
        format!("{summary} | 2/3 | True Serving | True Recovering | True MemberDown")
    );
    assert_eq!(step(&status), format!("removing member {}", name(1)));
    assert_eq!(status.member_list[1].role, MemberRole::Leaving);
    assert_eq!(
        status.member_list[1].message,
        "its data is lost, and a new member replaces it"
    );
}

#[test]
fn scaling_reports_its_progress() {
    let up = status_of(&Scene::with(3, json!({ "members": 5 })));
    assert_eq!(
        line(&up),
        "Adding a member: 3 of 5 | 3/5 | True Serving | True Scaling | False AsExpected"
    );
    assert_eq!(step(&up), format!("adding member {} as a learner", name(3)));
    let down = status_of(&Scene::with(5, json!({ "members": 3 })));
    assert_eq!(
        line(&down),
        "Removing a member: 5 exist, 3 desired | 5/3 | True Serving | True Scaling | False AsExpected"
    );
    assert_eq!(
        step(&down),
        format!(
            "removing member {} from Service orders-etcd-client",
            name(4)
        )
    );
}

#[test]
fn healthy_members_without_a_client_read_are_not_a_healthy_cluster() {
    let mut scene = Scene::converged(3);
    scene.state.client_read = Observed::Absent;
    let status = status_of(&scene);
    assert_eq!(
        line(&status),
        "Not serving | 3/3 | False NotServing | False Converged | True NotServing"
    );
    assert!(
        condition(&status, Degraded)
            .2
            .contains("Check the endpoints of Service orders-etcd-client"),
        "the message names the client Service"
    );
    scene.state.client_read = Observed::Unknown;
    let status = status_of(&scene);
    assert_eq!(
        status.summary,
        "All members are healthy, client access is not checked yet"
    );
    assert_eq!(condition(&status, Ready).0, "Unknown");
}

#[test]
fn a_name_conflict_is_reported_with_its_remedy() {
    let mut scene = Scene::converged(3);
    change(
        scene.observed.client_service.as_mut().unwrap(),
        json!({ "metadata": { "labels": null } }),
    );
    let status = status_of(&scene);
    let summary = "Name conflict: Service orders-etcd-client";
    assert_eq!(
        line(&status),
        format!("{summary} | 3/3 | True Serving | False Waiting | True NameConflict")
    );
    assert!(
        condition(&status, Degraded)
            .2
            .contains("Delete it, or create the EtcdCluster under another name.")
    );
    scene
        .observed
        .tls
        .drift
        .insert(OwnedObject::ServerTls, Drift::NotOwned);
    scene.observed.client_service =
        Some(crate::build::service::client(&scene.observed.desired).unwrap());
    assert_eq!(
        status_of(&scene).summary,
        "Name conflict: Secret orders-etcd-server-tls"
    );
}

#[test]
fn a_missing_ca_is_reported_with_its_remedy() {
    let mut scene = Scene::converged(3);
    scene
        .observed
        .tls
        .drift
        .insert(OwnedObject::ClientCa, Drift::Missing);
    let status = status_of(&scene);
    let summary = "CA missing or invalid: Secret orders-etcd-client-ca";
    assert_eq!(
        line(&status),
        format!("{summary} | 3/3 | True Serving | False Waiting | True CAMissing")
    );
    assert!(
        condition(&status, Degraded)
            .2
            .contains("Restore Secret orders-etcd-client-ca")
    );
}

#[test]
fn a_paused_cluster_still_reports_a_member_that_is_down() {
    let mut scene = Scene::with(3, json!({ "paused": true }));
    let status = status_of(&scene);
    assert_eq!(
        line(&status),
        "Paused | 3/3 | True Serving | False Paused | False AsExpected"
    );
    scene.stop_answering(1);
    assert_eq!(
        line(&status_of(&scene)),
        "Paused | 2/3 | True Serving | False Paused | True MemberDown"
    );
}

#[test]
fn without_an_identity_the_last_members_are_reported_as_unhealthy() {
    let mut scene = Scene::converged(3);
    scene.set_status(scene.status());
    scene.observed.identity = None;
    scene.state = crate::observe::etcd::EtcdState::default();
    let rebuilding = "Rebuilding ConfigMap orders-etcd-identity | 0/3 | Unknown ProbePending | True Recovering | False AsExpected";
    assert_eq!(line(&status_of(&scene)), rebuilding);
    // One claim belongs to another cluster.
    let other = json!({ "metadata": { "annotations": { labels::LINEAGE: "00000bad" } } });
    change(scene.claim(1), other);
    let status = status_of(&scene);
    let summary = "PersistentVolumeClaims and pods are inconsistent";
    assert_eq!(
        line(&status),
        format!(
            "{summary} | 0/3 | Unknown ProbePending | False Waiting | True InconsistentObjects"
        )
    );
    assert!(
        condition(&status, Degraded)
            .2
            .contains("Restore ConfigMap orders-etcd-identity")
    );
    assert_eq!(
        status.member_list.len(),
        3,
        "an empty list would read as an empty cluster"
    );
    assert!(
        status
            .member_list
            .iter()
            .all(|member| !member.healthy && member.message == "etcd cannot be queried")
    );
    assert_eq!(
        status.cluster_id, "cafe000000000001",
        "otherwise an empty cluster would replace it"
    );
}

#[test]
fn a_cluster_without_objects_reports_lost_data_and_the_remedy() {
    let mut scene = Scene::converged(3);
    let before = scene.status();
    scene = Scene::nothing(json!({}));
    scene.set_status(before);
    let status = status_of(&scene);
    let summary = "All data is lost";
    assert_eq!(
        line(&status),
        format!("{summary} | 0/3 | False NotServing | False Waiting | True DataLost")
    );
    assert!(
        condition(&status, Degraded)
            .2
            .contains("pods of etcd cluster cafe000000000001 are gone")
    );
    assert_eq!(status.cluster_id, "cafe000000000001");
}

#[test]
fn a_cluster_without_pods_and_volumes_has_no_healthy_member() {
    let mut scene = Scene::converged(3);
    scene.set_status(scene.status());
    scene.observed.pods.clear();
    scene.observed.claims.clear();
    scene.state = crate::observe::etcd::EtcdState {
        client_read: Observed::Absent,
        ..Default::default()
    };
    let status = status_of(&scene);
    assert_eq!(
        status.next_action, None,
        "there is nothing to continue with"
    );
    let summary = "All pods and PersistentVolumeClaims are gone";
    assert_eq!(
        line(&status),
        format!("{summary} | 0/3 | False QuorumLost | False Waiting | True DataLost")
    );
    assert!(
        condition(&status, Degraded)
            .2
            .contains("delete the EtcdCluster and ConfigMap orders-etcd-identity")
    );
    assert_eq!(status.member_list.len(), 3);
}

#[test]
fn a_deleted_resource_is_not_converged() {
    let mut scene = Scene::converged(3);
    change(
        &mut scene.observed.resource,
        json!({ "metadata": { "deletionTimestamp": "2027-01-15T07:59:00Z" } }),
    );
    scene.observed.desired = DesiredCluster::of(&scene.observed.resource).unwrap();
    scene.stop_answering(1);
    let status = status_of(&scene);
    assert_eq!(
        line(&status),
        "Deleting | 2/3 | True Serving | True Deleting | False AsExpected"
    );
    assert!(
        state_events(&scene.observed, &scene.facts(), &scene.plan()).is_empty(),
        "its members are expected to terminate"
    );
}

#[test]
fn a_failed_observation_keeps_the_last_status_and_adds_the_error() {
    let mut scene = joining();
    scene.set_status(scene.status());
    let resource = &scene.observed.resource;
    let forbidden = kube::core::Status::failure(
        "pods is forbidden: User \"x\" cannot list pods",
        "Forbidden",
    );
    let error = kube::Error::Api(forbidden.with_code(403).boxed());
    let error = Error::kubernetes("list pods")(error);
    let status = observe_error_status(resource, NOW, &error);
    check_texts(&status);
    let expected = "Operator cannot read the objects of the cluster | 2/3 | Unknown ProbePending | False Waiting | True ObserveFailed";
    assert_eq!(line(&status), expected);
    let message = "failed to list pods: pods is forbidden: User \"x\" cannot list pods";
    assert_eq!(condition(&status, Degraded).2, message);
    assert_eq!(
        status.waiting_for,
        [format!("a successful retry: {message}")]
    );
    assert_eq!(
        (&status.operation, &status.next_action),
        (&None, &None),
        "there is no action"
    );
    assert_eq!(status.member_list, scene.status().member_list);
}

#[test]
fn a_rejected_spec_and_an_unreadable_object_have_different_reasons() {
    let scene = Scene::converged(3);
    let mut resource = scene.observed.resource.clone();
    resource.spec.version = "2.3".to_owned();
    let error = DesiredCluster::of(&resource).unwrap_err();
    let status = observe_error_status(&resource, NOW, &Error::invalid_spec(error));
    check_texts(&status);
    assert_eq!(
        (status.summary.as_str(), condition(&status, Degraded).1),
        ("Invalid spec", "InvalidSpec")
    );
    assert!(condition(&status, Degraded).2.contains("spec.version"));

    let mut object = scene.observed.identity.clone().unwrap().0;
    change(&mut object, json!({ "data": { "identity": "{" } }));
    let error = crate::observe::objects::parse_identity(object).unwrap_err();
    let status = observe_error_status(&scene.observed.resource, NOW, &error);
    assert_eq!(
        condition(&status, Degraded).1,
        "ObserveFailed",
        "the spec is fine: {}",
        status.summary
    );
    let advice = &status.problems[0].advice;
    assert!(
        advice.contains("or delete it: the operator rebuilds it"),
        "{advice}"
    );
}

#[test]
fn clusters_that_block_drains_report_the_remedy() {
    for (members, has_remedy) in [(1, true), (2, true), (3, false)] {
        let status = Scene::converged(members).status();
        assert_eq!(
            condition(&status, Progressing)
                .2
                .contains("Scale it to 3 members before a drain"),
            has_remedy,
            "{members}"
        );
    }
}

#[test]
fn an_object_in_the_place_of_the_identity_is_a_name_conflict() {
    let mut scene = Scene::nothing(json!({}));
    scene.observed.identity_taken = true;
    assert!(scene.plan().is_noop(), "{:?}", scene.plan());
    let status = scene.status();
    assert_eq!(condition(&status, Degraded).1, "NameConflict");
    assert!(
        status.waiting_for[0].starts_with("ConfigMap orders-etcd-identity, which does not belong"),
        "{:?}",
        status.waiting_for
    );
}

#[test]
fn a_missing_storage_class_is_reported_with_its_remedy() {
    let mut scene = Scene::converged(3);
    scene.stop_answering(2);
    change(
        scene.claim(2),
        json!({ "spec": { "volumeName": null, "storageClassName": null } }),
    );
    let facts = scene.facts();
    let problem = facts.details[&Serial(2)].pod_problem.clone().unwrap();
    assert!(problem.contains("no StorageClass"), "{problem}");
    let kind = facts.details[&Serial(2)].pod_problem_kind;
    assert_eq!(kind, crate::facts::PodProblemKind::StorageClassNotFound);
    change(
        scene.claim(2),
        json!({ "spec": { "storageClassName": "fsat" } }),
    );
    scene.observed.missing_class = Some("fsat".to_owned());
    let problem = scene.facts().details[&Serial(2)]
        .pod_problem
        .clone()
        .unwrap();
    assert_eq!(problem, "StorageClass fsat does not exist");
}

#[test]
fn the_cluster_of_a_previous_resource_is_not_reported_as_this_one() {
    let mut scene = Scene::with(3, json!({ "storage": { "onDelete": "Delete" } }));
    scene.observed.desired.uid = Uid(99);
    scene.observed.desired.created = NOW;
    let status = scene.status();
    check_texts(&status);
    let expected = "Waiting for the previous cluster to be deleted | 0/3 | False Bootstrapping | False Waiting | False AsExpected";
    assert_eq!(line(&status), expected, "even though it still serves");
    assert!(
        status.cluster_id.is_empty() && status.member_list.is_empty(),
        "{status:?}"
    );
    assert!(
        status.waiting_for[0].contains(&name(0)),
        "the remaining objects are named: {:?}",
        status.waiting_for
    );

    scene.observed.desired.created = UnixTime(NOW.0 - 61);
    let status = scene.status();
    assert_eq!(condition(&status, Degraded).1, "BootstrapStalled");
    assert!(
        condition(&status, Degraded).2.contains("--force"),
        "with the remedy: {:?}",
        condition(&status, Degraded)
    );
}
