use std::collections::BTreeSet;

use evenkeel_runtime::{EventType, Observed};
use serde_json::json;

use super::super::decide::step;
use super::super::facts::RestoreCluster;
use super::super::testing::{
    NEW_ID, NOW, OLD_ID, cluster, facts, later, other, own, restore, with,
};
use super::*;

const PENDING: RestorePhase = RestorePhase::Pending;

fn status_after(old: &RestoreStatus, facts: &RestoreFacts) -> RestoreStatus {
    let restore = restore(|it| it["status"] = json!(old));
    let facts = RestoreFacts {
        phase: old.phase,
        ..facts.clone()
    };
    status(&restore, &facts, &step(&facts)).unwrap_or_else(|| old.clone())
}

fn first(facts: &RestoreFacts) -> RestoreStatus {
    status_after(&RestoreStatus::default(), facts)
}

fn condition(status: &RestoreStatus) -> (&str, &str) {
    let complete = conditions::find(&status.conditions, COMPLETE).unwrap();
    assert_eq!(complete.message, status.message);
    assert_eq!(complete.observed_generation, Some(2));
    (&complete.status, &complete.reason)
}

fn at(mut facts: RestoreFacts, now: UnixTime) -> RestoreFacts {
    facts.now = now;
    facts
}

#[test]
fn every_wait_has_its_own_reason_and_names_a_remedy() {
    let backups = [
        RestoreBackup::Absent,
        RestoreBackup::Incomplete,
        RestoreBackup::Failed,
        RestoreBackup::Damaged("The hash differs.".to_owned()),
        RestoreBackup::OtherKind("PostgresCluster".to_owned()),
        RestoreBackup::UnreadableVersion("3.7.3".to_owned()),
    ];
    let backups = backups.into_iter().map(RestoreWait::Backup);
    let waits = [
        RestoreWait::ClusterNotFound,
        RestoreWait::BootstrapNotFinished,
        RestoreWait::AnotherRestore("other".to_owned()),
        RestoreWait::EphemeralStorage,
        RestoreWait::Paused,
        RestoreWait::Start,
    ];
    let mut reasons = BTreeSet::new();
    let restore = restore(|_| ());
    for wait in waits.into_iter().chain(backups) {
        let facts = facts(PENDING);
        let new = status(&restore, &facts, &RestoreStep::Wait(wait.clone())).unwrap();
        let (status, reason) = condition(&new);
        assert_eq!((status, new.phase), ("False", PENDING));
        assert!(reasons.insert(reason.to_owned()), "{reason}");
        let text = &new.message;
        assert!(
            text.ends_with(['.', ':']) || text.ends_with("`.") || text.ends_with("nightly."),
            "{text}"
        );
        assert!(!text.contains("  "), "{text}");
        // The status is complete after one write.
        assert_eq!(
            status_after(&new, &facts).phase,
            PENDING,
            "{wait:?} is final"
        );
    }
    assert_eq!(reasons.len(), 12);
}

#[test]
fn the_message_of_an_older_version_names_both_versions() {
    let newer = RestoreFacts {
        backup: RestoreBackup::UnreadableVersion("3.7.3".to_owned()),
        ..facts(PENDING)
    };
    let status = first(&newer);
    assert_eq!(condition(&status), ("False", "BackupOfNewerVersion"));
    assert!(
        status.message.contains("3.7.3") && status.message.contains("3.6.16"),
        "{}",
        status.message
    );
}

#[test]
fn a_restore_that_is_not_needed_names_both_ids() {
    let facts = RestoreFacts {
        cluster: Observed::Present(cluster(NEW_ID)),
        ..facts(PENDING)
    };
    let new = first(&facts);
    assert_eq!(new.phase, RestorePhase::NotNeeded);
    assert_eq!(condition(&new), ("False", "NotNeeded"));
    assert_eq!(
        new.message,
        "EtcdCluster orders has the ID 77aa, and spec.replaces is 9c1f. Nothing was changed. To replace the current data, \
         create another Restore with spec.replaces: \"77aa\"."
    );
    assert_eq!(status_after(&new, &facts), new);
}

