//! Events and the words for logs and metrics.

use std::collections::BTreeSet;

use evenkeel::NoticeKind;
use serde_json::json;

use super::super::tests::is_plain;
use super::*;
use crate::facts::{Object, Start};
use crate::identity::{ClusterId, Identity, Intent, MemberId, Uid};
use crate::names::{Epoch, Serial};
use crate::plan::{Owned, Wait};
use crate::testing::{NOW, Scene, claim_uid, name as member_name, pod_uid};

fn identity() -> Identity {
    Scene::converged(3).found.identity.unwrap().1
}

fn turn(why: Turn) -> Step {
    Step::Identity { from: identity(), to: identity(), why }
}

fn call(change: Change) -> Step {
    Step::Call { from: identity(), intent: Intent::to(change, BTreeSet::new(), NOW), heir: None }
}

fn replacing(serial: Serial) -> Step {
    let intent = Intent::to(Change::Remove(serial), BTreeSet::new(), NOW);
    Step::Call { from: identity(), intent: Intent { replaces: true, ..intent }, heir: None }
}

fn steps() -> Vec<Step> {
    let (pod, claim, serial) = (pod_uid(1), claim_uid(1), Serial(1));
    let leaving = [Leaving::OldEpoch, Leaving::NotAMember, Leaving::Finished, Leaving::MakesWay];
    let mut steps = vec![
        turn(Turn::SeedStarts),
        turn(Turn::Formed(ClusterId(5))),
        turn(Turn::Seal),
        turn(Turn::Settle),
        turn(Turn::SeedLost),
        turn(Turn::SeedMoves),
        turn(Turn::ResourceReplaced),
        turn(Turn::Adopt),
        turn(Turn::PassOver),
        call(Change::Add(serial)),
        call(Change::Promote(serial)),
        call(Change::Remove(serial)),
        call(Change::Expel(MemberId(0xabc))),
        replacing(serial),
    ];
    steps.extend(leaving.map(|why| Step::DeletePod { pod, serial, why }));
    steps.extend(leaving.map(|why| Step::DeleteClaim { claim, serial, why }));
    steps
}

fn notice_of(step: &Step) -> Option<Notice> {
    notice(&Scene::converged(3).found, &Action::Step(step))
}

#[test]
fn what_was_done_is_told_in_the_past_tense_with_the_members_name() {
    let note = |change| notice_of(&call(change)).unwrap();
    assert_eq!(note(Change::Add(Serial(1))).note, format!("added {} as a learner", member_name(1)));
    assert_eq!(note(Change::Promote(Serial(1))).note, format!("gave {} its vote", member_name(1)));
    assert_eq!(note(Change::Remove(Serial(1))).note, format!("removed {} from the cluster", member_name(1)));
    let ended = Step::DeletePod { pod: pod_uid(1), serial: Serial(1), why: Leaving::Finished };
    let told = notice_of(&ended).unwrap();
    assert_eq!((told.kind, told.reason.as_str()), (NoticeKind::Warning, "PodDeleted"));
    assert!(told.note.starts_with(&format!("deleted the pod of {}: ", member_name(1))), "{}", told.note);
}

#[test]
fn every_step_is_told_in_plain_words_or_not_at_all() {
    let mut scene = Scene::converged(3);
    for step in steps() {
        let mut plan = scene.plan();
        if let Some(told) = notice_of(&step) {
            is_plain(&told.note);
            assert!(told.reason.chars().all(char::is_alphanumeric), "{}", told.reason);
        }
        plan.step = Some(step);
        let status = crate::tell::status(&scene.found, &scene.facts(), &plan, None);
        is_plain(&status.doing);
        assert!(!status.doing.starts_with("the "), "what is done, not what is so: {}", status.doing);
    }
    // A beginning that failed is worth a look; the members' names are not known without an identity.
    assert_eq!(notice_of(&turn(Turn::SeedLost)).unwrap().kind, NoticeKind::Warning);
    scene.found.identity = None;
    let told = notice(&scene.found, &Action::Step(&call(Change::Add(Serial(1))))).unwrap();
    assert_eq!(told.note, "added member 1 as a learner");
}

