//! Deletions: the backups that no rule of the policy keeps. A pod of the agent deletes the data first; the Backup objects
//! follow. Only backups of this schedule and of the cluster's present lineage are deleted.

use std::collections::BTreeSet;

use evenkeel_api::{BackupPhase, KeepPolicy};
use evenkeel_archive::retention::{Candidate, Keep, select};
use evenkeel_archive::tasks::{Outcome, TaskResult};
use evenkeel_runtime::UnixTime;
use jiff::Timestamp;

use super::super::cron;
use super::super::facts::{
    BackedUpCluster, BackupFacts, PrunePodFacts, ScheduleFacts, newest, prune_pod_name,
};
use super::super::plan::{ScheduleCreate, SchedulePatch, ScheduleWait};
use super::super::policy::ValidPolicy;
use super::drills::Drills;
use super::runs::Runs;
use super::{MAX_PENDING_SECONDS, plus};

/// The number of failed Backups that are kept for people to read.
const MAX_FAILED: usize = 3;
/// The number of backups that one pod deletes: the request is an annotation, and annotations have at most 256 KiB.
const MAX_DELETED: usize = 100;
/// The time after which a failed deletion is tried again.
const RETRY_SECONDS: i64 = 3_600;
/// The longest time after which the deletion of locked backups is tried again.
const LOCKED_RETRY_SECONDS: i64 = 86_400;

/// The first segment of the place of every backup.
const LAYOUT_ROOT: &str = "evenkeel-v1";

/// The evaluated deletions.
#[derive(Clone, Debug, Default)]
pub struct Deletions {
    /// The pod to create.
    pub create: Option<ScheduleCreate>,
    /// The objects to delete.
    pub patches: Vec<SchedulePatch>,
    /// The waits.
    pub waits: Vec<ScheduleWait>,
    /// The reason why backups are not deleted, for people.
    pub problem: Option<String>,
    /// The times at which the decision may change.
    pub wakes: Vec<UnixTime>,
}

/// Evaluates the deletions of a schedule.
pub(super) fn evaluate(
    facts: &ScheduleFacts,
    policy: Option<&ValidPolicy>,
    runs: &Runs,
    drills: &Drills,
) -> Deletions {
    let mut deletions = Deletions::default();
    if let Some(pod) = &facts.prune {
        evaluate_pod(facts, pod, &mut deletions);
    }
    let Some(policy) = policy.filter(|_| !facts.policy.suspend) else {
        return deletions;
    };
    deletions.patches.extend(failed_backups(facts));
    if facts.prune.is_some() || !can_delete(facts, runs, drills) {
        return deletions;
    }
    let Some(cluster) = facts.cluster.present() else {
        return deletions;
    };
    let Some(lineage) = &cluster.lineage else {
        return deletions;
    };
    let delete = locations_to_delete(facts, policy, cluster);
    if !delete.is_empty() {
        deletions.create = Some(ScheduleCreate::PrunePod {
            lineage: lineage.clone(),
            delete,
        });
    }
    deletions
}

/// Backups are deleted only if the last one is complete, and while none runs, is about to run, or is restored.
fn can_delete(facts: &ScheduleFacts, runs: &Runs, drills: &Drills) -> bool {
    let is_last_complete = facts
        .last_run()
        .is_some_and(|backup| backup.phase == BackupPhase::Complete);
    let is_store_ready = facts.store.present().is_some_and(|store| store.is_ready);
    is_last_complete
        && is_store_ready
        && runs.running.is_none()
        && runs.create.is_none()
        && drills.create.is_none()
        && facts.drill.is_none()
}

/// Returns the places of the backups that no rule keeps, oldest first.
fn locations_to_delete(
    facts: &ScheduleFacts,
    policy: &ValidPolicy,
    cluster: &BackedUpCluster,
) -> Vec<String> {
    let Ok(zone) = cron::time_zone(&facts.policy.time_zone) else {
        return Vec::new();
    };
    let Ok(now) = Timestamp::from_second(facts.now.0) else {
        return Vec::new();
    };
    let protected = protected(facts);
    let deletable: Vec<_> = facts
        .own()
        .filter(|backup| backup.phase == BackupPhase::Complete && !backup.is_terminating)
        .filter(|backup| is_of_lineage(backup, cluster))
        .collect();
    let good = deletable.iter().filter(|backup| backup.is_good());
    let candidates: Vec<_> = good
        .filter_map(|backup| {
            let at = Timestamp::from_second(backup.finished_at?.0).ok()?;
            Some(Candidate {
                id: backup.location.clone(),
                at,
                is_proven: backup.proven.is_some(),
                is_in_use: protected.contains(backup.location.as_str()),
            })
        })
        .collect();
    let verdicts = select(&keep(&policy.keep), &candidates, now, &zone);
    let deleted = verdicts
        .into_iter()
        .rev()
        .filter(|verdict| !verdict.is_kept())
        .map(|verdict| verdict.id);
    // A damaged backup is deleted once a newer one is proven.
    let damaged = deletable
        .iter()
        .filter(|backup| !backup.is_good() && has_newer_proven(facts, backup))
        .filter(|backup| !protected.contains(backup.location.as_str()))
        .map(|backup| backup.location.clone());
    damaged.chain(deleted).take(MAX_DELETED).collect()
}

