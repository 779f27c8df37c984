//! The status, conditions and events of a BackupSchedule, from evaluated facts. Nothing in it changes by itself.

use evenkeel_api::{
    BackupPhase, BackupResultStatus, BackupScheduleStatus, ClusterReference, DrillResult,
    DrillResultStatus, DrillStatus,
};
use evenkeel_runtime::{EventSpec, Observed, UnixTime};

use super::cron::text;
use super::decide::Outlook;
use super::facts::{BackupFacts, DrillRecord, newest};
use crate::conditions::{self, NewCondition, find, time};

/// The condition that tells whether backups are taken.
pub const READY: &str = "Ready";
/// The condition that tells whether a drill has restored a recent backup.
pub const RECOVERABLE: &str = "Recoverable";

/// The resource that a status is made for.
#[derive(Clone, Copy, Debug)]
pub struct StatusOf<'a> {
    /// The status before.
    pub old: &'a BackupScheduleStatus,
    /// The generation of the spec.
    pub generation: Option<i64>,
    /// The cluster.
    pub cluster: &'a ClusterReference,
}

/// Returns the status.
pub fn status(of: StatusOf<'_>, outlook: &Outlook<'_>) -> BackupScheduleStatus {
    let Outlook {
        facts,
        policy: _,
        runs,
        drills,
        deletions: _,
    } = outlook;
    let ended = facts.own().filter(|backup| backup.phase.is_final());
    let complete = facts
        .own()
        .filter(|backup| backup.phase == BackupPhase::Complete && backup.damaged.is_none());
    let has_drills = facts.policy.drill.is_some() || drills.last.is_some();
    let drill = has_drills.then(|| DrillStatus {
        next: drills.next.map(time),
        last_scheduled: drills.last_scheduled.map(time),
        last: drills.last.as_ref().map(drill_result),
        last_success: drills.last_success.as_ref().map(drill_result),
    });
    let with = |conditions: &[_], condition| {
        conditions::set(conditions, condition, of.generation, facts.now)
    };
    let conditions = with(&of.old.conditions, recoverable(outlook));
    let conditions = with(&conditions, ready(of, outlook));
    BackupScheduleStatus {
        next_backup: runs.next.map(time),
        last_scheduled: runs.last_scheduled.map(time),
        last_backup: newest(facts, ended).and_then(backup_result),
        last_success: facts.newest_good().and_then(backup_result),
        drill,
        backups: i32::try_from(complete.count()).unwrap_or(i32::MAX),
        observed_generation: of.generation,
        conditions,
    }
}

fn backup_result(backup: &BackupFacts) -> Option<BackupResultStatus> {
    let complete = backup.phase == BackupPhase::Complete;
    Some(BackupResultStatus {
        name: backup.name.clone(),
        at: time(backup.finished_at?),
        complete,
        message: if complete {
            String::new()
        } else {
            backup.message.clone()
        },
    })
}

fn drill_result(record: &DrillRecord) -> DrillResultStatus {
    DrillResultStatus {
        backup: record.backup.clone(),
        at: time(record.at),
        result: record.result,
        seconds: record.seconds,
        message: record.message.clone(),
    }
}

fn condition(
    type_: &'static str,
    status: &'static str,
    reason: &str,
    message: String,
) -> NewCondition {
    NewCondition {
        type_,
        status,
        reason: reason.to_owned(),
        message,
    }
}

fn ready(of: StatusOf<'_>, outlook: &Outlook<'_>) -> NewCondition {
    let facts = outlook.facts;
    let not_ready = |reason: &str, message: String| condition(READY, "False", reason, message);
    if let Err(rejection) = &outlook.policy {
        return not_ready(
            "InvalidSchedule",
            format!("{rejection}. No backups are taken until the field is corrected."),
        );
    }
    if facts.policy.suspend {
        return not_ready(
            "Suspended",
            "spec.suspend is set. No backups are taken, no backups are deleted, and no drills run."
                .to_owned(),
        );
    }
    let (kind, cluster) = (of.cluster.kind, &of.cluster.name);
    if !facts.cluster.is_present() {
        return not_ready(
            "ClusterNotFound",
            format!(
                "{kind} {cluster} does not exist. No backups are taken until it does. Create it, or delete this \
                 BackupSchedule."
            ),
        );
    }
    let store = &facts.policy.store;
    match &facts.store {
        Observed::Present(found) if found.is_ready => {}
        Observed::Present(found) => {
            return not_ready(
                "StoreNotReady",
                format!(
                    "BackupStore {store} is not Ready. No backups are taken until it is. {}",
                    found.message
                )
                .trim_end()
                .to_owned(),
            );
        }
        Observed::Absent | Observed::Unknown => {
            return not_ready(
                "StoreNotFound",
                format!(
                    "BackupStore {store} does not exist. No backups are taken until it does. Create it, or change \
                     spec.store."
                ),
            );
        }
    }
    ready_with_store(outlook)
}

