use super::*;

fn at(text: &str) -> UnixTime {
    UnixTime(text.parse::<Timestamp>().unwrap().as_second())
}

fn cron(expression: &str, zone: &str) -> Cron {
    Cron::parse(expression, time_zone(zone).unwrap()).unwrap()
}

/// Returns the due times after `from` and until `to`, in UTC.
fn due(expression: &str, zone: &str, from: &str, to: &str) -> Vec<String> {
    let cron = cron(expression, zone);
    let times = std::iter::successors(cron.next_after(at(from)), |time| cron.next_after(*time));
    times
        .take_while(|time| *time <= at(to))
        .map(|time| Timestamp::from_second(time.0).unwrap().to_string())
        .collect()
}

fn error(expression: &str) -> String {
    Cron::parse(expression, TimeZone::UTC).unwrap_err()
}

#[test]
fn names_and_fields_are_accepted() {
    let day = ("2026-11-18T00:00:00Z", "2026-11-18T03:00:00Z");
    let hours = ["01", "02", "03"].map(|hour| format!("2026-11-18T{hour}:00:00Z"));
    assert_eq!(due("@hourly", "UTC", day.0, day.1), hours);
    assert_eq!(due("0 1-3 * * *", "UTC", day.0, day.1), hours);
    let next = |expression: &str| due(expression, "UTC", day.0, "2027-01-01T00:00:00Z").remove(0);
    assert_eq!(next("@daily"), "2026-11-19T00:00:00Z");
    assert_eq!(next("@weekly"), "2026-11-22T00:00:00Z");
    assert_eq!(next("@monthly"), "2026-12-01T00:00:00Z");
    assert_eq!(next("30 4 * * MON-FRI"), "2026-11-18T04:30:00Z");
    assert_eq!(next("0 0 L * *"), "2026-11-30T00:00:00Z");
}

#[test]
fn a_leap_day_is_a_date() {
    assert_eq!(
        due(
            "0 0 29 2 *",
            "UTC",
            "2026-01-01T00:00:00Z",
            "2029-01-01T00:00:00Z"
        ),
        ["2028-02-29T00:00:00Z"]
    );
}

#[test]
fn invalid_expressions_are_rejected_with_the_reason() {
    for expression in [
        "",
        "* * * *",
        "* * * * * *",
        "0 0 0 1 1 * 2027",
        "@yearly",
        "@every 5m",
        "60 * * * *",
        "0 24 * * *",
        "0 0 32 * *",
        "0 0 * 13 *",
        "0 0 * * MAN",
        "*/0 * * * *",
        "a b c d e",
    ] {
        let message = error(expression);
        assert!(message.contains("five fields"), "{expression}: {message}");
        assert!(message.contains(&format!("\"{expression}\"")), "{message}");
    }
}

#[test]
fn an_expression_that_never_matches_is_rejected() {
    for expression in ["0 0 30 2 *", "0 0 31 4,6,9,11 *"] {
        assert!(
            error(expression).contains("matches no date"),
            "{expression}"
        );
    }
}

#[test]
fn an_unknown_time_zone_is_rejected() {
    for name in [
        "Mars/Olympus",
        "CEST",
        "",
        "Etc/Unknown",
        "../../etc/passwd",
    ] {
        assert!(time_zone(name).unwrap_err().contains("IANA"), "{name}");
    }
    assert!(time_zone("Australia/Lord_Howe").is_ok());
}

#[test]
fn a_skipped_local_time_is_due_when_clocks_are_advanced() {
    // Berlin: 02:00 becomes 03:00 on 2026-03-29, at 01:00 UTC.
    let days = ("2026-03-28T00:00:00Z", "2026-03-30T12:00:00Z");
    assert_eq!(
        due("30 2 * * *", "Europe/Berlin", days.0, days.1),
        [
            "2026-03-28T01:30:00Z",
            "2026-03-29T01:00:00Z",
            "2026-03-30T00:30:00Z"
        ]
    );
    // All skipped times, and 03:00, are due at the same instant, once.
    assert_eq!(
        due(
            "*/15 * * * *",
            "Europe/Berlin",
            "2026-03-29T00:30:00Z",
            "2026-03-29T01:15:00Z"
        ),
        [
            "2026-03-29T00:45:00Z",
            "2026-03-29T01:00:00Z",
            "2026-03-29T01:15:00Z"
        ]
    );
}

#[test]
fn a_local_time_that_exists_twice_is_due_once() {
    // New York: 02:00 becomes 01:00 on 2026-11-01, at 06:00 UTC.
    let days = ("2026-10-31T12:00:00Z", "2026-11-02T12:00:00Z");
    assert_eq!(
        due("30 1 * * *", "America/New_York", days.0, days.1),
        ["2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"]
    );
}

