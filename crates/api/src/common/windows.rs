//! Evaluates maintenance windows: whether one is open at an instant, and when that changes. The instant is a parameter,
//! and time zones come from the database that is compiled in.

use std::time::Duration;

use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, ToSpan};

/// How far ahead windows are evaluated. Every window opens at least once within a week.
const HORIZON: Duration = Duration::from_secs(7 * 86_400);
/// The days, relative to today, on which a window that matters within the horizon may open. A window lasts at most a
/// day, and a time zone can skip a whole day (Samoa, 2011).
const OPENING_DAYS: std::ops::RangeInclusive<i64> = -2..=8;

/// The maintenance windows of a cluster. Without windows, disruptions are always allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Windows(Vec<Window>);

/// A validated window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// The days on which the window opens.
    pub(crate) days: Vec<Weekday>,
    /// The local time at which the window opens.
    pub(crate) start: Time,
    /// How long the window is open, in elapsed time: a change of clocks does not change it.
    pub(crate) duration: Duration,
    /// The time zone of `days` and `start`.
    pub(crate) zone: TimeZone,
}

/// Whether a window is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowState {
    /// A window is open.
    Open {
        /// When the last of the open windows closes. `None` if that is a week away or more.
        until: Option<Timestamp>,
    },
    /// No window is open.
    Closed {
        /// When the next window opens.
        until: Timestamp,
    },
}

impl Windows {
    /// Returns whether a window is open at an instant, and when that changes. Windows that overlap or touch count as
    /// one.
    pub fn state(&self, now: Timestamp) -> WindowState {
        if self.0.is_empty() {
            return WindowState::Open { until: None };
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
            // There is always a next opening, except at the end of the range of timestamps.
            return WindowState::Closed {
                until: next.unwrap_or(Timestamp::MAX),
            };
        }
        let horizon = now.checked_add(HORIZON).unwrap_or(Timestamp::MAX);
        WindowState::Open {
            until: Some(open_until).filter(|until| *until < horizon),
        }
    }
}

impl FromIterator<Window> for Windows {
    fn from_iter<T: IntoIterator<Item = Window>>(windows: T) -> Self {
        Self(windows.into_iter().collect())
    }
}

impl Window {
    /// Returns when the window opens and closes, for each opening that matters at this instant.
    fn openings(&self, now: Timestamp) -> impl Iterator<Item = (Timestamp, Timestamp)> {
        let today = self.zone.to_datetime(now).date();
        let dates = OPENING_DAYS.filter_map(move |days| today.checked_add(days.days()).ok());
        dates
            .filter(|date| self.days.contains(&date.weekday()))
            .filter_map(|date| self.opening(date))
    }

    fn opening(&self, date: Date) -> Option<(Timestamp, Timestamp)> {
        let opens = first_shown(&self.zone, date.to_datetime(self.start))?;
        Some((opens, opens.checked_add(self.duration).ok()?))
    }
}

/// Returns when clocks first show a local time. If clocks skip it, returns the instant at which they do.
pub fn first_shown(zone: &TimeZone, at: DateTime) -> Option<Timestamp> {
    match zone.to_ambiguous_timestamp(at).offset() {
        AmbiguousOffset::Unambiguous { offset } | AmbiguousOffset::Fold { before: offset, .. } => {
            offset.to_timestamp(at).ok()
        }
        AmbiguousOffset::Gap { after, .. } => {
            // Read with the offset after the change, the skipped local time lies before the change.
            let before = after.to_timestamp(at).ok()?;
            let change = zone
                .following(before)
                .find(|change| change.offset() == after)?;
            Some(change.timestamp())
        }
    }
}
