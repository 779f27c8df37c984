//! The state of a cluster's backups on the status screen: the last complete one, the next one, the last proven restore, and
//! problems. Pure.

use std::cmp::Reverse;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::create::is_of;
use super::list_text::{ago, time_text};
use super::objects::BackupObjects;
use super::report::{BackupReport, ProvenReport, ScheduleReport, reason_text};
use crate::live::ReadResult;
use crate::terminal::{Severity, Terminal, format_elapsed};

/// How long after its time a backup of a schedule is overdue, in seconds. An operator that runs creates it within seconds.
const OVERDUE_SECONDS: i64 = 300;
/// The text for a cluster without backups.
const NO_BACKUPS: &str = "no backups are taken; see kubectl evenkeel backup --help";

/// The backups of a cluster.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BackupStateReport {
    /// The state in one word.
    pub(crate) state: BackupHealth,
    /// Why the state is unknown. Empty if it is known.
    pub(crate) message: String,
    /// The last complete backup. Null if none.
    pub(crate) last_complete: Option<BackupReport>,
    /// The name of the backup that is being taken. Null if none.
    pub(crate) running: Option<String>,
    /// When the next backup is due. Null without a schedule.
    pub(crate) next_backup: Option<String>,
    /// The last restore that proved a backup. Null if none did.
    pub(crate) last_proven: Option<ProvenReport>,
    /// The problems, the worst first.
    pub(crate) problems: Vec<BackupProblemReport>,
    /// The schedules of the cluster.
    pub(crate) schedules: Vec<ScheduleReport>,
}

/// The state of a cluster's backups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) enum BackupHealth {
    /// A backup is complete, and there is no problem.
    #[serde(rename = "OK")]
    Ok,
    /// There is no schedule and no backup.
    None,
    /// No backup is complete yet, and there is no problem.
    Waiting,
    /// All schedules are suspended.
    Suspended,
    /// The last backup has failed.
    Failed,
    /// A schedule cannot take backups.
    NotReady,
    /// A backup is overdue.
    Overdue,
    /// The operator reports that the data is not recoverable.
    NotRecoverable,
    /// The backups could not be read.
    Unknown,
}

impl BackupHealth {
    /// Returns the word on the screen.
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::None => "none",
            Self::Waiting => "waiting",
            Self::Suspended => "SUSPENDED",
            Self::Failed => "FAILED",
            Self::NotReady => "NOT READY",
            Self::Overdue => "OVERDUE",
            Self::NotRecoverable => "NOT RECOVERABLE",
            Self::Unknown => "unknown",
        }
    }

    fn severity(self) -> Severity {
        match self {
            Self::Ok => Severity::Good,
            Self::None | Self::Waiting | Self::Unknown => Severity::Neutral,
            Self::Suspended | Self::Overdue | Self::NotReady => Severity::Warning,
            Self::Failed | Self::NotRecoverable => Severity::Critical,
        }
    }
}

/// A problem of the backups of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BackupProblemReport {
    /// The kind of the problem: Failed, NotReady, Overdue or NotRecoverable.
    pub(crate) kind: BackupHealth,
    /// The BackupSchedule that the problem is about. Empty if none.
    pub(crate) schedule: String,
    /// The fact and its reason.
    pub(crate) message: String,
}

impl BackupStateReport {
    /// Reports about the backups of a cluster.
    pub(crate) fn new(cluster: &str, objects: &ReadResult<BackupObjects>, now: Timestamp) -> Self {
        let objects = match objects {
            Ok(objects) => objects,
            Err(error) => return Self::unknown(error.to_string()),
        };
        let schedules = objects.schedules.iter();
        let schedules = schedules.filter(|schedule| is_of(&schedule.spec.cluster, cluster));
        let schedules: Vec<_> = schedules.map(ScheduleReport::new).collect();
        let backups = objects.backups.iter();
        let backups = backups.filter(|backup| is_of(&backup.spec.cluster, cluster));
        let mut backups: Vec<_> = backups.map(BackupReport::new).collect();
        sort(&mut backups);
        let problems = problems(&backups, &schedules, now);
        let last_complete = backups.iter().find(|backup| backup.is_complete()).cloned();
        let is_running = |backup: &&BackupReport| ["Pending", "Running"].contains(&&*backup.phase);
        let last_proven = last_proven(&backups, &schedules);
        let state = match problems.first() {
            Some(problem) => problem.kind,
            None if schedules.is_empty() && backups.is_empty() => BackupHealth::None,
            None if !schedules.is_empty() && schedules.iter().all(|it| it.is_suspended) => {
                BackupHealth::Suspended
            }
            None if last_complete.is_none() => BackupHealth::Waiting,
            None => BackupHealth::Ok,
        };
        Self {
            state,
            message: String::new(),
            running: backups.iter().find(is_running).map(|it| it.name.clone()),
            next_backup: next_backup(&schedules),
            last_complete,
            last_proven,
            problems,
            schedules,
        }
    }

    fn unknown(reason: String) -> Self {
        Self {
            state: BackupHealth::Unknown,
            message: reason,
            last_complete: None,
            running: None,
            next_backup: None,
            last_proven: None,
            problems: Vec::new(),
            schedules: Vec::new(),
        }
    }

    /// Renders the line of the status screen.
    pub(crate) fn text(&self, now: Timestamp, terminal: Terminal) -> String {
        let text = match self.state {
            BackupHealth::None => NO_BACKUPS.to_owned(),
            BackupHealth::Unknown => format!("({})", self.message),
            _ => self.parts(now).join("; "),
        };
        terminal.field_with_word("Backup", self.state.severity(), self.state.word(), &text)
    }

