//! The facts about one BackupSchedule: plain data.

use std::collections::BTreeSet;

use evenkeel_api::{BackupPhase, BackupPolicy, DrillResult};
use evenkeel_archive::tasks::Outcome;
use evenkeel_runtime::{Observed, UnixTime};
use serde::{Deserialize, Serialize};

use super::cron;

/// The difference between clocks that is tolerated: a backup that ended later than that after now was stamped by a clock
/// that was wrong.
const MAX_CLOCK_SKEW_SECONDS: i64 = 300;

/// The facts about one schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleFacts {
    /// The time of the observation.
    pub now: UnixTime,
    /// The name of the schedule.
    pub name: String,
    /// When the schedule was created.
    pub created: UnixTime,
    /// The spec, not validated.
    pub policy: BackupPolicy,
    /// The times that the status records.
    pub recorded: RecordedTimes,
    /// The backups of this schedule, and all others of the same cluster.
    pub backups: Vec<BackupFacts>,
    /// The store.
    pub store: Observed<StoreFacts>,
    /// The cluster.
    pub cluster: Observed<BackedUpCluster>,
    /// The pod that deletes backups.
    pub prune: Option<PrunePodFacts>,
    /// The pod that restores a backup.
    pub drill: Option<DrillPodFacts>,
    /// The places of backups that other pods read.
    pub reading: BTreeSet<String>,
}

/// The times and results in the status of the schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedTimes {
    /// The time up to which due backups were taken or skipped.
    pub last_scheduled: Option<UnixTime>,
    /// The time up to which due drills were run or skipped.
    pub last_drill_scheduled: Option<UnixTime>,
    /// The last drill that ended.
    pub last_drill: Option<DrillRecord>,
    /// The last drill that found the expected data.
    pub last_drill_success: Option<DrillRecord>,
}

/// A drill that ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrillRecord {
    /// The name of the Backup.
    pub backup: String,
    /// When the drill ended.
    pub at: UnixTime,
    /// The result.
    pub result: DrillResult,
    /// The seconds until the first read.
    pub seconds: i64,
    /// The differences, or the reason why the drill could not run.
    pub message: String,
}

/// A backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupFacts {
    /// The name.
    pub name: String,
    /// The uid.
    pub uid: String,
    /// Whether this schedule has created the backup, by its label.
    pub is_own: bool,
    /// The due time in the name, if the name is one that this schedule gives.
    pub due: Option<UnixTime>,
    /// The number of the run for the same due time, from 1.
    pub run: u32,
    /// The phase.
    pub phase: BackupPhase,
    /// The place in the store; empty if there is none yet.
    pub location: String,
    /// When the backup was complete or had failed.
    pub finished_at: Option<UnixTime>,
    /// The bytes of the data.
    pub size: u64,
    /// The problem of a backup that has failed.
    pub message: String,
    /// When a drill found the expected data.
    pub proven: Option<UnixTime>,
    /// When a drill found damage.
    pub damaged: Option<UnixTime>,
    /// Whether the object is being deleted.
    pub is_terminating: bool,
}

impl BackupFacts {
    /// Returns true if the backup is complete and no drill found damage.
    pub fn is_good(&self) -> bool {
        self.phase == BackupPhase::Complete && self.damaged.is_none()
    }
}

/// A store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreFacts {
    /// Whether the condition Ready is true.
    pub is_ready: bool,
    /// The message of the condition.
    pub message: String,
}

/// The cluster that is backed up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackedUpCluster {
    /// The engine.
    pub engine: String,
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The random identifier of the cluster's history, once the cluster was created.
    pub lineage: Option<String>,
    /// Whether a member can be read.
    pub is_readable: bool,
}

/// The pod that deletes backups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrunePodFacts {
    /// The uid.
    pub uid: String,
    /// When the pod was created.
    pub created: UnixTime,
    /// Whether the pod is being deleted.
    pub is_terminating: bool,
    /// Whether its container has started.
    pub has_started: bool,
    /// The places that it deletes.
    pub delete: BTreeSet<String>,
    /// The places that it could not delete, because the store retains them.
    pub locked: BTreeSet<String>,
    /// When the store allows the first of them to be deleted, if it says so.
    pub locked_until: Option<UnixTime>,
    /// The outcome of the agent, and when it ended, if it has.
    pub outcome: Option<(Outcome, UnixTime)>,
}

/// The pod that restores a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrillPodFacts {
    /// The uid.
    pub uid: String,
    /// When the pod was created.
    pub created: UnixTime,
    /// Whether the pod is being deleted.
    pub is_terminating: bool,
    /// The name of the Backup.
    pub backup: String,
    /// The uid of the Backup.
    pub backup_uid: String,
    /// When the drill was due.
    pub due: UnixTime,
    /// The version of the application that restores the backup.
    pub version: String,
    /// The state.
    pub state: DrillPodState,
}

/// The state of a drill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DrillPodState {
    /// No container has started, for this reason if one is known.
    Pending(String),
    /// The drill runs.
    Running,
    /// The drill has ended.
    Finished(DrillRecord),
}

impl ScheduleFacts {
    /// Returns the backups that this schedule has created.
    pub fn own(&self) -> impl Iterator<Item = &BackupFacts> {
        self.backups.iter().filter(|backup| backup.is_own)
    }

    /// Returns true for a time that is not in the future. A clock that was wrong may have written such times.
    pub fn has_passed(&self, time: UnixTime) -> bool {
        time.0 <= self.now.0.saturating_add(MAX_CLOCK_SKEW_SECONDS)
    }

    /// Returns the run with the last due time that has passed.
    pub fn last_run(&self) -> Option<&BackupFacts> {
        let runs = self
            .backups
            .iter()
            .filter(|backup| backup.due.is_some_and(|due| due <= self.now));
        runs.max_by_key(|backup| backup.due)
    }

    /// Returns the newest good backup of this schedule, by the time at which it was complete.
    pub fn newest_good(&self) -> Option<&BackupFacts> {
        newest(self, self.own().filter(|backup| backup.is_good()))
    }

    /// Returns the name of the Backup for a due time.
    pub fn backup_name(&self, due: UnixTime) -> String {
        backup_name(&self.name, due)
    }
}

/// Returns the backup that ended last, without those whose times are in the future.
pub fn newest<'b>(
    facts: &ScheduleFacts,
    backups: impl Iterator<Item = &'b BackupFacts>,
) -> Option<&'b BackupFacts> {
    backups
        .filter(|backup| backup.finished_at.is_some_and(|at| facts.has_passed(at)))
        .max_by_key(|backup| (backup.finished_at, backup.due, backup.name.clone()))
}

/// Returns the name of the Backup of a schedule for a due time. A second one cannot be created.
pub fn backup_name(schedule: &str, due: UnixTime) -> String {
    format!("{schedule}-{}", cron::stamp(due))
}

/// Returns the due time of a Backup of a schedule, from its name.
pub fn due_of(schedule: &str, backup: &str) -> Option<UnixTime> {
    let stamp = backup.strip_prefix(schedule)?.strip_prefix('-')?;
    cron::parse_stamp(stamp)
}

/// Returns the name of the pod that deletes backups. There is at most one.
pub fn prune_pod_name(schedule: &str) -> String {
    format!("{schedule}-prune")
}

/// Returns the name of the pod that restores a backup. There is at most one.
pub fn drill_pod_name(schedule: &str) -> String {
    format!("{schedule}-drill")
}
