use std::collections::BTreeSet;

use evenkeel_api::{BackupPhase, DrillResult};
use evenkeel_archive::tasks::{FailureReason, Outcome, TaskFailure, TaskResult};
use evenkeel_runtime::Observed;
use serde_json::json;

use super::super::facts::{BackupFacts, DrillPodFacts, DrillPodState, DrillRecord, PrunePodFacts};
use super::super::plan::RunReason;
use super::super::testing::{at, backup, facts, location};
use super::*;

const HOUR: i64 = 3_600;

fn decide(facts: &ScheduleFacts) -> Plan<Schedules> {
    Schedules::decide(facts)
}

/// Returns the reason and the name of the Backup that the plan creates.
fn created(facts: &ScheduleFacts) -> Option<(RunReason, u32, String)> {
    decide(facts)
        .create
        .into_iter()
        .find_map(|create| match create {
            ScheduleCreate::Backup { name, run, why } => Some((why, run, name)),
            ScheduleCreate::PrunePod { .. } | ScheduleCreate::DrillPod { .. } => None,
        })
}

fn deleted(facts: &ScheduleFacts) -> Vec<String> {
    decide(facts)
        .create
        .into_iter()
        .flat_map(|create| match create {
            ScheduleCreate::PrunePod { delete, .. } => delete,
            ScheduleCreate::Backup { .. } | ScheduleCreate::DrillPod { .. } => Vec::new(),
        })
        .collect()
}

fn drilled(facts: &ScheduleFacts) -> Option<(String, UnixTime)> {
    decide(facts)
        .create
        .into_iter()
        .find_map(|create| match create {
            ScheduleCreate::DrillPod { backup, due, .. } => Some((backup, due)),
            ScheduleCreate::Backup { .. } | ScheduleCreate::PrunePod { .. } => None,
        })
}

/// Facts of a schedule whose last backup, of noon, is complete.
fn settled(policy: serde_json::Value) -> ScheduleFacts {
    let mut facts = facts(policy);
    facts.created = at("2026-11-01T00:00:00Z");
    facts.now = at("2026-11-18T12:10:00Z");
    facts.recorded.last_scheduled = Some(at("2026-11-18T12:00:00Z"));
    facts.backups = vec![backup(at("2026-11-18T12:00:00Z"), BackupPhase::Complete)];
    facts
}

#[test]
fn a_new_schedule_takes_a_backup_at_once() {
    let mut facts = facts(json!({ "schedule": "@daily" }));
    let name = "orders-20261118t120005z".to_owned();
    assert_eq!(created(&facts), Some((RunReason::First, 1, name.clone())));
    facts.now = at("2026-11-18T12:00:40Z");
    assert_eq!(
        created(&facts).unwrap().2,
        name,
        "a crash cannot create it twice"
    );
    facts.backups = vec![backup(facts.created, BackupPhase::Running)];
    assert_eq!(created(&facts), None);
}

#[test]
fn the_first_backup_waits_for_cluster_and_store() {
    let mut facts = facts(json!({}));
    facts.store = Observed::Absent;
    assert_eq!(decide(&facts).waits, [ScheduleWait::Store]);
    facts.cluster = Observed::Absent;
    let plan = decide(&facts);
    assert!(plan.is_noop());
    assert_eq!(plan.waits, [ScheduleWait::Cluster]);
    assert_eq!(
        plan.requeue,
        Requeue::At(plus(facts.now, CLUSTER_RETRY_SECONDS))
    );
}

#[test]
fn a_converged_schedule_waits_for_the_next_due_time() {
    let facts = settled(json!({}));
    let plan = decide(&facts);
    assert!(plan.is_noop() && plan.waits.is_empty(), "{plan:?}");
    assert_eq!(plan.requeue, Requeue::At(at("2026-11-18T13:00:00Z")));
}

#[test]
fn a_due_backup_is_named_after_its_due_time() {
    let mut facts = settled(json!({}));
    facts.now = at("2026-11-18T13:00:07Z");
    let (why, run, name) = created(&facts).unwrap();
    assert_eq!(
        (why, run, &*name),
        (RunReason::Due, 1, "orders-20261118t130000z")
    );
}

