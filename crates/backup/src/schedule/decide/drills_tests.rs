//! The choice of the backup that is restored, in virtual time.

use evenkeel_api::BackupPhase;
use evenkeel_runtime::Engine;
use serde_json::json;

use super::super::Schedules;
use super::*;
use crate::schedule::cron::time_zone;
use crate::schedule::testing::{at, backup, facts};

const DAY: i64 = DAY_SECONDS;

/// Facts with daily backups whose last drill has proven one.
fn proven(drill: &str, zone: &str) -> ScheduleFacts {
    let mut facts = facts(
        json!({ "schedule": "0 1 * * *", "drill": drill, "timeZone": zone, "keep": { "last": 100 } }),
    );
    facts.recorded.last_scheduled = Some(facts.now);
    facts.recorded.last_drill = Some(record("", facts.now, DrillResult::Proven));
    facts.recorded.last_drill_success = facts.recorded.last_drill.clone();
    facts
}

fn record(backup: &str, at: UnixTime, result: DrillResult) -> DrillRecord {
    DrillRecord {
        backup: backup.to_owned(),
        at,
        result,
        seconds: 1,
        message: String::new(),
    }
}

fn drilled(facts: &ScheduleFacts) -> Option<(String, UnixTime)> {
    let plan = Schedules::decide(facts);
    plan.create.into_iter().find_map(|create| match create {
        ScheduleCreate::DrillPod { backup, due, .. } => Some((backup, due)),
        ScheduleCreate::Backup { .. } | ScheduleCreate::PrunePod { .. } => None,
    })
}

/// Takes backups and runs drills for some years. Returns, for each drill, the age of its backup in days, and whether the
/// backup had been proven before.
fn ages(drill: &str, zone: &str) -> Vec<(i64, bool)> {
    let mut facts = proven(drill, zone);
    let (days, drills) = (
        Cron::parse("0 1 * * *", time_zone(zone).unwrap()).unwrap(),
        Cron::parse(drill, time_zone(zone).unwrap()).unwrap(),
    );
    let (mut next_day, mut ages) = (facts.now, Vec::new());
    let mut due = drills.next_after(plus(facts.now, 40 * DAY)).unwrap();
    while ages.len() < 60 {
        while let Some(day) = days.next_after(next_day).filter(|day| *day < due) {
            facts.backups.push(backup(day, BackupPhase::Complete));
            next_day = day;
        }
        facts
            .backups
            .drain(..facts.backups.len().saturating_sub(40));
        facts.now = plus(due, 60);
        facts.recorded.last_scheduled = Some(facts.now);
        facts.recorded.last_drill_scheduled = Some(plus(due, -1));
        facts.recorded.last_drill.as_mut().unwrap().at = plus(due, -1);
        let (name, found_due) = drilled(&facts).unwrap();
        assert_eq!(found_due, due);
        // The decision depends on facts alone.
        facts.now = plus(facts.now, 5);
        assert_eq!(drilled(&facts).unwrap().0, name);
        let now = facts.now;
        let mut backups = facts.backups.iter_mut();
        let chosen = backups.find(|it| it.name == name).unwrap();
        ages.push((
            (due.0 - chosen.due.unwrap().0) / DAY,
            chosen.proven.is_some(),
        ));
        chosen.proven = Some(now);
        due = drills.next_after(due).unwrap();
    }
    ages
}

#[test]
fn every_fourth_drill_restores_an_older_backup() {
    for (drill, zone) in [
        ("@daily", "UTC"),
        ("@weekly", "UTC"),
        ("0 3 * * 1", "Europe/Berlin"),
        ("30 4 * * *", "Australia/Lord_Howe"),
        ("@monthly", "America/New_York"),
    ] {
        let ages = ages(drill, zone);
        let older: Vec<_> = (0..).zip(&ages).filter(|(_, (age, _))| *age > 0).collect();
        assert_eq!(older.len(), 15, "{drill} {zone}: {ages:?}");
        let is_regular = older.windows(2).all(|pair| pair[1].0 - pair[0].0 == 4);
        assert!(is_regular, "{drill} {zone}: {ages:?}");
        // There is always an older one that was never restored.
        assert!(older.iter().all(|(_, (_, was_proven))| !was_proven));
    }
}

