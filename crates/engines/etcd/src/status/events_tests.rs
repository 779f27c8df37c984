//! Events about problems and their ends.

use evenkeel_runtime::EventType;
use serde_json::json;

use super::super::tests::is_plain;
use super::*;
use crate::facts::{OwnedObject, UnknownMember};
use crate::identity::MemberId;
use crate::names::Serial;
use crate::plan::EtcdWait;
use crate::testing::{NOW, Scene, name as member_name};

fn warnings(scene: &Scene, waits: Vec<EtcdWait>) -> Vec<EventSpec> {
    let mut plan = scene.plan();
    plan.waits = waits;
    state_events(&scene.observed, &scene.facts(), &plan)
}

#[test]
fn waits_that_end_by_themselves_are_no_warnings() {
    let scene = Scene::converged(3);
    assert_eq!(warnings(&scene, vec![]), []);
    let waits = vec![
        EtcdWait::UnsafeToAdd,
        EtcdWait::LearnerCatchUp(Serial(1)),
        EtcdWait::Paused,
        EtcdWait::OldEpochDeletion,
    ];
    assert_eq!(warnings(&scene, waits), []);
}

#[test]
fn waits_that_a_user_has_to_end_are_warnings() {
    let unknown = UnknownMember {
        id: MemberId(0xabc),
        is_learner: false,
        has_started: true,
        first_seen: NOW,
    };
    let waits = vec![
        EtcdWait::NameConflict(OwnedObject::PodDisruptionBudget),
        EtcdWait::UnknownMembers(vec![unknown]),
    ];
    let events = warnings(&Scene::converged(3), waits);
    let reasons: Vec<_> = events
        .iter()
        .map(|event| (event.kind, event.reason.as_str()))
        .collect();
    assert_eq!(
        reasons,
        [
            (EventType::Warning, "NameConflict"),
            (EventType::Warning, "UnknownMember")
        ]
    );
    events.iter().for_each(|event| is_plain(&event.note));
}

#[test]
fn a_member_that_does_not_serve_is_a_warning() {
    let mut scene = Scene::converged(3);
    scene.stop_answering(1);
    let events = warnings(&scene, vec![]);
    assert_eq!(events.len(), 1);
    assert_eq!(
        (events[0].reason.as_str(), &events[0].note),
        (
            "MemberDown",
            &format!(
                "Member {0} is not healthy: etcd does not respond on node node-1. Check the node and the network of \
                 member {0}, and its log: `kubectl evenkeel logs orders`.",
                member_name(1)
            )
        )
    );
    crate::testing::change(scene.pod(1), json!({ "spec": { "nodeName": null } }));
    assert_eq!(
        warnings(&scene, vec![])[0].reason,
        "MemberDown",
        "a pod without a problem is not unschedulable"
    );
}

/// Returns the Normal events of a scene.
fn recoveries(scene: &Scene) -> Vec<String> {
    let events = state_events(&scene.observed, &scene.facts(), &scene.plan());
    let normal = events
        .iter()
        .filter(|event| event.kind == EventType::Normal);
    normal
        .map(|event| format!("{}: {}", event.reason, event.note))
        .collect()
}

#[test]
fn a_member_that_serves_again_after_a_problem_has_recovered() {
    let mut scene = Scene::converged(3);
    scene.stop_answering(1);
    scene.set_status(scene.status());
    assert_eq!(recoveries(&scene), Vec::<String>::new());
    scene.state(1);
    scene.observed.now = NOW.after(Duration::from_secs(52));
    let expected = format!(
        "MemberRecovered: Member {} is healthy again after 52s",
        member_name(1)
    );
    assert_eq!(recoveries(&scene), [expected]);
    scene.set_status(scene.status());
    assert_eq!(recoveries(&scene), Vec::<String>::new(), "reported once");
}

#[test]
fn a_member_that_answers_without_a_leader_has_not_recovered() {
    let mut scene = Scene::converged(3);
    scene.stop_answering(1);
    scene.set_status(scene.status());
    // Its pod is Ready, and the last probe found no leader.
    scene.state(1);
    let health = scene.state.health.get_mut(&Serial(1)).unwrap();
    if let Observed::Present(health) = health {
        health.is_serving = false;
    }
    scene.set_status(scene.status());
    assert_eq!(recoveries(&scene), Vec::<String>::new());
    scene.state(1);
    assert_eq!(recoveries(&scene).len(), 1);
}

#[test]
fn a_cluster_that_serves_again_has_recovered() {
    let healthy = Scene::converged(3);
    let mut scene = Scene::converged(3);
    scene.lose_quorum(&[0, 1]);
    scene.set_status(scene.status());
    scene.state = healthy.state;
    scene.observed.now = NOW.after(Duration::from_secs(61));
    assert_eq!(
        recoveries(&scene),
        ["ClusterRecovered: Clients can read and write again after 1m1s"]
    );
}

#[test]
fn the_first_time_that_clients_are_served_is_no_recovery() {
    let mut scene = Scene::converged(3);
    scene.make_bootstrap_unfinished();
    scene.set_status(scene.status());
    let scene = Scene {
        observed: ObservedCluster {
            resource: scene.observed.resource,
            ..Scene::converged(3).observed
        },
        ..Scene::converged(3)
    };
    assert_eq!(recoveries(&scene), Vec::<String>::new());
}

#[test]
fn a_member_with_a_problem_has_it_after_a_restart_until_it_serves() {
    let mut scene = Scene::converged(3);
    scene.stop_answering(1);
    scene.set_status(scene.status());
    let now = jiff::Timestamp::from_second(NOW.0).unwrap().to_string();
    crate::testing::change(
        scene.pod(1),
        json!({ "metadata": { "creationTimestamp": now } }),
    );
    let status = scene.status();
    assert_eq!(status.problems[0].member, member_name(1));
    scene.set_status(status);
    let mut healthy = Scene::converged(3);
    healthy.observed.resource.status = scene.observed.resource.status.clone();
    assert_eq!(
        recoveries(&healthy).len(),
        1,
        "its recovery is reported: {:?}",
        recoveries(&healthy)
    );
}
