use std::collections::BTreeMap;

use jiff::ToSpan;
use jiff::tz::TimeZoneDatabase;
use proptest::prelude::*;

use super::*;

fn zone(name: &str) -> TimeZone {
    TimeZoneDatabase::bundled().get(name).unwrap()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn backup(time: Timestamp) -> Candidate {
    Candidate {
        id: time.to_string(),
        at: time,
        is_proven: false,
        is_in_use: false,
    }
}

fn every(minutes: i64, count: i64, last: Timestamp) -> Vec<Candidate> {
    (0..count)
        .map(|n| backup(last - (n * minutes).minutes()))
        .collect()
}

fn kept(verdicts: &[Verdict]) -> Vec<&str> {
    verdicts
        .iter()
        .filter(|verdict| verdict.is_kept())
        .map(|verdict| verdict.id.as_str())
        .collect()
}

fn keep(last: u32, hourly: u32, daily: u32, weekly: u32, monthly: u32) -> Keep {
    Keep {
        last,
        hourly,
        daily,
        weekly,
        monthly,
    }
}

#[test]
fn rules_are_united() {
    let now = at("2026-11-18T12:30:00Z");
    let backups = every(60, 24 * 100, at("2026-11-18T12:00:00Z"));
    let verdicts = select(&keep(2, 3, 2, 2, 2), &backups, now, &TimeZone::UTC);
    assert_eq!(
        kept(&verdicts),
        [
            "2026-11-18T12:00:00Z",
            "2026-11-18T11:00:00Z",
            "2026-11-18T10:00:00Z",
            "2026-11-17T23:00:00Z",
            "2026-11-15T23:00:00Z",
            "2026-10-31T23:00:00Z",
        ]
    );
    assert_eq!(
        verdicts[0].reasons.iter().copied().collect::<Vec<_>>(),
        [
            KeepReason::Last,
            KeepReason::Hourly,
            KeepReason::Daily,
            KeepReason::Weekly,
            KeepReason::Monthly,
            KeepReason::Newest
        ]
    );
    assert_eq!(verdicts.len(), backups.len());
}

#[test]
fn days_are_those_of_the_time_zone() {
    let now = at("2026-06-10T12:00:00Z");
    let backups = [at("2026-06-09T21:30:00Z"), at("2026-06-09T22:30:00Z")].map(backup);
    let verdicts = select(&keep(0, 0, 5, 0, 0), &backups, now, &TimeZone::UTC);
    assert_eq!(kept(&verdicts).len(), 1);
    // In Berlin, midnight is between them.
    let verdicts = select(&keep(0, 0, 5, 0, 0), &backups, now, &zone("Europe/Berlin"));
    assert_eq!(kept(&verdicts).len(), 2);
}

#[test]
fn the_repeated_hour_counts_twice_and_the_skipped_one_not() {
    let berlin = zone("Europe/Berlin");
    // 2026-10-25: 03:00 becomes 02:00. 24 hours of a clock, 25 of time.
    let autumn = every(60, 5, at("2026-10-25T03:00:00Z"));
    let verdicts = select(
        &keep(0, 5, 0, 0, 0),
        &autumn,
        at("2026-10-25T12:00:00Z"),
        &berlin,
    );
    assert_eq!(kept(&verdicts).len(), 5);
    // 2026-03-29: 02:00 becomes 03:00.
    let spring = every(30, 10, at("2026-03-29T03:30:00Z"));
    let verdicts = select(
        &keep(0, 5, 0, 0, 0),
        &spring,
        at("2026-03-29T12:00:00Z"),
        &berlin,
    );
    assert_eq!(kept(&verdicts).len(), 5);
    // A day of 25 hours is one day.
    let days = every(60, 72, at("2026-10-26T22:00:00Z"));
    let verdicts = select(
        &keep(0, 0, 3, 0, 0),
        &days,
        at("2026-10-27T12:00:00Z"),
        &berlin,
    );
    assert_eq!(
        kept(&verdicts),
        [
            "2026-10-26T22:00:00Z",
            "2026-10-25T22:00:00Z",
            "2026-10-24T21:00:00Z"
        ]
    );
}

#[test]
fn weeks_continue_over_the_new_year() {
    let backups = every(24 * 60, 14, at("2027-01-06T12:00:00Z"));
    let verdicts = select(
        &keep(0, 0, 0, 2, 0),
        &backups,
        at("2027-01-07T00:00:00Z"),
        &TimeZone::UTC,
    );
    // The week of 28 December to 3 January is one week.
    assert_eq!(
        kept(&verdicts),
        ["2027-01-06T12:00:00Z", "2027-01-03T12:00:00Z"]
    );
}

#[test]
fn the_newest_and_the_newest_proven_backup_and_those_in_use_stay() {
    let mut backups = every(60, 10, at("2026-11-18T12:00:00Z"));
    backups[4].is_proven = true;
    backups[7].is_proven = true;
    backups[9].is_in_use = true;
    let verdicts = select(
        &Keep::default(),
        &backups,
        at("2026-11-18T13:00:00Z"),
        &TimeZone::UTC,
    );
    let reasons: Vec<_> = verdicts
        .iter()
        .filter(|verdict| verdict.is_kept())
        .map(|verdict| {
            (
                verdict.id.as_str(),
                verdict.reasons.iter().copied().collect::<Vec<_>>(),
            )
        })
        .collect();
    assert_eq!(
        reasons,
        [
            ("2026-11-18T12:00:00Z", vec![KeepReason::Newest]),
            ("2026-11-18T08:00:00Z", vec![KeepReason::NewestProven]),
            ("2026-11-18T03:00:00Z", vec![KeepReason::InUse]),
        ]
    );
}

#[test]
fn backups_of_the_future_stay_and_push_no_other_out() {
    let now = at("2026-11-18T12:30:00Z");
    let mut backups = every(60, 3, at("2026-11-18T12:00:00Z"));
    backups.extend(every(60, 5, at("2030-01-01T00:00:00Z")));
    let verdicts = select(&keep(2, 0, 0, 0, 0), &backups, now, &TimeZone::UTC);
    assert_eq!(kept(&verdicts).len(), 7);
    assert!(!verdicts[7].is_kept());
    assert!(verdicts[5].reasons.contains(&KeepReason::Newest));
}

#[test]
fn a_pause_of_backups_deletes_nothing_more() {
    let backups = every(24 * 60, 7, at("2026-01-07T12:00:00Z"));
    let rules = keep(0, 0, 7, 0, 0);
    let soon = select(&rules, &backups, at("2026-01-08T00:00:00Z"), &TimeZone::UTC);
    let late = select(&rules, &backups, at("2027-01-08T00:00:00Z"), &TimeZone::UTC);
    assert_eq!(soon, late);
    assert_eq!(kept(&late).len(), 7);
}

/// Takes a backup each hour and deletes what is not kept, for 15 months, in zones with different daylight-saving times.
#[test]
fn months_of_hourly_backups_keep_what_the_policy_promises() {
    for name in [
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "Australia/Lord_Howe",
        "Asia/Kathmandu",
    ] {
        let time_zone = zone(name);
        let rules = keep(3, 24, 14, 8, 12);
        let mut backups: Vec<Candidate> = Vec::new();
        let start = at("2025-09-15T00:20:00Z");
        let mut most = 0;
        for hour in 0..24 * 456_i64 {
            let now = start + hour.hours();
            backups.push(backup(now));
            // Deciding twice a day is enough for the test's time; once a day would lose hours.
            if hour % 12 != 0 {
                continue;
            }
            let verdicts: BTreeMap<String, bool> = select(&rules, &backups, now, &time_zone)
                .into_iter()
                .map(|verdict| (verdict.id.clone(), verdict.is_kept()))
                .collect();
            backups.retain(|backup| verdicts[&backup.id]);
            most = most.max(backups.len());
        }
        assert!(most <= 3 + 24 + 14 + 8 + 12, "{name}: {most}");
        let end = start + (24 * 456_i64 - 12).hours();
        let local: Vec<Zoned> = backups
            .iter()
            .filter(|backup| backup.at <= end)
            .map(|backup| backup.at.to_zoned(time_zone.clone()))
            .collect();
        let distinct =
            |period: fn(&Zoned) -> Period| local.iter().map(period).collect::<BTreeSet<_>>().len();
        assert!(distinct(hour_of) >= 24, "{name}");
        assert!(distinct(day) >= 14, "{name}");
        assert!(distinct(week) >= 8, "{name}");
        assert_eq!(distinct(month), 12, "{name}");
    }
}

fn hour_of(time: &Zoned) -> Period {
    hour(time)
}

fn candidates() -> impl Strategy<Value = Vec<Candidate>> {
    proptest::collection::vec(
        (
            0_i64..40_000_000,
            any::<bool>(),
            proptest::bool::weighted(0.1),
        ),
        0..80,
    )
    .prop_map(|list| {
        list.into_iter()
            .enumerate()
            .map(|(index, (seconds, is_proven, is_in_use))| Candidate {
                id: format!("b{index}"),
                at: Timestamp::from_second(1_790_000_000 + seconds).unwrap(),
                is_proven,
                is_in_use,
            })
            .collect()
    })
}

fn rules() -> impl Strategy<Value = Keep> {
    (0_u32..5, 0_u32..5, 0_u32..5, 0_u32..5, 0_u32..5)
        .prop_map(|(a, b, c, d, e)| keep(a, b, c, d, e))
}

proptest! {
    #[test]
    fn protected_backups_are_never_deleted(rules in rules(), backups in candidates()) {
        let now = Timestamp::from_second(1_900_000_000).unwrap();
        let verdicts = select(&rules, &backups, now, &TimeZone::UTC);
        prop_assert_eq!(verdicts.len(), backups.len());
        let is_kept = |id: &str| verdicts.iter().any(|verdict| verdict.id == id && verdict.is_kept());
        let newest = backups.iter().max_by(|a, b| (a.at, &a.id).cmp(&(b.at, &b.id)));
        let proven = backups.iter().filter(|b| b.is_proven).max_by(|a, b| (a.at, &a.id).cmp(&(b.at, &b.id)));
        for backup in newest.into_iter().chain(proven).chain(backups.iter().filter(|b| b.is_in_use)) {
            prop_assert!(is_kept(&backup.id));
        }
    }

    #[test]
    fn a_decision_is_stable_and_independent_of_order(rules in rules(), backups in candidates(), seed in any::<u64>()) {
        let now = Timestamp::from_second(1_900_000_000).unwrap();
        let berlin = zone("Europe/Berlin");
        let first = select(&rules, &backups, now, &berlin);
        let mut shuffled = backups.clone();
        let mut random = crate::testing::Random(seed | 1);
        for index in (1..shuffled.len()).rev() {
            shuffled.swap(index, random.below(index + 1));
        }
        prop_assert_eq!(&select(&rules, &shuffled, now, &berlin), &first);
        // Deciding again over the remaining backups deletes nothing more.
        let kept: BTreeSet<_> = first.iter().filter(|v| v.is_kept()).map(|v| v.id.clone()).collect();
        let rest: Vec<_> = backups.into_iter().filter(|b| kept.contains(&b.id)).collect();
        prop_assert!(select(&rules, &rest, now, &berlin).iter().all(Verdict::is_kept));
    }

    #[test]
    fn a_larger_policy_keeps_more(rules in rules(), more in rules(), backups in candidates()) {
        let now = Timestamp::from_second(1_900_000_000).unwrap();
        let larger = keep(
            rules.last + more.last,
            rules.hourly + more.hourly,
            rules.daily + more.daily,
            rules.weekly + more.weekly,
            rules.monthly + more.monthly,
        );
        let small = select(&rules, &backups, now, &TimeZone::UTC);
        let large = select(&larger, &backups, now, &TimeZone::UTC);
        for (small, large) in small.iter().zip(&large) {
            prop_assert!(small.reasons.is_subset(&large.reasons));
        }
    }
}
