//! Statistics of a workload: the rate of operations, and the longest time without an acknowledged write.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::time::Duration;

use crate::history::{ClientKind, History, Lane, Operation, OperationOutcome, RunTime};

/// Statistics of a period.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadStats {
    /// The length of the period.
    pub duration: Duration,
    /// The number of operations that ended in the period, with any outcome.
    pub operations: usize,
    /// The number of operations with a response.
    pub answered: usize,
    /// The number of acknowledged writes.
    pub acknowledged_writes: usize,
    /// The number of operations that certainly had no effect.
    pub failed: usize,
    /// The number of operations with an unknown outcome.
    pub unknown: usize,
    /// The longest time without an acknowledged write of any client.
    pub longest_write_gap: Duration,
    /// The longest time without an acknowledged write of *one* client, by kind: the worst client of each kind.
    pub longest_write_gap_by_kind: BTreeMap<ClientKind, Duration>,
}

impl WorkloadStats {
    /// Returns the operations per second.
    pub fn operations_per_second(&self) -> f64 {
        per_second(self.operations, self.duration)
    }

    /// Returns the operations with a response per second.
    pub fn answered_per_second(&self) -> f64 {
        per_second(self.answered, self.duration)
    }

    /// Computes the statistics between two times. A gap may start or end with the period, so an outage that never
    /// ended counts.
    pub(crate) fn of(ops: &[Operation], lanes: &[ClientKind], from: RunTime, to: RunTime) -> Self {
        let inside = || ops.iter().filter(|op| op.ended >= from && op.ended <= to);
        let mut writes: BTreeMap<Lane, Vec<RunTime>> = (0..)
            .zip(lanes)
            .map(|(lane, _)| (Lane(lane), Vec::new()))
            .collect();
        for op in inside().filter(|op| op.acknowledged_revision().is_some()) {
            writes.entry(op.lane).or_default().push(op.ended);
        }
        let mut gaps: BTreeMap<ClientKind, Duration> = BTreeMap::new();
        for (lane, times) in &mut writes {
            let Some(&kind) = lanes.get(usize::from(lane.0)) else {
                continue;
            };
            let gap = longest_gap(times, from, to);
            let worst = gaps.entry(kind).or_default();
            *worst = gap.max(*worst);
        }
        let mut all: Vec<RunTime> = writes.into_values().flatten().collect();
        let count = |matches: fn(&OperationOutcome) -> bool| {
            inside().filter(|op| matches(&op.outcome)).count()
        };
        Self {
            duration: Duration::from_nanos(to.0.saturating_sub(from.0)),
            operations: inside().count(),
            answered: count(|outcome| matches!(outcome, OperationOutcome::Ok(_))),
            acknowledged_writes: all.len(),
            failed: count(|outcome| matches!(outcome, OperationOutcome::Failed(_))),
            unknown: count(|outcome| matches!(outcome, OperationOutcome::Unknown(_))),
            longest_write_gap: longest_gap(&mut all, from, to),
            longest_write_gap_by_kind: gaps,
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

fn longest_gap(times: &mut [RunTime], from: RunTime, to: RunTime) -> Duration {
    times.sort_unstable();
    let mut last = from;
    let mut gap = 0;
    for &time in times.iter().chain([&to]) {
        gap = gap.max(time.0.saturating_sub(last.0));
        last = time;
    }
    Duration::from_nanos(gap)
}

impl fmt::Display for WorkloadStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} operations in {:.1} s ({:.0} per second): {} answered, {} of them writes, {} failed, {} unknown; \
             longest time without an acknowledged write: {:.0} ms",
            self.operations,
            self.duration.as_secs_f64(),
            self.operations_per_second(),
            self.answered,
            self.acknowledged_writes,
            self.failed,
            self.unknown,
            self.longest_write_gap.as_secs_f64() * 1e3,
        )?;
        for (kind, gap) in &self.longest_write_gap_by_kind {
            write!(f, ", {kind} {:.0} ms", gap.as_secs_f64() * 1e3)?;
        }
        Ok(())
    }
}

impl History {
    /// Returns the statistics of a period of the run: `..` for all of it, from the first read to the last operation.
    pub fn stats(&self, stretch: impl RangeBounds<RunTime>) -> WorkloadStats {
        let last = self
            .operations
            .iter()
            .map(|op| op.ended)
            .max()
            .unwrap_or(self.start.ended);
        let bound = |bound: Bound<&RunTime>, otherwise| match bound {
            Bound::Included(time) | Bound::Excluded(time) => *time,
            Bound::Unbounded => otherwise,
        };
        let (from, to) = (
            bound(stretch.start_bound(), self.start.ended),
            bound(stretch.end_bound(), last),
        );
        WorkloadStats::of(&self.operations, &self.lanes, from, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{ClientId, Key, Request, Response, Value};

    fn put(lane: u16, ended_ms: u64) -> Operation {
        let at = |ms: u64| RunTime(ms * 1_000_000);
        let value = Value(ended_ms);
        Operation {
            client: ClientId(lane.into()),
            lane: Lane(lane),
            key: Key(0),
            request: Request::Put(value),
            invoked: at(ended_ms - 1),
            ended: at(ended_ms),
            outcome: OperationOutcome::Ok(Response::Written(ended_ms as i64)),
        }
    }

    #[test]
    fn the_longest_gap_counts_from_the_start_to_the_end_of_the_period() {
        let lanes = vec![ClientKind::AllMembers, ClientKind::Service];
        let ops = vec![put(0, 100), put(0, 400), put(1, 600), put(0, 900)];
        let history = History {
            lanes,
            operations: ops,
            ..History::default()
        };
        let stats = history.stats(RunTime(0)..RunTime(2_000_000_000));
        assert_eq!(stats.longest_write_gap.as_millis(), 1_100);
        assert_eq!(
            stats
                .longest_write_gap_by_kind
                .get(&ClientKind::AllMembers)
                .unwrap()
                .as_millis(),
            1_100
        );
        assert_eq!(
            stats
                .longest_write_gap_by_kind
                .get(&ClientKind::Service)
                .unwrap()
                .as_millis(),
            1_400
        );
        assert_eq!((stats.operations, stats.acknowledged_writes), (4, 4));
    }

    #[test]
    fn a_client_that_never_wrote_has_a_gap_as_long_as_the_period() {
        let history = History {
            lanes: vec![ClientKind::Service],
            ..History::default()
        };
        let stats = history.stats(RunTime(0)..RunTime(3_000_000_000));
        assert_eq!(
            stats
                .longest_write_gap_by_kind
                .get(&ClientKind::Service)
                .unwrap()
                .as_secs(),
            3
        );
    }
}
