//! The facts about a Restore.

use evenkeel_api::{Backup, BackupPhase, Restore, RestorePhase, RestoreProgress};
use evenkeel_runtime::{Observed, UnixTime};
use kube::ResourceExt;
use serde::{Deserialize, Serialize};

use crate::conditions;
use crate::engine::RestoreState;

/// The facts about a Restore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreFacts {
    /// The time of the observation.
    pub now: UnixTime,
    /// The name of the Restore.
    pub name: String,
    /// The ID of the cluster that is given up.
    pub replaces: String,
    /// Whether `spec.undo` is set.
    pub is_undo_requested: bool,
    /// The phase in the status.
    pub phase: RestorePhase,
    /// The older Restore that replaces the same cluster ID and has not ended, if any.
    pub older: Option<String>,
    /// The backup.
    pub backup: RestoreBackup,
    /// The cluster; unknown if it was not read, because nothing depends on it.
    pub cluster: Observed<RestoreCluster>,
}

/// The state of the backup that a Restore names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RestoreBackup {
    /// The Backup does not exist.
    Absent,
    /// The backup has not been complete yet.
    Incomplete,
    /// The backup has failed.
    Failed,
    /// A drill found damage.
    Damaged(String),
    /// The backup is of another kind of cluster.
    OtherKind(String),
    /// The backup is of this version, which the cluster cannot read.
    UnreadableVersion(String),
    /// The backup can be restored.
    Usable,
}

/// The cluster whose data a Restore replaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreCluster {
    /// The ID, once the bootstrap is finished.
    pub id: Option<String>,
    /// The version that is to read the restored data.
    pub version: String,
    /// Whether `spec.paused` of the cluster is set: the operator changes nothing.
    pub is_paused: bool,
    /// Whether the members have no volumes.
    pub is_ephemeral: bool,
    /// The last restore that replaces, or has replaced, the data.
    pub progress: Option<RestoreProgressFacts>,
}

/// The progress of a restore, as its engine reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreProgressFacts {
    /// The name of the Restore.
    pub name: String,
    /// The ID of the cluster that is given up.
    pub replaces: String,
    /// The phase.
    pub phase: RestorePhase,
    /// The state in words.
    pub message: String,
    /// Until when the restore can be undone.
    pub undo_until: Option<UnixTime>,
}

impl RestoreFacts {
    /// Returns the progress of this Restore. A Restore that was deleted and created again continues if it replaces the same
    /// cluster ID.
    pub fn own_progress(&self) -> Option<&RestoreProgressFacts> {
        let progress = self.progress()?;
        (progress.name == self.name && progress.replaces == self.replaces).then_some(progress)
    }

    /// Returns the progress of another Restore of the cluster.
    pub fn other_progress(&self) -> Option<&RestoreProgressFacts> {
        match self.own_progress() {
            Some(_) => None,
            None => self.progress(),
        }
    }

    fn progress(&self) -> Option<&RestoreProgressFacts> {
        self.cluster.present()?.progress.as_ref()
    }
}

impl RestoreBackup {
    /// Returns the state of a Backup. `can_read` returns true if the cluster can read data of a version.
    pub(super) fn of(
        restore: &Restore,
        backup: Option<&Backup>,
        can_read: impl Fn(&str) -> bool,
    ) -> Self {
        let Some(backup) = backup.filter(|it| it.metadata.deletion_timestamp.is_none()) else {
            return Self::Absent;
        };
        let kind = backup.spec.cluster.kind;
        if kind != restore.spec.cluster.kind {
            return Self::OtherKind(kind.to_string());
        }
        let status = backup.status.clone().unwrap_or_default();
        match status.phase {
            BackupPhase::Pending | BackupPhase::Running | BackupPhase::Unknown => {
                return Self::Incomplete;
            }
            BackupPhase::Failed => return Self::Failed,
            BackupPhase::Complete => {}
        }
        match status.damaged {
            Some(damaged) => Self::Damaged(damaged.message),
            None if can_read(&status.engine_version) => Self::Usable,
            None => Self::UnreadableVersion(status.engine_version),
        }
    }
}

impl RestoreCluster {
    pub(super) fn of(state: RestoreState) -> Self {
        let RestoreState {
            cluster_id,
            version,
            progress,
            is_paused,
            is_ephemeral,
        } = state;
        Self {
            id: cluster_id,
            version,
            is_paused,
            is_ephemeral,
            progress: progress.map(RestoreProgressFacts::of),
        }
    }
}

impl RestoreProgressFacts {
    fn of(progress: RestoreProgress) -> Self {
        let RestoreProgress {
            name,
            phase,
            message,
            replaces,
            undo_until,
        } = progress;
        Self {
            name,
            replaces,
            phase,
            message,
            undo_until: undo_until.as_ref().map(conditions::unix),
        }
    }
}

/// Returns the name of the oldest other Restore that comes before this one: it replaces the same cluster ID, and its restore
/// has not ended.
pub(super) fn older<'r>(
    restore: &Restore,
    all: impl Iterator<Item = &'r Restore>,
) -> Option<String> {
    let order = |it: &Restore| {
        let created = it.metadata.creation_timestamp.as_ref();
        (created.map(conditions::unix), it.name_any())
    };
    let own = order(restore);
    let waiting = all.filter(|other| {
        let is_same = other.spec.cluster == restore.spec.cluster
            && other.spec.replaces == restore.spec.replaces;
        let is_waiting = !has_ended(phase(other)) && !other.spec.undo;
        is_same && is_waiting && other.metadata.deletion_timestamp.is_none()
    });
    let first = waiting.map(order).filter(|order| *order < own).min();
    first.map(|(_, name)| name)
}

/// Returns the phase in the status of a Restore.
pub(super) fn phase(restore: &Restore) -> RestorePhase {
    let status = restore.status.as_ref();
    status.map(|status| status.phase).unwrap_or_default()
}

fn has_ended(phase: RestorePhase) -> bool {
    match phase {
        RestorePhase::Complete | RestorePhase::Undone | RestorePhase::NotNeeded => true,
        RestorePhase::Pending
        | RestorePhase::Preparing
        | RestorePhase::Replacing
        | RestorePhase::Starting
        | RestorePhase::Undoing
        | RestorePhase::Unknown => false,
    }
}

#[cfg(test)]
#[path = "facts_tests.rs"]
mod tests;
