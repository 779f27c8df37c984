//! Cron expressions in a time zone. Times are computed on the calendar of the time zone and then translated to instants: a
//! local time that clocks skip is due when they do, and a local time that clocks show twice is due the first time.

use evenkeel_api::common::maintenance::find_zone;
use evenkeel_api::windows::first_shown;
use evenkeel_runtime::UnixTime;
use jiff::civil::{DateTime, date};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use croner::parser::{CronParser, Seconds, Year};

/// The names for expressions.
const NAMES: [(&str, &str); 4] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
];
/// The number of hours that clocks are turned back by at most. (Antarctica/Troll: two.)
const MAX_FOLD_HOURS: i64 = 3;
/// The number of calendar times that are tried for one instant: all minutes of a day.
const MAX_TRIES: usize = 1440;

/// A valid expression, which matches some time, in a time zone.
#[derive(Clone, Debug)]
pub struct Cron {
    pattern: croner::Cron,
    zone: TimeZone,
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
        Ok(Self { pattern, zone })
    }

    /// Returns the first due time after this one; `None` at the end of the range of times.
    pub fn next_after(&self, time: UnixTime) -> Option<UnixTime> {
        let mut local = self.local(time)?;
        for _ in 0..MAX_TRIES {
            local = self.pattern.find_next_occurrence(&local, false).ok()?;
            let due = self.instant(local)?;
            // While clocks repeat an hour, its times were due already.
            if due > time {
                return Some(due);
            }
        }
        None
    }

    /// Returns the last due time that is not after this one.
    pub fn last_until(&self, time: UnixTime) -> Option<UnixTime> {
        // While clocks repeat an hour, later local times of that hour were due already.
        let mut local = self.local(time)?.checked_add(MAX_FOLD_HOURS.hours()).ok()?;
        let mut is_inclusive = true;
        for _ in 0..MAX_TRIES {
            local = self
                .pattern
                .find_previous_occurrence(&local, is_inclusive)
                .ok()?;
            is_inclusive = false;
            let due = self.instant(local)?;
            if due <= time {
                return Some(due);
            }
        }
        None
    }

    fn local(&self, time: UnixTime) -> Option<DateTime> {
        let time = Timestamp::from_second(time.0).ok()?;
        Some(self.zone.to_datetime(time))
    }

    fn instant(&self, local: DateTime) -> Option<UnixTime> {
        Some(UnixTime(first_shown(&self.zone, local)?.as_second()))
    }
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
