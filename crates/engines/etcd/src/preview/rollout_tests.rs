//! Previews in the middle of a change: from each state on the way they predict the steps that are left.

use evenkeel_kit::preview::Simulation;
use evenkeel_runtime::Engine;
use serde_json::{Value, json};

use super::record::Recorder;
use super::*;
use crate::decide::Etcd;
use crate::facts::EtcdFacts;
use crate::testing::{NOW, Scene, change, name};

/// The facts on the way, and the number of actions before each.
fn states_on_the_way(scene: &Scene) -> Vec<(usize, EtcdFacts)> {
    let input = PreviewInput::default();
    let mut recorder = Recorder::new(&scene.observed, scene.facts(), BTreeSet::new(), input);
    // Other IDs than those of the previews that begin on the way.
    recorder.cluster.ids = 1 << 20;
    let mut states = Vec::new();
    let mut done = 0;
    loop {
        states.push((done, recorder.facts().clone()));
        let plan = Etcd::decide(recorder.facts());
        if !plan.is_noop() {
            done += plan.actions().count();
            recorder.execute(&plan);
        } else if !recorder.advance() {
            return states;
        }
    }
}

/// Returns the facts as the operator has them seconds after a restart: the leader misses the member, and its pod is not
/// Ready.
fn with_missed_members(mut facts: EtcdFacts) -> EtcdFacts {
    let since = UnixTime(facts.now.0 - 3);
    let listed = facts.membership.present().into_iter();
    let listed: Vec<_> = listed.flat_map(|list| &list.members).cloned().collect();
    for member in listed.iter().filter(|member| member.has_started) {
        let health = facts.health.get(&member.serial);
        if health.is_none_or(|health| !health.is_present()) {
            facts.unreachable_since.insert(member.serial, since);
        }
    }
    for pod in facts.pods.present_mut().into_iter().flatten() {
        if pod.is_terminating {
            (pod.is_ready, pod.unready_since) = (false, Some(since));
        }
    }
    facts
}

fn assert_remaining_steps_are_predicted(scene: &Scene) {
    let actions = |preview: &Preview| -> Vec<(&'static str, String)> {
        let steps = preview.steps.iter();
        steps.map(|step| (step.action, step.does.clone())).collect()
    };
    let membership = scene.state.membership.present().cloned();
    let course = preview(&scene.observed, scene.facts(), membership.clone());
    assert_eq!(course.ends, "Healthy");
    let all = actions(&course);
    let states = states_on_the_way(scene);
    assert!(states.len() > 5, "{}", states.len());
    for (done, facts) in states {
        for facts in [facts.clone(), with_missed_members(facts)] {
            let rest = preview(&scene.observed, facts.clone(), membership.clone());
            assert_eq!(rest.ends, "Healthy", "after {done} actions: {facts:#?}");
            assert_eq!(actions(&rest), all[done..], "after {done} actions");
        }
    }
}

fn edited(members: u16, spec: Value) -> Scene {
    let mut scene = Scene::converged(members);
    scene.edit_spec(spec);
    scene
}

#[test]
fn previews_during_a_rollout_predict_the_remaining_steps() {
    let cpu = json!({ "resources": { "requests": { "cpu": "2" } } });
    for members in [1, 2, 3, 5] {
        assert_remaining_steps_are_predicted(&edited(members, cpu.clone()));
    }
    assert_remaining_steps_are_predicted(&edited(3, json!({ "version": "3.6.17" })));
}

#[test]
fn previews_during_a_scale_up_predict_the_remaining_steps() {
    assert_remaining_steps_are_predicted(&Scene::with(3, json!({ "members": 5 })));
}

/// A rollout in which the first member was restarted and the second has a terminating pod.
fn second_restart() -> Scene {
    let mut scene = edited(3, json!({ "version": "3.6.17" }));
    scene.rebuild_pod(1);
    scene.make_unreachable(2, 4);
    let deleted = json!({ "metadata": { "deletionTimestamp": "2027-01-15T07:59:55Z" } });
    change(scene.pod(2), deleted);
    scene
}