#[test]
fn missed_backups_are_taken_once_or_skipped() {
    let mut facts = settled(json!({}));
    facts.now = at("2026-11-19T09:20:00Z");
    assert_eq!(created(&facts).unwrap().2, "orders-20261119t090000z");
    facts
        .backups
        .push(backup(at("2026-11-19T09:00:00Z"), BackupPhase::Complete));
    assert_eq!(created(&facts), None);

    let mut facts = settled(json!({ "ifMissed": "Skip" }));
    facts.now = at("2026-11-19T09:04:00Z");
    assert!(created(&facts).is_some(), "four minutes late is not missed");
    facts.now = at("2026-11-19T09:20:00Z");
    let outlook = Outlook::new(&facts);
    assert!(outlook.plan().is_noop());
    assert_eq!(outlook.runs.skipped, Some(at("2026-11-19T09:00:00Z")));
    assert_eq!(
        outlook.runs.last_scheduled,
        Some(at("2026-11-19T09:00:00Z"))
    );
    assert_eq!(outlook.runs.next, Some(at("2026-11-19T10:00:00Z")));
}

#[test]
fn a_backup_that_is_due_while_one_runs_is_skipped() {
    let mut facts = settled(json!({}));
    facts.backups[0] = backup(at("2026-11-18T12:00:00Z"), BackupPhase::Running);
    facts.now = at("2026-11-18T13:00:01Z");
    let outlook = Outlook::new(&facts);
    assert!(outlook.plan().is_noop());
    assert_eq!(outlook.runs.skipped, Some(at("2026-11-18T13:00:00Z")));
    facts.recorded.last_scheduled = outlook.runs.last_scheduled;
    assert_eq!(Outlook::new(&facts).runs.skipped, None, "said once");
    facts.backups[0] = backup(at("2026-11-18T12:00:00Z"), BackupPhase::Complete);
    assert_eq!(created(&facts), None);
}

#[test]
fn a_failed_backup_is_retried_with_growing_delays() {
    let mut facts = settled(json!({ "schedule": "@daily" }));
    let mut last = backup(at("2026-11-18T12:00:00Z"), BackupPhase::Failed);
    for (run, delay) in [(1, 60), (2, 300), (3, 900)] {
        last.run = run;
        facts.backups = vec![last.clone()];
        let retry = plus(last.finished_at.unwrap(), delay);
        facts.now = plus(retry, -1);
        let plan = decide(&facts);
        assert!(plan.is_noop(), "{plan:?}");
        assert_eq!(plan.waits, [ScheduleWait::Retry(retry)]);
        assert_eq!(plan.requeue, Requeue::At(retry));
        facts.now = plus(retry, 20);
        let (why, next, name) = created(&facts).unwrap();
        assert_eq!((why, next), (RunReason::Retry, run + 1));
        assert_eq!(name, facts.backup_name(retry));
        last = backup(retry, BackupPhase::Failed);
    }
    last.run = 4;
    facts.backups = vec![last];
    facts.now = at("2026-11-18T23:00:00Z");
    assert!(decide(&facts).is_noop(), "the next due time follows");
    facts.now = at("2026-11-19T00:00:00Z");
    assert_eq!(created(&facts).unwrap().0, RunReason::Due);
}

#[test]
fn a_suspended_schedule_does_nothing() {
    let mut facts = settled(json!({ "suspend": true, "drill": "@daily", "keep": { "last": 1 } }));
    facts
        .backups
        .push(backup(at("2026-11-17T12:00:00Z"), BackupPhase::Complete));
    facts.now = at("2026-11-20T12:00:00Z");
    let plan = decide(&facts);
    assert!(plan.is_noop());
    assert_eq!(plan.waits, [ScheduleWait::Suspended]);
    facts.policy.suspend = false;
    assert_eq!(created(&facts).unwrap().2, "orders-20261120t120000z");
}

#[test]
fn an_invalid_schedule_does_nothing() {
    let facts = facts(json!({ "timeZone": "Mars/Olympus" }));
    let plan = decide(&facts);
    assert!(plan.is_noop());
    assert_eq!(plan.waits, [ScheduleWait::InvalidSchedule]);
}

