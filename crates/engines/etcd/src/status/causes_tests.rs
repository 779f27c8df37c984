//! Problems by their causes, with advice; tolerance; planned restarts.

use evenkeel_api::conditions::ConditionType::{Degraded, Progressing, Ready};
use evenkeel_api::{NodeProblem, OperationType};
use evenkeel_kit::nodes::NodeState;
use evenkeel_kit::volumes::VolumeLocation;
use serde_json::json;

use super::tests::{line, status_of};
use super::*;
use crate::availability::Alarm;
use crate::testing::{NOW, Scene, change, condition, name, pod_uid};

/// Sets the nodes `node-0` to `node-2`, each in its own zone.
fn set_nodes(scene: &mut Scene) {
    let node = |number: u16| NodeState {
        name: format!("node-{number}"),
        hostname: Some(format!("node-{number}")),
        zone: Some(format!("zone-{number}")),
        is_ready: true,
        ..NodeState::default()
    };
    let nodes = (0..3).map(node).map(|node| (node.name.clone(), node));
    scene.observed.nodes = Some(nodes.collect());
}

fn edit_node(scene: &mut Scene, name: &str, edit: impl FnOnce(&mut NodeState)) {
    let nodes = scene.observed.nodes.as_mut().unwrap();
    edit(nodes.get_mut(name).unwrap());
}

/// Returns reason, message and advice of the worst problem.
fn worst(status: &EtcdClusterStatus) -> (&str, &str, &str) {
    let worst = &status.problems[0];
    (&worst.reason, &worst.message, &worst.advice)
}

#[test]
fn a_node_that_is_not_ready_is_the_cause() {
    let mut scene = Scene::converged(3);
    set_nodes(&mut scene);
    scene.make_unreachable(1, 60);
    edit_node(&mut scene, "node-1", |node| {
        node.is_ready = false;
        node.unready_since = Some(UnixTime(NOW.0 - 52));
    });
    let status = status_of(&scene);
    let (reason, message, advice) = worst(&status);
    assert_eq!(reason, "NodeNotReady");
    let expected = format!(
        "Member {} is not healthy: node node-1 is NotReady since 2027-01-15T07:59:08Z.",
        name(1)
    );
    assert_eq!(message, expected);
    assert!(advice.contains("kubectl delete node node-1"), "{advice}");
    assert_eq!(
        status.member_list[1].node_status,
        Some(NodeProblem::NotReady)
    );
    let next = status.next_action.unwrap();
    let deadline = next.time.as_ref().unwrap().0.as_second();
    assert_eq!(deadline, NOW.0 - 60 + 300);
    assert!(next.message.contains("replaces member"), "{next:?}");
}

#[test]
fn a_node_that_was_deleted_is_the_cause() {
    let mut scene = Scene::converged(3);
    set_nodes(&mut scene);
    scene.make_unreachable(1, 60);
    scene.observed.nodes.as_mut().unwrap().remove("node-1");
    let status = status_of(&scene);
    assert_eq!(worst(&status).0, "NodeNotReady");
    assert!(
        worst(&status)
            .1
            .contains("node node-1 does not exist any more")
    );
}

#[test]
fn a_cordoned_node_is_the_cause_if_the_volume_is_there() {
    let mut scene = Scene::converged(3);
    set_nodes(&mut scene);
    scene.make_unschedulable(1, Some(VolumeLocation::Node("node-1".to_owned())));
    edit_node(&mut scene, "node-1", |node| node.is_cordoned = true);
    scene.observed.now = NOW.after(std::time::Duration::from_secs(600));
    let status = status_of(&scene);
    assert_eq!(status.problems, [], "a drain is no problem");
    let message = &status.member_list[1].message;
    assert_eq!(message, "its volume is on node node-1, which is cordoned");
    edit_node(&mut scene, "node-1", |node| node.is_cordoned = false);
    let outdated = "0/3 nodes are available: 1 node(s) were unschedulable.";
    set_scheduler_message(&mut scene, 1, outdated);
    assert_eq!(
        status_of(&scene).problems,
        [],
        "the scheduler has not tried again"
    );
    set_scheduler_message(
        &mut scene,
        1,
        "0/3 nodes are available: 3 Insufficient memory.",
    );
    assert_eq!(worst(&status_of(&scene)).0, "Unschedulable");
}

