//! The actions of previews of scenes. Steps and effects are tested in `outline_tests.rs`.

use serde_json::json;

use super::*;
use crate::facts::StuckMember;
use crate::names::Serial;
use crate::testing::{NOW, Scene, name};

fn preview_of(scene: &Scene) -> Preview {
    preview(&scene.observed, scene.facts(), None)
}

/// Returns the machine names of all actions without bookkeeping.
fn actions(scene: &Scene) -> Vec<&'static str> {
    preview_of(scene)
        .steps
        .into_iter()
        .filter(|step| !step.is_note)
        .map(|step| step.action)
        .collect()
}

#[test]
fn the_preview_of_a_converged_cluster_is_empty() {
    let preview = preview_of(&Scene::converged(3));
    assert_eq!(preview.steps, []);
    assert_eq!(
        (preview.ends.as_str(), preview.waits_for.len()),
        ("Healthy", 0)
    );
}

#[test]
fn a_new_member_is_added_created_joined_and_promoted() {
    let scene = Scene::with(3, json!({ "members": 4 }));
    assert_eq!(
        actions(&scene),
        [
            "add-member",
            "create-claim",
            "create-pod",
            "set-start-mode",
            "apply-pdb",
            "promote-member",
            "attach-clients",
        ]
    );
    assert_eq!(preview_of(&scene).ends, "Healthy");
}

#[test]
fn a_stuck_member_serves_after_a_nudge() {
    let mut scene = Scene::with_newcomer();
    scene.stop_answering(3);
    scene.state.stuck = Some(StuckMember {
        serial: Serial(3),
        since: NOW,
    });
    let preview = preview_of(&scene);
    assert_eq!(preview.steps[0].action, "nudge-member", "{preview:#?}");
    assert_eq!(preview.ends, "Healthy");
    assert!(
        !preview.assumes.join(" ").contains(&name(3)),
        "{preview:#?}"
    );
}

#[test]
fn clients_are_detached_before_a_removal_and_the_claim_is_retained() {
    let preview = preview_of(&Scene::with(
        3,
        json!({ "members": 1, "storage": { "keepRemovedFor": "2h" } }),
    ));
    let last = preview.steps.last().unwrap();
    assert_eq!((last.action, last.after), ("delete-claim", 7200));
    let position = |action: &str| {
        preview
            .steps
            .iter()
            .position(|step| step.action == action)
            .unwrap()
    };
    assert!(position("detach-clients") < position("remove-member"));
    assert_eq!(preview.ends, "Healthy");
}

#[test]
fn a_new_cluster_becomes_healthy() {
    let preview = preview_of(&Scene::nothing(json!({ "members": 3 })));
    assert_eq!(preview.ends, "Healthy", "{preview:#?}");
    let pods = preview
        .steps
        .iter()
        .filter(|step| step.action == "create-pod");
    assert_eq!(pods.count(), 3);
    assert!(
        preview
            .assumes
            .iter()
            .any(|assumption| assumption.contains("names"))
    );
}

#[test]
fn an_unreachable_member_stays_unreachable_and_is_replaced_in_time() {
    let mut scene = Scene::with(3, json!({ "members": 3, "heal": { "replaceAfter": "5m" } }));
    scene.make_unreachable(2, 120);
    let preview = preview_of(&scene);
    let replaced = preview
        .steps
        .iter()
        .find(|step| step.action == "replace-member")
        .unwrap();
    assert!(replaced.does.contains(&name(2)), "{}", replaced.does);
    assert_eq!(replaced.after, 180);
    assert!(
        preview
            .assumes
            .iter()
            .any(|assumption| assumption.contains(&name(2))),
        "{:?}",
        preview.assumes
    );
    assert_eq!(preview.ends, "Healthy");
}

#[test]
fn a_lost_quorum_ends_the_preview_with_its_waits() {
    let mut scene = Scene::converged(3);
    scene.lose_quorum(&[1, 2]);
    let preview = preview_of(&scene);
    assert!(preview.ends.starts_with("Quorum lost"), "{}", preview.ends);
    assert!(!preview.waits_for.is_empty());
    assert_eq!(
        preview.steps.iter().filter(|step| !step.is_note).count(),
        0,
        "{:#?}",
        preview.steps
    );
}

#[test]
fn the_preview_of_a_paused_cluster_is_empty() {
    let preview = preview_of(&Scene::with(3, json!({ "members": 5, "paused": true })));
    assert_eq!((preview.steps.len(), preview.ends.as_str()), (0, "Paused"));
}

#[test]
fn a_member_that_the_leader_reaches_is_never_replaced() {
    let mut scene = Scene::converged(3);
    scene.make_unreachable(2, 120);
    scene.state.unreachable_since.clear();
    let preview = preview_of(&scene);
    assert!(
        !preview
            .steps
            .iter()
            .any(|step| step.action == "replace-member"),
        "{:#?}",
        preview.steps
    );
    assert!(preview.ends.starts_with("Recovering"), "{}", preview.ends);
}

#[test]
fn a_terminating_pod_on_a_lost_node_does_not_come_back() {
    let mut scene = Scene::with(3, json!({ "members": 3, "heal": { "replaceAfter": "5m" } }));
    scene.make_unreachable(2, 120);
    let terminating = json!({ "metadata": { "deletionTimestamp": "2026-11-16T11:00:00Z" }, "spec": { "nodeName": "node-3" } });
    crate::testing::change(scene.pod(2), terminating);
    let preview = preview_of(&scene);
    let first = preview.steps.iter().find(|step| !step.is_note).unwrap();
    assert_eq!(first.action, "replace-member");
    assert!(first.does.contains(&name(2)), "{}", first.does);
}

#[test]
fn a_recreated_resource_adopts_the_cluster_with_its_data() {
    let mut scene = Scene::converged(3);
    scene.observed.pods.clear();
    scene.state = crate::observe::etcd::EtcdState::default();
    let preview = preview_of(&scene);
    let actions: Vec<_> = preview.steps.iter().map(|step| step.action).collect();
    assert!(!actions.contains(&"create-claim"), "{actions:#?}");
    assert_eq!(
        actions
            .iter()
            .filter(|action| **action == "create-pod")
            .count(),
        3,
        "{actions:#?}"
    );
    assert_eq!(preview.ends, "Healthy", "{actions:#?}");
}