#[test]
fn a_clock_that_jumps_back_repeats_no_backup_and_stops_none() {
    let mut facts = settled(json!({}));
    // The clock was a day ahead while a backup was taken.
    let ahead = at("2026-11-19T12:00:00Z");
    facts.backups.push(backup(ahead, BackupPhase::Complete));
    facts.recorded.last_scheduled = Some(ahead);
    facts.now = at("2026-11-18T12:20:00Z");
    let outlook = Outlook::new(&facts);
    assert!(outlook.plan().is_noop());
    facts.recorded.last_scheduled = outlook.runs.last_scheduled;
    facts.now = at("2026-11-18T13:00:02Z");
    assert_eq!(created(&facts).unwrap().2, "orders-20261118t130000z");
    // The due time for which a backup exists is not repeated.
    facts
        .backups
        .push(backup(at("2026-11-19T11:00:00Z"), BackupPhase::Complete));
    facts.now = plus(ahead, 10);
    assert_eq!(created(&facts), None);
}

#[test]
fn a_name_that_a_user_has_taken_counts_as_taken() {
    let mut facts = settled(json!({}));
    facts.now = at("2026-11-18T13:00:07Z");
    let mut taken = backup(at("2026-11-18T13:00:00Z"), BackupPhase::Complete);
    taken.is_own = false;
    facts.backups.push(taken);
    assert_eq!(created(&facts), None);
}

/// Facts with one complete backup per hour, the newest at noon.
fn with_backups(count: i64, policy: serde_json::Value) -> ScheduleFacts {
    let mut facts = settled(policy);
    let newest = at("2026-11-18T12:00:00Z");
    facts.backups = (0..count)
        .map(|index| backup(plus(newest, -index * HOUR), BackupPhase::Complete))
        .collect();
    facts
}

fn places(facts: &ScheduleFacts, indexes: &[usize]) -> Vec<String> {
    let names = indexes.iter().map(|index| &facts.backups[*index].name);
    names.map(|name| location(name)).collect()
}

#[test]
fn backups_that_no_rule_keeps_are_deleted_oldest_first() {
    let facts = with_backups(5, json!({ "keep": { "last": 2 } }));
    assert_eq!(deleted(&facts), places(&facts, &[4, 3, 2]));
    let facts = with_backups(5, json!({ "keep": { "last": 5 } }));
    assert!(decide(&facts).is_noop());
}

#[test]
fn the_newest_proven_backup_and_those_in_use_are_kept() {
    let mut facts = with_backups(6, json!({ "keep": { "last": 1 } }));
    facts.backups[3].proven = Some(facts.now);
    facts.backups[4].proven = Some(facts.now);
    facts.reading = BTreeSet::from([facts.backups[5].location.clone()]);
    assert_eq!(deleted(&facts), places(&facts, &[4, 2, 1]));
}

#[test]
fn only_backups_of_this_schedule_and_lineage_are_deleted() {
    let mut facts = with_backups(4, json!({ "keep": { "last": 1 } }));
    facts.backups[1].is_own = false;
    facts.backups[2].location = facts.backups[2].location.replace("0000abcd", "0000ffff");
    assert_eq!(deleted(&facts), places(&facts, &[3]));
    let Observed::Present(cluster) = &mut facts.cluster else {
        unreachable!()
    };
    cluster.lineage = None;
    assert!(deleted(&facts).is_empty());
}

#[test]
fn backups_are_deleted_only_after_a_complete_one() {
    let policy = || json!({ "keep": { "last": 1 }, "schedule": "@daily" });
    for phase in [
        BackupPhase::Failed,
        BackupPhase::Running,
        BackupPhase::Pending,
    ] {
        let mut facts = with_backups(4, policy());
        facts.backups[0] = backup(at("2026-11-18T12:00:00Z"), phase);
        assert!(deleted(&facts).is_empty(), "{phase}");
    }
    let mut facts = with_backups(4, policy());
    facts.store = Observed::Absent;
    assert!(deleted(&facts).is_empty());
}

#[test]
fn a_backup_from_the_future_deletes_no_other() {
    let mut facts = with_backups(2, json!({ "keep": { "last": 2 } }));
    facts
        .backups
        .push(backup(plus(facts.now, 86_400), BackupPhase::Complete));
    assert!(deleted(&facts).is_empty());
}

