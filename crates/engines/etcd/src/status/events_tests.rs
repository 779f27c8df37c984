//! Events and the words for logs and metrics.

use std::collections::BTreeSet;

use evenkeel_runtime::EventType;
use serde_json::json;

use super::super::tests::is_plain;
use super::*;
use crate::facts::{OwnedObject, StartMode};
use crate::identity::{ClusterId, Identity, Intent, MemberId, Uid};
use crate::names::{Epoch, Serial};
use crate::plan::{EtcdWait, OwnerTarget};
use crate::testing::{NOW, Scene, claim_uid, name as member_name, pod_uid};

fn identity() -> Identity {
    Scene::converged(3).observed.identity.unwrap().1
}

fn turn(why: IdentityChange) -> EtcdDisruption {
    EtcdDisruption::UpdateIdentity {
        from: identity(),
        to: identity(),
        why,
    }
}

fn call(change: MembershipChange) -> EtcdDisruption {
    EtcdDisruption::ChangeMembership {
        from: identity(),
        intent: Intent::new(change, BTreeSet::new(), NOW),
        transfer_to: None,
    }
}

fn replacing(serial: Serial) -> EtcdDisruption {
    let intent = Intent::new(MembershipChange::Remove(serial), BTreeSet::new(), NOW);
    EtcdDisruption::ChangeMembership {
        from: identity(),
        intent: Intent {
            is_replacement: true,
            ..intent
        },
        transfer_to: None,
    }
}

fn steps() -> Vec<EtcdDisruption> {
    let (pod, claim, serial) = (pod_uid(1), claim_uid(1), Serial(1));
    let leaving = [
        DeleteReason::OldEpoch,
        DeleteReason::MemberRemoved,
        DeleteReason::Finished,
        DeleteReason::FreesNode,
    ];
    let mut steps = vec![
        turn(IdentityChange::StartSeed),
        turn(IdentityChange::RecordCluster(ClusterId(5))),
        turn(IdentityChange::FinishBootstrap),
        turn(IdentityChange::SettleIntent),
        turn(IdentityChange::SeedLost),
        turn(IdentityChange::SeedStorageChanged),
        turn(IdentityChange::ResourceReplaced),
        turn(IdentityChange::Adopt),
        turn(IdentityChange::Repair),
        call(MembershipChange::Add(serial)),
        call(MembershipChange::Promote(serial)),
        call(MembershipChange::Remove(serial)),
        call(MembershipChange::RemoveUnknown(MemberId(0xabc))),
        replacing(serial),
    ];
    steps.extend(leaving.map(|why| EtcdDisruption::DeletePod { pod, serial, why }));
    steps.extend(leaving.map(|why| EtcdDisruption::DeleteClaim { claim, serial, why }));
    steps
}

fn notice_of(step: &EtcdDisruption) -> Option<EventSpec> {
    event_for(&Scene::converged(3).observed, &Action::Disruption(step))
}

#[test]
fn what_was_done_is_told_in_the_past_tense_with_the_members_name() {
    let note = |change| notice_of(&call(change)).unwrap();
    assert_eq!(
        note(MembershipChange::Add(Serial(1))).note,
        format!("added {} as a learner", member_name(1))
    );
    assert_eq!(
        note(MembershipChange::Promote(Serial(1))).note,
        format!("gave {} its vote", member_name(1))
    );
    assert_eq!(
        note(MembershipChange::Remove(Serial(1))).note,
        format!("removed {} from the cluster", member_name(1))
    );
    let ended = EtcdDisruption::DeletePod {
        pod: pod_uid(1),
        serial: Serial(1),
        why: DeleteReason::Finished,
    };
    let told = notice_of(&ended).unwrap();
    assert_eq!(
        (told.kind, told.reason.as_str()),
        (EventType::Warning, "PodDeleted")
    );
    assert!(
        told.note
            .starts_with(&format!("deleted the pod of {}: ", member_name(1))),
        "{}",
        told.note
    );
}

#[test]
fn every_step_is_told_in_plain_words_or_not_at_all() {
    let mut scene = Scene::converged(3);
    for step in steps() {
        let mut plan = scene.plan();
        if let Some(told) = notice_of(&step) {
            is_plain(&told.note);
            assert!(
                told.reason.chars().all(char::is_alphanumeric),
                "{}",
                told.reason
            );
        }
        plan.disruption = Some(step);
        let status = crate::status::status(&scene.observed, &scene.facts(), &plan, None);
        is_plain(&status.doing);
        assert!(
            !status.doing.starts_with("the "),
            "what is done, not what is so: {}",
            status.doing
        );
    }
    // A beginning that failed is worth a look; the members' names are not known without an identity.
    assert_eq!(
        notice_of(&turn(IdentityChange::SeedLost)).unwrap().kind,
        EventType::Warning
    );
    scene.observed.identity = None;
    let told = event_for(
        &scene.observed,
        &Action::Disruption(&call(MembershipChange::Add(Serial(1)))),
    )
    .unwrap();
    assert_eq!(told.note, "added member 1 as a learner");
}

