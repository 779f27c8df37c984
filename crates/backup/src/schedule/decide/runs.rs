//! The backups that are due. A missed backup is taken once, however many times have passed.

use evenkeel_api::{BackupPhase, IfMissed};
use evenkeel_runtime::{Observed, UnixTime};

use super::super::facts::{BackupFacts, ScheduleFacts, newest};
use super::super::plan::{RunReason, ScheduleCreate, ScheduleWait};
use super::super::policy::ValidPolicy;
use super::{CLUSTER_RETRY_SECONDS, plus};

/// The delays before a failed backup is taken again. After the last, the next due time follows.
const RETRY_DELAY_SECONDS: [i64; 3] = [60, 300, 900];
/// How long after its due time a backup counts as missed: a new leader takes over within a minute.
const MISSED_AFTER_SECONDS: i64 = 300;
/// The time that a backup may take beyond its deadline before it is overdue.
const OVERDUE_GRACE_SECONDS: i64 = 600;

/// The evaluated backups.
#[derive(Clone, Debug, Default)]
pub struct Runs {
    /// The Backup to create.
    pub create: Option<ScheduleCreate>,
    /// The time up to which due backups were taken or skipped.
    pub last_scheduled: Option<UnixTime>,
    /// The due time that is skipped now.
    pub skipped: Option<UnixTime>,
    /// The name of the Backup that runs.
    pub running: Option<String>,
    /// When the next backup is due.
    pub next: Option<UnixTime>,
    /// Whether a backup that was due long ago is not complete.
    pub is_overdue: bool,
    /// The waits.
    pub waits: Vec<ScheduleWait>,
    /// The times at which the decision may change.
    pub wakes: Vec<UnixTime>,
}

/// A backup that is due.
#[derive(Clone, Copy, Debug)]
struct DueRun {
    due: UnixTime,
    run: u32,
    why: RunReason,
}

/// Evaluates the backups of a schedule.
pub(super) fn evaluate(facts: &ScheduleFacts, policy: Option<&ValidPolicy>) -> Runs {
    let last_scheduled = last_scheduled(facts);
    let running = running(facts).map(|backup| backup.name.clone());
    let mut runs = Runs {
        last_scheduled,
        running,
        ..Runs::default()
    };
    let Some(policy) = policy.filter(|_| !facts.policy.suspend) else {
        return runs;
    };
    runs.next = policy.backups.next_after(facts.now);
    runs.wakes.extend(runs.next);
    evaluate_overdue(facts, policy, &mut runs);
    let due = match regular_run(facts, policy, last_scheduled) {
        Some(run) => Some(run),
        None => extra_run(facts, &mut runs),
    };
    let Some(due) = due else {
        return runs;
    };
    let is_regular = matches!(due.why, RunReason::Due);
    let is_missed = facts.now.0 - due.due.0 > MISSED_AFTER_SECONDS;
    let is_skipped = is_missed && policy.if_missed == IfMissed::Skip;
    if is_regular && (runs.running.is_some() || is_skipped) {
        runs.skipped = Some(due.due);
        runs.last_scheduled = Some(due.due);
        runs.waits.push(ScheduleWait::Skipped(due.due));
    } else if let Some(name) = &runs.running {
        runs.waits.push(ScheduleWait::Run(name.clone()));
    } else if let Some(wait) = obstacle(facts, due.why) {
        if wait == ScheduleWait::Cluster {
            runs.wakes.push(plus(facts.now, CLUSTER_RETRY_SECONDS));
        }
        runs.waits.push(wait);
    } else {
        runs.create = Some(ScheduleCreate::Backup {
            name: facts.backup_name(due.due),
            run: due.run,
            why: due.why,
        });
    }
    runs
}

/// Returns the time up to which due backups were taken or skipped: from the status, and from the names of backups, whose
/// creation may be newer than the status. A time in the future was written while the clock was wrong.
fn last_scheduled(facts: &ScheduleFacts) -> Option<UnixTime> {
    let recorded = facts.recorded.last_scheduled.map(|at| at.min(facts.now));
    let taken = facts.last_run().and_then(|backup| backup.due);
    recorded.max(taken)
}

