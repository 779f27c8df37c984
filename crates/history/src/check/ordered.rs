//! The checker that trusts etcd's revisions. The watch gives the one order of all writes; what remains is to compare
//! every answer with it, and the order with the clock. O(n log n): millions of operations in seconds.

use std::collections::{BTreeMap, HashMap};

use super::{Fault, Violations};
use crate::history::{
    Answer, By, Call, History, Key, Op, Outcome, Snapshot, Time, Value, Versioned, Write, shown,
};

/// Judges a history.
pub fn check(history: &History) -> Violations {
    let order = Order::of(history);
    let mut violations = Violations::default();
    the_recording_is_sound(history, &mut violations);
    let took_effect = every_write_was_asked_for(history, &order, &mut violations);
    for (op, took_effect) in history.ops.iter().zip(&took_effect) {
        an_answer_fits_the_order(op, took_effect.is_some(), &order, &mut violations);
    }
    the_order_fits_the_clock(history, &took_effect, &mut violations);
    match &history.end {
        Some(end) => the_end_is_the_sum(end, &order, &mut violations),
        None => violations.add(Fault::Malformed, || {
            "what was there at the end could not be read".into()
        }),
    }
    violations
}

/// The writes of each key, in order.
struct Order<'a> {
    history: &'a History,
    keys: HashMap<Key, Vec<u32>>,
}

impl<'a> Order<'a> {
    fn of(history: &'a History) -> Self {
        let mut keys: HashMap<Key, Vec<u32>> = HashMap::new();
        for (index, write) in (0..).zip(&history.log) {
            keys.entry(write.key).or_default().push(index);
        }
        Self { history, keys }
    }

    fn write(&self, index: u32) -> Option<&'a Write> {
        self.history.log.get(index as usize)
    }

    /// A key's state when this revision was the newest.
    fn at(&self, key: Key, revision: i64) -> Option<Versioned> {
        let writes = self.keys.get(&key).map_or(&[][..], Vec::as_slice);
        let until = writes
            .partition_point(|&index| self.write(index).is_some_and(|w| w.revision <= revision));
        match until.checked_sub(1).and_then(|last| writes.get(last)) {
            Some(&index) => self.write(index).and_then(Write::state),
            None => self.history.start.state.get(&key).copied(),
        }
    }
}

/// One client does one thing at a time and nothing after an outcome that is not known; the watch goes forward.
fn the_recording_is_sound(history: &History, violations: &mut Violations) {
    let mut ops: Vec<&Op> = history.ops.iter().collect();
    ops.sort_unstable_by_key(|op| (op.client, op.invoked));
    for op in &ops {
        if op.ended < op.invoked {
            violations.add(Fault::Malformed, || {
                format!("it ended before it began: {op}")
            });
        }
    }
    for pair in ops.windows(2) {
        let [one, next] = pair else { continue };
        if one.client != next.client {
            continue;
        }
        if next.invoked < one.ended {
            violations.add(Fault::Malformed, || {
                format!("one client did two things at once: {one}; {next}")
            });
        }
        if matches!(one.outcome, Outcome::Unknown(_)) {
            violations.add(Fault::Malformed, || {
                format!("a client went on after it did not know: {one}; {next}")
            });
        }
    }
    let mut last = history.start.revision;
    for write in &history.log {
        if write.revision <= last {
            let revision = write.revision;
            violations.add(Fault::Malformed, || {
                format!("the watch went from revision {last} to {revision}")
            });
        }
        last = write.revision;
    }
}

