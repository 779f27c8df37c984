//! Retention: which backups of a cluster are kept. A backup is kept if any rule keeps it.

use std::collections::BTreeSet;

use jiff::civil::ISOWeekDate;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

/// The numbers of backups to keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// The number of newest backups.
    pub last: u32,
    /// The number of hours of which the newest backup is kept.
    pub hourly: u32,
    /// The number of days of which the newest backup is kept.
    pub daily: u32,
    /// The number of weeks of which the newest backup is kept. Weeks begin on Monday.
    pub weekly: u32,
    /// The number of months of which the newest backup is kept.
    pub monthly: u32,
}

/// A complete backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its name or location, unique among the candidates.
    pub id: String,
    /// When it was complete.
    pub at: Timestamp,
    /// Whether a drill has restored it and found the expected data.
    pub is_proven: bool,
    /// Whether a restore or a drill uses it.
    pub is_in_use: bool,
}

/// The reason why a backup is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeepReason {
    /// It is among the newest.
    Last,
    /// It is the newest of an hour.
    Hourly,
    /// It is the newest of a day.
    Daily,
    /// It is the newest of a week.
    Weekly,
    /// It is the newest of a month.
    Monthly,
    /// It is the newest complete backup.
    Newest,
    /// It is the newest proven backup.
    NewestProven,
    /// A restore or a drill uses it.
    InUse,
    /// Its time is in the future: a clock is wrong, and age says nothing.
    InFuture,
}

/// The decision about one backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The name or location of the backup.
    pub id: String,
    /// Why the backup is kept; empty if it is deleted.
    pub reasons: BTreeSet<KeepReason>,
}

impl Verdict {
    /// Returns true if the backup is kept.
    pub fn is_kept(&self) -> bool {
        !self.reasons.is_empty()
    }
}

/// Decides about each backup, newest first. Hours, days, weeks and months are those of the time zone; only those with a backup
/// count, so that a pause of backups deletes nothing. Backups of the same time are ordered by their names.
pub fn select(
    keep: &Keep,
    backups: &[Candidate],
    now: Timestamp,
    time_zone: &TimeZone,
) -> Vec<Verdict> {
    let mut sorted: Vec<&Candidate> = backups.iter().collect();
    sorted.sort_by(|a, b| (b.at, &b.id).cmp(&(a.at, &a.id)));
    let mut verdicts: Vec<Verdict> = sorted
        .iter()
        .map(|backup| Verdict {
            id: backup.id.clone(),
            reasons: BTreeSet::new(),
        })
        .collect();
    let past = sorted.iter().take_while(|backup| backup.at > now).count();
    for verdict in &mut verdicts[..past] {
        verdict.reasons.insert(KeepReason::InFuture);
    }
    keep_protected(&sorted, past, &mut verdicts);

    let Keep {
        last,
        hourly,
        daily,
        weekly,
        monthly,
    } = *keep;
    let mut rules = [
        Rule::new(KeepReason::Hourly, hourly, hour),
        Rule::new(KeepReason::Daily, daily, day),
        Rule::new(KeepReason::Weekly, weekly, week),
        Rule::new(KeepReason::Monthly, monthly, month),
    ];
    for (index, (backup, verdict)) in sorted[past..].iter().zip(&mut verdicts[past..]).enumerate() {
        if index < last as usize {
            verdict.reasons.insert(KeepReason::Last);
        }
        let time = backup.at.to_zoned(time_zone.clone());
        for rule in &mut rules {
            if rule.keeps(&time) {
                verdict.reasons.insert(rule.reason);
            }
        }
    }
    verdicts
}

/// Keeps the newest backup, the newest proven one, and those in use. A backup with a time in the future protects no other
/// from being the newest.
fn keep_protected(sorted: &[&Candidate], past: usize, verdicts: &mut [Verdict]) {
    if let Some(newest) = verdicts.get_mut(past) {
        newest.reasons.insert(KeepReason::Newest);
    }
    let newest_proven = (past..sorted.len()).find(|index| sorted[*index].is_proven);
    if let Some(index) = newest_proven {
        verdicts[index].reasons.insert(KeepReason::NewestProven);
    }
    for (backup, verdict) in sorted.iter().zip(verdicts) {
        if backup.is_in_use {
            verdict.reasons.insert(KeepReason::InUse);
        }
    }
}

/// The number of a period: equal for times in the same period.
type Period = (i64, i64);

/// A rule that keeps the newest backup of each of a number of periods.
struct Rule {
    reason: KeepReason,
    remaining: u32,
    period: fn(&Zoned) -> Period,
    latest: Option<Period>,
}

impl Rule {
    fn new(reason: KeepReason, count: u32, period: fn(&Zoned) -> Period) -> Self {
        Self {
            reason,
            remaining: count,
            period,
            latest: None,
        }
    }

    /// Returns true for the first, and thus newest, backup of a period. Times come in descending order.
    fn keeps(&mut self, time: &Zoned) -> bool {
        if self.remaining == 0 {
            return false;
        }
        let period = Some((self.period)(time));
        if self.latest == period {
            return false;
        }
        self.latest = period;
        self.remaining -= 1;
        true
    }
}

/// Returns the hour on the clock. The hour that a daylight-saving change repeats counts twice, by its offset.
fn hour(time: &Zoned) -> Period {
    let offset = i64::from(time.offset().seconds());
    (
        (time.timestamp().as_second() + offset).div_euclid(3600),
        offset,
    )
}

fn day(time: &Zoned) -> Period {
    let date = time.date();
    (i64::from(date.year()), i64::from(date.day_of_year()))
}

fn week(time: &Zoned) -> Period {
    let week = ISOWeekDate::from(time.date());
    (i64::from(week.year()), i64::from(week.week()))
}

fn month(time: &Zoned) -> Period {
    let date = time.date();
    (i64::from(date.year()), i64::from(date.month()))
}

#[cfg(test)]
#[path = "retention_tests.rs"]
mod tests;
