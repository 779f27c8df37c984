//! Drills: the newest backup, and in about every fourth drill an older one, is restored in a pod, and the restored data is
//! compared. A drill that cannot run says nothing about the backup, and is tried again at growing intervals.

use evenkeel_api::DrillResult;
use evenkeel_runtime::{Observed, UnixTime};

use super::super::cron::Cron;
use super::super::facts::{
    BackupFacts, DrillPodFacts, DrillPodState, DrillRecord, ScheduleFacts, drill_pod_name,
};
use super::super::plan::{ScheduleCreate, SchedulePatch, ScheduleWait};
use super::super::policy::ValidPolicy;
use super::runs::Runs;
use super::{CLUSTER_RETRY_SECONDS, MAX_PENDING_SECONDS, plus};

/// The shortest delay before a drill that could not run is tried again.
const MIN_RETRY_SECONDS: i64 = 300;
/// The longest delay.
const MAX_RETRY_SECONDS: i64 = 21_600;
/// How long a drill may take after its due time before the last result counts as outdated. It includes retries.
const OVERDUE_GRACE_SECONDS: i64 = 7_200;
/// One of this many drills restores an older backup: data in a store may decay, or may be readable by no later version.
const DRILLS_PER_OLDER_BACKUP: i64 = 4;
const DAY_SECONDS: i64 = 86_400;
/// The mean length of a month.
const MONTH_SECONDS: i64 = 2_629_746;

/// The evaluated drills.
#[derive(Clone, Debug, Default)]
pub struct Drills {
    /// The pod to create.
    pub create: Option<ScheduleCreate>,
    /// The result to record, or the pod to delete.
    pub patch: Option<SchedulePatch>,
    /// The last drill that ended.
    pub last: Option<DrillRecord>,
    /// The last drill that found the expected data.
    pub last_success: Option<DrillRecord>,
    /// The time up to which due drills were run.
    pub last_scheduled: Option<UnixTime>,
    /// When the next drill is due.
    pub next: Option<UnixTime>,
    /// Whether a drill that was due long ago has found nothing.
    pub is_overdue: bool,
    /// The waits.
    pub waits: Vec<ScheduleWait>,
    /// The times at which the decision may change.
    pub wakes: Vec<UnixTime>,
}

/// Evaluates the drills of a schedule.
pub(super) fn evaluate(facts: &ScheduleFacts, policy: Option<&ValidPolicy>, runs: &Runs) -> Drills {
    let recorded = &facts.recorded;
    let recorded_due = recorded.last_drill_scheduled.map(|at| at.min(facts.now));
    let pod_due = facts.drill.as_ref().map(|pod| pod.due.min(facts.now));
    let mut drills = Drills {
        last: recorded.last_drill.clone(),
        last_success: recorded.last_drill_success.clone(),
        last_scheduled: recorded_due.max(pod_due),
        ..Drills::default()
    };
    if let Some(pod) = &facts.drill {
        evaluate_pod(facts, pod, &mut drills);
    }
    let policy = policy.filter(|_| !facts.policy.suspend);
    let Some((policy, cron)) = policy.and_then(|it| Some((it, it.drills.as_ref()?))) else {
        return drills;
    };
    drills.next = cron.next_after(facts.now);
    drills.wakes.extend(drills.next);
    evaluate_overdue(facts, policy, &mut drills);
    if facts.drill.is_some() {
        return drills;
    }
    let last_due = cron.last_until(facts.now);
    let Some(due) = due_drill(facts, last_due, &mut drills) else {
        return drills;
    };
    let Some(backup) = choose(facts, cron, due, drills.last.as_ref()) else {
        drills.waits.push(ScheduleWait::NothingToDrill);
        return drills;
    };
    if let Some(wait) = obstacle(facts, runs) {
        if wait == ScheduleWait::Cluster {
            drills.wakes.push(plus(facts.now, CLUSTER_RETRY_SECONDS));
        }
        drills.waits.push(wait);
        return drills;
    }
    drills.create = Some(ScheduleCreate::DrillPod {
        backup: backup.name.clone(),
        uid: backup.uid.clone(),
        due,
    });
    drills
}

/// Returns the due time of the drill that is to run now.
fn due_drill(
    facts: &ScheduleFacts,
    last_due: Option<UnixTime>,
    drills: &mut Drills,
) -> Option<UnixTime> {
    let good = facts.newest_good();
    // The first backup of a schedule is restored at once, and so is the first one after a damaged one.
    let Some(last_scheduled) = drills.last_scheduled else {
        return Some(
            good.and_then(|it| it.finished_at)
                .map_or(facts.now, |at| at.min(facts.now)),
        );
    };
    if last_due > Some(last_scheduled) {
        return last_due;
    }
    let last = drills
        .last
        .as_ref()
        .filter(|last| last.at >= last_scheduled);
    let Some(last) = last else {
        // The pod was deleted before it ended.
        return Some(last_scheduled);
    };
    match last.result {
        DrillResult::Proven => None,
        DrillResult::Damaged => {
            let newest = good?.finished_at?;
            let mut backups = facts.backups.iter();
            let damaged = backups.find(|backup| backup.name == last.backup);
            // If an older backup is damaged, the newest one is restored at once.
            let is_older = damaged.is_some_and(|backup| backup.finished_at < Some(newest));
            (is_older || newest > last.at).then(|| newest.max(last.at).min(facts.now))
        }
        DrillResult::NotRun => {
            // The delay doubles: it is the time that has passed since the due time.
            let elapsed = last.at.0 - last_scheduled.0;
            let retry = plus(last.at, elapsed.clamp(MIN_RETRY_SECONDS, MAX_RETRY_SECONDS));
            if retry <= facts.now {
                return Some(last_scheduled);
            }
            drills.next = drills.next.map(|next| next.min(retry));
            drills.wakes.push(retry);
            drills.waits.push(ScheduleWait::DrillRetry(retry));
            None
        }
    }
}