fn pruned(locked: &[u32]) -> Outcome {
    Outcome::Succeeded(TaskResult::Pruned {
        deleted: 1,
        locked: locked.to_vec(),
        locked_until: None,
    })
}

fn prune_pod(facts: &ScheduleFacts, outcome: Option<Outcome>) -> PrunePodFacts {
    PrunePodFacts {
        uid: "prune".to_owned(),
        created: plus(facts.now, -60),
        is_terminating: false,
        has_started: true,
        delete: [facts.backups[1].location.clone()].into(),
        locked: BTreeSet::new(),
        locked_until: None,
        outcome: outcome.map(|outcome| (outcome, plus(facts.now, -30))),
    }
}

#[test]
fn objects_are_deleted_after_their_data_and_before_the_pod() {
    let mut facts = with_backups(3, json!({ "keep": { "last": 1 } }));
    facts.prune = Some(prune_pod(&facts, None));
    assert!(decide(&facts).is_noop(), "one at a time");
    facts.prune = Some(prune_pod(&facts, Some(pruned(&[]))));
    let gone = facts.backups[1].clone();
    assert_eq!(
        decide(&facts).patch,
        [SchedulePatch::DeleteBackup {
            backup: gone.name,
            uid: gone.uid
        }]
    );
    facts.backups.remove(1);
    assert!(matches!(
        &decide(&facts).patch[..],
        [SchedulePatch::DeletePod { .. }]
    ));
}

#[test]
fn a_deletion_that_failed_is_repeated_after_an_hour() {
    let mut facts = with_backups(3, json!({ "keep": { "last": 1 }, "schedule": "@daily" }));
    let failed = Outcome::Failed(TaskFailure {
        reason: FailureReason::AccessDenied,
        message: "No permission.".to_owned(),
    });
    facts.prune = Some(prune_pod(&facts, Some(failed)));
    assert!(decide(&facts).is_noop());
    facts.now = plus(facts.now, HOUR);
    assert!(matches!(
        &decide(&facts).patch[..],
        [SchedulePatch::DeletePod { .. }]
    ));
}

#[test]
fn a_locked_backup_keeps_only_its_own_object() {
    let mut facts = with_backups(3, json!({ "keep": { "last": 1 }, "schedule": "@daily" }));
    let mut pod = prune_pod(&facts, Some(pruned(&[1])));
    pod.delete = [1, 2]
        .map(|index| facts.backups[index].location.clone())
        .into();
    pod.locked = [facts.backups[2].location.clone()].into();
    facts.prune = Some(pod);
    let gone = facts.backups.remove(1);
    let delete = SchedulePatch::DeleteBackup {
        backup: gone.name.clone(),
        uid: gone.uid.clone(),
    };
    facts.backups.push(gone);
    assert_eq!(decide(&facts).patch, [delete]);
    facts.backups.pop();

    // The locked one stays, is reported, and is tried again after a day.
    assert!(decide(&facts).is_noop());
    let problem = Outlook::new(&facts).deletions.problem.unwrap();
    assert!(problem.contains("retains 1 backups"), "{problem}");
    let ended = facts.prune.as_ref().unwrap().outcome.as_ref().unwrap().1;
    let retried_at = |facts: &ScheduleFacts| {
        let mut facts = facts.clone();
        (1..=48).find(|hours| {
            facts.now = plus(ended, hours * HOUR);
            decide(&facts)
                .patch
                .iter()
                .any(|patch| matches!(patch, SchedulePatch::DeletePod { .. }))
        })
    };
    assert_eq!(retried_at(&facts), Some(24));
    // Earlier if the store says so, but not at once.
    for (until, hours) in [(5 * HOUR, 5), (30, 1), (400 * HOUR, 24)] {
        facts.prune.as_mut().unwrap().locked_until = Some(plus(ended, until));
        assert_eq!(retried_at(&facts), Some(hours), "{until}");
    }
    let problem = Outlook::new(&facts).deletions.problem.unwrap();
    assert!(problem.contains("until 2026-12-0"), "{problem}");
}