fn ready_with_store(outlook: &Outlook<'_>) -> NewCondition {
    let (facts, runs) = (outlook.facts, &outlook.runs);
    let next = runs
        .next
        .map(|next| format!(" The next backup is due at {}.", text(next)))
        .unwrap_or_default();
    let failed = facts
        .last_run()
        .filter(|backup| backup.phase == BackupPhase::Failed);
    if let Some(failed) = failed {
        let message = format!(
            "Backup {} has failed: {}{next}",
            failed.name, failed.message
        );
        return condition(READY, "False", "BackupFailed", message);
    }
    if runs.is_overdue {
        let since = match facts.newest_good().and_then(|backup| backup.finished_at) {
            Some(at) => format!("The last complete backup is of {}.", text(at)),
            None => "No backup was ever complete.".to_owned(),
        };
        let running = match &runs.running {
            Some(name) => format!(" Backup {name} has not ended: see its status."),
            None => String::new(),
        };
        return condition(
            READY,
            "False",
            "BackupOverdue",
            format!("{since} A newer one is overdue.{running}{next}"),
        );
    }
    let problem = outlook.deletions.problem.as_ref();
    let problem = problem.map(|problem| format!(" {problem}"));
    let message = format!(
        "Backups are taken on the schedule.{}",
        problem.unwrap_or_default()
    );
    condition(READY, "True", "Scheduled", message)
}

fn recoverable(outlook: &Outlook<'_>) -> NewCondition {
    let (facts, drills) = (outlook.facts, &outlook.drills);
    let unknown =
        |reason: &str, message: String| condition(RECOVERABLE, "Unknown", reason, message);
    let last = drills.last.as_ref();
    if let Some(last) = last.filter(|last| last.result == DrillResult::Damaged) {
        let message = format!(
            "Backup {} cannot be restored: {} The next backup is restored as soon as it is complete.",
            last.backup, last.message
        );
        return condition(RECOVERABLE, "False", "DrillFailed", message);
    }
    if facts.newest_good().is_none() {
        let message = "No complete backup exists. The data of the cluster cannot be restored.";
        return condition(RECOVERABLE, "False", "NeverBackedUp", message.to_owned());
    }
    let not_run = last.filter(|last| last.result == DrillResult::NotRun);
    let why = not_run.map(|last| format!(" The last drill could not run: {}", last.message));
    let why = why.unwrap_or_default();
    let Some(success) = &drills.last_success else {
        let advice = if facts.policy.drill.is_some() {
            String::new()
        } else {
            " Set spec.drill, for example to @weekly.".to_owned()
        };
        return unknown(
            "NeverDrilled",
            format!("Backups exist, but none was ever restored.{why}{advice}"),
        );
    };
    let restored = format!(
        "Backup {} was restored at {}.",
        success.backup,
        text(success.at)
    );
    if facts.policy.drill.is_none() {
        return unknown(
            "DrillOverdue",
            format!(
                "{restored} No later backup is restored. Set spec.drill, for example to @weekly."
            ),
        );
    }
    if not_run.is_some() || drills.is_overdue {
        return unknown(
            "DrillOverdue",
            format!("{restored} The drill that was due since then has no result.{why}"),
        );
    }
    let message = format!(
        "Backup {} was restored in {} seconds, and its data is as expected.",
        success.backup, success.seconds
    );
    condition(RECOVERABLE, "True", "Proven", message)
}

/// Returns the events about changes of the state, by comparing the status with the one before.
pub fn events(
    old: &BackupScheduleStatus,
    new: &BackupScheduleStatus,
    skipped: Option<UnixTime>,
) -> Vec<EventSpec> {
    let mut events = Vec::new();
    let reason = |status: &BackupScheduleStatus, type_: &str| {
        let condition = find(&status.conditions, type_);
        condition.map(|it| it.reason.clone()).unwrap_or_default()
    };
    let message = |type_: &str| {
        let condition = find(&new.conditions, type_);
        condition.map(|it| it.message.clone()).unwrap_or_default()
    };
    let (was, is) = (reason(old, READY), reason(new, READY));
    let is_another_failure = old.last_backup != new.last_backup;
    match is.as_str() {
        "BackupFailed" if was != is || is_another_failure => {
            events.push(EventSpec::warning("BackupFailed", "Backup", message(READY)));
        }
        "BackupOverdue" | "InvalidSchedule" if was != is => {
            events.push(EventSpec::warning(&is, "Backup", message(READY)));
        }
        "Scheduled" if was == "BackupFailed" || was == "BackupOverdue" => {
            let note = new.last_success.as_ref().map_or_else(
                || "Backups are taken on the schedule again.".to_owned(),
                |last| {
                    format!(
                        "Backup {} is complete. Backups are taken on the schedule again.",
                        last.name
                    )
                },
            );
            events.push(EventSpec::normal("BackupRecovered", "Backup", note));
        }
        _ => {}
    }
    let (was, is) = (reason(old, RECOVERABLE), reason(new, RECOVERABLE));
    let last_drill =
        |status: &BackupScheduleStatus| status.drill.as_ref().and_then(|it| it.last.clone());
    if is == "DrillFailed" && was != is {
        events.push(EventSpec::warning(
            "DrillFailed",
            "Drill",
            message(RECOVERABLE),
        ));
    } else if is == "Proven" && was == "DrillFailed" {
        events.push(EventSpec::normal(
            "DrillRecovered",
            "Drill",
            message(RECOVERABLE),
        ));
    } else if last_drill(old) != last_drill(new)
        && let Some(last) = last_drill(new).filter(|last| last.result == DrillResult::NotRun)
    {
        let note = format!(
            "The drill of Backup {} could not run: {}",
            last.backup, last.message
        );
        events.push(EventSpec::warning("DrillNotRun", "Drill", note));
    }
    if let Some(due) = skipped {
        let note = format!(
            "The backup that was due at {} was skipped, because another one runs or because it was missed and \
             spec.ifMissed is Skip.",
            text(due)
        );
        events.push(EventSpec::warning("BackupSkipped", "Backup", note));
    }
    events
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