#[test]
fn small_marks_are_no_news_but_clients_that_are_let_in_are() {
    let scene = Scene::converged(3);
    let told = |mark: Mark| notice(&scene.found, &Action::Mark(&mark));
    assert_eq!(told(Mark::Turn { pod: pod_uid(1), from: Start::OwnData }), None);
    assert_eq!(told(Mark::Own { what: Owned::Identity, owned: true }), None);
    let routed = told(Mark::Route { pod: pod_uid(1) }).unwrap();
    assert_eq!(routed.note, format!("routed clients to {}", member_name(1)));
    assert_eq!(told(Mark::Route { pod: Uid(0) }), None, "it is gone meanwhile");
    let create =
        Create::Pod { serial: Serial(1), epoch: Epoch::FIRST, on: None, start: Start::Held, inputs: Uid(0) };
    let created = notice(&scene.found, &Action::Create(&create)).unwrap();
    assert_eq!(
        (created.kind, created.note),
        (NoticeKind::Normal, format!("created the pod of {}", member_name(1)))
    );
    let first = Identity { next: Serial(1), ..identity() };
    assert_eq!(notice(&scene.found, &Action::Create(&Create::Identity(first))), None);
    let rebuilt = notice(&scene.found, &Action::Create(&Create::Identity(identity()))).unwrap();
    assert_eq!((rebuilt.kind, rebuilt.reason.as_str()), (NoticeKind::Warning, "IdentityRebuilt"));
}

#[test]
fn actions_have_words_of_their_own_for_logs_and_metrics() {
    let steps = steps();
    let names: BTreeSet<_> = steps.iter().map(|step| name(&Action::Step(step))).collect();
    // The four reasons for deleting share a word.
    assert_eq!(names.len(), steps.len() - 6, "{names:?}");
    assert!(
        names.iter().all(|name| name.chars().all(|it| it.is_ascii_lowercase() || it == '-')),
        "{names:?}"
    );
}

#[test]
fn troubles_are_warnings_and_what_mends_itself_is_none() {
    let mut scene = Scene::converged(3);
    let told = |scene: &Scene, waits: Vec<Wait>| {
        let mut plan = scene.plan();
        plan.status.waits = waits;
        troubles(&scene.found, &scene.facts(), &plan)
    };
    assert_eq!(told(&scene, vec![]), []);
    let mending = vec![Wait::AddUnsafe, Wait::CatchingUp(Serial(1)), Wait::Paused, Wait::OldEpochGoes];
    assert_eq!(told(&scene, mending), []);
    let bad = told(&scene, vec![Wait::NameTaken(Object::Budget), Wait::Strangers(vec![])]);
    let reasons: Vec<_> = bad.iter().map(|notice| (notice.kind, notice.reason.as_str())).collect();
    assert_eq!(reasons, [(NoticeKind::Warning, "NameTaken"), (NoticeKind::Warning, "UnknownMember")]);
    bad.iter().for_each(|notice| is_plain(&notice.note));

    scene.falls_silent(1);
    let down = told(&scene, vec![]);
    assert_eq!(down.len(), 1);
    assert_eq!(
        (down[0].reason.as_str(), &down[0].note),
        ("MemberDown", &format!("{} does not serve", member_name(1)))
    );
    crate::testing::change(scene.pod(1), json!({ "spec": { "nodeName": null } }));
    assert_eq!(told(&scene, vec![])[0].reason, "MemberDown", "a pod without trouble waits for no node");
}

#[test]
fn every_event_is_in_the_reference_and_nothing_else_is() {
    let code = include_str!("notices.rs").split("pub fn troubles").next().unwrap_or_default();
    let quoted = |after: &str| -> BTreeSet<String> {
        code.split(after).skip(1).filter_map(|rest| rest.split('"').next()).map(str::to_owned).collect()
    };
    let told: Vec<_> = quoted("told(\"").into_iter().chain(quoted("warning(\"")).collect();
    let told: BTreeSet<_> = told.into_iter().collect();
    let reference = include_str!("../../../../docs/reference/events.md");
    let listed: BTreeSet<_> = reference
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .map(str::to_owned)
        .collect();
    assert!(told.len() > 10, "{told:?}");
    assert_eq!(listed, told, "docs/reference/events.md");
}
