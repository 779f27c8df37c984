//! The summary of the backups, from the status of the BackupSchedule. It changes when a backup or a drill ends, and not when one
//! begins.

use evenkeel_api::{BackupSchedule, BackupScheduleStatus, ClusterBackupStatus};

use crate::observe::ObservedCluster;

/// The condition of the BackupSchedule.
const RECOVERABLE: &str = "Recoverable";

/// Returns the summary; `None` if the cluster is not backed up.
pub(super) fn summary(
    observed: &ObservedCluster,
    old: Option<&ClusterBackupStatus>,
) -> Option<ClusterBackupStatus> {
    observed.desired.backup.as_ref()?;
    Some(of_schedule(observed.backup_schedule.as_ref(), old))
}

fn of_schedule(
    schedule: Option<&BackupSchedule>,
    old: Option<&ClusterBackupStatus>,
) -> ClusterBackupStatus {
    let unknown = |reason: &str| ClusterBackupStatus {
        recoverable: "Unknown".to_owned(),
        reason: reason.to_owned(),
        ..ClusterBackupStatus::default()
    };
    let Some(schedule) = schedule else {
        return unknown("ScheduleNotFound");
    };
    let Some(status) = &schedule.status else {
        return unknown("Pending");
    };
    let BackupScheduleStatus {
        next_backup,
        last_scheduled: _,
        last_backup,
        last_success,
        drill: _,
        backups: _,
        observed_generation: _,
        conditions,
    } = status;
    let last_backup = last_backup.as_ref().map(|backup| backup.at.clone());
    let mut conditions = conditions.iter();
    let recoverable = conditions.find(|condition| condition.type_ == RECOVERABLE);
    let next_backup = match old {
        // The next time changes when a backup begins; its end is reported by one write.
        Some(old) if old.last_backup == last_backup && old.next_backup < *next_backup => {
            old.next_backup.clone().or_else(|| next_backup.clone())
        }
        Some(_) | None => next_backup.clone(),
    };
    ClusterBackupStatus {
        last_success: last_success.as_ref().map(|backup| backup.at.clone()),
        last_backup,
        next_backup,
        recoverable: recoverable.map_or_else(
            || "Unknown".to_owned(),
            |condition| condition.status.clone(),
        ),
        reason: recoverable.map_or_else(
            || "Pending".to_owned(),
            |condition| condition.reason.clone(),
        ),
    }
}

#[cfg(test)]
#[path = "backup_tests.rs"]
mod tests;
