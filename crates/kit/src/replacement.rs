//! The limit of replacements per time. The cause of an outage may take down the new members as well, so members that might
//! come back are not all replaced. The engine records the times of replacements in its identity object.

use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel_runtime::UnixTime;

/// How many members that might have come back are replaced within a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplacementLimit {
    /// The number of replacements, at least one.
    pub max: usize,
    /// The time for which a replacement counts.
    pub window: Duration,
}

impl ReplacementLimit {
    /// Returns when the next replacement is allowed; `None` if it is allowed now.
    pub fn waits_until(self, replacements: &BTreeSet<UnixTime>, now: UnixTime) -> Option<UnixTime> {
        // A time in the future was written by an operator whose clock ran ahead: it does not count.
        let mut recent = replacements
            .iter()
            .filter(|at| **at <= now && now.since(**at) < self.window);
        let oldest = recent.nth_back(self.max.saturating_sub(1))?;
        Some(oldest.after(self.window))
    }

    /// Records a replacement, and drops those that no longer count.
    pub fn record(self, replacements: &mut BTreeSet<UnixTime>, at: UnixTime) {
        replacements.retain(|earlier| at.since(*earlier) < self.window);
        replacements.insert(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixTime = UnixTime(1_800_000_000);
    const LIMIT: ReplacementLimit = ReplacementLimit {
        max: 3,
        window: Duration::from_secs(3600),
    };

    fn minutes_ago(minutes: &[i64]) -> BTreeSet<UnixTime> {
        let times = minutes.iter();
        times
            .map(|minutes| UnixTime(NOW.0 - 60 * minutes))
            .collect()
    }

    #[test]
    fn the_limit_ends_when_the_oldest_counted_replacement_expires() {
        let waits = |times: &[i64]| LIMIT.waits_until(&minutes_ago(times), NOW);
        assert_eq!(waits(&[]), None);
        assert_eq!(waits(&[61, 50, 20]), None);
        assert_eq!(waits(&[59, 50, 20]), Some(UnixTime(NOW.0 + 60)));
        assert_eq!(
            waits(&[59, 50, 20, 10]),
            Some(UnixTime(NOW.0 + 600)),
            "the third from the end"
        );
    }

    #[test]
    fn a_replacement_in_the_future_does_not_count() {
        let times = minutes_ago(&[50, 20, -5]);
        assert_eq!(LIMIT.waits_until(&times, NOW), None);
    }

    #[test]
    fn a_record_drops_replacements_that_no_longer_count() {
        let mut times = minutes_ago(&[61, 50]);
        LIMIT.record(&mut times, NOW);
        assert_eq!(times, minutes_ago(&[50, 0]));
    }
}
