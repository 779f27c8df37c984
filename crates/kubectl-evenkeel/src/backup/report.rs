//! The reports about backups, which `backup` and `backups` print as text, JSON or YAML. Their fields are part of the plugin's
//! interface. Times are in UTC and in the format of RFC 3339.

use evenkeel_api::backup::labels;
use evenkeel_api::{Backup, BackupPhase, BackupSchedule, DrillResultStatus, ProvenStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt;
use schemars::JsonSchema;
use serde::Serialize;

/// The output of `kubectl evenkeel backup -o json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BackupResult {
    /// The version of this format: plugin.evenkeel.dev/v1alpha1.
    pub(crate) api_version: &'static str,
    /// BackupResult.
    pub(crate) kind: &'static str,
    /// The time of the report.
    pub(crate) time: String,
    /// The backup.
    pub(crate) backup: BackupReport,
}

/// The output of `kubectl evenkeel backups -o json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BackupReportList {
    /// The version of this format: plugin.evenkeel.dev/v1alpha1.
    pub(crate) api_version: &'static str,
    /// BackupReportList.
    pub(crate) kind: &'static str,
    /// The time of the report.
    pub(crate) time: String,
    /// The schedules.
    pub(crate) schedules: Vec<ScheduleReport>,
    /// The backups, the newest first.
    pub(crate) items: Vec<BackupReport>,
}

/// The output of `kubectl evenkeel backups --from-store NAME -o json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StoredBackupList {
    /// The version of this format: plugin.evenkeel.dev/v1alpha1.
    pub(crate) api_version: &'static str,
    /// StoredBackupList.
    pub(crate) kind: &'static str,
    /// The time of the report.
    pub(crate) time: String,
    /// The namespace of the store.
    pub(crate) namespace: String,
    /// The name of the BackupStore.
    pub(crate) store: String,
    /// The backups in the store, the newest first.
    pub(crate) items: Vec<StoredBackupReport>,
    /// The names of the Backup objects that were created, with --import or --import-all.
    pub(crate) imported: Vec<String>,
    /// The backups that were not imported, and why.
    pub(crate) not_imported: Vec<String>,
    /// The number of older backups in the store that are not listed, because the log of the agent has no room for them.
    pub(crate) omitted: u64,
}

/// A backup in a store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StoredBackupReport {
    /// The name of the Backup object that represents the backup, or that an import creates.
    pub(crate) name: String,
    /// Whether that object exists.
    pub(crate) has_object: bool,
    /// The place of the backup in the store.
    pub(crate) location: String,
    /// Complete, Unfinished, Damaged, NotSupported or BeingDeleted.
    pub(crate) state: String,
    /// The problem of a backup that is damaged or not supported.
    pub(crate) problem: String,
    /// The engine, such as etcd.
    pub(crate) engine: String,
    /// The version of the application that the data is from.
    pub(crate) engine_version: String,
    /// The namespace of the cluster that the data is from.
    pub(crate) namespace: String,
    /// The name of the cluster that the data is from.
    pub(crate) cluster: String,
    /// The position in the history of the cluster, such as revision 4711.
    pub(crate) position: String,
    /// The size of the data, in bytes. Null if unknown.
    pub(crate) size_bytes: Option<u64>,
    /// The size of the compressed data, in bytes. Null if unknown.
    pub(crate) stored_bytes: Option<u64>,
    /// When the backup was complete. Null if unknown.
    pub(crate) finished_at: Option<String>,
}

