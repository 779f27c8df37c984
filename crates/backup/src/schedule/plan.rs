//! The actions and waits in the plan of a BackupSchedule, as plain data.

use evenkeel_api::DrillResult;
use evenkeel_runtime::UnixTime;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

/// An object that must never exist twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum ScheduleCreate {
    /// A Backup. Its name contains the due time.
    #[strum(serialize = "create-backup")]
    Backup {
        /// The name.
        name: String,
        /// The number of the run for the same due time.
        run: u32,
        /// The reason.
        why: RunReason,
    },
    /// The pod that deletes backups.
    #[strum(serialize = "create-prune-pod")]
    PrunePod {
        /// The lineage of the cluster.
        lineage: String,
        /// The places of the backups.
        delete: Vec<String>,
    },
    /// The pod that restores a backup.
    #[strum(serialize = "create-drill-pod")]
    DrillPod {
        /// The name of the Backup.
        backup: String,
        /// The uid of the Backup.
        uid: String,
        /// When the drill was due.
        due: UnixTime,
    },
}

/// The reason why a backup is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunReason {
    /// The schedule is new.
    First,
    /// The time of the schedule has come.
    Due,
    /// The last backup has failed.
    Retry,
    /// A drill found that the newest backup is damaged.
    Damaged,
}

/// Returns the creation of a Backup as a sentence.
pub fn describe_run(name: &str, run: u32, why: RunReason) -> String {
    match why {
        RunReason::First => format!("Takes Backup {name}: the schedule is new."),
        RunReason::Due => format!("Takes Backup {name}."),
        RunReason::Retry => {
            format!("Takes Backup {name}: the last one has failed. Attempt {run} of 4.")
        }
        RunReason::Damaged => format!("Takes Backup {name}: the newest one is damaged."),
    }
}

/// A change that disturbs no client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum SchedulePatch {
    /// Records the result of a drill on the Backup.
    RecordDrill {
        /// The name of the Backup.
        backup: String,
        /// The uid of the Backup.
        uid: String,
        /// When the drill ended.
        at: UnixTime,
        /// The result.
        result: DrillResult,
        /// The version of the application.
        version: String,
        /// The seconds until the first read.
        seconds: i64,
        /// The damage.
        message: String,
    },
    /// Deletes a Backup object. Its data is gone, or it never had any.
    DeleteBackup {
        /// The name of the Backup.
        backup: String,
        /// The uid of the Backup.
        uid: String,
    },
    /// Deletes a pod whose outcome is recorded.
    DeletePod {
        /// The name of the pod.
        pod: String,
        /// The uid of the pod.
        uid: String,
    },
}

/// No action of this class exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoAction {}

/// A reason why a plan does less than the spec asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum ScheduleWait {
    /// The spec is invalid.
    InvalidSchedule,
    /// `spec.suspend` is set.
    Suspended,
    /// The cluster does not exist, or was not created yet.
    Cluster,
    /// The store does not exist or is not Ready.
    Store,
    /// A backup runs.
    Run(String),
    /// A backup that was due at this time was skipped, because another runs or because it was missed.
    Skipped(UnixTime),
    /// The last backup has failed, and another is taken at this time.
    Retry(UnixTime),
    /// A drill runs.
    Drill,
    /// A drill is due, and there is no good backup.
    NothingToDrill,
    /// The last drill could not run, and is tried again at this time.
    DrillRetry(UnixTime),
    /// Backups are being deleted.
    Prune,
    /// Backups could not be deleted, and the deletion is tried again at this time.
    PruneRetry(UnixTime),
}
