//! `spec.maintenance`: the windows in which disruptive changes may begin, and their validation. Their evaluation is in
//! [`windows`](crate::common::windows).

use std::time::Duration;

use jiff::civil::{Time, Weekday};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::rejection::{Rejection, invalid_value};
use crate::common::windows::{Window, Windows};
use crate::common::{cel, duration};

const FIELD: &str = "spec.maintenance.windows";
const MAX_WINDOWS: usize = 16;
/// A shorter window would close before the first member has recovered from its restart.
const MIN_WINDOW_DURATION: Duration = Duration::from_secs(600);
const MAX_WINDOW_DURATION: Duration = Duration::from_secs(86_400);

const MUST_BE_TIME_OF_DAY: &str =
    "must be a time of day from 00:00 to 23:59 with four digits, such as \"02:00\"";
const WINDOW_TOO_SHORT: &str =
    "must be at least 10m: members are restarted one by one, and each needs time to recover";
const WINDOW_TOO_LONG: &str =
    "must be at most 24h. To cover several days, list each of them in days";
const MUST_BE_TIME_ZONE: &str = "must be the name of a time zone in the IANA database, such as \
    Europe/Berlin or UTC. An offset such as +01:00 is not supported: it does not follow daylight \
    saving time";

/// When disruptive changes may begin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Maintenance {
    /// The windows in which changes that restart, move or replace members may begin. If empty, they begin at once.
    /// Failed members are recovered at any time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub windows: Vec<MaintenanceWindow>,
}

/// A recurring time of the week.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct MaintenanceWindow {
    /// The days on which the window opens: Mon, Tue, Wed, Thu, Fri, Sat, Sun. If empty, every day.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 7))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub days: Vec<Day>,
    /// The local time at which the window opens, such as "02:00" (a string). If clocks are set forward over this time,
    /// the window opens at that moment; if they show it twice, it opens at the first of the two.
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new("self.matches('^([01][0-9]|2[0-3]):[0-5][0-9]$')")
        .message(MUST_BE_TIME_OF_DAY))]
    pub start: String,
    /// How long the window is open, from 10m to 24h, such as 3h, 90m or 1h30m. It may extend into the next day.
    #[schemars(length(max = 16))]
    #[x_kube(
        validation = cel::duration(),
        validation = cel::duration_at_least("10m", WINDOW_TOO_SHORT),
        validation = cel::duration_at_most("24h", WINDOW_TOO_LONG),
    )]
    pub duration: String,
    /// The time zone of days and start: a name in the IANA time zone database, such as Europe/Berlin.
    #[serde(default = "default_time_zone")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$')")
        .message(MUST_BE_TIME_ZONE))]
    pub time_zone: String,
}

fn default_time_zone() -> String {
    "UTC".to_owned()
}

/// A day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Day {
    /// Monday.
    Mon,
    /// Tuesday.
    Tue,
    /// Wednesday.
    Wed,
    /// Thursday.
    Thu,
    /// Friday.
    Fri,
    /// Saturday.
    Sat,
    /// Sunday.
    Sun,
}

const WEEK: [Day; 7] = [
    Day::Mon,
    Day::Tue,
    Day::Wed,
    Day::Thu,
    Day::Fri,
    Day::Sat,
    Day::Sun,
];

impl From<Day> for Weekday {
    fn from(day: Day) -> Self {
        match day {
            Day::Mon => Self::Monday,
            Day::Tue => Self::Tuesday,
            Day::Wed => Self::Wednesday,
            Day::Thu => Self::Thursday,
            Day::Fri => Self::Friday,
            Day::Sat => Self::Saturday,
            Day::Sun => Self::Sunday,
        }
    }
}

impl Maintenance {
    /// Validates the windows. Returns the first problem.
    pub fn validate(&self) -> Result<Windows, Rejection> {
        if self.windows.len() > MAX_WINDOWS {
            return Err(Rejection::new(FIELD, "must have at most 16 items"));
        }
        let windows = self.windows.iter().enumerate().map(|(index, window)| {
            window
                .validate()
                .map_err(|reason| Rejection::new(FIELD, format!("windows[{index}].{reason}")))
        });
        windows.collect()
    }
}

impl MaintenanceWindow {
    fn validate(&self) -> Result<Window, String> {
        let Self {
            days,
            start,
            duration,
            time_zone,
        } = self;
        let days = if days.is_empty() { &WEEK[..] } else { days };
        Ok(Window {
            days: days.iter().copied().map(Weekday::from).collect(),
            start: parse_time_of_day(start)
                .ok_or_else(|| invalid("start", start, MUST_BE_TIME_OF_DAY))?,
            duration: validate_duration(duration)
                .map_err(|rule| invalid("duration", duration, rule))?,
            zone: find_zone(time_zone)
                .ok_or_else(|| invalid("timeZone", time_zone, MUST_BE_TIME_ZONE))?,
        })
    }
}

fn invalid(field: &str, value: &str, rule: &str) -> String {
    format!("{field}: {}", invalid_value(value, rule))
}