#[test]
fn small_marks_are_no_news_but_clients_that_are_let_in_are() {
    let scene = Scene::converged(3);
    let told = |mark: EtcdPatch| event_for(&scene.observed, &Action::Patch(&mark));
    assert_eq!(
        told(EtcdPatch::MarkJoined {
            pod: pod_uid(1),
            from: StartMode::ExistingData
        }),
        None
    );
    assert_eq!(
        told(EtcdPatch::SetOwner {
            what: OwnerTarget::Identity,
            owned: true
        }),
        None
    );
    let routed = told(EtcdPatch::AttachClients { pod: pod_uid(1) }).unwrap();
    assert_eq!(routed.note, format!("routed clients to {}", member_name(1)));
    assert_eq!(
        told(EtcdPatch::AttachClients { pod: Uid(0) }),
        None,
        "it is gone meanwhile"
    );
    let create = EtcdCreate::Pod {
        serial: Serial(1),
        epoch: Epoch::FIRST,
        claim: None,
        start_mode: StartMode::Held,
        inputs: Uid(0),
    };
    let created = event_for(&scene.observed, &Action::Create(&create)).unwrap();
    assert_eq!(
        (created.kind, created.note),
        (
            EventType::Normal,
            format!("created the pod of {}", member_name(1))
        )
    );
    let first = Identity {
        next_serial: Serial(1),
        ..identity()
    };
    assert_eq!(
        event_for(
            &scene.observed,
            &Action::Create(&EtcdCreate::Identity(first))
        ),
        None
    );
    let rebuilt = event_for(
        &scene.observed,
        &Action::Create(&EtcdCreate::Identity(identity())),
    )
    .unwrap();
    assert_eq!(
        (rebuilt.kind, rebuilt.reason.as_str()),
        (EventType::Warning, "IdentityRebuilt")
    );
}

#[test]
fn actions_have_words_of_their_own_for_logs_and_metrics() {
    let steps = steps();
    let names: BTreeSet<_> = steps
        .iter()
        .map(|step| action_name(&Action::Disruption(step)))
        .collect();
    // The four reasons for deleting share a word.
    assert_eq!(names.len(), steps.len() - 6, "{names:?}");
    assert!(
        names
            .iter()
            .all(|name| name.chars().all(|it| it.is_ascii_lowercase() || it == '-')),
        "{names:?}"
    );
}

#[test]
fn troubles_are_warnings_and_what_mends_itself_is_none() {
    let mut scene = Scene::converged(3);
    let told = |scene: &Scene, waits: Vec<EtcdWait>| {
        let mut plan = scene.plan();
        plan.waits = waits;
        warning_events(&scene.observed, &scene.facts(), &plan)
    };
    assert_eq!(told(&scene, vec![]), []);
    let mending = vec![
        EtcdWait::UnsafeToAdd,
        EtcdWait::LearnerCatchUp(Serial(1)),
        EtcdWait::Paused,
        EtcdWait::OldEpochDeletion,
    ];
    assert_eq!(told(&scene, mending), []);
    let bad = told(
        &scene,
        vec![
            EtcdWait::NameConflict(OwnedObject::PodDisruptionBudget),
            EtcdWait::UnknownMembers(vec![]),
        ],
    );
    let reasons: Vec<_> = bad
        .iter()
        .map(|event| (event.kind, event.reason.as_str()))
        .collect();
    assert_eq!(
        reasons,
        [
            (EventType::Warning, "NameTaken"),
            (EventType::Warning, "UnknownMember")
        ]
    );
    bad.iter().for_each(|event| is_plain(&event.note));

    scene.stops_answering(1);
    let down = told(&scene, vec![]);
    assert_eq!(down.len(), 1);
    assert_eq!(
        (down[0].reason.as_str(), &down[0].note),
        ("MemberDown", &format!("{} does not serve", member_name(1)))
    );
    crate::testing::change(scene.pod(1), json!({ "spec": { "nodeName": null } }));
    assert_eq!(
        told(&scene, vec![])[0].reason,
        "MemberDown",
        "a pod without trouble waits for no node"
    );
}

#[test]
fn every_event_is_in_the_reference_and_nothing_else_is() {
    let code = include_str!("events.rs")
        .split("pub fn warning_events")
        .next()
        .unwrap_or_default();
    let quoted = |after: &str| -> BTreeSet<String> {
        code.split(after)
            .skip(1)
            .filter_map(|rest| rest.split('"').next())
            .map(str::to_owned)
            .collect()
    };
    let told: Vec<_> = quoted("told(\"")
        .into_iter()
        .chain(quoted("warning(\""))
        .collect();
    let told: BTreeSet<_> = told.into_iter().collect();
    let reference = include_str!("../../../../../docs/reference/events.md");
    let listed: BTreeSet<_> = reference
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .map(str::to_owned)
        .collect();
    assert!(told.len() > 10, "{told:?}");
    assert_eq!(listed, told, "docs/reference/events.md");
}