#[test]
fn an_interval_counts_both_times_that_clocks_show() {
    // New York: 02:00 becomes 01:00 on 2026-11-01, at 06:00 UTC.
    assert_eq!(
        due(
            "*/30 * * * *",
            "America/New_York",
            "2026-11-01T05:00:00Z",
            "2026-11-01T07:00:00Z"
        ),
        ["05:30", "06:00", "06:30", "07:00"].map(|time| format!("2026-11-01T{time}:00Z"))
    );
    assert_eq!(
        due(
            "0 */2 * * *",
            "Europe/Berlin",
            "2026-10-24T22:00:00Z",
            "2026-10-25T05:00:00Z"
        ),
        ["00", "01", "03", "05"].map(|hour| format!("2026-10-25T{hour}:00:00Z"))
    );
    // Lord Howe: 02:00 becomes 01:30 on 2027-04-04, at 15:00 UTC of the day before.
    for (expression, times) in [
        ("@hourly", ["14:00", "15:00", "15:30", "16:30"]),
        ("15 * * * *", ["14:15", "15:15", "15:45", "16:45"]),
        ("45 * * * *", ["14:45", "15:15", "16:15", "17:15"]),
    ] {
        let mut found = due(
            expression,
            "Australia/Lord_Howe",
            "2027-04-03T13:50:00Z",
            "2027-04-03T17:20:00Z",
        );
        found.truncate(4);
        assert_eq!(
            found,
            times.map(|time| format!("2027-04-03T{time}:00Z")),
            "{expression}"
        );
    }
}

/// Zones with changes by an hour and by half an hour, in both hemispheres.
const CHANGING_ZONES: [&str; 3] = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"];
/// A year and more, with both changes of each zone.
const YEAR: (&str, &str) = ("2026-03-01T00:00:00Z", "2027-05-01T00:00:00Z");

#[test]
fn an_hourly_schedule_runs_in_every_real_hour() {
    for zone in CHANGING_ZONES {
        for expression in ["@hourly", "0 * * * *", "17 * * * *", "59 * * * *"] {
            let cron = cron(expression, zone);
            let mut time = cron.next_after(at(YEAR.0)).unwrap();
            let mut runs = 0;
            while time < at(YEAR.1) {
                let next = cron.next_after(time).unwrap();
                assert!(next.0 - time.0 <= 3600, "{expression} {zone} {time:?}");
                (time, runs) = (next, runs + 1);
            }
            // The first is due an hour after the begin; at most one more per change.
            let hours = (at(YEAR.1).0 - at(YEAR.0).0) / 3600;
            assert!((hours - 1..=hours + 3).contains(&runs), "{zone}: {runs}");
        }
    }
}

#[test]
fn a_daily_schedule_runs_once_on_each_day() {
    for zone in CHANGING_ZONES {
        for expression in [
            "@daily",
            "30 1 * * *",
            "0 2 * * *",
            "15 2 * * *",
            "0 3 * * *",
        ] {
            let cron = cron(expression, zone);
            let zone = time_zone(zone).unwrap();
            let day = |time: UnixTime| {
                let time = Timestamp::from_second(time.0).unwrap();
                time.to_zoned(zone.clone()).date()
            };
            let mut time = cron.next_after(at(YEAR.0)).unwrap();
            while time < at(YEAR.1) {
                let next = cron.next_after(time).unwrap();
                assert_eq!(day(next), day(time).tomorrow().unwrap(), "{expression}");
                time = next;
            }
        }
    }
}

#[test]
fn a_change_of_half_an_hour_is_handled() {
    // Lord Howe: 02:00 becomes 02:30 on 2026-10-04, and 02:00 becomes 01:30 on 2027-04-04.
    assert_eq!(
        due(
            "15 2 * * *",
            "Australia/Lord_Howe",
            "2026-10-03T12:00:00Z",
            "2026-10-04T12:00:00Z"
        ),
        ["2026-10-03T15:30:00Z"]
    );
    assert_eq!(
        due(
            "45 1 * * *",
            "Australia/Lord_Howe",
            "2027-04-03T12:00:00Z",
            "2027-04-04T12:00:00Z"
        ),
        ["2027-04-03T14:45:00Z"]
    );
}

#[test]
fn the_last_due_time_is_the_greatest_that_has_passed() {
    let zones = [
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "Australia/Lord_Howe",
    ];
    let expressions = [
        "*/20 * * * *",
        "30 2 * * *",
        "45 1 * * SUN",
        "15 */2 * * *",
        "@hourly",
    ];
    // A year that contains all changes, in steps that hit every part of an hour.
    for (zone, expression) in zones
        .iter()
        .flat_map(|zone| expressions.map(|it| (zone, it)))
    {
        let cron = cron(expression, zone);
        let mut last = cron.last_until(at("2026-03-01T00:00:00Z")).unwrap();
        let mut next = cron.next_after(last).unwrap();
        let mut now = at("2026-03-01T00:00:00Z");
        while now < at("2027-05-01T00:00:00Z") {
            while next <= now {
                last = next;
                next = cron.next_after(last).unwrap();
            }
            assert_eq!(
                cron.last_until(now),
                Some(last),
                "{expression} {zone} {now:?}"
            );
            assert_eq!(
                cron.next_after(now),
                Some(next),
                "{expression} {zone} {now:?}"
            );
            now = UnixTime(now.0 + 1_777);
        }
    }
}

#[test]
fn a_stamp_is_parsed_back() {
    let time = at("2026-11-18T11:23:45Z");
    assert_eq!(stamp(time), "20261118t112345z");
    assert_eq!(parse_stamp("20261118t112345z"), Some(time));
    for text in [
        "",
        "20261118T112345Z",
        "20261318t112345z",
        "20261118t112345",
        "2026111xt112345z",
        "é0261118t11234z",
    ] {
        assert_eq!(parse_stamp(text), None, "{text}");
    }
}