fn keep(policy: &KeepPolicy) -> Keep {
    let count = |number: i32| u32::try_from(number).unwrap_or_default();
    Keep {
        // The schema admits no smaller number.
        last: count(policy.last).max(1),
        hourly: count(policy.hourly),
        daily: count(policy.daily),
        weekly: count(policy.weekly),
        monthly: count(policy.monthly),
    }
}

/// Returns the places that no policy deletes: those that are read, and the newest complete and the newest proven backup of
/// the cluster, whichever schedule took them.
fn protected(facts: &ScheduleFacts) -> BTreeSet<&str> {
    let good = || facts.backups.iter().filter(|backup| backup.is_good());
    let newest_good = newest(facts, good());
    let newest_proven = newest(facts, good().filter(|backup| backup.proven.is_some()));
    let newest = newest_good.into_iter().chain(newest_proven);
    let reading = facts.reading.iter().map(String::as_str);
    newest
        .map(|backup| backup.location.as_str())
        .chain(reading)
        .collect()
}

/// The agent verifies the lineage of each place again before it deletes anything.
fn is_of_lineage(backup: &BackupFacts, cluster: &BackedUpCluster) -> bool {
    let BackedUpCluster {
        engine,
        namespace,
        name,
        lineage: Some(lineage),
        is_readable: _,
    } = cluster
    else {
        return false;
    };
    let path = [LAYOUT_ROOT, engine, namespace, name, lineage];
    let mut segments = backup.location.split('/');
    path.into_iter()
        .all(|segment| segments.next() == Some(segment))
        && segments.next().is_some()
}

fn has_newer_proven(facts: &ScheduleFacts, damaged: &BackupFacts) -> bool {
    facts.own().any(|backup| {
        backup.is_good() && backup.proven.is_some() && backup.finished_at > damaged.finished_at
    })
}

/// Returns the deletions of failed Backups, except of the newest few.
fn failed_backups(facts: &ScheduleFacts) -> Vec<SchedulePatch> {
    let mut failed: Vec<_> = facts
        .own()
        .filter(|backup| backup.phase == BackupPhase::Failed && backup.location.is_empty())
        .filter(|backup| !backup.is_terminating)
        .collect();
    failed.sort_by_key(|backup| std::cmp::Reverse((backup.due, &backup.name)));
    failed
        .into_iter()
        .skip(MAX_FAILED)
        .map(delete_backup)
        .collect()
}

fn delete_backup(backup: &BackupFacts) -> SchedulePatch {
    SchedulePatch::DeleteBackup {
        backup: backup.name.clone(),
        uid: backup.uid.clone(),
    }
}

/// Deletes the Backup objects whose data a pod has deleted, and then the pod. A pod that has failed, or that has found locked
/// backups, stays until the next attempt: its age is the delay.
fn evaluate_pod(facts: &ScheduleFacts, pod: &PrunePodFacts, deletions: &mut Deletions) {
    if pod.is_terminating {
        deletions.waits.push(ScheduleWait::Prune);
        return;
    }
    let retry_at = match &pod.outcome {
        None => {
            let limit = plus(pod.created, MAX_PENDING_SECONDS);
            deletions.waits.push(ScheduleWait::Prune);
            if pod.has_started {
                return;
            }
            limit
        }
        Some((Outcome::Succeeded(TaskResult::Pruned { .. }), at)) => {
            let is_gone =
                |location: &String| pod.delete.contains(location) && !pod.locked.contains(location);
            let gone: Vec<_> = facts
                .own()
                .filter(|backup| is_gone(&backup.location))
                .collect();
            let objects = gone.iter().filter(|backup| !backup.is_terminating);
            deletions
                .patches
                .extend(objects.map(|backup| delete_backup(backup)));
            if !gone.is_empty() {
                return;
            }
            if pod.locked.is_empty() {
                facts.now
            } else {
                deletions.problem = Some(locked_text(pod));
                let until = pod.locked_until.unwrap_or(UnixTime(i64::MAX));
                until.clamp(plus(*at, RETRY_SECONDS), plus(*at, LOCKED_RETRY_SECONDS))
            }
        }
        Some((Outcome::Succeeded(_), at)) => plus(*at, RETRY_SECONDS),
        Some((Outcome::Failed(failure), at)) => {
            deletions.problem = Some(format!(
                "Old backups could not be deleted: {}",
                failure.message
            ));
            plus(*at, RETRY_SECONDS)
        }
    };
    if retry_at <= facts.now {
        deletions.patches.push(SchedulePatch::DeletePod {
            pod: prune_pod_name(&facts.name),
            uid: pod.uid.clone(),
        });
    } else {
        deletions.wakes.push(retry_at);
        deletions.waits.push(ScheduleWait::PruneRetry(retry_at));
    }
}

fn locked_text(pod: &PrunePodFacts) -> String {
    let until = match pod.locked_until {
        Some(until) => format!("until {} or later", cron::text(until)),
        None => "and does not say until when".to_owned(),
    };
    format!(
        "The store retains {} backups that spec.keep does not keep, {until}. They stay complete, and their deletion is tried \
         again once a day.",
        pod.locked.len()
    )
}
