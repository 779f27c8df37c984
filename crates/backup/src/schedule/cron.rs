//! Cron expressions in a time zone. Times are computed on the calendar of the time zone and then translated to instants: a
//! local time that clocks skip is due when they do. A local time that clocks show twice is due the first time; an expression
//! for every hour or every few hours is due both times, so that no interval is longer than without a change of clocks.

use evenkeel_api::common::maintenance::find_zone;
use evenkeel_api::windows::first_shown;
use evenkeel_runtime::UnixTime;
use jiff::civil::{DateTime, date};
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use jiff::{SignedDuration, Timestamp, ToSpan};

use croner::parser::{CronParser, Seconds, Year};

/// The names for expressions.
const NAMES: [(&str, &str); 4] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
];
/// The number of hours that clocks are set back or forward by at most. (Antarctica/Troll: two. A zone that changes sides of
/// the date line skips a whole day, which delays no time that is not skipped.)
const MAX_CHANGE_HOURS: i64 = 3;
/// The number of calendar times that are tried for one instant: all minutes of a day.
const MAX_TRIES: usize = 1440;

/// A valid expression, which matches some time, in a time zone.
#[derive(Clone, Debug)]
pub struct Cron {
    pattern: croner::Cron,
    zone: TimeZone,
    /// Whether the expression is for every hour or every few hours: its field of hours begins with `*`.
    is_interval: bool,
}

/// Looks up a time zone in the database that is compiled in.
pub fn time_zone(name: &str) -> Result<TimeZone, String> {
    find_zone(name).ok_or_else(|| {
        format!(
            "invalid value \"{name}\": must be a time zone in the IANA database, such as Europe/Berlin or UTC"
        )
    })
}

impl Cron {
    /// Parses an expression of five fields, or one of the names. The error names the value and the rule.
    pub fn parse(expression: &str, zone: TimeZone) -> Result<Self, String> {
        let invalid = |rule: &str| format!("invalid value \"{expression}\": {rule}");
        let name = NAMES.iter().find(|(name, _)| *name == expression);
        let fields = name.map_or(expression, |(_, fields)| *fields);
        if fields.starts_with('@') || fields.split_whitespace().count() != 5 {
            return Err(invalid(
                "must be a cron expression of five fields such as \"0 3 * * *\", or @hourly, @daily, @weekly, @monthly",
            ));
        }
        let parser = CronParser::builder()
            .seconds(Seconds::Disallowed)
            .year(Year::Disallowed)
            .build();
        let pattern = parser.parse(fields).map_err(|error| {
            let rule = error.to_string();
            invalid(&format!(
                "must be a cron expression of five fields: {}",
                rule.trim_end_matches('.')
            ))
        })?;
        // 400 years of the calendar repeat, and croner searches for longer.
        if pattern
            .find_next_occurrence(&date(2024, 1, 1).at(0, 0, 0, 0), true)
            .is_err()
        {
            return Err(invalid(
                "matches no date of the calendar. Correct the day or the month",
            ));
        }
        let hours = fields.split_whitespace().nth(1);
        Ok(Self {
            is_interval: hours.is_some_and(|hours| hours.starts_with('*')),
            pattern,
            zone,
        })
    }

    /// Returns the first due time after this one; `None` at the end of the range of times.
    pub fn next_after(&self, time: UnixTime) -> Option<UnixTime> {
        let local = self.local(time)?;
        let found = self.pattern.find_next_occurrence(&local, false).ok()?;
        let due = self.first_instant(found)?;
        if due > time && self.is_steady(time, due) {
            return Some(due);
        }
        // The order of local times differs from that of instants only close to a change of clocks.
        let mut local = local.checked_sub(margin()).ok()?;
        let mut next: Option<UnixTime> = None;
        for _ in 0..MAX_TRIES {
            local = self.pattern.find_next_occurrence(&local, false).ok()?;
            let due = self.instants(local).into_iter().flatten();
            let later = due.filter(|due| *due > time);
            next = later.chain(next).min();
            if let Some(found) = next
                && self.local(found)?.checked_add(margin()).ok()? < local
            {
                break;
            }
        }
        next
    }