    fn parts(&self, now: Timestamp) -> Vec<String> {
        let problems = self.problems.iter();
        let mut parts: Vec<_> = problems.map(|problem| problem.message.clone()).collect();
        parts.push(match &self.last_complete {
            Some(backup) => {
                let time = backup.time().unwrap_or(now).to_string();
                let position = match backup.position.as_str() {
                    "" => String::new(),
                    position => format!(" ({position})"),
                };
                format!("last complete {}{position}", ago(&time, now))
            }
            None => "none is complete yet".to_owned(),
        });
        if let Some(running) = &self.running {
            parts.push(format!("{running} is being taken"));
        }
        // A time in the past is overdue, or the operator is about to take the backup.
        let is_ahead = |next: &&String| next.parse::<Timestamp>().is_ok_and(|next| next > now);
        if let Some(next) = self.next_backup.as_ref().filter(is_ahead) {
            parts.push(format!("next {}", time_text(next, now)));
        }
        if self.last_complete.is_some() {
            parts.push(match &self.last_proven {
                Some(proven) => format!(
                    "restore proven {}, took {}",
                    ago(&proven.at, now),
                    format_elapsed(proven.restore_seconds)
                ),
                None => "restore never proven".to_owned(),
            });
        }
        parts
    }
}

/// Sorts backups, the newest first.
pub(super) fn sort(backups: &mut [BackupReport]) {
    backups.sort_by_key(|backup| Reverse((backup.time(), backup.name.clone())));
}

/// Returns the earliest time at which a backup is due.
fn next_backup(schedules: &[ScheduleReport]) -> Option<String> {
    let active = schedules.iter().filter(|schedule| !schedule.is_suspended);
    let times = active.filter_map(|schedule| schedule.next_backup.clone());
    times.min_by_key(|time| time.parse::<Timestamp>().ok())
}

/// Returns the last restore that proved a backup. A proof may outlive the Backup object or the schedule.
fn last_proven(backups: &[BackupReport], schedules: &[ScheduleReport]) -> Option<ProvenReport> {
    let of_backups = backups.iter().filter_map(|backup| backup.proven.as_ref());
    let of_schedules = schedules.iter().filter_map(|it| it.last_proven.as_ref());
    let all = of_backups.chain(of_schedules);
    all.max_by_key(|proven| proven.at.parse::<Timestamp>().ok())
        .cloned()
}

/// Returns the problems, the worst first.
fn problems(
    backups: &[BackupReport],
    schedules: &[ScheduleReport],
    now: Timestamp,
) -> Vec<BackupProblemReport> {
    let mut problems: Vec<_> = failure(backups, schedules).into_iter().collect();
    let active = || schedules.iter().filter(|schedule| !schedule.is_suspended);
    problems.extend(active().filter_map(not_ready));
    problems.extend(active().filter_map(|schedule| overdue(schedule, now)));
    problems.extend(active().filter_map(not_recoverable));
    problems
}

/// Returns the problem that the last backup that ended has failed. Its object may have been deleted.
fn failure(backups: &[BackupReport], schedules: &[ScheduleReport]) -> Option<BackupProblemReport> {
    let of_backups = backups
        .iter()
        .filter(|backup| backup.is_complete() || backup.is_failed())
        .map(|backup| {
            let problem = backup.is_failed().then(|| BackupProblemReport {
                kind: BackupHealth::Failed,
                schedule: backup.schedule.clone(),
                message: format!("last backup {}: {}", backup.name, backup.reason_text()),
            });
            (backup.time(), problem)
        });
    let of_schedules = schedules.iter().filter_map(|schedule| {
        let last = schedule.last_backup.as_ref()?;
        let problem = (!last.is_complete).then(|| BackupProblemReport {
            kind: BackupHealth::Failed,
            schedule: schedule.name.clone(),
            message: format!(
                "last backup {}: {}",
                last.backup,
                reason_text("", &last.message)
            ),
        });
        Some((last.at.parse().ok(), problem))
    });
    // The object names the reason, so it comes before the schedule that reports the same backup.
    let all = of_schedules.chain(of_backups);
    all.max_by_key(|(time, _)| *time)?.1
}

fn not_ready(schedule: &ScheduleReport) -> Option<BackupProblemReport> {
    let ready = schedule.ready.as_ref()?;
    (ready.status == "False").then(|| BackupProblemReport {
        kind: BackupHealth::NotReady,
        schedule: schedule.name.clone(),
        message: format!(
            "schedule {}: {}",
            schedule.name,
            reason_text(&ready.reason, &ready.message)
        ),
    })
}

fn overdue(schedule: &ScheduleReport, now: Timestamp) -> Option<BackupProblemReport> {
    let next: Timestamp = schedule.next_backup.as_ref()?.parse().ok()?;
    let late = now.as_second() - next.as_second();
    (late > OVERDUE_SECONDS).then(|| BackupProblemReport {
        kind: BackupHealth::Overdue,
        schedule: schedule.name.clone(),
        message: format!(
            "schedule {} is overdue by {}",
            schedule.name,
            format_elapsed(late)
        ),
    })
}

fn not_recoverable(schedule: &ScheduleReport) -> Option<BackupProblemReport> {
    let recoverable = schedule.recoverable.as_ref()?;
    (recoverable.status == "False").then(|| BackupProblemReport {
        kind: BackupHealth::NotRecoverable,
        schedule: schedule.name.clone(),
        message: format!(
            "schedule {}: {}",
            schedule.name,
            reason_text(&recoverable.reason, &recoverable.message)
        ),
    })
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