#[test]
fn a_whole_restore_and_its_undo_are_recorded() {
    let waiting = first(&facts(PENDING));
    assert_eq!(condition(&waiting), ("False", "Waiting"));
    let mut status = waiting;
    let mut seen = Vec::new();
    for (seconds, id, phase) in [
        (10, OLD_ID, RestorePhase::Preparing),
        (20, OLD_ID, RestorePhase::Replacing),
        (30, OLD_ID, RestorePhase::Starting),
        (40, NEW_ID, RestorePhase::Complete),
        (50, NEW_ID, RestorePhase::Undoing),
        (60, OLD_ID, RestorePhase::Undone),
    ] {
        let facts = at(with(facts(PENDING), id, own(phase)), later(seconds));
        let next = status_after(&status, &facts);
        let later_facts = at(facts, later(seconds + 5));
        assert_eq!(
            status_after(&next, &later_facts),
            next,
            "{phase} is written once"
        );
        for event in events(&status, &next) {
            assert_eq!(event.kind, EventType::Normal);
            seen.push(event.reason);
        }
        assert_eq!(next.phase, phase);
        status = next;
        if phase == RestorePhase::Complete {
            assert_eq!(condition(&status), ("True", "Complete"));
            assert!(status.message.contains("To return to it, set spec.undo"));
        } else {
            assert_eq!(condition(&status).0, "False");
        }
    }
    assert_eq!(condition(&status), ("False", "Undone"));
    assert_eq!(
        seen,
        [
            "RestoreStarted",
            "RestoreComplete",
            "UndoStarted",
            "RestoreUndone"
        ]
    );
    assert_eq!(status.cluster_id, NEW_ID);
    assert_eq!(status.started_at, Some(conditions::time(later(10))));
    assert_eq!(status.finished_at, Some(conditions::time(later(40))));
    assert_eq!(status.undo_until, Some(conditions::time(later(3600))));
}

#[test]
fn the_message_of_the_engine_wins() {
    let said = |phase| RestoreProgressFacts {
        message: "Not enough space on the volume.".to_owned(),
        ..own(phase)
    };
    for phase in [PENDING, RestorePhase::Preparing, RestorePhase::Complete] {
        let facts = with(facts(PENDING), OLD_ID, said(phase));
        let status = first(&facts);
        assert_eq!(status.message, "Not enough space on the volume.");
        assert_eq!(status.phase, phase);
    }
    // The message of another Restore is not its own.
    let mut foreign = said(RestorePhase::Preparing);
    foreign.name = "other".to_owned();
    let status = first(&with(facts(PENDING), OLD_ID, foreign));
    assert_eq!(condition(&status), ("False", "AnotherRestore"));
    assert!(
        status.message.contains("Restore other"),
        "{}",
        status.message
    );
}

fn complete() -> RestoreStatus {
    let preparing = first(&with(facts(PENDING), OLD_ID, own(RestorePhase::Preparing)));
    let facts = with(facts(PENDING), NEW_ID, own(RestorePhase::Complete));
    status_after(&preparing, &facts)
}

#[test]
fn the_message_says_until_when_a_restore_can_be_undone() {
    let old = complete();
    assert!(
        old.message.contains("is kept until 2027-01-15T09:00:00Z"),
        "{}",
        old.message
    );
    let facts = with(facts(PENDING), NEW_ID, own(RestorePhase::Complete));
    let passed = status_after(&old, &at(facts.clone(), later(3600)));
    assert!(
        passed.message.contains("cannot be undone"),
        "{}",
        passed.message
    );
    assert!(events(&old, &passed).is_empty());
    let mut gone = own(RestorePhase::Complete);
    gone.undo_until = None;
    let gone = status_after(&passed, &with(facts, NEW_ID, gone));
    assert_eq!(gone.undo_until, None);
    assert!(
        gone.message.contains("cannot be undone"),
        "{}",
        gone.message
    );
}

