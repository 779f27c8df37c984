//! Maintenance windows as times: whether one is open at an instant, and when that changes. Pure: the instant is handed
//! in, and time zones are as they were compiled in.

use std::time::Duration;

use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, ToSpan};

/// How far ahead is looked: every window begins once in it.
const AHEAD: Duration = Duration::from_secs(7 * 86_400);
/// The days, counted from today, on which a window may have begun that matters until then. A window lasts a day at most,
/// and clocks were put forward by a whole day before (Samoa, 2011).
const DAYS: std::ops::RangeInclusive<i64> = -2..=8;

/// The windows of a cluster. If there are none, nothing waits for one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Windows(Vec<Window>);

/// A window that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// The days on which it begins.
    pub(crate) days: Vec<Weekday>,
    /// The time of day at which it begins.
    pub(crate) start: Time,
    /// For how long it is open, by a clock that nobody puts forward or back.
    pub(crate) duration: Duration,
    /// Where days and times are read.
    pub(crate) zone: TimeZone,
}

/// Whether a window is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// One is.
    Open {
        /// When none is any more; nothing if that is a week off, or more.
        until: Option<Timestamp>,
    },
    /// None is.
    Closed {
        /// When the next one opens.
        until: Timestamp,
    },
}

impl Windows {
    /// Whether a window is open at this instant, and when that changes. Windows that overlap or touch are one.
    pub fn state(&self, now: Timestamp) -> State {
        if self.0.is_empty() {
            return State::Open { until: None };
        }
        let mut openings: Vec<_> = self
            .0
            .iter()
            .flat_map(|window| window.openings(now))
            .collect();
        openings.sort_unstable();
        let open_until = openings.iter().fold(now, |until, (opens, closes)| {
            if *opens <= until {
                until.max(*closes)
            } else {
                until
            }
        });
        if open_until == now {
            let next = openings
                .iter()
                .map(|(opens, _)| *opens)
                .find(|opens| *opens > now);
            // Without a next one only where time itself ends.
            return State::Closed {
                until: next.unwrap_or(Timestamp::MAX),
            };
        }
        let ahead = now.checked_add(AHEAD).unwrap_or(Timestamp::MAX);
        State::Open {
            until: Some(open_until).filter(|until| *until < ahead),
        }
    }
}

impl FromIterator<Window> for Windows {
    fn from_iter<T: IntoIterator<Item = Window>>(windows: T) -> Self {
        Self(windows.into_iter().collect())
    }
}

impl Window {
    /// From when until when it is open, each time that matters at this instant.
    fn openings(&self, now: Timestamp) -> impl Iterator<Item = (Timestamp, Timestamp)> {
        let today = self.zone.to_datetime(now).date();
        let dates = DAYS.filter_map(move |days| today.checked_add(days.days()).ok());
        dates
            .filter(|date| self.days.contains(&date.weekday()))
            .filter_map(|date| self.opening(date))
    }

    fn opening(&self, date: Date) -> Option<(Timestamp, Timestamp)> {
        let opens = first_shown(&self.zone, date.to_datetime(self.start))?;
        Some((opens, opens.checked_add(self.duration).ok()?))
    }
}

/// When clocks first show this, or what comes after it if they skip it.
fn first_shown(zone: &TimeZone, at: DateTime) -> Option<Timestamp> {
    match zone.to_ambiguous_timestamp(at).offset() {
        AmbiguousOffset::Unambiguous { offset } | AmbiguousOffset::Fold { before: offset, .. } => {
            offset.to_timestamp(at).ok()
        }
        AmbiguousOffset::Gap { after, .. } => {
            // What is skipped, read as if clocks had been put forward already, lies before they are.
            let before = after.to_timestamp(at).ok()?;
            let change = zone
                .following(before)
                .find(|change| change.offset() == after)?;
            Some(change.timestamp())
        }
    }
}
