//! The checker that uses etcd's revisions. The watch gives the total order of writes; every response is compared with
//! it, and the order is compared with the clock. O(n log n): millions of operations in seconds.

use std::collections::{BTreeMap, HashMap};

use super::{Anomalies, AnomalyKind};
use crate::history::{
    CompareBy, History, Key, KeyState, Operation, OperationOutcome, Request, Response, RunTime,
    Snapshot, Value, WatchedWrite, describe_state,
};

/// Checks a history.
pub fn check(history: &History) -> Anomalies {
    let order = WriteOrder::of(history);
    let mut anomalies = Anomalies::default();
    check_recording(history, &mut anomalies);
    let effect_revisions = match_writes_to_operations(history, &order, &mut anomalies);
    for (op, effect_revisions) in history.operations.iter().zip(&effect_revisions) {
        check_response(op, effect_revisions.is_some(), &order, &mut anomalies);
    }
    check_real_time_order(history, &effect_revisions, &mut anomalies);
    match &history.end {
        Some(end) => check_final_state(end, &order, &mut anomalies),
        None => anomalies.add(AnomalyKind::MalformedRecording, || {
            "the final state could not be read".into()
        }),
    }
    anomalies
}

/// The writes of each key, in order.
struct WriteOrder<'a> {
    history: &'a History,
    keys: HashMap<Key, Vec<u32>>,
}

impl<'a> WriteOrder<'a> {
    fn of(history: &'a History) -> Self {
        let mut keys: HashMap<Key, Vec<u32>> = HashMap::new();
        for (index, write) in (0..).zip(&history.writes) {
            keys.entry(write.key).or_default().push(index);
        }
        Self { history, keys }
    }

    fn write(&self, index: u32) -> Option<&'a WatchedWrite> {
        self.history.writes.get(index as usize)
    }

    /// Returns the state of a key at a revision.
    fn state_at(&self, key: Key, revision: i64) -> Option<KeyState> {
        let writes = self.keys.get(&key).map_or(&[][..], Vec::as_slice);
        let until = writes
            .partition_point(|&index| self.write(index).is_some_and(|w| w.revision <= revision));
        match until.checked_sub(1).and_then(|last| writes.get(last)) {
            Some(&index) => self.write(index).and_then(WatchedWrite::state),
            None => self.history.start.state.get(&key).copied(),
        }
    }
}

/// Checks the recording: each client runs one operation at a time and none after an unknown outcome, and the
/// revisions of the watch increase.
fn check_recording(history: &History, anomalies: &mut Anomalies) {
    let mut ops: Vec<&Operation> = history.operations.iter().collect();
    ops.sort_unstable_by_key(|op| (op.client, op.invoked));
    for op in &ops {
        if op.ended < op.invoked {
            anomalies.add(AnomalyKind::MalformedRecording, || {
                format!("the operation ended before it started: {op}")
            });
        }
    }
    for pair in ops.windows(2) {
        let [one, next] = pair else { continue };
        if one.client != next.client {
            continue;
        }
        if next.invoked < one.ended {
            anomalies.add(AnomalyKind::MalformedRecording, || {
                format!("one client ran two operations at the same time: {one}; {next}")
            });
        }
        if matches!(one.outcome, OperationOutcome::Unknown(_)) {
            anomalies.add(AnomalyKind::MalformedRecording, || {
                format!("a client continued after an unknown outcome: {one}; {next}")
            });
        }
    }
    let mut last = history.start.revision;
    for write in &history.writes {
        if write.revision <= last {
            let revision = write.revision;
            anomalies.add(AnomalyKind::MalformedRecording, || {
                format!("the watch went from revision {last} to {revision}")
            });
        }
        last = write.revision;
    }
}

