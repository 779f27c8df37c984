//! When changes that disturb members may happen: what users write of maintenance windows, and their check. What
//! windows mean for an instant is told by [`windows`](crate::common::windows).

use std::time::Duration;

use jiff::civil::{Time, Weekday};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::cel::{duration, lasts_at_least, lasts_at_most};
use crate::common::duration as retention;
use crate::common::windows::{Window, Windows};
use crate::etcd::validation::Refusal;

const FIELD: &str = "spec.maintenance.windows";
const MOST_WINDOWS: usize = 16;
/// Less would close while the first member is on its way back.
const SHORTEST: Duration = Duration::from_secs(600);
const LONGEST: Duration = Duration::from_secs(86_400);

/// When changes that disturb members may happen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Maintenance {
    /// The windows in which changes that restart, move or replace members may begin. Without any they begin at once.
    /// Failures are healed at any time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub windows: Vec<MaintenanceWindow>,
}

/// A time of the week that comes again and again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct MaintenanceWindow {
    /// The days on which it begins: Mon, Tue, Wed, Thu, Fri, Sat, Sun. Without any, every day.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 7))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub days: Vec<Day>,
    /// The time of day at which it begins, such as "02:00" (a string). Where clocks go forward over it, it begins as
    /// they do; where they show it twice, the first time.
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new("self.matches('^([01][0-9]|2[0-3]):[0-5][0-9]$')")
        .message("write a time of day from 00:00 to 23:59 with all four digits, such as \"02:00\""))]
    pub start: String,
    /// How long it lasts, 10m to 24h: 3h, 90m, 1h30m. It may go on into the next day.
    #[schemars(length(max = 16))]
    #[x_kube(
        validation = duration(),
        validation = lasts_at_least("10m", "at least 10m: members are disturbed one by one, and each takes a while to \
            come back"),
        validation = lasts_at_most("24h", "at most 24h: for more, let it begin on each of the days"),
    )]
    pub duration: String,
    /// The time zone of start, by its name in the IANA database, such as Europe/Berlin.
    #[serde(default = "default_time_zone")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$')")
        .message("write a time zone's name in the IANA database, such as Europe/Berlin or UTC: an offset such as \
            +01:00 does not tell when clocks are changed"))]
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
    /// The windows as times, or what is wrong with the first that is none.
    pub(crate) fn checked(&self) -> Result<Windows, Refusal> {
        if self.windows.len() > MOST_WINDOWS {
            return Err(Refusal::of(FIELD, "more than 16 windows"));
        }
        let checked = self.windows.iter().enumerate().map(|(index, window)| {
            window
                .checked()
                .map_err(|why| Refusal::of(FIELD, format!("in windows[{index}], {why}")))
        });
        checked.collect()
    }
}

impl MaintenanceWindow {
    fn checked(&self) -> Result<Window, String> {
        let Self {
            days,
            start,
            duration,
            time_zone,
        } = self;
        let days = if days.is_empty() { &WEEK[..] } else { days };
        Ok(Window {
            days: days.iter().copied().map(Weekday::from).collect(),
            start: time_of_day(start)
                .ok_or_else(|| format!("start: {start:?} is not a time of day such as 02:00"))?,
            duration: checked_duration(duration).map_err(|why| format!("duration: {why}"))?,
            zone: zone(time_zone).ok_or_else(|| {
                format!(
                    "timeZone: {time_zone:?} is not in the IANA database: write a name such as Europe/Berlin or UTC"
                )
            })?,
        })
    }
}

fn time_of_day(text: &str) -> Option<Time> {
    let (hour, minute) = text.split_once(':')?;
    let number = |text: &str| {
        let plain = text.len() == 2 && text.bytes().all(|it| it.is_ascii_digit());
        text.parse::<i8>().ok().filter(|_| plain)
    };
    Time::new(number(hour)?, number(minute)?, 0, 0).ok()
}

fn checked_duration(text: &str) -> Result<Duration, String> {
    match retention::parse(text).map_err(|why| why.to_string())? {
        Some(duration) if duration > LONGEST => Err(format!("{text:?} is more than 24h")),
        Some(duration) if duration >= SHORTEST => Ok(duration),
        _ => Err(format!("{text:?} is less than 10m")),
    }
}

/// By the database that is compiled in, never the system's: the operator's image has none, and whoever foresees what it
/// will do must read the same.
fn zone(name: &str) -> Option<TimeZone> {
    // `Etc/Unknown` is a name for not having one.
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

    fn refused(edit: fn(&mut MaintenanceWindow)) -> String {
        let mut second = window();
        edit(&mut second);
        let refusal = Maintenance {
            windows: vec![window(), second],
        }
        .checked()
        .unwrap_err();
        assert_eq!(refusal.field, "spec.maintenance.windows");
        refusal.why
    }

    #[test]
    fn the_smallest_window_is_every_day_in_utc() {
        assert_eq!(window().time_zone, "UTC");
        let checked = window().checked().unwrap();
        assert_eq!(checked.days.len(), 7);
        assert_eq!(checked.start, Time::constant(2, 0, 0, 0));
        assert_eq!(checked.duration, Duration::from_secs(10_800));
        assert_eq!(checked.zone, TimeZone::UTC);
    }

    #[test]
    fn what_is_no_window_is_named_with_its_place_and_what_to_write() {
        for start in [
            "2:00", "02:0", "24:00", "02:60", "02.00", "02:00:00", "+2:00", "", "noon",
        ] {
            let why = MaintenanceWindow {
                start: start.to_owned(),
                ..window()
            }
            .checked()
            .unwrap_err();
            assert!(
                why.starts_with("start: ") && why.ends_with("such as 02:00"),
                "{why}"
            );
        }
        for duration in ["9m", "9m59s", "24h1s", "100h", "1d", "0", ""] {
            let why = MaintenanceWindow {
                duration: duration.to_owned(),
                ..window()
            }
            .checked()
            .unwrap_err();
            assert!(why.starts_with("duration: "), "{why}");
        }
        assert_eq!(
            refused(|it| it.time_zone = "Europe/Berln".to_owned()),
            "in windows[1], timeZone: \"Europe/Berln\" is not in the IANA database: write a name such as \
             Europe/Berlin or UTC"
        );
        assert!(refused(|it| it.time_zone = "Etc/Unknown".to_owned()).contains("timeZone"));
        let many = Maintenance {
            windows: vec![window(); 17],
        };
        assert_eq!(many.checked().unwrap_err().why, "more than 16 windows");
    }

    #[test]
    fn ten_minutes_and_a_whole_day_are_the_bounds() {
        for duration in ["10m", "600s", "24h", "23h60m"] {
            let window = MaintenanceWindow {
                duration: duration.to_owned(),
                ..window()
            };
            assert!(window.checked().is_ok(), "{duration}");
        }
    }

    #[test]
    fn every_zone_of_the_database_has_a_name_that_the_schema_takes() {
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
            assert!(name.split('/').all(part) && zone(name).is_some(), "{name}");
            names += 1;
        }
        assert!(names > 400, "only {names} are compiled in");
    }

    #[test]
    fn no_windows_are_not_worth_writing_down() {
        let spec = crate::EtcdClusterSpec::of_version("3.6.16");
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
