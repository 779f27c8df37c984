//! Maintenance windows at instants: at changes of clocks, over midnight and the end of the week, and in several zones at
//! once; and random windows, compared with a model that reads the clock every minute.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use evenkeel_api::windows::{WindowState, Windows};
use evenkeel_api::{EtcdClusterSpec, MaintenanceWindow};
use jiff::civil::{Date, DateTime, Weekday, time};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp, ToSpan};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::json;

/// Parses a window such as `Sat,Sun 02:00 3h Europe/Berlin`. A star means every day.
fn window(text: &str) -> MaintenanceWindow {
    let [days, start, duration, zone] = text.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{text}")
    };
    let days: Vec<_> = days.split(',').filter(|day| *day != "*").collect();
    serde_json::from_value(
        json!({ "days": days, "start": start, "duration": duration, "timeZone": zone }),
    )
    .unwrap()
}

fn validated(windows: Vec<MaintenanceWindow>) -> Windows {
    let mut spec = EtcdClusterSpec::with_version("3.6.16");
    spec.maintenance.windows = windows;
    spec.validate().unwrap().windows
}

fn windows(texts: &[&str]) -> Windows {
    validated(texts.iter().copied().map(window).collect())
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Asserts that windows open and close at these consecutive instants, and at no instant between them.
fn assert_opens_and_closes(texts: &[&str], changes: &[(&str, &str)]) {
    let windows = windows(texts);
    let moment = SignedDuration::from_nanos(1);
    let mut closed_since: Option<Timestamp> = None;
    for (opens, closes) in changes {
        let (opens, closes) = (at(opens), at(closes));
        if let Some(since) = closed_since {
            assert_eq!(
                windows.state(since),
                WindowState::Closed { until: opens },
                "{texts:?} at {since}"
            );
        }
        let before = opens - moment;
        assert_eq!(
            windows.state(before),
            WindowState::Closed { until: opens },
            "{texts:?} at {before}"
        );
        for open in [opens, closes - moment] {
            assert_eq!(
                windows.state(open),
                WindowState::Open {
                    until: Some(closes)
                },
                "{texts:?} at {open}"
            );
        }
        closed_since = Some(closes);
    }
}

#[test]
fn without_windows_the_state_is_always_open() {
    assert_eq!(
        Windows::default().state(at("2026-11-14T00:00:00Z")),
        WindowState::Open { until: None }
    );
}

#[test]
fn a_window_on_one_day_opens_once_a_week() {
    assert_opens_and_closes(
        &["Sat 02:00 3h UTC"],
        &[
            ("2026-11-14T02:00:00Z", "2026-11-14T05:00:00Z"),
            ("2026-11-21T02:00:00Z", "2026-11-21T05:00:00Z"),
        ],
    );
}

#[test]
fn a_window_can_extend_over_midnight_and_into_the_next_week() {
    assert_opens_and_closes(
        &["Sun 23:00 3h UTC"],
        &[
            ("2026-11-15T23:00:00Z", "2026-11-16T02:00:00Z"),
            ("2026-11-22T23:00:00Z", "2026-11-23T02:00:00Z"),
        ],
    );
    // Late on Sunday in Samoa is still Sunday morning in UTC.
    assert_opens_and_closes(
        &["Sun 23:30 1h Pacific/Apia"],
        &[("2026-11-15T10:30:00Z", "2026-11-15T11:30:00Z")],
    );
}

#[test]
fn windows_that_overlap_or_touch_are_merged() {
    assert_opens_and_closes(
        &[
            "Sat 02:00 1h UTC",
            "Sat 03:00 1h UTC",
            "Sat 03:30 2h UTC",
            "Sat 04:00 10m UTC",
            "Sat 06:00 1h UTC",
        ],
        &[
            ("2026-11-14T02:00:00Z", "2026-11-14T05:30:00Z"),
            ("2026-11-14T06:00:00Z", "2026-11-14T07:00:00Z"),
            ("2026-11-21T02:00:00Z", "2026-11-21T05:30:00Z"),
        ],
    );
}

#[test]
fn each_window_has_its_own_zone() {
    // In Berlin from 01:00Z, in New York from 07:00Z, and in Tokyo on Saturday while it is Friday in UTC.
    assert_opens_and_closes(
        &[
            "Sat 02:00 3h Europe/Berlin",
            "Sat 02:00 3h America/New_York",
            "Sat 02:00 3h Asia/Tokyo",
        ],
        &[
            ("2026-11-13T17:00:00Z", "2026-11-13T20:00:00Z"),
            ("2026-11-14T01:00:00Z", "2026-11-14T04:00:00Z"),
            ("2026-11-14T07:00:00Z", "2026-11-14T10:00:00Z"),
        ],
    );
}

#[test]
fn a_skipped_start_opens_at_the_change_for_the_full_duration() {
    // Berlin skips 02:00 to 03:00 on 2026-03-29: 01:00Z is 03:00.
    for start in ["02:00", "02:30", "02:59", "03:00"] {
        assert_opens_and_closes(
            &[&format!("Sun {start} 3h Europe/Berlin")],
            &[("2026-03-29T01:00:00Z", "2026-03-29T04:00:00Z")],
        );
    }
    // Lord Howe skips 02:00 to 02:30 on 2026-10-04: 15:30Z is 02:30.
    for start in ["02:00", "02:15", "02:30"] {
        assert_opens_and_closes(
            &[&format!("Sun {start} 1h Australia/Lord_Howe")],
            &[("2026-10-03T15:30:00Z", "2026-10-03T16:30:00Z")],
        );
    }
}

#[test]
fn a_change_of_clocks_does_not_shorten_an_open_window() {
    assert_opens_and_closes(
        &["Sun 01:00 3h Europe/Berlin"],
        &[
            ("2026-03-22T00:00:00Z", "2026-03-22T03:00:00Z"),
            ("2026-03-29T00:00:00Z", "2026-03-29T03:00:00Z"),
            ("2026-04-04T23:00:00Z", "2026-04-05T02:00:00Z"),
        ],
    );
}

#[test]
fn a_start_that_clocks_show_twice_opens_once() {
    // Berlin shows 02:00 to 03:00 twice on 2026-10-25: at 00:00Z and at 01:00Z.
    assert_opens_and_closes(
        &["* 02:30 30m Europe/Berlin"],
        &[
            ("2026-10-24T00:30:00Z", "2026-10-24T01:00:00Z"),
            ("2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z"),
            ("2026-10-26T01:30:00Z", "2026-10-26T02:00:00Z"),
        ],
    );
    // New York shows 01:00 to 02:00 twice on 2026-11-01: at 05:00Z and at 06:00Z.
    assert_opens_and_closes(
        &["Sun 01:30 3h America/New_York"],
        &[
            ("2026-10-25T05:30:00Z", "2026-10-25T08:30:00Z"),
            ("2026-11-01T05:30:00Z", "2026-11-01T08:30:00Z"),
            ("2026-11-08T06:30:00Z", "2026-11-08T09:30:00Z"),
        ],
    );
    // A start after the repeated hour occurs once.
    assert_opens_and_closes(
        &["Sun 02:00 1h America/New_York"],
        &[("2026-11-01T07:00:00Z", "2026-11-01T08:00:00Z")],
    );
    // Lord Howe shows 01:30 to 02:00 twice on 2026-04-05: at 14:30Z and at 15:00Z.
    assert_opens_and_closes(
        &["Sun 01:45 10m Australia/Lord_Howe"],
        &[("2026-04-04T14:45:00Z", "2026-04-04T14:55:00Z")],
    );
}

#[test]
fn a_window_on_a_skipped_day_opens_at_the_start_of_the_next_day() {
    // Samoa went from Thursday, 2011-12-29, to Saturday, the 31st.
    assert_opens_and_closes(
        &["Fri 10:00 1h Pacific/Apia"],
        &[
            ("2011-12-23T20:00:00Z", "2011-12-23T21:00:00Z"),
            ("2011-12-30T10:00:00Z", "2011-12-30T11:00:00Z"),
            ("2012-01-05T20:00:00Z", "2012-01-05T21:00:00Z"),
        ],
    );
}

#[test]
fn windows_of_24h_are_always_open_except_on_days_of_25_hours() {
    let now = at("2026-11-14T12:00:00Z");
    assert_eq!(
        windows(&["* 00:00 24h UTC"]).state(now),
        WindowState::Open { until: None }
    );
    let berlin = windows(&["* 00:00 24h Europe/Berlin"]);
    assert_eq!(berlin.state(now), WindowState::Open { until: None });
    let (closes, opens) = (at("2026-10-25T22:00:00Z"), at("2026-10-25T23:00:00Z"));
    assert_eq!(
        berlin.state(at("2026-10-20T12:00:00Z")),
        WindowState::Open {
            until: Some(closes)
        }
    );
    assert_eq!(berlin.state(closes), WindowState::Closed { until: opens });
}

#[test]
fn the_first_and_last_timestamps_do_not_panic() {
    for windows in [
        windows(&["Sat 02:00 3h Europe/Berlin"]),
        windows(&["* 00:00 24h Pacific/Apia"]),
    ] {
        for now in [Timestamp::MIN, Timestamp::MAX, Timestamp::UNIX_EPOCH] {
            windows.state(now);
        }
    }
}

/// Zones with different kinds of clock changes.
const ZONES: [&str; 9] = [
    "UTC",
    "Europe/Berlin",
    "Europe/Dublin",
    "America/New_York",
    "America/Santiago",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Asia/Kathmandu",
    "Africa/Casablanca",
];
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// A random window, as numbers.
#[derive(Clone, Debug)]
struct RandomWindow {
    /// Days from Monday; empty for every day.
    days: Vec<usize>,
    /// The start, in minutes after midnight.
    start_minute: i64,
    duration_minutes: i64,
    zone: &'static str,
}

impl RandomWindow {
    fn to_window(&self) -> MaintenanceWindow {
        let days: Vec<_> = self.days.iter().map(|day| DAYS[*day]).collect();
        let days = if days.is_empty() {
            "*".to_owned()
        } else {
            days.join(",")
        };
        let (hour, minute) = (self.start_minute / 60, self.start_minute % 60);
        window(&format!(
            "{days} {hour:02}:{minute:02} {}m {}",
            self.duration_minutes, self.zone
        ))
    }

    fn opens_on(&self, day: Weekday) -> bool {
        let day = usize::try_from(day.to_monday_zero_offset()).unwrap();
        self.days.is_empty() || self.days.contains(&day)
    }
}

fn random_window() -> impl Strategy<Value = RandomWindow> {
    let days = prop_oneof![
        Just(Vec::new()),
        subsequence((0..7).collect::<Vec<_>>(), 0..=3)
    ];
    // Most clock changes are between 00:00 and 04:00.
    let start_minute = prop_oneof![
        0_i64..1440,
        0_i64..240,
        (0_i64..8).prop_map(|half| half * 30)
    ];
    let duration_minutes = prop_oneof![10_i64..=240, 10_i64..=1440, Just(1440)];
    (days, start_minute, duration_minutes, select(&ZONES[..])).prop_map(
        |(days, start_minute, duration_minutes, zone)| RandomWindow {
            days,
            start_minute,
            duration_minutes,
            zone,
        },
    )
}

/// Returns windows and an instant. Mostly, the instant and the start of the first window are close to a clock change in
/// the zone of the first window.
fn windows_and_instant() -> impl Strategy<Value = (Vec<RandomWindow>, Timestamp)> {
    let instant =
        (946_684_800_i64..2_145_916_800).prop_map(|second| Timestamp::from_second(second).unwrap());
    let off = prop_oneof![-4 * 1440_i64..1440, -1440_i64..60];
    let about = prop_oneof![1 => Just(None), 3 => (off, -60_i64..90).prop_map(Some)];
    (vec(random_window(), 1..4), instant, about).prop_map(|(mut windows, instant, about)| {
        let zone = TimeZoneDatabase::bundled().get(windows[0].zone).unwrap();
        let change = zone
            .following(instant)
            .next()
            .map(|change| change.timestamp());
        let (Some((off, start)), Some(change)) = (about, change) else {
            return (windows, instant);
        };
        let before = zone.to_datetime(change - 1.minute());
        let minute = i64::from(before.hour()) * 60 + i64::from(before.minute());
        windows[0].start_minute = (minute + start).rem_euclid(1440);
        (windows, change + off.minutes())
    })
}

/// A model of one window that reads a clock in the window's zone every minute. The window opens when the clock first
/// shows its start or a later time, and closes after its duration.
struct ClockModel<'a> {
    window: &'a RandomWindow,
    zone: TimeZone,
    /// The latest local time that the clock has shown.
    latest: DateTime,
    /// The number of minutes until the window closes.
    minutes_left: i64,
}