    /// Returns the last due time that is not after this one.
    pub fn last_until(&self, time: UnixTime) -> Option<UnixTime> {
        let local = self.local(time)?;
        let found = self.pattern.find_previous_occurrence(&local, true).ok()?;
        let due = self.first_instant(found)?;
        if due <= time && self.is_steady(due, time) {
            return Some(due);
        }
        let mut local = local.checked_add(margin()).ok()?;
        let mut is_inclusive = true;
        let mut last: Option<UnixTime> = None;
        for _ in 0..MAX_TRIES {
            local = self
                .pattern
                .find_previous_occurrence(&local, is_inclusive)
                .ok()?;
            is_inclusive = false;
            let due = self.instants(local).into_iter().flatten();
            let earlier = due.filter(|due| *due <= time);
            last = earlier.chain(last).max();
            if let Some(found) = last
                && self.local(found)?.checked_sub(margin()).ok()? > local
            {
                break;
            }
        }
        last
    }

    /// Returns true if clocks do not change between two times, nor shortly before or after.
    fn is_steady(&self, from: UnixTime, to: UnixTime) -> bool {
        let margin = (2 * MAX_CHANGE_HOURS) * 3600;
        let from = Timestamp::from_second(from.0.saturating_sub(margin)).unwrap_or(Timestamp::MIN);
        let change = self.zone.following(from).next();
        change.is_none_or(|change| change.timestamp().as_second() > to.0.saturating_add(margin))
    }

    /// Returns the first instant at which a local time is due.
    fn first_instant(&self, local: DateTime) -> Option<UnixTime> {
        Some(UnixTime(first_shown(&self.zone, local)?.as_second()))
    }

    /// Returns the instants at which a local time is due.
    fn instants(&self, local: DateTime) -> [Option<UnixTime>; 2] {
        let second = self
            .is_interval
            .then(|| self.on_the_other_clock(local))
            .flatten();
        let second = second.map(|instant| UnixTime(instant.as_second()));
        [self.first_instant(local), second]
    }

    /// Returns the second instant of a local time after clocks are set back. Until they show the time of the change again,
    /// times on the clock before the change count as well: after a change by half an hour, the next full hour is 90 minutes
    /// after the last one otherwise.
    fn on_the_other_clock(&self, local: DateTime) -> Option<Timestamp> {
        let offset = match self.zone.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Fold { before: _, after } => return instant(after, local),
            AmbiguousOffset::Gap { .. } => return None,
            AmbiguousOffset::Unambiguous { offset } => offset,
        };
        let shown = instant(offset, local)?;
        let change = self.zone.preceding(shown).next()?.timestamp();
        let before = self
            .zone
            .to_offset(change.checked_sub(SignedDuration::from_secs(1)).ok()?);
        let set_back = SignedDuration::from_secs(i64::from(before.seconds() - offset.seconds()));
        let on_clock_before = instant(before, local)?;
        let repeats_until = change.checked_add(set_back).ok()?;
        (change <= on_clock_before && on_clock_before < repeats_until).then_some(on_clock_before)
    }

    fn local(&self, time: UnixTime) -> Option<DateTime> {
        let time = Timestamp::from_second(time.0).ok()?;
        Some(self.zone.to_datetime(time))
    }
}

fn margin() -> jiff::Span {
    MAX_CHANGE_HOURS.hours()
}

fn instant(offset: Offset, local: DateTime) -> Option<Timestamp> {
    offset.to_timestamp(local).ok()
}

/// Returns a time as `20261118t112345z`, for names of objects.
pub fn stamp(time: UnixTime) -> String {
    let time = Timestamp::from_second(time.0).unwrap_or_default();
    let time = TimeZone::UTC.to_datetime(time);
    format!(
        "{:04}{:02}{:02}t{:02}{:02}{:02}z",
        time.year().max(0),
        time.month(),
        time.day(),
        time.hour(),
        time.minute(),
        time.second()
    )
}

/// Returns a time for people.
pub fn text(time: UnixTime) -> String {
    Timestamp::from_second(time.0)
        .unwrap_or_default()
        .to_string()
}

/// Returns the time of a stamp. Only a text that [`stamp`] returns is accepted.
pub fn parse_stamp(text: &str) -> Option<UnixTime> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i16>().ok();
    let small = |from: usize, to: usize| i8::try_from(number(from, to)?).ok();
    let date = jiff::civil::Date::new(number(0, 4)?, small(4, 6)?, small(6, 8)?).ok()?;
    let time = jiff::civil::Time::new(small(9, 11)?, small(11, 13)?, small(13, 15)?, 0).ok()?;
    let instant = TimeZone::UTC.to_timestamp(date.to_datetime(time)).ok()?;
    let parsed = UnixTime(instant.as_second());
    (stamp(parsed) == text).then_some(parsed)
}

#[cfg(test)]
#[path = "cron_tests.rs"]
mod tests;
