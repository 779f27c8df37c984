//! The `BackupSchedule` resource: when a cluster is backed up, which backups are kept, and when one is restored as a drill.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::resource::{DEADLINE_TOO_LONG, DEADLINE_TOO_SHORT, default_deadline};
use super::{ClusterReference, name_rule};
use crate::common::cel::{duration, duration_at_least, duration_at_most};
use crate::common::schema::for_users;

/// The message for a schedule that is not one.
pub(crate) const INVALID_SCHEDULE: &str = "must be a cron expression of five fields such as \"0 3 * * *\", or @hourly, \
    @daily, @weekly, @monthly";
/// What the schema can tell of a cron expression; the operator parses the rest.
const SCHEDULE: &str =
    "self.matches('^@(hourly|daily|weekly|monthly)$') || self.matches('^([^ @]+ ){4}[^ ]+$')";

/// The desired state of a backup schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = for_users)]
#[kube(
    group = "evenkeel.dev",
    version = "v1alpha1",
    kind = "BackupSchedule",
    plural = "backupschedules",
    shortname = "ekbs",
    category = "evenkeel",
    namespaced,
    doc = "A schedule on which a cluster is backed up, backups are deleted, and backups are restored as a drill.",
    status = "BackupScheduleStatus",
    derive = "PartialEq",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.cluster.name"),
    printcolumn(name = "Store", type_ = "string", json_path = ".spec.store"),
    printcolumn(name = "Schedule", type_ = "string", json_path = ".spec.schedule"),
    printcolumn(name = "Last Success", type_ = "date", json_path = ".status.lastSuccess.at"),
    printcolumn(name = "Recoverable", type_ = "string", json_path = ".status.conditions[?(@.type=='Recoverable')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Next", type_ = "string", json_path = ".status.nextBackup", priority = "1"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = name_rule("size(self.metadata.name) <= 46", "must have at most 46 characters: backups are named after it"),
    validation = name_rule("!self.metadata.name.contains('.')", "must not contain a dot: backups are named after it"),
)]
pub struct BackupScheduleSpec {
    /// The cluster, in the same namespace. Immutable.
    #[x_kube(validation = Rule::new("self == oldSelf").message("field is immutable: create another BackupSchedule"))]
    pub cluster: ClusterReference,
    /// The store, the times and the retention.
    #[serde(flatten)]
    pub policy: BackupPolicy,
}

/// The store, the times and the retention of backups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupPolicy {
    /// The name of the BackupStore, in the same namespace.
    #[schemars(length(min = 1, max = 40))]
    pub store: String,
    /// When backups are taken: a cron expression of five fields (minute, hour, day of month, month, day of week), or
    /// @hourly, @daily, @weekly, @monthly.
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(validation = Rule::new(SCHEDULE).message(INVALID_SCHEDULE))]
    pub schedule: String,
    /// The time zone of the schedules in the IANA database, such as Europe/Berlin.
    #[serde(default = "default_time_zone")]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: String,
    /// What happens if backups were due while the operator could not take them: Once takes one backup, Skip waits for the
    /// next time.
    #[serde(default)]
    pub if_missed: IfMissed,
    /// How long each backup may take, such as 30m.
    #[serde(default = "default_deadline")]
    #[schemars(length(max = 16))]
    #[x_kube(
        validation = duration(),
        validation = duration_at_least("1m", DEADLINE_TOO_SHORT),
        validation = duration_at_most("24h", DEADLINE_TOO_LONG),
    )]
    pub deadline: String,
    /// Which backups are kept. A backup is deleted if no rule keeps it. The newest complete backup and the newest proven
    /// one are never deleted.
    #[serde(default)]
    pub keep: KeepPolicy,
    /// When the newest backup is restored into a separate etcd and compared, as for schedule. Default: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 128))]
    #[x_kube(validation = Rule::new(SCHEDULE).message(INVALID_SCHEDULE))]
    pub drill: Option<String>,
    /// If true, no backups are taken, no backups are deleted, and no drills run.
    #[serde(default)]
    pub suspend: bool,
}

