use evenkeel_api::ClusterKind;
use serde_json::json;

use super::super::facts::{DrillPodFacts, DrillPodState, ScheduleFacts, StoreFacts};
use super::super::testing::{at, backup, facts};
use super::*;

fn cluster() -> ClusterReference {
    ClusterReference {
        kind: ClusterKind::EtcdCluster,
        name: "orders".to_owned(),
    }
}

fn status_after(old: &BackupScheduleStatus, facts: &ScheduleFacts) -> BackupScheduleStatus {
    let of = StatusOf {
        old,
        generation: Some(3),
        cluster: &cluster(),
    };
    status(of, &Outlook::new(facts))
}

fn status_of(facts: &ScheduleFacts) -> BackupScheduleStatus {
    status_after(&BackupScheduleStatus::default(), facts)
}

fn reason(status: &BackupScheduleStatus, type_: &str) -> String {
    let condition = find(&status.conditions, type_).unwrap();
    format!("{} {}", condition.status, condition.reason)
}

fn settled() -> ScheduleFacts {
    let mut facts = facts(json!({ "drill": "@daily" }));
    facts.now = at("2026-11-18T12:10:00Z");
    facts.recorded.last_scheduled = Some(at("2026-11-18T12:00:05Z"));
    facts.backups = vec![backup(at("2026-11-18T12:00:05Z"), BackupPhase::Complete)];
    facts
}

fn record(result: DrillResult) -> DrillRecord {
    DrillRecord {
        backup: "orders-20261118t120005z".to_owned(),
        at: at("2026-11-18T12:02:00Z"),
        result,
        seconds: 4,
        message: "The key count differs.".to_owned(),
    }
}

fn drilled(result: DrillResult) -> ScheduleFacts {
    let mut facts = settled();
    facts.recorded.last_drill_scheduled = Some(at("2026-11-18T12:00:35Z"));
    facts.recorded.last_drill = Some(record(result));
    if result == DrillResult::Proven {
        facts.recorded.last_drill_success = Some(record(result));
    }
    facts
}

#[test]
fn ready_names_the_first_obstacle() {
    let mut facts = settled();
    assert_eq!(reason(&status_of(&facts), READY), "True Scheduled");
    facts
        .backups
        .push(backup(at("2026-11-18T12:09:00Z"), BackupPhase::Failed));
    let failed = status_of(&facts);
    assert_eq!(reason(&failed, READY), "False BackupFailed");
    let message = &find(&failed.conditions, READY).unwrap().message;
    assert!(message.contains("The store failed."), "{message}");
    assert!(message.contains("due at 2026-11-18T12:10:30Z"), "{message}");
    facts.store = Observed::Present(StoreFacts {
        is_ready: false,
        message: "The bucket does not exist.".to_owned(),
    });
    assert_eq!(reason(&status_of(&facts), READY), "False StoreNotReady");
    facts.store = Observed::Absent;
    assert_eq!(reason(&status_of(&facts), READY), "False StoreNotFound");
    facts.cluster = Observed::Absent;
    assert_eq!(reason(&status_of(&facts), READY), "False ClusterNotFound");
    facts.policy.suspend = true;
    assert_eq!(reason(&status_of(&facts), READY), "False Suspended");
    facts.policy.schedule = "0 0 30 2 *".to_owned();
    assert_eq!(reason(&status_of(&facts), READY), "False InvalidSchedule");
}

#[test]
fn a_backup_that_does_not_end_is_overdue() {
    let mut facts = settled();
    facts.recorded.last_scheduled = Some(at("2026-11-18T13:00:00Z"));
    facts
        .backups
        .push(backup(at("2026-11-18T13:00:00Z"), BackupPhase::Running));
    facts.now = at("2026-11-18T13:39:59Z");
    assert_eq!(reason(&status_of(&facts), READY), "True Scheduled");
    facts.now = at("2026-11-18T13:40:00Z");
    assert_eq!(reason(&status_of(&facts), READY), "False BackupOverdue");
    // A schedule that was never able to take one is overdue, too.
    let mut facts = settled();
    facts.backups.clear();
    facts.now = at("2026-11-18T12:41:00Z");
    assert_eq!(reason(&status_of(&facts), READY), "False BackupOverdue");
}

