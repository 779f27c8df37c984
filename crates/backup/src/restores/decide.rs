//! What the status of a Restore reports. The engine of the cluster carries out a restore and writes its progress to the status
//! of the cluster, so the only knowledge here is how to read that.

use evenkeel_api::RestorePhase;
use evenkeel_runtime::{Engine, Observed, Plan, Requeue};
use serde::{Deserialize, Serialize};

use super::facts::{RestoreBackup, RestoreCluster, RestoreFacts, RestoreProgressFacts};

/// The knowledge of how the state of a Restore is reported.
pub struct RestoreControl;

/// The reason why a restore has not begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RestoreWait {
    /// The cluster does not exist.
    ClusterNotFound,
    /// The cluster has no ID yet.
    BootstrapNotFinished,
    /// This Restore of the same cluster is under way, or comes first.
    AnotherRestore(String),
    /// The members have no volumes, so the restore never begins.
    EphemeralStorage,
    /// The backup cannot be restored.
    Backup(RestoreBackup),
    /// The cluster is paused: the operator changes nothing.
    Paused,
    /// The engine has not begun.
    Start,
}

/// The reason why a restore is not needed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NotNeededReason {
    /// The cluster has this ID.
    OtherId(String),
    /// `spec.undo` was set before the restore began.
    UndoneBeforeStart,
}

/// The reason why a restore cannot be undone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UndoObstacle {
    /// The old data is not kept any more.
    Expired,
    /// This Restore has replaced the data since.
    Superseded(String),
    /// The cluster does not report the restore any more.
    NotReported,
}

/// The state that the status reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestoreStep {
    /// The status stays as it is.
    Keep,
    /// The restore has not begun.
    Wait(RestoreWait),
    /// The cluster does not have the ID that is given up.
    NotNeeded(NotNeededReason),
    /// The restore or its undo is under way or has just ended: the status follows the progress.
    Follow(RestoreProgressFacts),
    /// The restore is complete, and the old data may be kept.
    Complete(RestoreProgressFacts),
    /// `spec.undo` is set, and the engine has not begun.
    UndoRequested(RestoreProgressFacts),
    /// The restore is complete and cannot be undone.
    NoUndo(UndoObstacle),
    /// The restore was under way, and the cluster does not report it any more.
    Lost,
}

/// Returns the state that the status reports.
pub fn step(facts: &RestoreFacts) -> RestoreStep {
    match facts.phase {
        // A phase of a newer operator is none that this one may change.
        RestorePhase::Undone | RestorePhase::Unknown => RestoreStep::Keep,
        RestorePhase::NotNeeded => begun(facts).map_or(RestoreStep::Keep, |own| follow(facts, own)),
        RestorePhase::Complete => match begun(facts) {
            Some(own) => follow(facts, own),
            None => complete_without_progress(facts),
        },
        RestorePhase::Pending
        | RestorePhase::Preparing
        | RestorePhase::Replacing
        | RestorePhase::Starting
        | RestorePhase::Undoing => match begun(facts) {
            Some(own) => follow(facts, own),
            None => not_begun(facts),
        },
    }
}

/// Returns the progress of this Restore, if the engine has begun.
fn begun(facts: &RestoreFacts) -> Option<&RestoreProgressFacts> {
    let own = facts.own_progress()?;
    match own.phase {
        RestorePhase::Pending | RestorePhase::NotNeeded => None,
        RestorePhase::Preparing
        | RestorePhase::Replacing
        | RestorePhase::Starting
        | RestorePhase::Complete
        | RestorePhase::Undoing
        | RestorePhase::Undone
        | RestorePhase::Unknown => Some(own),
    }
}

fn follow(facts: &RestoreFacts, own: &RestoreProgressFacts) -> RestoreStep {
    let own = own.clone();
    match own.phase {
        RestorePhase::Complete if !facts.is_undo_requested => RestoreStep::Complete(own),
        RestorePhase::Complete if own.undo_until.is_some_and(|until| facts.now < until) => {
            RestoreStep::UndoRequested(own)
        }
        RestorePhase::Complete => RestoreStep::NoUndo(UndoObstacle::Expired),
        RestorePhase::Unknown => RestoreStep::Keep,
        RestorePhase::Pending
        | RestorePhase::Preparing
        | RestorePhase::Replacing
        | RestorePhase::Starting
        | RestorePhase::Undoing
        | RestorePhase::Undone
        | RestorePhase::NotNeeded => RestoreStep::Follow(own),
    }
}