fn default_time_zone() -> String {
    "UTC".to_owned()
}

/// What happens if backups were missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum IfMissed {
    /// One backup is taken, however many were missed.
    #[default]
    Once,
    /// The next backup is taken at its time.
    Skip,
}

/// Which backups are kept. A backup is kept if any rule keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeepPolicy {
    /// The number of newest backups.
    #[serde(default = "default_last")]
    #[x_kube(validation = Rule::new("self >= 1 && self <= 1000").message("must be from 1 to 1000"))]
    pub last: i32,
    /// The number of hours of which the newest backup is kept.
    #[serde(default)]
    #[x_kube(validation = Rule::new("self >= 0 && self <= 1000").message("must be from 0 to 1000"))]
    pub hourly: i32,
    /// The number of days of which the newest backup is kept.
    #[serde(default)]
    #[x_kube(validation = Rule::new("self >= 0 && self <= 1000").message("must be from 0 to 1000"))]
    pub daily: i32,
    /// The number of weeks of which the newest backup is kept.
    #[serde(default)]
    #[x_kube(validation = Rule::new("self >= 0 && self <= 1000").message("must be from 0 to 1000"))]
    pub weekly: i32,
    /// The number of months of which the newest backup is kept.
    #[serde(default)]
    #[x_kube(validation = Rule::new("self >= 0 && self <= 1000").message("must be from 0 to 1000"))]
    pub monthly: i32,
}

impl Default for KeepPolicy {
    fn default() -> Self {
        Self {
            last: default_last(),
            hourly: 0,
            daily: 0,
            weekly: 0,
            monthly: 0,
        }
    }
}

fn default_last() -> i32 {
    7
}

/// The observed state of a backup schedule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = for_users)]
pub struct BackupScheduleStatus {
    /// When the next backup is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub next_backup: Option<Time>,
    /// The time up to which due backups were taken or skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub last_scheduled: Option<Time>,
    /// The last backup that ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BackupResultStatus")]
    pub last_backup: Option<BackupResultStatus>,
    /// The last complete backup. Its time is the recovery point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BackupResultStatus")]
    pub last_success: Option<BackupResultStatus>,
    /// The drills.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DrillStatus")]
    pub drill: Option<DrillStatus>,
    /// The number of complete backups in the store.
    #[serde(default, skip_serializing_if = "crate::common::is_default")]
    pub backups: i32,
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64")]
    pub observed_generation: Option<i64>,
    /// Ready: the schedule is valid and its store can be used. Recoverable: a drill has restored a recent backup.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_owned()]))]
    pub conditions: Vec<Condition>,
}

/// A backup that ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupResultStatus {
    /// The name of the Backup.
    pub name: String,
    /// When it ended.
    pub at: Time,
    /// Whether it is complete.
    #[serde(default)]
    pub complete: bool,
    /// The problem, if it has failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// The drills of a schedule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrillStatus {
    /// When the next drill is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub next: Option<Time>,
    /// The time up to which due drills were run or skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub last_scheduled: Option<Time>,
    /// The last drill that ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DrillResultStatus")]
    pub last: Option<DrillResultStatus>,
    /// The last drill that found the expected data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DrillResultStatus")]
    pub last_success: Option<DrillResultStatus>,
}

/// A drill that ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrillResultStatus {
    /// The name of the Backup that was restored.
    pub backup: String,
    /// When the drill ended.
    pub at: Time,
    /// The result.
    pub result: DrillResult,
    /// How long the restore took, from the first byte to the first read, in seconds: the recovery time that this store and
    /// this size of data allow.
    #[serde(default)]
    pub seconds: i64,
    /// The differences that were found, or the reason why the drill could not run.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// The result of a drill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::Display)]
pub enum DrillResult {
    /// The restored data is the expected data.
    Proven,
    /// The backup cannot be restored, or the restored data differs.
    Damaged,
    /// The drill could not run, which says nothing about the backup.
    NotRun,
}
