//! What a workload achieved: how many operations a second, and for how long nothing could be written.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::time::Duration;

use crate::history::{History, Kind, Lane, Op, Outcome, Time};

/// Figures of a stretch of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Stats {
    /// How long the stretch is.
    pub lasted: Duration,
    /// Operations that ended in it, whatever their outcome.
    pub ops: usize,
    /// Of these, answered.
    pub answered: usize,
    /// Of these, acknowledged writes.
    pub written: usize,
    /// Certainly without effect.
    pub failed: usize,
    /// With an outcome that is not known.
    pub unknown: usize,
    /// The longest time in which nobody's write was acknowledged.
    pub gap: Duration,
    /// The longest time in which *one* client of a kind had no write acknowledged: the worst client of the kind.
    pub gaps: BTreeMap<Kind, Duration>,
}

impl Stats {
    /// Operations a second.
    pub fn rate(&self) -> f64 {
        per_second(self.ops, self.lasted)
    }

    /// Answered operations a second.
    pub fn answered_rate(&self) -> f64 {
        per_second(self.answered, self.lasted)
    }

    /// Of the operations and lanes, between two times. A gap may begin with the stretch or end with it, so that an
    /// outage that never ended counts.
    pub(crate) fn of(ops: &[Op], lanes: &[Kind], from: Time, to: Time) -> Self {
        let inside = || ops.iter().filter(|op| op.ended >= from && op.ended <= to);
        let mut writes: BTreeMap<Lane, Vec<Time>> = (0..)
            .zip(lanes)
            .map(|(lane, _)| (Lane(lane), Vec::new()))
            .collect();
        for op in inside().filter(|op| op.written().is_some()) {
            writes.entry(op.lane).or_default().push(op.ended);
        }
        let mut gaps: BTreeMap<Kind, Duration> = BTreeMap::new();
        for (lane, times) in &mut writes {
            let Some(&kind) = lanes.get(usize::from(lane.0)) else {
                continue;
            };
            let gap = longest(times, from, to);
            let worst = gaps.entry(kind).or_default();
            *worst = gap.max(*worst);
        }
        let mut all: Vec<Time> = writes.into_values().flatten().collect();
        let count =
            |wanted: fn(&Outcome) -> bool| inside().filter(|op| wanted(&op.outcome)).count();
        Self {
            lasted: Duration::from_nanos(to.0.saturating_sub(from.0)),
            ops: inside().count(),
            answered: count(|outcome| matches!(outcome, Outcome::Ok(_))),
            written: all.len(),
            failed: count(|outcome| matches!(outcome, Outcome::Failed(_))),
            unknown: count(|outcome| matches!(outcome, Outcome::Unknown(_))),
            gap: longest(&mut all, from, to),
            gaps,
        }
    }
}

fn per_second(count: usize, lasted: Duration) -> f64 {
    if lasted.is_zero() {
        0.0
    } else {
        count as f64 / lasted.as_secs_f64()
    }
}

fn longest(times: &mut [Time], from: Time, to: Time) -> Duration {
    times.sort_unstable();
    let mut last = from;
    let mut gap = 0;
    for &time in times.iter().chain([&to]) {
        gap = gap.max(time.0.saturating_sub(last.0));
        last = time;
    }
    Duration::from_nanos(gap)
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} operations in {:.1} s ({:.0} a second): {} answered, {} of them writes, {} failed, {} not known; \
             longest time without a write: {:.0} ms",
            self.ops,
            self.lasted.as_secs_f64(),
            self.rate(),
            self.answered,
            self.written,
            self.failed,
            self.unknown,
            self.gap.as_secs_f64() * 1e3,
        )?;
        for (kind, gap) in &self.gaps {
            write!(f, ", {kind} {:.0} ms", gap.as_secs_f64() * 1e3)?;
        }
        Ok(())
    }
}

impl History {
    /// Figures of a stretch of the run: `..` for all of it, from the first read to the last operation.
    pub fn stats(&self, stretch: impl RangeBounds<Time>) -> Stats {
        let last = self
            .ops
            .iter()
            .map(|op| op.ended)
            .max()
            .unwrap_or(self.start.ended);
        let bound = |bound: Bound<&Time>, otherwise| match bound {
            Bound::Included(time) | Bound::Excluded(time) => *time,
            Bound::Unbounded => otherwise,
        };
        let (from, to) = (
            bound(stretch.start_bound(), self.start.ended),
            bound(stretch.end_bound(), last),
        );
        Stats::of(&self.ops, &self.lanes, from, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Answer, Call, Client, Key, Value};

    fn put(lane: u16, ended_ms: u64) -> Op {
        let at = |ms: u64| Time(ms * 1_000_000);
        let value = Value(ended_ms);
        Op {
            client: Client(lane.into()),
            lane: Lane(lane),
            key: Key(0),
            call: Call::Put(value),
            invoked: at(ended_ms - 1),
            ended: at(ended_ms),
            outcome: Outcome::Ok(Answer::Written(ended_ms as i64)),
        }
    }

    #[test]
    fn the_longest_gap_counts_from_the_begin_to_the_end_of_the_stretch() {
        let lanes = vec![Kind::Everywhere, Kind::Service];
        let ops = vec![put(0, 100), put(0, 400), put(1, 600), put(0, 900)];
        let history = History {
            lanes,
            ops,
            ..History::default()
        };
        let stats = history.stats(Time(0)..Time(2_000_000_000));
        assert_eq!(stats.gap.as_millis(), 1_100);
        assert_eq!(
            stats.gaps.get(&Kind::Everywhere).unwrap().as_millis(),
            1_100
        );
        assert_eq!(stats.gaps.get(&Kind::Service).unwrap().as_millis(), 1_400);
        assert_eq!((stats.ops, stats.written), (4, 4));
    }

    #[test]
    fn a_client_that_never_wrote_has_a_gap_as_long_as_the_stretch() {
        let history = History {
            lanes: vec![Kind::Service],
            ..History::default()
        };
        let stats = history.stats(Time(0)..Time(3_000_000_000));
        assert_eq!(stats.gaps.get(&Kind::Service).unwrap().as_secs(), 3);
    }
}
