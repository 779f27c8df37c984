use evenkeel_runtime::UnixTime;

use super::super::testing::{NEW_ID, NOW, OLD_ID, cluster, facts, later, other, own, with};
use super::*;

const PENDING: RestorePhase = RestorePhase::Pending;

fn pending() -> RestoreFacts {
    facts(PENDING)
}

/// All phases that an engine or a status can have.
const PHASES: [RestorePhase; 9] = [
    PENDING,
    RestorePhase::Preparing,
    RestorePhase::Replacing,
    RestorePhase::Starting,
    RestorePhase::Complete,
    RestorePhase::Undoing,
    RestorePhase::Undone,
    RestorePhase::NotNeeded,
    RestorePhase::Unknown,
];

fn with_cluster(change: impl FnOnce(&mut RestoreCluster)) -> RestoreFacts {
    let mut cluster = cluster(OLD_ID);
    change(&mut cluster);
    RestoreFacts {
        cluster: Observed::Present(cluster),
        ..pending()
    }
}

#[test]
fn a_restore_that_cannot_begin_names_the_first_obstacle() {
    let absent = RestoreFacts {
        cluster: Observed::Absent,
        ..pending()
    };
    let backup = |backup: RestoreBackup| RestoreFacts {
        backup,
        ..with_cluster(|it| it.is_paused = true)
    };
    let older = || RestoreFacts {
        older: Some("older".to_owned()),
        ..with_cluster(|it| it.is_ephemeral = true)
    };
    let another = |name: &str| RestoreWait::AnotherRestore(name.to_owned());
    let under_way = |phase| with(older(), OLD_ID, other(phase));
    let cases = [
        (pending(), RestoreWait::Start),
        (absent, RestoreWait::ClusterNotFound),
        (
            with_cluster(|it| it.id = None),
            RestoreWait::BootstrapNotFinished,
        ),
        (with_cluster(|it| it.is_paused = true), RestoreWait::Paused),
        (
            backup(RestoreBackup::Absent),
            RestoreWait::Backup(RestoreBackup::Absent),
        ),
        (
            backup(RestoreBackup::Damaged("x".to_owned())),
            RestoreWait::Backup(RestoreBackup::Damaged("x".to_owned())),
        ),
        (
            RestoreFacts {
                backup: RestoreBackup::Failed,
                ..with_cluster(|it| it.is_ephemeral = true)
            },
            RestoreWait::EphemeralStorage,
        ),
        (older(), another("older")),
        (under_way(RestorePhase::Preparing), another("other")),
        (under_way(RestorePhase::Undoing), another("other")),
        // It has ended, or has not begun.
        (under_way(RestorePhase::Undone), another("older")),
        (under_way(PENDING), another("older")),
    ];
    for (facts, wait) in cases {
        assert_eq!(step(&facts), RestoreStep::Wait(wait.clone()), "{facts:?}");
        let plan = RestoreControl::decide(&facts);
        assert!(plan.is_noop() && plan.waits == [wait]);
    }
}

#[test]
fn a_restore_of_another_cluster_id_is_not_needed() {
    let other_id = RestoreFacts {
        cluster: Observed::Present(cluster(NEW_ID)),
        ..pending()
    };
    let not_needed = RestoreStep::NotNeeded(NotNeededReason::OtherId(NEW_ID.to_owned()));
    assert_eq!(step(&other_id), not_needed);
    // It has only prepared a volume: the data is unchanged.
    let prepared = RestoreFacts {
        phase: RestorePhase::Preparing,
        ..other_id.clone()
    };
    assert_eq!(step(&prepared), not_needed);
    // Another restore has replaced the same cluster.
    let superseded = with(pending(), NEW_ID, other(RestorePhase::Complete));
    assert_eq!(step(&superseded), not_needed);
    let recorded = RestoreFacts {
        phase: RestorePhase::NotNeeded,
        ..other_id
    };
    assert_eq!(step(&recorded), RestoreStep::Keep);
    // The ID is back, because the restore in between was undone. A Restore runs once.
    let back = RestoreFacts {
        cluster: Observed::Present(cluster(OLD_ID)),
        ..recorded
    };
    assert_eq!(step(&back), RestoreStep::Keep);
}

#[test]
fn the_restore_under_way_is_never_called_not_needed() {
    for phase in PHASES {
        for recorded in PHASES {
            for id in [OLD_ID, NEW_ID] {
                let facts = with(facts(recorded), id, own(phase));
                let found = step(&facts);
                assert!(
                    !matches!(found, RestoreStep::NotNeeded(_)),
                    "{recorded} {phase} {id}: {found:?}"
                );
            }
        }
    }
}

#[test]
fn the_status_follows_the_progress_of_its_own_restore() {
    for recorded in [
        PENDING,
        RestorePhase::Preparing,
        RestorePhase::Starting,
        RestorePhase::Complete,
        RestorePhase::NotNeeded,
    ] {
        for phase in [
            RestorePhase::Preparing,
            RestorePhase::Replacing,
            RestorePhase::Starting,
            RestorePhase::Undoing,
            RestorePhase::Undone,
        ] {
            let facts = with(facts(recorded), NEW_ID, own(phase));
            assert_eq!(step(&facts), RestoreStep::Follow(own(phase)), "{recorded}");
        }
        let complete = with(facts(recorded), NEW_ID, own(RestorePhase::Complete));
        assert_eq!(
            step(&complete),
            RestoreStep::Complete(own(RestorePhase::Complete))
        );
    }
    // A phase of a newer engine.
    let newer = with(
        facts(RestorePhase::Preparing),
        OLD_ID,
        own(RestorePhase::Unknown),
    );
    assert_eq!(step(&newer), RestoreStep::Keep);
}