fn parse_time_of_day(text: &str) -> Option<Time> {
    let (hour, minute) = text.split_once(':')?;
    let two_digits = |text: &str| {
        let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<i8>().ok().filter(|_| is_number)
    };
    Time::new(two_digits(hour)?, two_digits(minute)?, 0, 0).ok()
}

fn validate_duration(text: &str) -> Result<Duration, &'static str> {
    match duration::parse(text) {
        Err(_) | Ok(None) => Err(cel::MUST_BE_DURATION),
        Ok(Some(duration)) if duration > MAX_WINDOW_DURATION => Err(WINDOW_TOO_LONG),
        Ok(Some(duration)) if duration < MIN_WINDOW_DURATION => Err(WINDOW_TOO_SHORT),
        Ok(Some(duration)) => Ok(duration),
    }
}

/// Looks up a time zone in the database that is compiled in, never in the system's: the operator's image has none, and
/// the plugin's preview must use the same data as the operator.
pub fn find_zone(name: &str) -> Option<TimeZone> {
    // `Etc/Unknown` stands for an unknown time zone.
    TimeZoneDatabase::bundled()
        .get(name)
        .ok()
        .filter(|zone| !zone.is_unknown())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window() -> MaintenanceWindow {
        serde_json::from_str(r#"{"start":"02:00","duration":"3h"}"#).unwrap()
    }

    fn rejection_reason(edit: fn(&mut MaintenanceWindow)) -> String {
        let mut second = window();
        edit(&mut second);
        let rejection = Maintenance {
            windows: vec![window(), second],
        }
        .validate()
        .unwrap_err();
        assert_eq!(rejection.field, "spec.maintenance.windows");
        rejection.reason
    }

    #[test]
    fn the_default_window_is_every_day_in_utc() {
        assert_eq!(window().time_zone, "UTC");
        let validated = window().validate().unwrap();
        assert_eq!(validated.days.len(), 7);
        assert_eq!(validated.start, Time::constant(2, 0, 0, 0));
        assert_eq!(validated.duration, Duration::from_secs(10_800));
        assert_eq!(validated.zone, TimeZone::UTC);
    }

    #[test]
    fn an_invalid_window_is_rejected_with_its_index_and_a_remedy() {
        for start in [
            "2:00", "02:0", "24:00", "02:60", "02.00", "02:00:00", "+2:00", "", "noon",
        ] {
            let reason = MaintenanceWindow {
                start: start.to_owned(),
                ..window()
            }
            .validate()
            .unwrap_err();
            assert!(
                reason.starts_with("start: ") && reason.ends_with("such as \"02:00\""),
                "{reason}"
            );
        }
        for duration in ["9m", "9m59s", "24h1s", "100h", "1d", "0", ""] {
            let reason = MaintenanceWindow {
                duration: duration.to_owned(),
                ..window()
            }
            .validate()
            .unwrap_err();
            assert!(reason.starts_with("duration: "), "{reason}");
        }
        assert_eq!(
            rejection_reason(|it| it.time_zone = "Europe/Berln".to_owned()),
            format!("windows[1].timeZone: invalid value \"Europe/Berln\": {MUST_BE_TIME_ZONE}")
        );
        assert!(
            rejection_reason(|it| it.time_zone = "Etc/Unknown".to_owned()).contains("timeZone")
        );
        let many = Maintenance {
            windows: vec![window(); 17],
        };
        assert_eq!(
            many.validate().unwrap_err().reason,
            "must have at most 16 items"
        );
    }

    #[test]
    fn windows_of_10_minutes_and_of_24_hours_are_valid() {
        for duration in ["10m", "600s", "24h", "23h60m"] {
            let window = MaintenanceWindow {
                duration: duration.to_owned(),
                ..window()
            };
            assert!(window.validate().is_ok(), "{duration}");
        }
    }

    #[test]
    fn the_schema_accepts_every_zone_of_the_database() {
        let part = |text: &str| {
            let plain = |it: u8| it.is_ascii_alphanumeric() || b"_+-".contains(&it);
            !text.is_empty() && text.bytes().all(plain)
        };
        let database = TimeZoneDatabase::bundled();
        let mut names = 0;
        for name in database.available() {
            let name = name.as_str();
            assert!(
                name.len() <= 64 && name.starts_with(|it: char| it.is_ascii_alphabetic()),
                "{name}"
            );
            assert!(
                name.split('/').all(part) && find_zone(name).is_some(),
                "{name}"
            );
            names += 1;
        }
        assert!(names > 400, "only {names} are compiled in");
    }

    #[test]
    fn empty_maintenance_is_not_serialized() {
        let spec = crate::EtcdClusterSpec::with_version("3.6.16");
        assert!(
            !serde_json::to_string(&spec)
                .unwrap()
                .contains("maintenance")
        );
        assert_eq!(
            serde_json::to_string(&Maintenance::default()).unwrap(),
            "{}"
        );
    }
}
