//! Since when the operator has observed conditions for which no Kubernetes object holds a timestamp. The times are kept in
//! memory: only an operator that observed all the time knows that a condition lasted. A restarted operator counts from
//! zero, so that actions based on these times come later, never too early.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evenkeel_runtime::UnixTime;

/// The longest time between two observations that still count as one condition.
const MAX_OBSERVATION_GAP: Duration = Duration::from_secs(60);

/// Since when the members of one cluster have been unreachable.
#[derive(Debug)]
pub struct UnreachableTracker<M> {
    spans: BTreeMap<M, Span>,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    first: UnixTime,
    last: UnixTime,
}

impl<M> Default for UnreachableTracker<M> {
    fn default() -> Self {
        Self {
            spans: BTreeMap::new(),
        }
    }
}

impl<M: Copy + Ord> UnreachableTracker<M> {
    /// Records one observation. `unreachable` holds the members that are unreachable, with the time of this observation;
    /// each time is replaced by the time since when the member has been unreachable. `reachable` holds the members that
    /// answered. A member in neither set is unknown, and keeps its time.
    pub fn record(&mut self, reachable: &BTreeSet<M>, unreachable: &mut BTreeMap<M, UnixTime>) {
        self.spans.retain(|member, _| !reachable.contains(member));
        for (member, since) in unreachable {
            let now = *since;
            let span = self.spans.entry(*member).or_insert(Span {
                first: now,
                last: now,
            });
            if now.since(span.last) > MAX_OBSERVATION_GAP {
                span.first = now;
            }
            span.last = now;
            *since = span.first;
        }
    }

    /// Forgets since when a member has been unreachable: the time begins anew.
    pub fn forget(&mut self, member: M) {
        self.spans.remove(&member);
    }
}

/// When each of a set of things was first seen.
#[derive(Debug)]
pub struct FirstSeen<K> {
    times: BTreeMap<K, UnixTime>,
}

impl<K> Default for FirstSeen<K> {
    fn default() -> Self {
        Self {
            times: BTreeMap::new(),
        }
    }
}

impl<K: Copy + Ord> FirstSeen<K> {
    /// Records one observation of the whole set. Each time is replaced by the time of the first observation since the thing
    /// was last absent.
    pub fn record<'t>(&mut self, seen: impl Iterator<Item = (K, &'t mut UnixTime)>) {
        let mut times = BTreeMap::new();
        for (key, time) in seen {
            *time = self.times.get(&key).copied().unwrap_or(*time);
            times.insert(key, *time);
        }
        self.times = times;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixTime = UnixTime(1_800_000_000);

    fn later(seconds: i64) -> UnixTime {
        UnixTime(NOW.0 + seconds)
    }

    /// Returns since when member 2 is unreachable, after an observation at this time.
    fn unreachable_at(tracker: &mut UnreachableTracker<u16>, at: UnixTime) -> UnixTime {
        let mut unreachable = BTreeMap::from([(2, at)]);
        tracker.record(&[0, 1].into(), &mut unreachable);
        unreachable[&2]
    }

    #[test]
    fn time_counts_from_the_first_observation_until_the_member_answers() {
        let mut tracker = UnreachableTracker::default();
        assert_eq!(unreachable_at(&mut tracker, NOW), NOW);
        assert_eq!(unreachable_at(&mut tracker, later(30)), NOW);
        assert_eq!(unreachable_at(&mut tracker, later(60)), NOW);
        tracker.record(&[0, 1, 2].into(), &mut BTreeMap::new());
        assert_eq!(unreachable_at(&mut tracker, later(90)), later(90));
    }

    #[test]
    fn an_observation_that_does_not_cover_a_member_keeps_its_time() {
        let mut tracker = UnreachableTracker::default();
        unreachable_at(&mut tracker, NOW);
        tracker.record(&[0, 1].into(), &mut BTreeMap::new());
        assert_eq!(unreachable_at(&mut tracker, later(60)), NOW);
    }

    #[test]
    fn a_long_gap_between_observations_restarts_the_count() {
        let mut tracker = UnreachableTracker::default();
        unreachable_at(&mut tracker, NOW);
        assert_eq!(unreachable_at(&mut tracker, later(600)), later(600));
    }

    #[test]
    fn a_forgotten_member_counts_anew() {
        let mut tracker = UnreachableTracker::default();
        unreachable_at(&mut tracker, NOW);
        tracker.forget(2);
        assert_eq!(unreachable_at(&mut tracker, later(30)), later(30));
    }

    #[test]
    fn first_seen_restarts_after_an_absence() {
        let mut first_seen = FirstSeen::default();
        let mut seen_at = |at: UnixTime, is_present: bool| {
            let mut time = at;
            let observed = is_present.then_some((0xabc, &mut time));
            first_seen.record(observed.into_iter());
            time
        };
        assert_eq!(seen_at(NOW, true), NOW);
        assert_eq!(seen_at(later(60), true), NOW);
        seen_at(later(70), false);
        assert_eq!(seen_at(later(80), true), later(80));
    }
}