/// Returns the backup that is restored: the newest one, or in every few drills an older one. An older one tells little about
/// what can be recovered now, so it has its turn only if the last drill has proven a backup.
fn choose<'f>(
    facts: &'f ScheduleFacts,
    cron: &Cron,
    due: UnixTime,
    last: Option<&DrillRecord>,
) -> Option<&'f BackupFacts> {
    let newest = facts.newest_good().filter(|it| !it.is_terminating)?;
    let is_proven = last.is_some_and(|last| last.result == DrillResult::Proven);
    if !is_proven || number_of(cron, due) % DRILLS_PER_OLDER_BACKUP != 0 {
        return Some(newest);
    }
    let older = facts.own().filter(|backup| {
        backup.is_good() && !backup.is_terminating && backup.finished_at < newest.finished_at
    });
    // Those that were never restored come first.
    let next = older.min_by_key(|backup| (backup.proven, backup.finished_at, &backup.name));
    Some(next.unwrap_or(newest))
}

/// Returns the number of a drill, from its due time alone, so that no count is stored. The numbers of regular drills follow
/// each other, also over changes of clocks; those of irregular ones do so about.
fn number_of(cron: &Cron, due: UnixTime) -> i64 {
    let interval = cron.next_after(due).map_or(DAY_SECONDS, |it| it.0 - due.0);
    let days = (interval + DAY_SECONDS / 2) / DAY_SECONDS;
    let interval = match days {
        0 => interval.max(1),
        28..=31 => MONTH_SECONDS,
        days => days * DAY_SECONDS,
    };
    (due.0 + interval / 2).div_euclid(interval)
}

/// Returns the reason why no drill can start now.
fn obstacle(facts: &ScheduleFacts, runs: &Runs) -> Option<ScheduleWait> {
    if !matches!(facts.cluster, Observed::Present(_)) {
        return Some(ScheduleWait::Cluster);
    }
    let store = facts.store.present();
    if !store.is_some_and(|store| store.is_ready) {
        return Some(ScheduleWait::Store);
    }
    // The newest backup is about to change.
    if let Some(name) = &runs.running {
        return Some(ScheduleWait::Run(name.clone()));
    }
    if let Some(ScheduleCreate::Backup { name, .. }) = &runs.create {
        return Some(ScheduleWait::Run(name.clone()));
    }
    let prune = facts.prune.as_ref();
    prune
        .is_some_and(|pod| pod.outcome.is_none())
        .then_some(ScheduleWait::Prune)
}

/// Records the result of a pod, and then deletes the pod.
fn evaluate_pod(facts: &ScheduleFacts, pod: &DrillPodFacts, drills: &mut Drills) {
    let record = match &pod.state {
        DrillPodState::Running => None,
        DrillPodState::Pending(problem) => {
            let limit = plus(pod.created, MAX_PENDING_SECONDS);
            drills.wakes.push(limit);
            (limit <= facts.now).then(|| pending_too_long(pod, limit, problem))
        }
        DrillPodState::Finished(record) => Some(record.clone()),
    };
    let Some(record) = record else {
        drills.waits.push(ScheduleWait::Drill);
        return;
    };
    let is_recorded = facts.recorded.last_drill.as_ref() == Some(&record);
    let backup = facts
        .backups
        .iter()
        .find(|backup| backup.name == pod.backup && backup.uid == pod.backup_uid);
    if let Some(backup) = backup.filter(|backup| !has_result(backup, &record)) {
        drills.patch = Some(SchedulePatch::RecordDrill {
            backup: backup.name.clone(),
            uid: backup.uid.clone(),
            at: record.at,
            result: record.result,
            version: pod.version.clone(),
            seconds: record.seconds,
            message: record.message.clone(),
        });
    } else if is_recorded && !pod.is_terminating {
        drills.patch = Some(SchedulePatch::DeletePod {
            pod: drill_pod_name(&facts.name),
            uid: pod.uid.clone(),
        });
    }
    if record.result == DrillResult::Proven {
        drills.last_success = Some(record.clone());
    }
    drills.last = Some(record);
}

fn has_result(backup: &BackupFacts, record: &DrillRecord) -> bool {
    match record.result {
        DrillResult::Proven => backup.proven == Some(record.at),
        DrillResult::Damaged => backup.damaged.is_some(),
        DrillResult::NotRun => true,
    }
}

fn pending_too_long(pod: &DrillPodFacts, limit: UnixTime, problem: &str) -> DrillRecord {
    let problem = if problem.is_empty() {
        "Its events name the reason."
    } else {
        problem
    };
    DrillRecord {
        backup: pod.backup.clone(),
        at: limit,
        result: DrillResult::NotRun,
        seconds: 0,
        message: format!("The pod of the drill did not start within 15 minutes. {problem}"),
    }
}

/// Finds out whether a drill that was due long ago has found nothing, or when it will be.
fn evaluate_overdue(facts: &ScheduleFacts, policy: &ValidPolicy, drills: &mut Drills) {
    let (Some(cron), Some(success)) = (&policy.drills, &drills.last_success) else {
        return;
    };
    let Some(expected) = cron.next_after(success.at) else {
        return;
    };
    let overdue_at = plus(expected, OVERDUE_GRACE_SECONDS);
    drills.is_overdue = overdue_at <= facts.now;
    drills.wakes.push(overdue_at);
}

#[cfg(test)]
#[path = "drills_tests.rs"]
mod tests;