/// Checks that each write belongs to exactly one operation, with its value and key, that was not reported as failed.
/// Returns the revision at which each operation took effect.
fn match_writes_to_operations(
    history: &History,
    order: &WriteOrder<'_>,
    anomalies: &mut Anomalies,
) -> Vec<Option<i64>> {
    let mut attempts: Vec<(Value, u32)> = (0..)
        .zip(&history.operations)
        .filter_map(|(index, op)| Some((op.request.written_value()?, index)))
        .collect();
    attempts.sort_unstable();
    for pair in attempts.windows(2) {
        if let [(value, _), (same, _)] = pair
            && value == same
        {
            anomalies.add(AnomalyKind::MalformedRecording, || {
                format!("the workload wrote {value} twice")
            });
        }
    }
    let mut effect_revisions: Vec<Option<i64>> = vec![None; history.operations.len()];
    for write in &history.writes {
        let (revision, key) = (write.revision, write.key);
        let before = order.state_at(key, revision - 1);
        let Some(value) = write.value else {
            anomalies.add(AnomalyKind::InventedValue, || {
                format!("{key} was deleted at revision {revision}; no client deletes keys")
            });
            continue;
        };
        let version = before.map_or(0, |before| before.version) + 1;
        if write.version != version {
            anomalies.add(AnomalyKind::LostWrite, || {
                let known = describe_state(before);
                format!(
                    "{value} of {key} at revision {revision} is version {}, after {known}",
                    write.version
                )
            });
        }
        let attempt = attempts.partition_point(|&(other, _)| other < value);
        let attempt = attempts
            .get(attempt)
            .filter(|(other, _)| *other == value)
            .map(|&(_, index)| index as usize);
        let Some((index, op)) =
            attempt.and_then(|index| Some((index, history.operations.get(index)?)))
        else {
            anomalies.add(AnomalyKind::InventedValue, || {
                format!("{value} of {key} at revision {revision} was never written")
            });
            continue;
        };
        if let Some(slot) = effect_revisions.get_mut(index)
            && let Some(earlier) = slot.replace(revision)
        {
            anomalies.add(AnomalyKind::MisreportedWrite, || {
                format!("applied twice, at revisions {earlier} and {revision}: {op}")
            });
        }
        check_write(op, write, before, anomalies);
    }
    effect_revisions
}

fn check_write(
    op: &Operation,
    write: &WatchedWrite,
    before: Option<KeyState>,
    anomalies: &mut Anomalies,
) {
    let revision = write.revision;
    if op.key != write.key {
        anomalies.add(AnomalyKind::InventedValue, || {
            format!(
                "written to {} instead, at revision {revision}: {op}",
                write.key
            )
        });
    }
    match op.outcome {
        OperationOutcome::Ok(Response::Written(reported)) if reported == revision => {}
        OperationOutcome::Unknown(_) => {}
        _ => anomalies.add(AnomalyKind::MisreportedWrite, || {
            format!("applied at revision {revision}, yet: {op}")
        }),
    }
    if let Request::CompareAndSwap { by, expect, .. } = op.request
        && !matches_expectation(by, expect, before)
    {
        let before = describe_state(before);
        anomalies.add(AnomalyKind::WrongCompareAndSwap, || {
            format!("applied at revision {revision} over {before}: {op}")
        });
    }
}

fn matches_expectation(by: CompareBy, expect: Option<(Value, i64)>, now: Option<KeyState>) -> bool {
    match (expect, now) {
        (None, None) => true,
        (Some((_, revision)), Some(now)) if by == CompareBy::Revision => revision == now.revision,
        (Some((value, _)), Some(now)) => value == now.value,
        _ => false,
    }
}

fn check_response(
    op: &Operation,
    effect_revisions: bool,
    order: &WriteOrder<'_>,
    anomalies: &mut Anomalies,
) {
    let Some(response) = op.response() else {
        return;
    };
    let now = || order.state_at(op.key, response.revision());
    match (*response, op.request) {
        (Response::Written(_), Request::Put(_) | Request::CompareAndSwap { .. }) => {
            if !effect_revisions {
                anomalies.add(AnomalyKind::LostWrite, || {
                    format!("acknowledged, but not among the writes: {op}")
                });
            }
        }
        (Response::Read(_, observed), Request::Read) => {
            let now = now();
            if observed != now {
                anomalies.add(AnomalyKind::WrongRead, || {
                    format!(
                        "the state at that revision was {}: {op}",
                        describe_state(now)
                    )
                });
            }
        }
        (Response::Mismatch(_, observed), Request::CompareAndSwap { by, expect, .. }) => {
            let now = now();
            if observed != now {
                anomalies.add(AnomalyKind::WrongRead, || {
                    format!(
                        "the state at that revision was {}: {op}",
                        describe_state(now)
                    )
                });
            }
            if matches_expectation(by, expect, now) {
                anomalies.add(AnomalyKind::WrongCompareAndSwap, || {
                    format!("rejected although the state was as expected: {op}")
                });
            }
        }
        _ => anomalies.add(AnomalyKind::MalformedRecording, || {
            format!("the response does not match the request: {op}")
        }),
    }
}