#[test]
fn recoverable_is_true_only_after_a_drill() {
    let of = |facts: &ScheduleFacts| reason(&status_of(facts), RECOVERABLE);
    let mut facts = settled();
    assert_eq!(of(&facts), "Unknown NeverDrilled");
    facts.backups.clear();
    assert_eq!(of(&facts), "False NeverBackedUp");
    assert_eq!(of(&drilled(DrillResult::Proven)), "True Proven");
    assert_eq!(of(&drilled(DrillResult::Damaged)), "False DrillFailed");
    assert_eq!(of(&drilled(DrillResult::NotRun)), "Unknown NeverDrilled");
    let mut facts = drilled(DrillResult::NotRun);
    facts.recorded.last_drill_success = Some(record(DrillResult::Proven));
    assert_eq!(of(&facts), "Unknown DrillOverdue");
    let mut facts = drilled(DrillResult::Proven);
    facts.now = at("2026-11-19T01:59:59Z");
    assert_eq!(of(&facts), "True Proven");
    facts.now = at("2026-11-19T02:00:00Z");
    assert_eq!(of(&facts), "Unknown DrillOverdue");
    facts.policy.drill = None;
    assert_eq!(of(&facts), "Unknown DrillOverdue");
}

#[test]
fn the_status_lists_times_and_results() {
    let mut facts = drilled(DrillResult::Proven);
    facts
        .backups
        .push(backup(at("2026-11-18T12:09:00Z"), BackupPhase::Failed));
    let status = status_of(&facts);
    assert_eq!(status.next_backup, Some(time(at("2026-11-18T12:10:30Z"))));
    assert_eq!(status.last_backup.unwrap().message, "The store failed.");
    let success = status.last_success.unwrap();
    assert_eq!(
        (success.name.as_str(), success.complete),
        ("orders-20261118t120005z", true)
    );
    assert_eq!((status.backups, status.observed_generation), (1, Some(3)));
    let drill = status.drill.unwrap();
    assert_eq!(drill.next, Some(time(at("2026-11-19T00:00:00Z"))));
    assert_eq!(drill.last_success.unwrap().seconds, 4);
}

#[test]
fn the_status_does_not_change_by_itself() {
    for result in [
        DrillResult::Proven,
        DrillResult::Damaged,
        DrillResult::NotRun,
    ] {
        let mut facts = drilled(result);
        let first = status_of(&facts);
        facts.now = at("2026-11-18T12:11:40Z");
        assert_eq!(status_after(&first, &facts), first, "{result}");
        assert!(events(&first, &first, None).is_empty());
    }
}

fn reasons(old: &BackupScheduleStatus, new: &BackupScheduleStatus) -> Vec<String> {
    events(old, new, None)
        .into_iter()
        .map(|event| event.reason)
        .collect()
}

#[test]
fn changes_are_reported_as_events() {
    let good = status_of(&drilled(DrillResult::Proven));
    let mut facts = drilled(DrillResult::Proven);
    facts
        .backups
        .push(backup(at("2026-11-18T12:09:00Z"), BackupPhase::Failed));
    let failed = status_of(&facts);
    assert_eq!(reasons(&good, &failed), ["BackupFailed"]);
    facts
        .backups
        .push(backup(at("2026-11-18T12:09:30Z"), BackupPhase::Failed));
    let failed_again = status_of(&facts);
    assert_eq!(reasons(&failed, &failed_again), ["BackupFailed"]);
    assert_eq!(reasons(&failed_again, &good), ["BackupRecovered"]);
    let damaged = status_of(&drilled(DrillResult::Damaged));
    assert_eq!(reasons(&good, &damaged), ["DrillFailed"]);
    assert_eq!(reasons(&damaged, &good), ["DrillRecovered"]);
    assert_eq!(
        reasons(&good, &status_of(&drilled(DrillResult::NotRun))),
        ["DrillNotRun"]
    );
    let skipped = events(&good, &good, Some(at("2026-11-18T12:00:00Z")));
    assert_eq!(skipped[0].reason, "BackupSkipped");
}

#[test]
fn the_result_of_a_pod_is_in_the_status_before_the_pod_is_deleted() {
    let mut facts = settled();
    let newest = facts.backups[0].clone();
    facts.backups[0].proven = Some(at("2026-11-18T12:02:00Z"));
    facts.drill = Some(DrillPodFacts {
        uid: "drill".to_owned(),
        created: at("2026-11-18T12:01:00Z"),
        is_terminating: false,
        backup: newest.name,
        backup_uid: newest.uid,
        due: at("2026-11-18T12:00:35Z"),
        version: "3.6.16".to_owned(),
        state: DrillPodState::Finished(record(DrillResult::Proven)),
    });
    let drill = status_of(&facts).drill.unwrap();
    assert_eq!(drill.last_scheduled, Some(time(at("2026-11-18T12:00:35Z"))));
    assert_eq!(drill.last.as_ref(), drill.last_success.as_ref());
    assert_eq!(drill.last.unwrap().result, DrillResult::Proven);
}