/// Replaces the message of the condition PodScheduled.
fn set_scheduler_message(scene: &mut Scene, serial: u16, message: &str) {
    let conditions = json!([{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message }]);
    change(
        scene.pod(serial),
        json!({ "status": { "conditions": conditions } }),
    );
}

#[test]
fn a_member_on_a_cordoned_node_that_serves_is_no_problem() {
    let mut scene = Scene::converged(3);
    set_nodes(&mut scene);
    edit_node(&mut scene, "node-1", |node| node.is_cordoned = true);
    let status = status_of(&scene);
    assert_eq!(status.problems, []);
    assert_eq!(
        status.member_list[1].node_status,
        Some(NodeProblem::Cordoned)
    );
}

#[test]
fn a_volume_that_is_not_provisioned_is_the_cause_in_the_provisioners_words() {
    let mut scene = Scene::converged(3);
    scene.make_unschedulable(1, None);
    let pending = json!({ "spec": { "volumeName": null, "storageClassName": "fast" } });
    change(scene.claim(1), pending);
    let problem = "ProvisioningFailed: pool is full".to_owned();
    scene.observed.volume_problems.insert(name(1), problem);
    // The volume that the member joined on is gone, so it is replaced; its successor has the same problem.
    let facts = scene.facts();
    let details = &facts.details[&crate::names::Serial(1)];
    assert_eq!(
        details.pod_problem.as_deref(),
        Some("its volume is not provisioned: ProvisioningFailed: pool is full")
    );
}

#[test]
fn a_full_volume_is_the_cause_of_a_crash_loop() {
    let mut scene = Scene::converged(3);
    scene.crashes(1, 60);
    let status = status_of(&scene);
    assert_eq!(worst(&status).0, "MemberDown", "without a log");
    let ended = |message: &str| {
        json!({ "status": { "containerStatuses": [{ "name": "etcd", "restartCount": 5, "ready": false, "image": "",
            "imageID": "", "state": { "waiting": { "reason": "CrashLoopBackOff" } },
            "lastState": { "terminated": { "exitCode": 1, "message": message } } }] } })
    };
    change(scene.pod(1), ended("write: no space left on device"));
    let status = status_of(&scene);
    assert_eq!(worst(&status).0, "VolumeFull");
    assert!(worst(&status).2.contains("spec.storage.size"));
    change(
        scene.pod(1),
        ended("{\"level\":\"fatal\",\"msg\":\"failed to start\",\"error\":\"bad CRC\"}"),
    );
    let status = status_of(&scene);
    assert!(worst(&status).1.contains("failed to start: bad CRC"));
}

#[test]
fn an_alarm_makes_the_cluster_not_ready() {
    let mut scene = Scene::converged(3);
    scene.state.alarms = [Alarm::NoSpace].into();
    let status = status_of(&scene);
    assert_eq!(
        line(&status),
        "No space: writes are rejected | 3/3 | False NoSpace | False Converged | True NoSpace"
    );
    assert_eq!(status.alarms, ["NOSPACE"]);
    assert!(worst(&status).2.contains("spec.etcd.quota"));
    scene.state.alarms = [Alarm::Corrupt].into();
    let status = status_of(&scene);
    assert_eq!(condition(&status, Ready).1, "DataCorrupt");
    assert_eq!(condition(&status, Degraded).1, "DataCorrupt");
}

#[test]
fn the_pod_of_a_removed_member_is_no_problem() {
    let mut scene = Scene::converged(3);
    scene.turn(|identity| identity.next_serial = crate::names::Serial(4));
    scene.add_claim(3, true);
    scene.add_pod(3, &crate::facts::StartMode::ExistingData);
    scene.crashes(3, 60);
    let status = status_of(&scene);
    assert_eq!(status.problems, []);
    assert_eq!(status.member_list[3].role, MemberRole::Leaving);
}

#[test]
fn members_that_share_a_node_reduce_the_tolerance() {
    let mut scene = Scene::converged(3);
    set_nodes(&mut scene);
    let tolerance = status_of(&scene).failure_tolerance.unwrap();
    assert_eq!(
        (tolerance.members, tolerance.nodes, tolerance.zones),
        (1, Some(1), Some(1))
    );
    assert_eq!(tolerance.summary, "1 node");
    change(scene.pod(2), json!({ "spec": { "nodeName": "node-1" } }));
    let tolerance = status_of(&scene).failure_tolerance.unwrap();
    assert_eq!((tolerance.members, tolerance.nodes), (1, Some(0)));
    assert_eq!(tolerance.critical_nodes, ["node-1"]);
    assert_eq!(tolerance.critical_zones, ["zone-1"]);
}