#[test]
fn only_the_newest_failed_backups_are_kept() {
    let mut facts = settled(json!({ "schedule": "@daily" }));
    let noon = at("2026-11-18T12:00:00Z");
    let failed = (1..=5).map(|index| backup(plus(noon, -index * HOUR), BackupPhase::Failed));
    facts.backups.extend(failed);
    let names: Vec<_> = decide(&facts)
        .patch
        .into_iter()
        .map(|patch| match patch {
            SchedulePatch::DeleteBackup { backup, .. } => backup,
            SchedulePatch::RecordDrill { .. } | SchedulePatch::DeletePod { .. } => String::new(),
        })
        .collect();
    let oldest = [4, 5].map(|index| facts.backups[index].name.clone());
    assert_eq!(names, oldest);
}

/// Facts of a schedule with drills at midnight, the last of which has proven the backup of the day before.
fn with_drills() -> ScheduleFacts {
    let mut facts = settled(json!({ "drill": "@daily" }));
    let last = DrillRecord {
        backup: "orders-20261118t000000z".to_owned(),
        at: at("2026-11-18T00:05:00Z"),
        result: DrillResult::Proven,
        seconds: 7,
        message: String::new(),
    };
    facts.recorded.last_drill_scheduled = Some(at("2026-11-18T00:00:00Z"));
    facts.recorded.last_drill = Some(last.clone());
    facts.recorded.last_drill_success = Some(last);
    facts
}

fn drill_pod(backup: &BackupFacts, now: UnixTime, state: DrillPodState) -> DrillPodFacts {
    DrillPodFacts {
        uid: "drill".to_owned(),
        created: plus(now, -60),
        is_terminating: false,
        backup: backup.name.clone(),
        backup_uid: backup.uid.clone(),
        due: plus(now, -70),
        version: "3.6.16".to_owned(),
        state,
    }
}

fn ended(facts: &ScheduleFacts, result: DrillResult) -> DrillPodState {
    DrillPodState::Finished(DrillRecord {
        backup: facts.backups[0].name.clone(),
        at: plus(facts.now, -5),
        result,
        seconds: 9,
        message: "Reason.".to_owned(),
    })
}

#[test]
fn the_first_complete_backup_is_drilled_at_once_and_then_on_schedule() {
    let mut facts = settled(json!({ "drill": "@weekly" }));
    let newest = facts.backups[0].clone();
    assert_eq!(
        drilled(&facts),
        Some((newest.name, newest.finished_at.unwrap()))
    );
    facts.backups.clear();
    assert_eq!(decide(&facts).waits, [ScheduleWait::NothingToDrill]);

    let mut facts = with_drills();
    assert!(decide(&facts).is_noop());
    facts.now = at("2026-11-20T00:20:00Z");
    facts
        .backups
        .push(backup(at("2026-11-20T00:00:00Z"), BackupPhase::Complete));
    let due = at("2026-11-20T00:00:00Z");
    assert_eq!(
        drilled(&facts),
        Some(("orders-20261120t000000z".to_owned(), due))
    );
}

#[test]
fn a_result_is_recorded_before_the_pod_is_deleted() {
    let mut facts = with_drills();
    let state = ended(&facts, DrillResult::Proven);
    facts.drill = Some(drill_pod(&facts.backups[0], facts.now, state));
    let plan = decide(&facts);
    assert!(matches!(
        &plan.patch[..],
        [SchedulePatch::RecordDrill {
            result: DrillResult::Proven,
            seconds: 9,
            ..
        }]
    ));
    facts.backups[0].proven = Some(plus(facts.now, -5));
    assert!(decide(&facts).is_noop(), "the status is written now");
    let drills = Outlook::new(&facts).drills;
    facts.recorded.last_drill = drills.last;
    facts.recorded.last_drill_success = drills.last_success;
    facts.recorded.last_drill_scheduled = drills.last_scheduled;
    assert!(matches!(
        &decide(&facts).patch[..],
        [SchedulePatch::DeletePod { .. }]
    ));
    facts.drill = None;
    assert!(decide(&facts).is_noop());
}