/// The due time of a daily drill at which an older backup has its turn.
fn turn() -> UnixTime {
    let drills = Cron::parse("@daily", time_zone("UTC").unwrap()).unwrap();
    let mut due = drills.next_after(at("2026-12-01T12:00:00Z")).unwrap();
    while number_of(&drills, due) % DRILLS_PER_OLDER_BACKUP != 0 {
        due = drills.next_after(due).unwrap();
    }
    due
}

/// Facts at that time, with five backups, the newest first.
fn at_turn() -> ScheduleFacts {
    let mut facts = proven("@daily", "UTC");
    facts.now = plus(turn(), 60);
    facts.recorded.last_scheduled = Some(facts.now);
    facts.recorded.last_drill_scheduled = Some(plus(turn(), -DAY));
    facts.recorded.last_drill.as_mut().unwrap().at = plus(turn(), -DAY);
    facts.backups = (0..5)
        .map(|days| backup(plus(turn(), -3600 - days * DAY), BackupPhase::Complete))
        .collect();
    facts
}

fn chosen(facts: &ScheduleFacts) -> Option<usize> {
    let (name, _) = drilled(facts)?;
    facts.backups.iter().position(|backup| backup.name == name)
}

#[test]
fn backups_that_were_never_restored_come_first_then_the_one_restored_longest_ago() {
    let mut facts = at_turn();
    assert_eq!(chosen(&facts), Some(4), "the oldest");
    facts.backups[4].proven = Some(plus(turn(), -2 * DAY));
    assert_eq!(chosen(&facts), Some(3));
    for (index, days) in [(1, 1), (2, 3), (3, 1)] {
        facts.backups[index].proven = Some(plus(turn(), -days * DAY));
    }
    assert_eq!(chosen(&facts), Some(2), "restored longest ago");
    facts.backups[2].damaged = Some(turn());
    assert_eq!(chosen(&facts), Some(4));
    facts.backups[4].is_own = false;
    assert_ne!(chosen(&facts), Some(4), "of another schedule");
    facts.backups.truncate(1);
    assert_eq!(chosen(&facts), Some(0), "no older one exists");
}

#[test]
fn the_newest_backup_is_restored_unless_the_last_drill_has_proven_one() {
    for result in [DrillResult::NotRun, DrillResult::Damaged] {
        let mut facts = at_turn();
        facts.recorded.last_drill.as_mut().unwrap().result = result;
        assert_eq!(chosen(&facts), Some(0), "{result}");
    }
    let mut facts = at_turn();
    facts.recorded.last_drill = None;
    assert_eq!(chosen(&facts), Some(0));
}

#[test]
fn the_newest_backup_is_restored_at_once_after_an_older_one_was_damaged() {
    let mut facts = at_turn();
    let ended = plus(turn(), 300);
    facts.now = plus(turn(), 400);
    facts.recorded.last_scheduled = Some(facts.now);
    facts.recorded.last_drill_scheduled = Some(turn());
    facts.backups[4].damaged = Some(ended);
    let name = facts.backups[4].name.clone();
    facts.recorded.last_drill = Some(record(&name, ended, DrillResult::Damaged));
    assert_eq!(
        drilled(&facts),
        Some((facts.backups[0].name.clone(), ended))
    );
    // Not again and again: its result is newer.
    facts.recorded.last_drill_scheduled = Some(ended);
    let name = facts.backups[0].name.clone();
    facts.recorded.last_drill = Some(record(&name, facts.now, DrillResult::Proven));
    assert_eq!(drilled(&facts), None);
}