/// Returns the step of a complete Restore that the cluster does not report.
fn complete_without_progress(facts: &RestoreFacts) -> RestoreStep {
    if facts.cluster.present().is_none() {
        return RestoreStep::Keep;
    }
    match facts.other_progress() {
        // The restore of another Restore that has not begun changes nothing.
        Some(other) if has_replaced(other.phase) => {
            RestoreStep::NoUndo(UndoObstacle::Superseded(other.name.clone()))
        }
        Some(_) | None if facts.is_undo_requested => RestoreStep::NoUndo(UndoObstacle::NotReported),
        Some(_) | None => RestoreStep::Keep,
    }
}

/// Returns true for the phases in which the data of a cluster is or was replaced.
fn has_replaced(phase: RestorePhase) -> bool {
    match phase {
        RestorePhase::Replacing
        | RestorePhase::Starting
        | RestorePhase::Complete
        | RestorePhase::Undoing
        | RestorePhase::Undone => true,
        RestorePhase::Pending
        | RestorePhase::Preparing
        | RestorePhase::NotNeeded
        | RestorePhase::Unknown => false,
    }
}

/// Returns the step of a Restore that the cluster does not report.
fn not_begun(facts: &RestoreFacts) -> RestoreStep {
    let wait = RestoreStep::Wait;
    let cluster = match &facts.cluster {
        Observed::Present(cluster) => cluster,
        Observed::Absent => return wait(RestoreWait::ClusterNotFound),
        Observed::Unknown => return RestoreStep::Keep,
    };
    // The engine is about to begin, although the ID may have changed already.
    let is_chosen = facts.own_progress().is_some();
    // Only a restore that has stopped the old members can have changed the data.
    if !is_chosen && has_replaced(facts.phase) {
        return RestoreStep::Lost;
    }
    let Some(id) = &cluster.id else {
        return wait(RestoreWait::BootstrapNotFinished);
    };
    if !is_chosen && *id != facts.replaces {
        return RestoreStep::NotNeeded(NotNeededReason::OtherId(id.clone()));
    }
    if !is_chosen && facts.is_undo_requested {
        return RestoreStep::NotNeeded(NotNeededReason::UndoneBeforeStart);
    }
    wait(obstacle(facts, cluster))
}

/// Returns the first reason why a restore of a cluster with the right ID has not begun.
fn obstacle(facts: &RestoreFacts, cluster: &RestoreCluster) -> RestoreWait {
    if let Some(other) = facts.other_progress().filter(|it| is_under_way(it.phase)) {
        return RestoreWait::AnotherRestore(other.name.clone());
    }
    if let (None, Some(older)) = (facts.own_progress(), &facts.older) {
        return RestoreWait::AnotherRestore(older.clone());
    }
    if cluster.is_ephemeral {
        return RestoreWait::EphemeralStorage;
    }
    match &facts.backup {
        RestoreBackup::Usable if cluster.is_paused => RestoreWait::Paused,
        RestoreBackup::Usable => RestoreWait::Start,
        RestoreBackup::Absent
        | RestoreBackup::Incomplete
        | RestoreBackup::Failed
        | RestoreBackup::Damaged(_)
        | RestoreBackup::OtherKind(_)
        | RestoreBackup::UnreadableVersion(_) => RestoreWait::Backup(facts.backup.clone()),
    }
}

fn is_under_way(phase: RestorePhase) -> bool {
    match phase {
        RestorePhase::Preparing
        | RestorePhase::Replacing
        | RestorePhase::Starting
        | RestorePhase::Undoing => true,
        RestorePhase::Pending
        | RestorePhase::Complete
        | RestorePhase::Undone
        | RestorePhase::NotNeeded
        | RestorePhase::Unknown => false,
    }
}

impl Engine for RestoreControl {
    type Facts = RestoreFacts;
    type Create = ();
    type Apply = ();
    type Patch = ();
    type Disruption = ();
    type Wait = RestoreWait;

    fn decide(facts: &RestoreFacts) -> Plan<Self> {
        match step(facts) {
            RestoreStep::Wait(wait) => Plan {
                waits: vec![wait],
                ..Plan::default()
            },
            // No watch reports that the time for the undo is over.
            RestoreStep::Complete(own) | RestoreStep::UndoRequested(own) => Plan {
                requeue: own
                    .undo_until
                    .filter(|until| facts.now < *until)
                    .map_or(Requeue::OnChange, Requeue::At),
                ..Plan::default()
            },
            RestoreStep::Keep
            | RestoreStep::NotNeeded(_)
            | RestoreStep::Follow(_)
            | RestoreStep::NoUndo(_)
            | RestoreStep::Lost => Plan::default(),
        }
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