impl<'a> ClockModel<'a> {
    fn new(window: &'a RandomWindow, now: Timestamp) -> Self {
        let zone = TimeZoneDatabase::bundled().get(window.zone).unwrap();
        Self {
            window,
            latest: zone.to_datetime(now),
            zone,
            minutes_left: 0,
        }
    }

    /// Advances by a minute, and returns whether the window is open.
    fn is_open(&mut self, now: Timestamp) -> bool {
        self.minutes_left -= 1;
        let shown = self.zone.to_datetime(now);
        if shown > self.latest {
            let start = time(0, 0, 0, 0) + self.window.start_minute.minutes();
            let opens = |date: &Date| {
                let start = date.to_datetime(start);
                self.window.opens_on(date.weekday()) && self.latest < start && start <= shown
            };
            // A clock may skip a whole day.
            if self
                .latest
                .date()
                .series(1.day())
                .take_while(|date| *date <= shown.date())
                .any(|date| opens(&date))
            {
                self.minutes_left = self.window.duration_minutes;
            }
            self.latest = shown;
        }
        self.minutes_left > 0
    }
}

/// Returns whether a window is open at this instant, and the first minute within nine days in which that changes.
fn model_state(windows: &[RandomWindow], now: Timestamp) -> (bool, Option<Timestamp>) {
    const MINUTES_PER_DAY: i64 = 1440;
    let second = now.as_second().div_euclid(60) * 60;
    let minute = |ahead: i64| Timestamp::from_second(second + ahead * 60).unwrap();
    let begin = -3 * MINUTES_PER_DAY;
    let mut models: Vec<_> = windows
        .iter()
        .map(|window| ClockModel::new(window, minute(begin - 1)))
        .collect();
    // A fold and not `any`, since every model must advance.
    let mut is_any_open = |at| {
        models
            .iter_mut()
            .fold(false, |is_open, model| model.is_open(at) | is_open)
    };
    let mut is_open = false;
    for ahead in begin..=0 {
        is_open = is_any_open(minute(ahead));
    }
    let change = (1..=9 * MINUTES_PER_DAY)
        .map(minute)
        .find(|at| is_any_open(*at) != is_open);
    (is_open, change)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_windows_agree_with_a_clock_read_every_minute((windows, now) in windows_and_instant()) {
        let state = validated(windows.iter().map(RandomWindow::to_window).collect()).state(now);
        let week = now + SignedDuration::from_hours(7 * 24);
        let expected = match model_state(&windows, now) {
            (true, change) => WindowState::Open { until: change.filter(|change| *change < week) },
            (false, Some(until)) => WindowState::Closed { until },
            (false, None) => panic!("closed for more than a week: {windows:?} at {now}"),
        };
        prop_assert_eq!(state, expected);
    }
}