#[test]
fn a_damaged_backup_is_followed_by_a_new_one_and_its_drill() {
    let mut facts = with_drills();
    let state = ended(&facts, DrillResult::Damaged);
    facts.drill = Some(drill_pod(&facts.backups[0], facts.now, state));
    facts.backups[0].damaged = Some(plus(facts.now, -5));
    let drills = Outlook::new(&facts).drills;
    let (why, _, name) = created(&facts).unwrap();
    assert_eq!(
        (why, name),
        (RunReason::Damaged, facts.backup_name(plus(facts.now, -5)))
    );
    facts.recorded.last_drill = drills.last;
    facts.recorded.last_drill_scheduled = drills.last_scheduled;
    facts.drill = None;
    let mut new = backup(plus(facts.now, -5), BackupPhase::Complete);
    new.finished_at = Some(plus(facts.now, 20));
    facts.backups.push(new);
    facts.now = plus(facts.now, 30);
    assert_eq!(created(&facts), None);
    assert_eq!(drilled(&facts).unwrap().0, facts.backups[1].name);
}

#[test]
fn a_damaged_backup_is_never_the_last_good_one() {
    let mut facts = with_backups(3, json!({ "keep": { "last": 1 }, "schedule": "@daily" }));
    facts.backups[0].damaged = Some(plus(facts.now, -HOUR * 2));
    assert_eq!(facts.newest_good(), Some(&facts.backups[1]));
    assert_eq!(deleted(&facts), places(&facts, &[2]));
    // It is deleted once a newer one is proven.
    let mut newer = backup(at("2026-11-18T12:05:00Z"), BackupPhase::Complete);
    newer.proven = Some(facts.now);
    facts.backups.insert(0, newer);
    assert_eq!(deleted(&facts), places(&facts, &[1, 3, 2]));
}

#[test]
fn a_drill_that_cannot_run_is_retried_at_growing_intervals() {
    let mut facts = with_drills();
    facts.policy.schedule = "@monthly".to_owned();
    // After the last backup.
    facts.policy.drill = Some("0 13 * * *".to_owned());
    let due = at("2026-11-18T13:00:00Z");
    facts.recorded.last_drill_scheduled = Some(due);
    let mut last = facts.recorded.last_drill.clone().unwrap();
    last.result = DrillResult::NotRun;
    for (ended, delay) in [(60, 300), (600, 600), (7_200, 7_200), (36_000, 21_600)] {
        last.at = plus(due, ended);
        facts.recorded.last_drill = Some(last.clone());
        facts.now = plus(last.at, delay - 1);
        assert_eq!(drilled(&facts), None, "{ended}");
        assert!(
            decide(&facts)
                .waits
                .contains(&ScheduleWait::DrillRetry(plus(last.at, delay)))
        );
        facts.now = plus(last.at, delay);
        assert_eq!(drilled(&facts).unwrap().1, due, "{ended}");
    }
}

#[test]
fn a_drill_whose_pod_was_deleted_runs_again() {
    let mut facts = with_drills();
    facts.recorded.last_drill_scheduled = Some(at("2026-11-18T12:05:00Z"));
    assert_eq!(drilled(&facts).unwrap().1, at("2026-11-18T12:05:00Z"));
}

#[test]
fn a_drill_that_does_not_start_ends_after_15_minutes() {
    let mut facts = with_drills();
    let mut pod = drill_pod(
        &facts.backups[0],
        facts.now,
        DrillPodState::Pending(String::new()),
    );
    facts.drill = Some(pod.clone());
    assert_eq!(decide(&facts).waits, [ScheduleWait::Drill]);
    pod.created = plus(facts.now, -MAX_PENDING_SECONDS);
    facts.drill = Some(pod);
    let outlook = Outlook::new(&facts);
    let last = outlook.drills.last.unwrap();
    assert_eq!((last.result, last.at), (DrillResult::NotRun, facts.now));
    facts.recorded.last_drill = Some(last);
    assert!(matches!(
        &decide(&facts).patch[..],
        [SchedulePatch::DeletePod { .. }]
    ));
}

#[test]
fn no_backup_is_deleted_while_one_is_drilled() {
    let mut facts = with_backups(5, json!({ "keep": { "last": 1 }, "drill": "@monthly" }));
    facts.drill = Some(drill_pod(
        &facts.backups[0],
        facts.now,
        DrillPodState::Running,
    ));
    assert!(deleted(&facts).is_empty());
    facts.drill = None;
    assert!(
        drilled(&facts).is_some() && deleted(&facts).is_empty(),
        "the drill comes first"
    );
}