/// Returns the backup that runs.
fn running(facts: &ScheduleFacts) -> Option<&BackupFacts> {
    let mut own = facts.backups.iter();
    own.find(|backup| {
        (backup.is_own || backup.due.is_some())
            && !backup.phase.is_final()
            && !backup.is_terminating
    })
}

/// Returns the first backup of a new schedule, or the one of the last due time. A user who writes `@daily` is not left
/// without a backup for a day.
fn regular_run(
    facts: &ScheduleFacts,
    policy: &ValidPolicy,
    last_scheduled: Option<UnixTime>,
) -> Option<DueRun> {
    let Some(last_scheduled) = last_scheduled else {
        return Some(DueRun {
            due: facts.created.min(facts.now),
            run: 1,
            why: RunReason::First,
        });
    };
    let due = policy.backups.last_until(facts.now)?;
    (due > last_scheduled).then_some(DueRun {
        due,
        run: 1,
        why: RunReason::Due,
    })
}

/// Returns the backup that repeats one that has failed or is damaged.
fn extra_run(facts: &ScheduleFacts, runs: &mut Runs) -> Option<DueRun> {
    let last = facts.last_run()?;
    let extra = match last.phase {
        BackupPhase::Failed => retry(last)?,
        BackupPhase::Complete
        | BackupPhase::Pending
        | BackupPhase::Running
        | BackupPhase::Unknown => after_damage(facts, last)?,
    };
    if extra.due > facts.now {
        // A later time than the next due time is never reached.
        if runs.next.is_none_or(|next| extra.due < next) {
            runs.next = Some(extra.due);
            runs.wakes.push(extra.due);
            runs.waits.push(ScheduleWait::Retry(extra.due));
        }
        return None;
    }
    Some(extra)
}

fn retry(failed: &BackupFacts) -> Option<DueRun> {
    let last_due = failed.due?;
    let retries = usize::try_from(failed.run.max(1) - 1).ok()?;
    let delay = RETRY_DELAY_SECONDS.get(retries)?;
    let ended = failed.finished_at.unwrap_or(last_due);
    Some(DueRun {
        due: plus(ended, *delay).max(plus(last_due, 1)),
        run: failed.run.max(1) + 1,
        why: RunReason::Retry,
    })
}

fn after_damage(facts: &ScheduleFacts, last: &BackupFacts) -> Option<DueRun> {
    let complete = facts
        .own()
        .filter(|backup| backup.phase == BackupPhase::Complete);
    let damaged_at = newest(facts, complete)?.damaged?;
    last.due
        .is_none_or(|due| due < damaged_at)
        .then_some(DueRun {
            due: damaged_at,
            run: 1,
            why: RunReason::Damaged,
        })
}

/// Returns the reason why no backup can be taken now. A backup of a cluster that does not answer is taken: it waits until
/// its deadline, and reports why it failed.
fn obstacle(facts: &ScheduleFacts, why: RunReason) -> Option<ScheduleWait> {
    let is_first = matches!(why, RunReason::First);
    let has_cluster = match &facts.cluster {
        Observed::Present(cluster) => {
            cluster.lineage.is_some() && (cluster.is_readable || !is_first)
        }
        Observed::Absent | Observed::Unknown => false,
    };
    if !has_cluster {
        return Some(ScheduleWait::Cluster);
    }
    let store = facts.store.present();
    (!store.is_some_and(|store| store.is_ready)).then_some(ScheduleWait::Store)
}

/// Finds out whether a backup that was due long ago is not complete, or when it will be.
fn evaluate_overdue(facts: &ScheduleFacts, policy: &ValidPolicy, runs: &mut Runs) {
    let deadline = i64::try_from(policy.deadline.as_secs()).unwrap_or(i64::MAX);
    let allowed = deadline.saturating_add(OVERDUE_GRACE_SECONDS);
    let success = facts.newest_good().and_then(|backup| backup.finished_at);
    let expected = match success {
        Some(success) => policy.backups.next_after(success),
        None => Some(facts.created),
    };
    let Some(expected) = expected else {
        return;
    };
    let overdue_at = plus(expected, allowed);
    runs.is_overdue = overdue_at <= facts.now;
    runs.wakes.push(overdue_at);
}