#[test]
fn an_undo_waits_or_is_rejected_while_the_restore_stays_complete() {
    let old = complete();
    let asked = RestoreFacts {
        is_undo_requested: true,
        ..with(facts(PENDING), NEW_ID, own(RestorePhase::Complete))
    };
    let requested = status_after(&old, &asked);
    assert_eq!(condition(&requested), ("True", "UndoRequested"));
    let mut paused = asked.clone();
    paused.cluster = Observed::Present(RestoreCluster {
        is_paused: true,
        progress: Some(own(RestorePhase::Complete)),
        ..cluster(NEW_ID)
    });
    let paused = status_after(&requested, &paused);
    assert!(paused.message.contains("spec.paused"), "{}", paused.message);
    let late = status_after(&requested, &at(asked.clone(), later(3600)));
    assert_eq!(condition(&late), ("True", "UndoNotPossible"));
    assert!(
        late.message.contains("until 2027-01-15T09:00:00Z only"),
        "{}",
        late.message
    );
    assert_eq!(events(&requested, &late)[0].kind, EventType::Warning);
    let later_one = with(asked, "fefe", other(RestorePhase::Complete));
    let superseded = status_after(&old, &later_one);
    assert_eq!(condition(&superseded), ("True", "UndoNotPossible"));
    assert!(
        superseded.message.contains("Restore other"),
        "{}",
        superseded.message
    );
    assert_eq!(superseded.phase, RestorePhase::Complete);
    assert_eq!(superseded.undo_until, None);
    assert_eq!(superseded.cluster_id, NEW_ID);
}

#[test]
fn a_restore_that_was_created_again_after_its_end_claims_no_times() {
    let again = first(&with(facts(PENDING), NEW_ID, own(RestorePhase::Complete)));
    assert_eq!(again.phase, RestorePhase::Complete);
    assert_eq!((again.started_at, again.finished_at), (None, None));
    assert_eq!(again.cluster_id, NEW_ID);
}

#[test]
fn a_lost_restore_keeps_its_phase_and_its_end_is_unknown() {
    let old = first(&with(facts(PENDING), OLD_ID, own(RestorePhase::Starting)));
    let lost = status_after(&old, &facts(PENDING));
    assert_eq!(lost.phase, RestorePhase::Starting);
    assert_eq!(condition(&lost), ("Unknown", "ProgressLost"));
    assert_eq!(events(&old, &lost)[0].kind, EventType::Warning);
}

#[test]
fn a_final_status_only_follows_the_generation() {
    let old = complete();
    let mut restore = restore(|it| it["status"] = json!(old));
    restore.metadata.generation = Some(3);
    let absent = RestoreFacts {
        cluster: Observed::Absent,
        ..facts(RestorePhase::Complete)
    };
    let kept = status(&restore, &absent, &step(&absent)).unwrap();
    assert_eq!(kept.observed_generation, Some(3));
    assert_eq!(kept.message, old.message);
    let mut newer = old;
    newer.phase = RestorePhase::Unknown;
    restore.status = Some(newer);
    assert_eq!(status(&restore, &absent, &RestoreStep::Keep), None);
}

#[test]
fn problems_are_warnings_and_waiting_is_no_event() {
    let none = RestoreStatus::default();
    let waiting = first(&facts(PENDING));
    assert!(events(&none, &waiting).is_empty());
    let absent = RestoreFacts {
        backup: RestoreBackup::Absent,
        ..facts(PENDING)
    };
    let problem = first(&absent);
    let event = &events(&waiting, &problem)[0];
    assert_eq!(
        (event.kind, &*event.reason),
        (EventType::Warning, "BackupNotFound")
    );
    assert!(events(&problem, &problem).is_empty());
    let not_needed = first(&RestoreFacts {
        cluster: Observed::Present(cluster(NEW_ID)),
        ..facts(PENDING)
    });
    assert_eq!(events(&none, &not_needed)[0].reason, "RestoreNotNeeded");
    assert_eq!(NOW, UnixTime(1_800_000_000));
}
