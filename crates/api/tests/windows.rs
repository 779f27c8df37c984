//! Maintenance windows at instants: where clocks are put forward and back, over midnight and the end of the week, in
//! several zones at once; and, at random, as someone sees it who looks at the clocks every minute.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use evenkeel_api::windows::{State, Windows};
use evenkeel_api::{EtcdClusterSpec, MaintenanceWindow};
use jiff::civil::{Date, DateTime, Weekday, time};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp, ToSpan};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::json;

/// A window as `Sat,Sun 02:00 3h Europe/Berlin`; a star is every day.
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

fn checked(windows: Vec<MaintenanceWindow>) -> Windows {
    let mut spec = EtcdClusterSpec::of_version("3.6.16");
    spec.maintenance.windows = windows;
    spec.checked().unwrap().windows
}

fn windows(texts: &[&str]) -> Windows {
    checked(texts.iter().copied().map(window).collect())
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// That windows open and close at these instants, all in a row, and at no other between.
fn assert_opens_and_closes(texts: &[&str], changes: &[(&str, &str)]) {
    let windows = windows(texts);
    let moment = SignedDuration::from_nanos(1);
    let mut closed_since: Option<Timestamp> = None;
    for (opens, closes) in changes {
        let (opens, closes) = (at(opens), at(closes));
        if let Some(since) = closed_since {
            assert_eq!(
                windows.state(since),
                State::Closed { until: opens },
                "{texts:?} at {since}"
            );
        }
        let before = opens - moment;
        assert_eq!(
            windows.state(before),
            State::Closed { until: opens },
            "{texts:?} at {before}"
        );
        for open in [opens, closes - moment] {
            assert_eq!(
                windows.state(open),
                State::Open {
                    until: Some(closes)
                },
                "{texts:?} at {open}"
            );
        }
        closed_since = Some(closes);
    }
}

#[test]
fn without_windows_it_is_open_and_stays_so() {
    assert_eq!(
        Windows::default().state(at("2026-11-14T00:00:00Z")),
        State::Open { until: None }
    );
}

#[test]
fn a_day_of_the_week_comes_once_a_week() {
    assert_opens_and_closes(
        &["Sat 02:00 3h UTC"],
        &[
            ("2026-11-14T02:00:00Z", "2026-11-14T05:00:00Z"),
            ("2026-11-21T02:00:00Z", "2026-11-21T05:00:00Z"),
        ],
    );
}

#[test]
fn a_window_goes_on_over_midnight_and_into_the_next_week() {
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
fn windows_that_overlap_or_touch_are_one() {
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
fn each_window_is_read_in_its_own_zone() {
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
fn a_start_that_clocks_skip_is_when_they_skip_it_and_the_window_is_as_long_as_ever() {
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
fn a_window_that_is_open_while_clocks_are_put_forward_is_as_long_as_ever() {
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
fn a_start_that_clocks_show_twice_is_the_first_and_there_is_one_window() {
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
    // What comes after the hour that is shown twice is shown once.
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
fn a_day_that_was_skipped_as_a_whole_begins_with_the_next() {
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
fn whole_days_are_always_open_but_where_a_day_has_an_hour_more() {
    let now = at("2026-11-14T12:00:00Z");
    assert_eq!(
        windows(&["* 00:00 24h UTC"]).state(now),
        State::Open { until: None }
    );
    let berlin = windows(&["* 00:00 24h Europe/Berlin"]);
    assert_eq!(berlin.state(now), State::Open { until: None });
    let (closes, opens) = (at("2026-10-25T22:00:00Z"), at("2026-10-25T23:00:00Z"));
    assert_eq!(
        berlin.state(at("2026-10-20T12:00:00Z")),
        State::Open {
            until: Some(closes)
        }
    );
    assert_eq!(berlin.state(closes), State::Closed { until: opens });
}

#[test]
fn the_ends_of_time_are_no_trouble() {
    for windows in [
        windows(&["Sat 02:00 3h Europe/Berlin"]),
        windows(&["* 00:00 24h Pacific/Apia"]),
    ] {
        for now in [Timestamp::MIN, Timestamp::MAX, Timestamp::UNIX_EPOCH] {
            windows.state(now);
        }
    }
}

/// Zones whose clocks change in each way there is.
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

/// A window, written and as numbers.
#[derive(Clone, Debug)]
struct Drawn {
    days: Vec<usize>,
    minute: i64,
    lasts: i64,
    zone: &'static str,
}

impl Drawn {
    fn written(&self) -> MaintenanceWindow {
        let days: Vec<_> = self.days.iter().map(|day| DAYS[*day]).collect();
        let days = if days.is_empty() {
            "*".to_owned()
        } else {
            days.join(",")
        };
        let (hour, minute) = (self.minute / 60, self.minute % 60);
        window(&format!(
            "{days} {hour:02}:{minute:02} {}m {}",
            self.lasts, self.zone
        ))
    }

    fn begins_on(&self, day: Weekday) -> bool {
        let day = usize::try_from(day.to_monday_zero_offset()).unwrap();
        self.days.is_empty() || self.days.contains(&day)
    }
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let days = prop_oneof![
        Just(Vec::new()),
        subsequence((0..7).collect::<Vec<_>>(), 0..=3)
    ];
    // Most changes of clocks are between midnight and four.
    let minute = prop_oneof![
        0_i64..1440,
        0_i64..240,
        (0_i64..8).prop_map(|half| half * 30)
    ];
    let lasts = prop_oneof![10_i64..=240, 10_i64..=1440, Just(1440)];
    (days, minute, lasts, select(&ZONES[..])).prop_map(|(days, minute, lasts, zone)| Drawn {
        days,
        minute,
        lasts,
        zone,
    })
}

/// Windows and an instant: mostly about when clocks change in the zone of the first, which begins about then, too.
fn scene() -> impl Strategy<Value = (Vec<Drawn>, Timestamp)> {
    let instant =
        (946_684_800_i64..2_145_916_800).prop_map(|second| Timestamp::from_second(second).unwrap());
    let off = prop_oneof![-4 * 1440_i64..1440, -1440_i64..60];
    let about = prop_oneof![1 => Just(None), 3 => (off, -60_i64..90).prop_map(Some)];
    (vec(drawn(), 1..4), instant, about).prop_map(|(mut windows, instant, about)| {
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
        windows[0].minute = (minute + start).rem_euclid(1440);
        (windows, change + off.minutes())
    })
}

/// Somebody who looks at a clock in the window's zone every minute. A window opens as the clock first shows its start or
/// more, and closes so many minutes later.
struct Watcher<'a> {
    window: &'a Drawn,
    zone: TimeZone,
    /// The most that the clock has shown.
    shown: DateTime,
    /// For how many minutes more a window is open.
    open_for: i64,
}

impl<'a> Watcher<'a> {
    fn beginning(window: &'a Drawn, now: Timestamp) -> Self {
        let zone = TimeZoneDatabase::bundled().get(window.zone).unwrap();
        Self {
            window,
            shown: zone.to_datetime(now),
            zone,
            open_for: 0,
        }
    }

    /// Whether a window is open in this minute.
    fn is_open(&mut self, now: Timestamp) -> bool {
        self.open_for -= 1;
        let shows = self.zone.to_datetime(now);
        if shows > self.shown {
            let start = time(0, 0, 0, 0) + self.window.minute.minutes();
            let due = |date: &Date| {
                let start = date.to_datetime(start);
                self.window.begins_on(date.weekday()) && self.shown < start && start <= shows
            };
            // A clock may skip a whole day.
            if self
                .shown
                .date()
                .series(1.day())
                .take_while(|date| *date <= shows.date())
                .any(|date| due(&date))
            {
                self.open_for = self.window.lasts;
            }
            self.shown = shows;
        }
        self.open_for > 0
    }
}

/// Whether a window is open at this instant, and the first minute within a week in which that is different.
fn watched(windows: &[Drawn], now: Timestamp) -> (bool, Option<Timestamp>) {
    let second = now.as_second().div_euclid(60) * 60;
    let minute = |ahead: i64| Timestamp::from_second(second + ahead * 60).unwrap();
    let (begin, day) = (-3 * 1440, 1440);
    let mut watchers: Vec<_> = windows
        .iter()
        .map(|window| Watcher::beginning(window, minute(begin - 1)))
        .collect();
    // Everybody looks, even if the first has seen enough.
    let mut any = |at| {
        watchers
            .iter_mut()
            .fold(false, |open, watcher| watcher.is_open(at) | open)
    };
    let mut open = false;
    for ahead in begin..=0 {
        open = any(minute(ahead));
    }
    let change = (1..=9 * day).map(minute).find(|at| any(*at) != open);
    (open, change)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whoever_looks_every_minute_sees_the_same((windows, now) in scene()) {
        let told = checked(windows.iter().map(Drawn::written).collect()).state(now);
        let week = now + SignedDuration::from_hours(7 * 24);
        let seen = match watched(&windows, now) {
            (true, change) => State::Open { until: change.filter(|change| *change < week) },
            (false, Some(until)) => State::Closed { until },
            (false, None) => panic!("closed for more than a week: {windows:?} at {now}"),
        };
        prop_assert_eq!(told, seen);
    }
}