/// Each write in the order was attempted, once, with that value, on that key, and did not count as failed. Returns
/// where each operation took effect.
fn every_write_was_asked_for(
    history: &History,
    order: &Order<'_>,
    violations: &mut Violations,
) -> Vec<Option<i64>> {
    let mut attempts: Vec<(Value, u32)> = (0..)
        .zip(&history.ops)
        .filter_map(|(index, op)| Some((op.call.writes()?, index)))
        .collect();
    attempts.sort_unstable();
    for pair in attempts.windows(2) {
        if let [(value, _), (same, _)] = pair
            && value == same
        {
            violations.add(Fault::Malformed, || {
                format!("the workload wrote {value} twice")
            });
        }
    }
    let mut took_effect: Vec<Option<i64>> = vec![None; history.ops.len()];
    for write in &history.log {
        let (revision, key) = (write.revision, write.key);
        let before = order.at(key, revision - 1);
        let Some(value) = write.value else {
            violations.add(Fault::Invented, || {
                format!("{key} was deleted at revision {revision}; nobody asked for it")
            });
            continue;
        };
        let version = before.map_or(0, |before| before.version) + 1;
        if write.version != version {
            violations.add(Fault::Lost, || {
                let known = shown(before);
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
        let Some((index, op)) = attempt.and_then(|index| Some((index, history.ops.get(index)?)))
        else {
            violations.add(Fault::Invented, || {
                format!("{value} of {key} at revision {revision} was never written")
            });
            continue;
        };
        if let Some(slot) = took_effect.get_mut(index)
            && let Some(earlier) = slot.replace(revision)
        {
            violations.add(Fault::Misreported, || {
                format!("applied twice, at revisions {earlier} and {revision}: {op}")
            });
        }
        a_write_fits_its_attempt(op, write, before, violations);
    }
    took_effect
}

fn a_write_fits_its_attempt(
    op: &Op,
    write: &Write,
    before: Option<Versioned>,
    violations: &mut Violations,
) {
    let revision = write.revision;
    if op.key != write.key {
        violations.add(Fault::Invented, || {
            format!(
                "written to {} at revision {revision} instead: {op}",
                write.key
            )
        });
    }
    match op.outcome {
        Outcome::Ok(Answer::Written(told)) if told == revision => {}
        Outcome::Unknown(_) => {}
        _ => violations.add(Fault::Misreported, || {
            format!("applied at revision {revision}, yet: {op}")
        }),
    }
    if let Call::Cas { by, expect, .. } = op.call
        && !holds(by, expect, before)
    {
        let before = shown(before);
        violations.add(Fault::WrongSwap, || {
            format!("applied at revision {revision} over {before}: {op}")
        });
    }
}

fn holds(by: By, expect: Option<(Value, i64)>, now: Option<Versioned>) -> bool {
    match (expect, now) {
        (None, None) => true,
        (Some((_, revision)), Some(now)) if by == By::Revision => revision == now.revision,
        (Some((value, _)), Some(now)) => value == now.value,
        _ => false,
    }
}

fn an_answer_fits_the_order(
    op: &Op,
    took_effect: bool,
    order: &Order<'_>,
    violations: &mut Violations,
) {
    let Some(answer) = op.answer() else { return };
    let now = || order.at(op.key, answer.revision());
    match (*answer, op.call) {
        (Answer::Written(_), Call::Put(_) | Call::Cas { .. }) => {
            if !took_effect {
                violations.add(Fault::Lost, || {
                    format!("acknowledged, but not among the writes: {op}")
                });
            }
        }
        (Answer::Read(_, seen), Call::Read) => {
            let now = now();
            if seen != now {
                violations.add(Fault::WrongRead, || {
                    format!("there was {} at that revision: {op}", shown(now))
                });
            }
        }
        (Answer::Refused(_, seen), Call::Cas { by, expect, .. }) => {
            let now = now();
            if seen != now {
                violations.add(Fault::WrongRead, || {
                    format!("there was {} at that revision: {op}", shown(now))
                });
            }
            if holds(by, expect, now) {
                violations.add(Fault::WrongSwap, || {
                    format!("refused, although it was as expected: {op}")
                });
            }
        }
        _ => violations.add(Fault::Malformed, || {
            format!("an answer to another question: {op}")
        }),
    }
}

/// What ended before something else began has the smaller revision, or the same if that is no write.
fn the_order_fits_the_clock(
    history: &History,
    took_effect: &[Option<i64>],
    violations: &mut Violations,
) {
    let mut ended: Vec<(Time, i64, u32)> = Vec::with_capacity(history.ops.len());
    let mut begun: Vec<(Time, i64, u32)> = Vec::with_capacity(history.ops.len());
    for ((index, op), took_effect) in (0..).zip(&history.ops).zip(took_effect) {
        match (op.answer().map(Answer::revision), took_effect) {
            (Some(revision), _) => {
                ended.push((op.ended, revision, index));
                begun.push((op.invoked, revision, index));
            }
            // Nobody was told, so it can be as late as it likes; but not earlier than it was asked for.
            (None, Some(revision)) => begun.push((op.invoked, *revision, index)),
            (None, None) => {}
        }
    }
    ended.sort_unstable();
    begun.sort_unstable();
    let op = |index: u32| history.ops.get(index as usize);
    let mut ended = ended.into_iter().peekable();
    let mut newest: (i64, Option<u32>) = (history.start.revision, None);
    for (invoked, revision, index) in begun {
        while let Some((_, revision, index)) = ended.next_if(|(time, ..)| *time < invoked) {
            if revision > newest.0 {
                newest = (revision, Some(index));
            }
        }
        let Some(this) = op(index) else { continue };
        let is_write = took_effect.get(index as usize).copied().flatten().is_some()
            || this.written().is_some();
        if revision < newest.0 || (is_write && revision == newest.0) {
            violations.add(Fault::OutOfOrder, || {
                let before = newest.1.and_then(op).map_or_else(|| "the start".to_owned(), Op::to_string);
                format!("took effect at revision {revision}: {this}; but this had ended before: {before}")
            });
        }
    }
    if let Some(end) = &history.end {
        let newest = history
            .ops
            .iter()
            .filter(|op| op.ended < end.invoked)
            .filter_map(|op| {
                let revision = op.answer()?.revision();
                (revision > end.revision).then_some(op)
            });
        for op in newest {
            let revision = end.revision;
            violations.add(Fault::OutOfOrder, || {
                format!("the last read was at revision {revision}, after: {op}")
            });
        }
    }
}

fn the_end_is_the_sum(end: &Snapshot, order: &Order<'_>, violations: &mut Violations) {
    let mut wanted: BTreeMap<Key, Option<Versioned>> = order
        .keys
        .keys()
        .map(|&key| (key, order.at(key, end.revision)))
        .collect();
    wanted.extend(
        order
            .history
            .start
            .state
            .keys()
            .map(|&key| (key, order.at(key, end.revision))),
    );
    wanted.extend(
        end.state
            .keys()
            .map(|&key| (key, order.at(key, end.revision))),
    );
    for (key, wanted) in wanted {
        let found = end.state.get(&key).copied();
        if found != wanted {
            violations.add(Fault::WrongEnd, || {
                let (wanted, found) = (shown(wanted), shown(found));
                format!(
                    "{key} is {found} at the end, at revision {}; by the order it is {wanted}",
                    end.revision
                )
            });
        }
    }
}
