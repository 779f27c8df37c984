//! Members that are out of date.

use evenkeel::Seen;
use evenkeel_api::labels;
use serde_json::json;

use crate::identity::Change;
use crate::names::Serial;
use crate::plan::{Leaving, Mark, Step, Wait};
use crate::testing::{Scene, change, claim_uid, id, pod_uid};

fn restart(serial: u16, heir: Option<u16>, spared: bool) -> Option<Step> {
    Some(Step::Restart { pod: pod_uid(serial), serial: Serial(serial), heir: heir.map(Serial), spared })
}

/// So many members, all well, on the former version; the first one leads.
fn outdated(members: u16) -> Scene {
    let mut scene = Scene::converged(members);
    leads(&mut scene, 0);
    scene.is_edited(json!({ "version": "3.7.3" }));
    scene
}

fn leads(scene: &mut Scene, leader: u16) {
    for (serial, voice) in &mut scene.answers.voices {
        if let Seen::Present(voice) = voice {
            voice.leads = *serial == Serial(leader);
        }
    }
    scene.answers.leader = Some(id(leader));
}

#[test]
fn followers_are_restarted_one_by_one_and_whoever_leads_comes_last_and_hands_over() {
    let mut scene = outdated(3);
    assert_eq!(scene.plan().step, restart(1, None, true));
    scene.is_rebuilt(1);
    assert_eq!(scene.plan().step, restart(2, None, true));
    scene.is_rebuilt(2);
    assert_eq!(scene.plan().step, restart(0, Some(1), true));
    scene.is_rebuilt(0);
    assert!(scene.plan().step.is_none() && scene.plan().status.waits.is_empty(), "{:?}", scene.plan());
}

#[test]
fn nobody_is_restarted_before_everybody_else_is_well_in_everybodys_eyes() {
    let unready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } });
    let unrouted = json!({ "metadata": { "labels": { labels::ROLE: null } } });
    for how in [unready, unrouted] {
        let mut scene = outdated(3);
        scene.is_rebuilt(2);
        change(scene.pod(2), how);
        let plan = scene.plan();
        assert!(plan.step.is_none() && plan.status.waits.contains(&Wait::Unwell(Serial(2))), "{plan:?}");
    }
    let mut scene = outdated(3);
    scene.falls_silent(2);
    assert!(scene.plan().step.is_none());
}

#[test]
fn one_or_two_members_are_restarted_without_being_spared_and_only_when_all_are_well() {
    assert_eq!(outdated(1).plan().step, restart(0, None, false));
    let mut scene = outdated(2);
    assert_eq!(scene.plan().step, restart(1, None, false));
    scene.falls_silent(0);
    assert!(scene.plan().step.is_none(), "{:?}", scene.plan());
}

#[test]
fn a_strangers_vote_is_not_counted_on() {
    let mut scene = outdated(3);
    scene.has_stranger(99, true);
    let plan = scene.plan();
    assert!(plan.step.is_none() && plan.status.waits.contains(&Wait::TooFew), "{plan:?}");
}

#[test]
fn a_newcomer_that_no_node_takes_holds_up_no_restart_and_is_itself_built_anew() {
    let mut scene = Scene::with_newcomer();
    change(scene.pod(3), json!({ "spec": { "nodeName": null } }));
    scene.is_edited(json!({ "version": "3.7.3" }));
    let anew = Step::DeletePod { pod: pod_uid(3), serial: Serial(3), why: Leaving::Outdated };
    assert_eq!(scene.plan().step, Some(anew));
    scene.found.pods.remove(&pod_uid(3));
    let plan = scene.plan();
    assert_eq!((plan.create.len(), plan.step), (1, None), "its pod first");
}

#[test]
fn one_that_does_not_start_ends_it_and_is_waited_for_however_long_that_takes() {
    let mut scene = outdated(3);
    scene.is_rebuilt(1);
    scene.lacks_its_image(1, 100_000);
    let plan = scene.plan();
    assert!(plan.step.is_none(), "nobody is replaced for what the spec says: {plan:?}");
    assert!(plan.status.waits.contains(&Wait::Unwell(Serial(1))), "{plan:?}");
    // Where others run on the very same it is this one's own trouble.
    let mut scene = outdated(3);
    scene.is_rebuilt(1);
    scene.is_rebuilt(2);
    scene.lacks_its_image(1, 100_000);
    assert!(scene.asked().is_some_and(|intent| intent.change == Change::Remove(Serial(1))));
}

#[test]
fn what_is_taken_back_is_taken_back_at_once_with_or_without_a_quorum() {
    for members in [1, 2, 3, 5] {
        let mut scene = outdated(members);
        let first = if members == 1 { 0 } else { 1 };
        scene.is_rebuilt(first);
        scene.lacks_its_image(first, 10);
        if members <= 2 {
            scene.answers.membership = Seen::Unknown;
        }
        scene.is_edited(json!({ "version": "3.6.16" }));
        let anew = Step::DeletePod { pod: pod_uid(first), serial: Serial(first), why: Leaving::Outdated };
        assert_eq!(scene.plan().step, Some(anew), "{members}");
        scene.found.pods.remove(&pod_uid(first));
        assert_eq!(scene.plan().create.len(), 1, "{members}");
    }
}

#[test]
fn a_restart_is_asked_for_by_an_annotation_and_taking_that_away_asks_for_nothing() {
    let mut scene = Scene::converged(3);
    leads(&mut scene, 0);
    scene.found.wanted.restart = Some("on monday".to_owned());
    assert_eq!(scene.plan().step, restart(1, None, true));
    for serial in [0, 1, 2] {
        scene.is_rebuilt(serial);
    }
    assert!(scene.plan().step.is_none());
    scene.found.wanted.restart = None;
    assert!(scene.plan().step.is_none());
}

#[test]
fn the_version_that_a_member_runs_is_written_on_its_volume_once_it_answers() {
    let mut scene = outdated(3);
    scene.has_pod(1, &crate::facts::Start::OwnData);
    let marks = |scene: &Scene| {
        let version = scene.found.wanted.version;
        scene.plan().mark.contains(&Mark::Version { claim: claim_uid(1), version })
    };
    assert!(marks(&scene));
    scene.falls_silent(1);
    assert!(!marks(&scene), "one that never came up has rewritten nothing");
}

#[test]
fn how_many_members_are_wanted_makes_nobody_out_of_date() {
    let mut scene = Scene::converged(3);
    scene.is_edited(
        json!({ "members": 5, "heal": { "replaceAfter": "9m" }, "storage": { "onDelete": "Delete" } }),
    );
    assert!(scene.asked().is_some_and(|intent| intent.change == Change::Add(Serial(3))));
}

#[test]
fn data_that_is_in_pods_stays_by_a_member_more_that_joins_before_one_goes() {
    let mut scene = Scene::with(3, json!({ "members": 3, "storage": { "ephemeral": true } }));
    leads(&mut scene, 0);
    scene.is_edited(json!({ "version": "3.7.3" }));
    assert!(
        scene.asked().is_some_and(|intent| intent.change == Change::Add(Serial(3))),
        "{:?}",
        scene.plan()
    );
    scene.turn(|identity| identity.next = Serial(4));
    scene.is_rebuilt_anew(3);
    let goes = scene.plan();
    assert_eq!(goes.mark, [Mark::Unroute { pod: pod_uid(2) }], "{goes:?}");
}