#[test]
fn a_final_status_survives_the_loss_of_the_progress() {
    let clusters = [
        Observed::Absent,
        Observed::Unknown,
        Observed::Present(cluster(NEW_ID)),
        Observed::Present(cluster("another")),
        Observed::Present(RestoreCluster {
            id: None,
            ..cluster(NEW_ID)
        }),
    ];
    for phase in [
        RestorePhase::Complete,
        RestorePhase::Undone,
        RestorePhase::NotNeeded,
        RestorePhase::Unknown,
    ] {
        for cluster in &clusters {
            let facts = RestoreFacts {
                cluster: cluster.clone(),
                ..facts(phase)
            };
            assert_eq!(step(&facts), RestoreStep::Keep, "{phase} {cluster:?}");
        }
    }
}

#[test]
fn a_later_restore_ends_the_time_for_the_undo() {
    let complete = |phase| with(facts(RestorePhase::Complete), NEW_ID, other(phase));
    let superseded = RestoreStep::NoUndo(UndoObstacle::Superseded("other".to_owned()));
    for phase in [
        RestorePhase::Replacing,
        RestorePhase::Complete,
        RestorePhase::Undone,
    ] {
        assert_eq!(step(&complete(phase)), superseded);
    }
    assert_eq!(step(&complete(RestorePhase::Preparing)), RestoreStep::Keep);
}

#[test]
fn an_undo_is_followed_or_its_obstacle_is_named() {
    let requested = |id: &str, progress| RestoreFacts {
        is_undo_requested: true,
        ..with(facts(RestorePhase::Complete), id, progress)
    };
    let complete = own(RestorePhase::Complete);
    assert_eq!(
        step(&requested(NEW_ID, complete.clone())),
        RestoreStep::UndoRequested(complete.clone())
    );
    let expired = RestoreFacts {
        now: later(3600),
        ..requested(NEW_ID, complete.clone())
    };
    let no_undo = |obstacle| RestoreStep::NoUndo(obstacle);
    assert_eq!(step(&expired), no_undo(UndoObstacle::Expired));
    let gone = RestoreProgressFacts {
        undo_until: None,
        ..complete
    };
    assert_eq!(
        step(&requested(NEW_ID, gone)),
        no_undo(UndoObstacle::Expired)
    );
    let lost = RestoreFacts {
        is_undo_requested: true,
        cluster: Observed::Present(cluster(NEW_ID)),
        ..facts(RestorePhase::Complete)
    };
    assert_eq!(step(&lost), no_undo(UndoObstacle::NotReported));
    // An undo that has begun in time ends, however long it takes.
    let undoing = RestoreFacts {
        now: later(7200),
        ..requested(OLD_ID, own(RestorePhase::Undoing))
    };
    assert_eq!(
        step(&undoing),
        RestoreStep::Follow(own(RestorePhase::Undoing))
    );
}

#[test]
fn an_undo_before_the_start_changes_nothing() {
    let asked = RestoreFacts {
        is_undo_requested: true,
        ..pending()
    };
    assert_eq!(
        step(&asked),
        RestoreStep::NotNeeded(NotNeededReason::UndoneBeforeStart)
    );
    // It was created again after its undo: the cluster has the old ID, and knows the Restore.
    let again = with(asked, OLD_ID, own(RestorePhase::Undone));
    assert_eq!(step(&again), RestoreStep::Follow(own(RestorePhase::Undone)));
}

#[test]
fn a_restore_that_is_not_reported_any_more_after_its_start_is_lost() {
    for phase in [
        RestorePhase::Replacing,
        RestorePhase::Starting,
        RestorePhase::Undoing,
    ] {
        assert_eq!(step(&facts(phase)), RestoreStep::Lost, "{phase}");
        let superseded = with(facts(phase), NEW_ID, other(RestorePhase::Preparing));
        assert_eq!(step(&superseded), RestoreStep::Lost, "{phase}");
        let deleted = RestoreFacts {
            cluster: Observed::Absent,
            ..facts(phase)
        };
        assert_eq!(
            step(&deleted),
            RestoreStep::Wait(RestoreWait::ClusterNotFound)
        );
    }
    // Before, the engine can begin again.
    assert_eq!(
        step(&facts(RestorePhase::Preparing)),
        RestoreStep::Wait(RestoreWait::Start)
    );
}

#[test]
fn the_end_of_the_time_for_the_undo_is_the_only_time_that_is_waited_for() {
    let requeue = |facts: &RestoreFacts| RestoreControl::decide(facts).requeue;
    let complete = with(
        facts(RestorePhase::Complete),
        NEW_ID,
        own(RestorePhase::Complete),
    );
    assert_eq!(requeue(&complete), Requeue::At(later(3600)));
    for now in [later(3600), UnixTime(NOW.0 + 9999)] {
        let passed = RestoreFacts {
            now,
            ..complete.clone()
        };
        assert_eq!(requeue(&passed), Requeue::OnChange);
    }
    for phase in PHASES {
        let pending = with(facts(PENDING), OLD_ID, other(phase));
        assert_eq!(requeue(&pending), Requeue::OnChange);
    }
}