/// A backup, as a Backup object describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BackupReport {
    /// The namespace of the Backup.
    pub(crate) namespace: String,
    /// The name of the Backup.
    pub(crate) name: String,
    /// The name of the cluster.
    pub(crate) cluster: String,
    /// The name of the BackupStore.
    pub(crate) store: String,
    /// The BackupSchedule that created the Backup. Empty if none did.
    pub(crate) schedule: String,
    /// Whether the Backup represents data that was in the store before.
    pub(crate) is_imported: bool,
    /// Pending, Running, Complete, Failed, or Unknown for a phase of a newer operator.
    pub(crate) phase: String,
    /// The reason of the condition Complete.
    pub(crate) reason: String,
    /// The message of the condition Complete.
    pub(crate) message: String,
    /// The place of the backup in the store.
    pub(crate) location: String,
    /// The position in the history of the cluster, such as revision 4711.
    pub(crate) position: String,
    /// The version of the application that the data is from.
    pub(crate) engine_version: String,
    /// The member that the data was read from.
    pub(crate) member: String,
    /// The size of the data, such as 25Mi.
    pub(crate) size: String,
    /// The size of the compressed data in the store.
    pub(crate) stored_size: String,
    /// The number of keys or rows. Null if unknown.
    pub(crate) keys: Option<i64>,
    /// When the Backup was created.
    pub(crate) created_at: Option<String>,
    /// When the backup started.
    pub(crate) started_at: Option<String>,
    /// When the backup was complete or had failed.
    pub(crate) finished_at: Option<String>,
    /// The duration of the backup, in seconds.
    pub(crate) duration_seconds: Option<i64>,
    /// The last restore that proved the backup. Null if none did.
    pub(crate) proven: Option<ProvenReport>,
    /// The damage that the last drill of a schedule has found. Empty if none.
    pub(crate) damage: String,
}

/// A restore that proved a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProvenReport {
    /// The name of the Backup.
    pub(crate) backup: String,
    /// When the drill ended.
    pub(crate) at: String,
    /// How long the restore took, from the first byte to the first read, in seconds.
    pub(crate) restore_seconds: i64,
}

/// A schedule of backups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ScheduleReport {
    /// The namespace of the BackupSchedule.
    pub(crate) namespace: String,
    /// The name of the BackupSchedule.
    pub(crate) name: String,
    /// The name of the cluster.
    pub(crate) cluster: String,
    /// The name of the BackupStore.
    pub(crate) store: String,
    /// When backups are taken, as in the spec.
    pub(crate) schedule: String,
    /// Whether spec.suspend is set.
    pub(crate) is_suspended: bool,
    /// When the next backup is due.
    pub(crate) next_backup: Option<String>,
    /// The last backup that ended.
    pub(crate) last_backup: Option<ScheduledBackupReport>,
    /// The last complete backup.
    pub(crate) last_success: Option<ScheduledBackupReport>,
    /// The last drill that ended.
    pub(crate) last_drill: Option<DrillReport>,
    /// The last restore that proved a backup.
    pub(crate) last_proven: Option<ProvenReport>,
    /// The condition Recoverable. Null before the operator has reported it.
    pub(crate) recoverable: Option<ScheduleConditionReport>,
    /// The condition Ready. Null before the operator has reported it.
    pub(crate) ready: Option<ScheduleConditionReport>,
}

/// A backup that a schedule reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ScheduledBackupReport {
    /// The name of the Backup.
    pub(crate) backup: String,
    /// When it ended.
    pub(crate) at: String,
    /// Whether it is complete.
    pub(crate) is_complete: bool,
    /// The problem, if it has failed.
    pub(crate) message: String,
}

/// A drill that ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DrillReport {
    /// The name of the Backup that was restored.
    pub(crate) backup: String,
    /// When the drill ended.
    pub(crate) at: String,
    /// Proven, Damaged or NotRun.
    pub(crate) result: String,
    /// How long the restore took, in seconds.
    pub(crate) restore_seconds: i64,
    /// The differences, or the reason why the drill could not run.
    pub(crate) message: String,
}

/// A condition of a schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ScheduleConditionReport {
    /// True, False or Unknown.
    pub(crate) status: String,
    /// The reason.
    pub(crate) reason: String,
    /// The message.
    pub(crate) message: String,
}

impl BackupReport {
    /// Reports about a Backup.
    pub(crate) fn new(backup: &Backup) -> Self {
        let status = backup.status.clone().unwrap_or_default();
        let complete = find_condition(&status.conditions, "Complete");
        let (started, finished) = (status.started_at.as_ref(), status.finished_at.as_ref());
        let duration = started.zip(finished);
        let proven = status.proven.as_ref();
        let name = backup.name_any();
        Self {
            namespace: backup.namespace().unwrap_or_default(),
            cluster: backup.spec.cluster.name.clone(),
            store: backup.spec.store.clone(),
            schedule: backup
                .labels()
                .get(labels::SCHEDULE)
                .cloned()
                .unwrap_or_default(),
            is_imported: backup.spec.existing.is_some(),
            phase: status.phase.to_string(),
            reason: complete.map(|it| it.reason.clone()).unwrap_or_default(),
            message: complete.map(|it| it.message.clone()).unwrap_or_default(),
            location: status.location,
            position: status.position,
            engine_version: status.engine_version,
            member: status.member,
            size: status.size,
            stored_size: status.stored_size,
            keys: status.keys,
            created_at: backup.creation_timestamp().as_ref().map(text_of),
            started_at: started.map(text_of),
            finished_at: finished.map(text_of),
            duration_seconds: duration
                .map(|(from, to)| (to.0.as_second() - from.0.as_second()).max(0)),
            proven: proven.map(|proven| ProvenReport::of_backup(&name, proven)),
            damage: String::new(),
            name,
        }
    }