#[test]
fn the_last_member_of_a_rollout_is_part_of_the_rollout() {
    let mut scene = Scene::converged(3);
    scene.edit_spec(json!({ "version": "3.6.17" }));
    scene.rebuild_pod(1);
    scene.rebuild_pod(2);
    scene.set_status(status_of(&scene));
    let operation = scene
        .observed
        .resource
        .status
        .clone()
        .unwrap()
        .operation
        .unwrap();
    assert_eq!(
        (operation.r#type, operation.completed, operation.total),
        (OperationType::Upgrade, Some(2), Some(3))
    );
    scene.rebuild_pod(0);
    let now = Timestamp::from_second(NOW.0).unwrap().to_string();
    let starting = json!([{ "type": "Ready", "status": "False" }]);
    change(
        scene.pod(0),
        json!({ "metadata": { "creationTimestamp": now }, "status": { "conditions": starting } }),
    );
    scene.stop_answering(0);
    let status = status_of(&scene);
    assert_eq!(
        line(&status),
        "Upgrading 3 of 3 | 2/3 | True Serving | True Upgrading | False AsExpected"
    );
    assert_eq!(
        status.operation.unwrap().start_time,
        operation.start_time,
        "the same operation"
    );
    scene.observed.now = NOW.after(std::time::Duration::from_secs(61));
    let status = status_of(&scene);
    assert_eq!(condition(&status, Degraded).0, "True", "it takes too long");
}

#[test]
fn the_planned_restart_of_a_single_member_is_no_alarm() {
    let mut scene = Scene::converged(1);
    scene.edit_spec(json!({ "resources": { "requests": { "cpu": "200m" } } }));
    scene.set_status(status_of(&scene));
    let planned = |scene: &mut Scene| {
        scene.observed.pods.remove(&pod_uid(0));
        scene.lose_quorum(&[0]);
    };
    planned(&mut scene);
    let status = status_of(&scene);
    assert_eq!(
        (condition(&status, Ready).1, condition(&status, Degraded).0),
        ("Restarting", "False")
    );
    assert_eq!(condition(&status, Progressing).1, "Updating");
    assert_eq!(status.summary, "Updating 1 of 1");
    let mut unplanned = Scene::converged(1);
    unplanned.set_status(unplanned.status());
    planned(&mut unplanned);
    let status = status_of(&unplanned);
    assert_eq!(
        (condition(&status, Ready).1, condition(&status, Degraded).1),
        ("QuorumLost", "QuorumLost")
    );
}

#[test]
fn a_requested_restart_is_called_a_restart() {
    let mut scene = Scene::converged(3);
    change(
        &mut scene.observed.resource,
        json!({ "metadata": { "annotations": { labels::RESTARTED_AT: "2027-01-15T07:59:00Z" } } }),
    );
    scene.edit_spec(json!({}));
    let status = status_of(&scene);
    assert_eq!(status.operation.unwrap().r#type, OperationType::Restart);
    assert_eq!(status.summary, "Restarting 1 of 3, leader last");
}

#[test]
fn the_version_shows_what_runs_and_what_is_desired() {
    let mut scene = Scene::converged(3);
    assert_eq!(status_of(&scene).version_summary, "3.6.16");
    scene.edit_spec(json!({ "version": "3.6.17" }));
    assert_eq!(status_of(&scene).version_summary, "3.6.16 → 3.6.17");
    assert_eq!(Scene::nothing(json!({})).status().version_summary, "3.6.16");
}

#[test]
fn volumes_of_removed_members_are_listed_with_their_deletion() {
    let mut scene = Scene::converged(3);
    scene.turn(|identity| identity.next_serial = crate::names::Serial(4));
    scene.add_claim(3, true);
    scene.mark_removed(3);
    let status = status_of(&scene);
    let volume = &status.retained_volumes[0];
    assert_eq!(volume.claim, name(3));
    let deleted = volume.delete_time.as_ref().unwrap().0.as_second();
    assert_eq!(deleted, NOW.0 + 24 * 3600);
}
