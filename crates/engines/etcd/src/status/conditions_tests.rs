//! The rows of the conditions Progressing and Degraded, one test each.

use evenkeel_api::labels;
use serde_json::json;

use super::super::problem::member_problems;
use super::*;
use crate::desired::DesiredCluster;
use crate::facts::StartMode;
use crate::names::Serial;
use crate::observe::etcd::EtcdState;
use crate::testing::{NOW, Scene, change, claim_uid, pod_uid};
use crate::view::ClusterView;

/// 30 seconds ago.
const TERMINATING: &str = "2027-01-15T07:59:30Z";

fn progress(scene: &Scene) -> (ConditionStatus, Reason) {
    let facts = scene.facts();
    let view = ClusterView::from_facts(&facts);
    let context = ActionContext::new(&scene.observed, &facts, view.as_ref());
    let progress = progressing(&context, &scene.plan());
    (progress.status, progress.reason)
}

fn problem(scene: &Scene) -> Option<Reason> {
    let facts = scene.facts();
    let view = ClusterView::from_facts(&facts);
    let context = ActionContext::new(&scene.observed, &facts, view.as_ref());
    let problems = member_problems(&context);
    problems.first().map(|problem| problem.reason)
}

fn lose_data(scene: &mut Scene, serial: u16) {
    scene.observed.claims.remove(&claim_uid(serial));
    scene.observed.pods.remove(&pod_uid(serial));
    scene.stop_answering(serial);
}

fn terminate(scene: &mut Scene, serial: u16) {
    change(
        scene.pod(serial),
        json!({ "metadata": { "deletionTimestamp": TERMINATING } }),
    );
}

fn delete_resource(scene: &mut Scene) {
    change(
        &mut scene.observed.resource,
        json!({ "metadata": { "deletionTimestamp": TERMINATING } }),
    );
    scene.observed.desired = DesiredCluster::of(&scene.observed.resource).unwrap();
}

#[test]
fn a_deleted_resource_progresses_even_if_it_is_paused() {
    let mut scene = Scene::with(3, json!({ "paused": true }));
    delete_resource(&mut scene);
    assert_eq!(progress(&scene), (ConditionStatus::True, Reason::Deleting));
}

#[test]
fn a_paused_cluster_does_not_progress_even_if_a_member_is_down() {
    let mut scene = Scene::with(3, json!({ "paused": true }));
    scene.stop_answering(1);
    assert_eq!(progress(&scene), (ConditionStatus::False, Reason::Paused));
}

#[test]
fn the_rebuild_of_an_identity_is_a_recovery() {
    let mut scene = Scene::converged(3);
    scene.observed.identity = None;
    scene.state = EtcdState::default();
    assert_eq!(
        progress(&scene),
        (ConditionStatus::True, Reason::Recovering)
    );
}

#[test]
fn a_new_resource_and_an_unfinished_bootstrap_are_bootstrapping() {
    let new = Scene::nothing(json!({}));
    assert_eq!(
        progress(&new),
        (ConditionStatus::True, Reason::Bootstrapping)
    );
    let mut unfinished = Scene::with(1, json!({ "members": 3 }));
    unfinished.make_bootstrap_unfinished();
    assert_eq!(
        progress(&unfinished),
        (ConditionStatus::True, Reason::Bootstrapping)
    );
}

#[test]
fn without_an_identity_and_without_an_action_the_cluster_waits() {
    let mut scene = Scene::nothing(json!({}));
    scene.observed.identity_taken = true;
    assert_eq!(progress(&scene), (ConditionStatus::False, Reason::Waiting));
}

#[test]
fn a_rollout_progresses_while_a_member_restarts() {
    let mut scene = Scene::converged(3);
    scene.edit_spec(json!({ "version": "3.6.17" }));
    assert_eq!(progress(&scene), (ConditionStatus::True, Reason::Upgrading));
    terminate(&mut scene, 1);
    assert_eq!(progress(&scene), (ConditionStatus::True, Reason::Upgrading));
}

#[test]
fn a_rollout_progresses_until_a_member_that_serves_is_ready() {
    let mut scene = Scene::converged(3);
    scene.edit_spec(json!({ "version": "3.6.17" }));
    for serial in [1, 2, 0] {
        scene.set_status(scene.status());
        scene.rebuild_pod(serial);
        let now = jiff::Timestamp::from_second(NOW.0).unwrap().to_string();
        let not_ready = json!([{ "type": "Ready", "status": "False" }]);
        let before = scene.pod(serial).clone();
        change(
            scene.pod(serial),
            json!({ "metadata": { "creationTimestamp": now }, "status": { "conditions": not_ready } }),
        );
        assert_eq!(
            progress(&scene),
            (ConditionStatus::True, Reason::Upgrading),
            "member {serial}"
        );
        *scene.pod(serial) = before;
    }
}

#[test]
fn a_rollout_that_lost_data_is_a_recovery() {
    let mut scene = Scene::converged(3);
    scene.edit_spec(json!({ "version": "3.6.17" }));
    lose_data(&mut scene, 2);
    assert_eq!(
        progress(&scene),
        (ConditionStatus::True, Reason::Recovering)
    );
}

#[test]
fn a_terminating_voter_is_a_recovery() {
    let mut scene = Scene::converged(3);
    terminate(&mut scene, 1);
    assert_eq!(
        progress(&scene),
        (ConditionStatus::True, Reason::Recovering)
    );
}

#[test]
fn an_unreachable_member_is_a_wait_until_it_is_replaced() {
    let mut scene = Scene::converged(3);
    scene.stop_answering(1);
    assert_eq!(progress(&scene), (ConditionStatus::False, Reason::Waiting));
}