/// Checks that an operation that ended before another one started has the smaller revision, or the same one if the
/// other is not a write.
fn check_real_time_order(
    history: &History,
    effect_revisions: &[Option<i64>],
    anomalies: &mut Anomalies,
) {
    let mut ended: Vec<(RunTime, i64, u32)> = Vec::with_capacity(history.operations.len());
    let mut begun: Vec<(RunTime, i64, u32)> = Vec::with_capacity(history.operations.len());
    for ((index, op), effect_revisions) in (0..).zip(&history.operations).zip(effect_revisions) {
        match (op.response().map(Response::revision), effect_revisions) {
            (Some(revision), _) => {
                ended.push((op.ended, revision, index));
                begun.push((op.invoked, revision, index));
            }
            // Without a response the write may take effect at any later time, but not before its request.
            (None, Some(revision)) => begun.push((op.invoked, *revision, index)),
            (None, None) => {}
        }
    }
    ended.sort_unstable();
    begun.sort_unstable();
    let op = |index: u32| history.operations.get(index as usize);
    let mut ended = ended.into_iter().peekable();
    let mut newest: (i64, Option<u32>) = (history.start.revision, None);
    for (invoked, revision, index) in begun {
        while let Some((_, revision, index)) = ended.next_if(|(time, ..)| *time < invoked) {
            if revision > newest.0 {
                newest = (revision, Some(index));
            }
        }
        let Some(this) = op(index) else { continue };
        let is_write = effect_revisions
            .get(index as usize)
            .copied()
            .flatten()
            .is_some()
            || this.acknowledged_revision().is_some();
        if revision < newest.0 || (is_write && revision == newest.0) {
            anomalies.add(AnomalyKind::OutOfOrder, || {
                let before = newest.1.and_then(op).map_or_else(|| "the start".to_owned(), Operation::to_string);
                format!("took effect at revision {revision}: {this}; but this operation had ended before: {before}")
            });
        }
    }
    if let Some(end) = &history.end {
        let newest = history
            .operations
            .iter()
            .filter(|op| op.ended < end.invoked)
            .filter_map(|op| {
                let revision = op.response()?.revision();
                (revision > end.revision).then_some(op)
            });
        for op in newest {
            let revision = end.revision;
            anomalies.add(AnomalyKind::OutOfOrder, || {
                format!("the final read was at revision {revision}, after: {op}")
            });
        }
    }
}

fn check_final_state(end: &Snapshot, order: &WriteOrder<'_>, anomalies: &mut Anomalies) {
    let mut expected: BTreeMap<Key, Option<KeyState>> = order
        .keys
        .keys()
        .map(|&key| (key, order.state_at(key, end.revision)))
        .collect();
    expected.extend(
        order
            .history
            .start
            .state
            .keys()
            .map(|&key| (key, order.state_at(key, end.revision))),
    );
    expected.extend(
        end.state
            .keys()
            .map(|&key| (key, order.state_at(key, end.revision))),
    );
    for (key, expected) in expected {
        let actual = end.state.get(&key).copied();
        if actual != expected {
            anomalies.add(AnomalyKind::WrongFinalState, || {
                let (expected, actual) = (describe_state(expected), describe_state(actual));
                format!(
                    "the final state of {key} at revision {} is {actual}; the writes give {expected}",
                    end.revision
                )
            });
        }
    }
}