    /// Returns the time of the data, or of the request as long as there is no data.
    pub(crate) fn time(&self) -> Option<Timestamp> {
        let times = [&self.finished_at, &self.started_at, &self.created_at];
        times.into_iter().flatten().find_map(|it| it.parse().ok())
    }

    /// Returns whether the backup has failed.
    pub(crate) fn is_failed(&self) -> bool {
        self.phase == BackupPhase::Failed.to_string()
    }

    /// Returns whether the backup is complete.
    pub(crate) fn is_complete(&self) -> bool {
        self.phase == BackupPhase::Complete.to_string()
    }

    /// Returns the reason and the message of the condition Complete, in one text.
    pub(crate) fn reason_text(&self) -> String {
        reason_text(&self.reason, &self.message)
    }
}

/// Returns a reason and a message in one text.
pub(crate) fn reason_text(reason: &str, message: &str) -> String {
    match (reason, message.trim_end_matches('.')) {
        ("", "") => "the operator gives no reason".to_owned(),
        (reason, "") => reason.to_owned(),
        ("", message) => message.to_owned(),
        (reason, message) => format!("{reason}: {message}"),
    }
}

impl ProvenReport {
    fn of_backup(backup: &str, proven: &ProvenStatus) -> Self {
        Self {
            backup: backup.to_owned(),
            at: text_of(&proven.at),
            restore_seconds: proven.seconds,
        }
    }

    fn of_drill(drill: &DrillResultStatus) -> Self {
        Self {
            backup: drill.backup.clone(),
            at: text_of(&drill.at),
            restore_seconds: drill.seconds,
        }
    }
}

impl ScheduleReport {
    /// Reports about a BackupSchedule.
    pub(crate) fn new(schedule: &BackupSchedule) -> Self {
        let status = schedule.status.clone().unwrap_or_default();
        let drill = status.drill.unwrap_or_default();
        let result = |result: &evenkeel_api::BackupResultStatus| ScheduledBackupReport {
            backup: result.name.clone(),
            at: text_of(&result.at),
            is_complete: result.complete,
            message: result.message.clone(),
        };
        let condition =
            |type_: &str| find_condition(&status.conditions, type_).map(condition_report);
        Self {
            namespace: schedule.namespace().unwrap_or_default(),
            name: schedule.name_any(),
            cluster: schedule.spec.cluster.name.clone(),
            store: schedule.spec.policy.store.clone(),
            schedule: schedule.spec.policy.schedule.clone(),
            is_suspended: schedule.spec.policy.suspend,
            next_backup: status.next_backup.as_ref().map(text_of),
            last_backup: status.last_backup.as_ref().map(result),
            last_success: status.last_success.as_ref().map(result),
            last_drill: drill.last.as_ref().map(|drill| DrillReport {
                backup: drill.backup.clone(),
                at: text_of(&drill.at),
                result: drill.result.to_string(),
                restore_seconds: drill.seconds,
                message: drill.message.clone(),
            }),
            last_proven: drill.last_success.as_ref().map(ProvenReport::of_drill),
            recoverable: condition("Recoverable"),
            ready: condition("Ready"),
        }
    }
}

fn condition_report(condition: &Condition) -> ScheduleConditionReport {
    ScheduleConditionReport {
        status: condition.status.clone(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
    }
}

/// Returns the condition of a type.
pub(crate) fn find_condition<'c>(
    conditions: &'c [Condition],
    type_: &str,
) -> Option<&'c Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

fn text_of(time: &Time) -> String {
    time.0.to_string()
}