#[test]
fn a_cluster_that_matches_its_spec_is_converged() {
    assert_eq!(
        progress(&Scene::converged(3)),
        (ConditionStatus::False, Reason::Converged)
    );
}

#[test]
fn lost_data_is_a_recovery_even_while_the_cluster_scales() {
    let mut scene = Scene::with(3, json!({ "members": 5 }));
    lose_data(&mut scene, 2);
    assert_eq!(
        progress(&scene),
        (ConditionStatus::True, Reason::Recovering)
    );
}

#[test]
fn another_number_of_members_than_desired_is_scaling() {
    let scene = Scene::with(3, json!({ "members": 5 }));
    assert_eq!(progress(&scene), (ConditionStatus::True, Reason::Scaling));
}

#[test]
fn a_learner_in_the_desired_number_of_members_is_a_recovery() {
    let mut scene = Scene::with(2, json!({ "members": 3 }));
    scene.turn(|identity| identity.next_serial = Serial(3));
    scene.list_member(2, true, true);
    scene.add_claim(2, true);
    scene.add_pod(2, &StartMode::ExistingData);
    change(
        scene.pod(2),
        json!({ "metadata": { "labels": { labels::ROLE: null } } }),
    );
    scene.state(2);
    assert_eq!(
        progress(&scene),
        (ConditionStatus::True, Reason::Recovering)
    );
}

#[test]
fn a_plan_with_waits_only_is_a_wait() {
    let mut scene = Scene::converged(3);
    let without_labels = json!({ "metadata": { "labels": null } });
    change(
        scene.observed.client_service.as_mut().unwrap(),
        without_labels,
    );
    assert_eq!(progress(&scene), (ConditionStatus::False, Reason::Waiting));
}

#[test]
fn any_other_action_is_an_update() {
    let mut scene = Scene::converged(3);
    scene.observed.client_service = None;
    assert_eq!(progress(&scene), (ConditionStatus::True, Reason::Updating));
}

#[test]
fn members_of_a_deleted_resource_are_no_problem() {
    let mut scene = Scene::converged(3);
    scene.stop_answering(1);
    delete_resource(&mut scene);
    assert_eq!(problem(&scene), None);
}

#[test]
fn an_unschedulable_pod_comes_before_a_voter_that_is_down() {
    let mut scene = Scene::converged(3);
    scene.stop_answering(0);
    scene.make_unschedulable(1, None);
    assert_eq!(problem(&scene), Some(Reason::Unschedulable));
}

#[test]
fn a_voter_that_does_not_serve_is_down() {
    let mut scene = Scene::converged(3);
    scene.stop_answering(1);
    assert_eq!(problem(&scene), Some(Reason::MemberDown));
}

#[test]
fn a_voter_that_a_rollout_restarts_is_not_down_yet() {
    let mut scene = Scene::converged(3);
    scene.edit_spec(json!({ "version": "3.6.17" }));
    terminate(&mut scene, 1);
    scene.stop_answering(1);
    assert_eq!(problem(&scene), None);
}

#[test]
fn a_voter_whose_pod_was_deleted_or_drained_is_not_down_yet() {
    let mut scene = Scene::converged(3);
    scene.stop_answering(1);
    terminate(&mut scene, 1);
    assert_eq!(problem(&scene), None, "its pod terminates");
    assert_eq!(
        progress(&scene),
        (ConditionStatus::True, Reason::Recovering)
    );
    scene.observed.pods.remove(&pod_uid(1));
    assert_eq!(problem(&scene), None, "its pod is recreated in this pass");
    scene.add_pod(1, &StartMode::ExistingData);
    change(
        scene.pod(1),
        json!({ "metadata": { "creationTimestamp": TERMINATING } }),
    );
    assert_eq!(
        problem(&scene),
        Some(Reason::MemberDown),
        "its pod was Ready already"
    );
    let starting = json!([{ "type": "Ready", "status": "False" }]);
    change(
        scene.pod(1),
        json!({ "status": { "conditions": starting } }),
    );
    assert_eq!(
        problem(&scene),
        None,
        "its pod was created half a minute ago"
    );
    scene.observed.now = scene.observed.now.after(std::time::Duration::from_secs(31));
    assert_eq!(
        problem(&scene),
        Some(Reason::MemberDown),
        "it takes too long"
    );
}

#[test]
fn a_voter_whose_pod_does_not_terminate_is_down() {
    let mut scene = Scene::converged(3);
    scene.stop_answering(1);
    terminate(&mut scene, 1);
    scene.observed.now = scene.observed.now.after(std::time::Duration::from_secs(31));
    assert_eq!(problem(&scene), Some(Reason::MemberDown));
}

#[test]
fn a_paused_cluster_reports_a_deleted_pod_at_once() {
    let mut scene = Scene::with(3, json!({ "paused": true }));
    scene.stop_answering(1);
    scene.observed.pods.remove(&pod_uid(1));
    assert_eq!(problem(&scene), Some(Reason::MemberDown));
}

#[test]
fn a_voter_that_does_not_come_back_with_a_new_template_stops_the_rollout() {
    let mut scene = Scene::converged(3);
    scene.edit_spec(json!({ "version": "3.6.17" }));
    scene.rebuild_pod(1);
    scene.lose_image(1, 120);
    assert_eq!(problem(&scene), Some(Reason::RolloutStopped));
}

#[test]
fn a_learner_with_a_pod_problem_cannot_start() {
    let mut scene = Scene::with_newcomer();
    scene.lose_image(3, 120);
    assert_eq!(problem(&scene), Some(Reason::MemberDown));
}