#[test]
fn a_terminating_pod_of_a_rollout_comes_back_and_the_leader_follows() {
    let scene = second_restart();
    let preview = preview_with_effects(&scene.observed, scene.facts(), PreviewInput::default());
    assert_eq!(preview.course.ends, "Healthy");
    let steps: Vec<_> = preview
        .steps
        .iter()
        .filter(|step| step.kind != StepKind::Record)
        .map(|step| step.text.as_str())
        .collect();
    assert_eq!(
        steps,
        [
            format!("start {} again", name(2)),
            format!(
                "restart {} (leader) after leadership moves to {}",
                name(0),
                name(1)
            ),
        ]
    );
    let restarting = format!("member {} becomes healthy again", name(2));
    assert!(preview.course.assumes.contains(&restarting), "{preview:#?}");
}

#[test]
fn a_pod_that_terminates_for_too_long_does_not_come_back() {
    let mut scene = second_restart();
    scene.make_unreachable(2, 90);
    let preview = preview_with_effects(&scene.observed, scene.facts(), PreviewInput::default());
    let unhealthy = format!("member {} stays unhealthy", name(2));
    assert!(preview.course.assumes.contains(&unhealthy), "{preview:#?}");
}

#[test]
fn a_new_member_whose_volume_takes_its_time_is_not_failing() {
    let mut scene = Scene::with_newcomer();
    let at = |seconds: i64| {
        let time = jiff::Timestamp::from_second(NOW.0 - seconds);
        time.unwrap().to_string()
    };
    // The kubelet reports the pod once it is scheduled, 30 s after its creation.
    let unready = json!({ "type": "Ready", "status": "False", "lastTransitionTime": at(5) });
    let metadata = json!({ "creationTimestamp": at(35) });
    change(
        scene.pod(3),
        json!({ "metadata": metadata, "status": { "conditions": [unready] } }),
    );
    let facts = scene.facts();
    let pod = facts.pods.present().unwrap().last().unwrap();
    assert_eq!(pod.unready_since, Some(UnixTime(NOW.0 - 5)));
    assert!(!pod.joined_gate);
    assert_eq!(preview(&scene.observed, facts, None).ends, "Healthy");
}

/// A rollout whose first member was restarted seconds ago.
fn first_restart() -> Scene {
    let mut scene = edited(3, json!({ "version": "3.6.17" }));
    scene.rebuild_pod(1);
    scene.make_unreachable(1, 10);
    let created = jiff::Timestamp::from_second(NOW.0 - 12).unwrap();
    change(
        scene.pod(1),
        json!({ "metadata": { "creationTimestamp": created } }),
    );
    scene
}

#[test]
fn a_member_whose_image_cannot_be_pulled_stops_the_rollout_at_once() {
    let mut scene = first_restart();
    let preview = preview(&scene.observed, scene.facts(), None);
    assert_eq!(preview.ends, "Healthy", "without a problem it comes back");
    scene.lose_image(1, 10);
    let preview = preview_with_effects(&scene.observed, scene.facts(), PreviewInput::default());
    let unhealthy = format!("member {} stays unhealthy", name(1));
    assert!(preview.course.assumes.contains(&unhealthy), "{preview:#?}");
    assert_eq!(preview.effects.restarts, 0, "{preview:#?}");
    assert_ne!(preview.course.ends, "Healthy");
}

#[test]
fn a_member_with_a_reported_problem_stays_unhealthy_until_its_pod_is_new() {
    let mut scene = first_restart();
    let since = |seconds: i64| {
        let time = jiff::Timestamp::from_second(NOW.0 - seconds).unwrap();
        json!({ "problems": [{ "reason": "RolloutStopped", "member": name(1), "message": "", "advice": "",
            "since": time }] })
    };
    let mut assumptions = |seconds: i64| {
        scene.set_status(serde_json::from_value(since(seconds)).unwrap());
        preview(&scene.observed, scene.facts(), None).assumes
    };
    let unhealthy = format!("member {} stays unhealthy", name(1));
    assert!(assumptions(5).contains(&unhealthy), "{:?}", assumptions(5));
    let healthy = format!("member {} becomes healthy again", name(1));
    assert!(assumptions(30).contains(&healthy), "{:?}", assumptions(30));
}
