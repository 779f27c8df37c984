//! What is foreseen of scenes that are what they are.

use serde_json::json;

use super::*;
use crate::testing::{Scene, name};

fn foreseen(scene: &Scene) -> Preview {
    preview(&scene.observed, scene.facts(), None)
}

/// What is done, without what is only written down.
fn steps(scene: &Scene) -> Vec<String> {
    foreseen(scene)
        .steps
        .into_iter()
        .filter(|step| !step.is_note)
        .map(|step| step.does)
        .collect()
}

#[test]
fn of_a_cluster_that_is_as_it_should_be_nothing_is_foretold() {
    let foreseen = foreseen(&Scene::converged(3));
    assert_eq!(foreseen.steps, []);
    assert_eq!(
        (foreseen.ends.as_str(), foreseen.waits_for.len()),
        ("Healthy", 0)
    );
}

#[test]
fn a_member_is_added_prepared_and_given_its_vote() {
    let scene = Scene::with(3, json!({ "members": 4 }));
    let n = name(3);
    assert_eq!(
        steps(&scene),
        [
            format!("adding {n} as a learner"),
            format!("creating the volume of {n}"),
            format!("creating the pod of {n}"),
            format!("letting {n} join"),
            "having evictions leave 3 with a vote".to_owned(),
            format!("giving {n} its vote"),
            format!("letting clients reach {n}"),
        ]
    );
    assert_eq!(foreseen(&scene).ends, "Healthy");
}

#[test]
fn whoever_goes_is_left_by_clients_first_and_its_volume_is_kept_for_as_long_as_the_spec_says() {
    let foreseen = foreseen(&Scene::with(
        3,
        json!({ "members": 1, "storage": { "keepRemovedFor": "2h" } }),
    ));
    let last = foreseen.steps.last().unwrap();
    assert!(
        last.does.starts_with("deleting the volume of"),
        "{}",
        last.does
    );
    assert_eq!(last.after, 7200);
    let at = |what: &str| {
        foreseen
            .steps
            .iter()
            .position(|step| step.does.starts_with(what))
            .unwrap()
    };
    assert!(at("leading clients away") < at("removing"));
    assert_eq!(foreseen.ends, "Healthy");
}

#[test]
fn a_new_cluster_comes_into_being() {
    let foreseen = foreseen(&Scene::nothing(json!({ "members": 3 })));
    assert_eq!(foreseen.ends, "Healthy", "{foreseen:#?}");
    let pods = foreseen
        .steps
        .iter()
        .filter(|step| step.does.starts_with("creating the pod of"));
    assert_eq!(pods.count(), 3);
    assert!(foreseen.assumes.iter().any(|said| said.contains("names")));
}

#[test]
fn one_that_is_out_of_reach_stays_so_and_is_replaced_in_time() {
    let mut scene = Scene::with(3, json!({ "members": 3, "heal": { "replaceAfter": "5m" } }));
    scene.is_out_of_reach(2, 120);
    let foreseen = foreseen(&scene);
    let replaced = foreseen
        .steps
        .iter()
        .find(|step| step.does.starts_with("replacing"))
        .unwrap();
    assert!(replaced.does.contains(&name(2)), "{}", replaced.does);
    assert_eq!(replaced.after, 180);
    assert!(
        foreseen.assumes.iter().any(|said| said.contains(&name(2))),
        "{:?}",
        foreseen.assumes
    );
    assert_eq!(foreseen.ends, "Healthy");
}

#[test]
fn what_people_must_do_is_waited_for_and_nothing_is_invented() {
    let mut scene = Scene::converged(3);
    scene.loses_its_quorum(&[1, 2]);
    let foreseen = foreseen(&scene);
    assert!(foreseen.ends.starts_with("No quorum"), "{}", foreseen.ends);
    assert!(!foreseen.waits_for.is_empty());
    assert_eq!(
        foreseen.steps.iter().filter(|step| !step.is_note).count(),
        0,
        "{:#?}",
        foreseen.steps
    );
}

#[test]
fn while_it_is_paused_nothing_is_done() {
    let foreseen = foreseen(&Scene::with(3, json!({ "members": 5, "paused": true })));
    assert_eq!(
        (foreseen.steps.len(), foreseen.ends.as_str()),
        (0, "Paused")
    );
}

#[test]
fn one_that_somebody_hears_is_waited_for_and_never_replaced() {
    let mut scene = Scene::converged(3);
    scene.is_out_of_reach(2, 120);
    scene.state.unreachable_since.clear();
    let foreseen = foreseen(&scene);
    assert!(
        !foreseen
            .steps
            .iter()
            .any(|step| step.does.starts_with("replacing")),
        "{:#?}",
        foreseen.steps
    );
    assert!(
        foreseen.ends.starts_with("Bringing back"),
        "{}",
        foreseen.ends
    );
}

#[test]
fn one_whose_node_is_lost_does_not_come_back_although_its_pod_was_sent_away() {
    let mut scene = Scene::with(3, json!({ "members": 3, "heal": { "replaceAfter": "5m" } }));
    scene.is_out_of_reach(2, 120);
    let sent_away = json!({ "metadata": { "deletionTimestamp": "2026-11-16T11:00:00Z" }, "spec": { "nodeName": "node-3" } });
    crate::testing::change(scene.pod(2), sent_away);
    let foreseen = foreseen(&scene);
    let first = foreseen.steps.iter().find(|step| !step.is_note).unwrap();
    assert!(
        first.does.starts_with(&format!("replacing {}", name(2))),
        "{}",
        first.does
    );
}

#[test]
fn a_cluster_whose_resource_was_deleted_is_taken_up_again_with_its_data() {
    let mut scene = Scene::converged(3);
    scene.observed.pods.clear();
    scene.state = crate::observe::etcd::EtcdState::default();
    let foreseen = foreseen(&scene);
    let does: Vec<_> = foreseen
        .steps
        .iter()
        .map(|step| step.does.as_str())
        .collect();
    assert!(
        !does
            .iter()
            .any(|step| step.starts_with("creating the volume")),
        "{does:#?}"
    );
    assert_eq!(
        does.iter()
            .filter(|step| step.starts_with("creating the pod"))
            .count(),
        3,
        "{does:#?}"
    );
    assert_eq!(foreseen.ends, "Healthy", "{does:#?}");
}
