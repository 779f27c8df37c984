//! The checker that trusts nobody's revisions: for each key, is there *any* order of its operations, each between its
//! begin and its end, that explains every answer? Wing and Gong's search with Lowe's memory of where it has been.
//!
//! An operation that nobody got an answer to makes the search explode, unless: a write that no answer ever showed may
//! be left out (a refused swap tells what it saw, so leaving it out changes no answer), and one that an answer showed
//! must have happened before that answer came. Neither loses a violation.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{Fault, Violations};
use crate::history::{Answer, By, Call, History, Key, Op, Outcome, Time, Value, Versioned};

/// More operations than this on one key are not searched but reported; the workload turns to new keys long before.
pub const MOST_OPS: usize = 1_000;
/// So many states of the search are remembered for one key before it is given up.
const MOST_STATES: usize = 1_000_000;

/// Judges every key; tells how many there were.
pub fn check(history: &History) -> (usize, Violations) {
    let mut keys: BTreeMap<Key, Vec<&Op>> = BTreeMap::new();
    for op in &history.ops {
        keys.entry(op.key).or_default().push(op);
    }
    for key in history
        .start
        .state
        .keys()
        .chain(history.end.iter().flat_map(|end| end.state.keys()))
    {
        keys.entry(*key).or_default();
    }
    let mut violations = Violations::default();
    for (&key, ops) in &keys {
        judge(history, key, ops, &mut violations);
    }
    (keys.len(), violations)
}

/// Judges one key.
pub fn check_key(history: &History, key: Key) -> Violations {
    let ops: Vec<&Op> = history.ops.iter().filter(|op| op.key == key).collect();
    let mut violations = Violations::default();
    judge(history, key, &ops, &mut violations);
    violations
}

fn judge(history: &History, key: Key, ops: &[&Op], violations: &mut Violations) {
    let value = |state: Option<&Versioned>| state.map(|state| state.value);
    let start = value(history.start.state.get(&key));
    let at_end = history
        .end
        .as_ref()
        .and_then(|end| Some((end.state.get(&key)?.value, end.ended)));
    let mut steps = steps(ops, at_end);
    if let Some(end) = &history.end {
        let seen = value(end.state.get(&key));
        steps.push(Step {
            begin: end.invoked,
            end: end.ended,
            needs: Some(seen),
            unlike: None,
            leaves: None,
            op: None,
        });
    }
    if steps.len() > MOST_OPS {
        let count = steps.len();
        violations.add(Fault::Undecided, || {
            format!("{key} has {count} operations, more than {MOST_OPS}")
        });
        return;
    }
    match search(&steps, start) {
        Found::Order => {}
        Found::GaveUp => violations.add(Fault::Undecided, || {
            format!("{key}: no answer after {MOST_STATES} states of the search")
        }),
        Found::Stuck { at, state } => violations.add(Fault::NotLinearizable, || {
            let held = state.map_or_else(|| "nothing".to_owned(), |value: Value| value.to_string());
            let this = steps
                .get(at)
                .map(|step| told(ops, step))
                .unwrap_or_default();
            let around = around(ops, &steps, at);
            format!("{key}: no order explains this, with {held} there: {this}; around it: {around}")
        }),
    }
}

fn told(ops: &[&Op], step: &Step) -> String {
    step.op
        .and_then(|index| ops.get(index))
        .map_or_else(|| "the read at the end".to_owned(), |op| op.to_string())
}

/// The operations that overlap with one, and the last to end before it.
fn around(ops: &[&Op], steps: &[Step], at: usize) -> String {
    let Some(this) = steps.get(at) else {
        return String::new();
    };
    let mut near: Vec<&Step> = steps
        .iter()
        .filter(|step| step.op != this.op && step.begin <= this.end && step.end >= this.begin)
        .collect();
    let mut before: Vec<&Step> = steps.iter().filter(|step| step.end < this.begin).collect();
    before.sort_unstable_by_key(|step| std::cmp::Reverse(step.end));
    near.extend(before.into_iter().take(4));
    near.sort_unstable_by_key(|step| step.begin);
    near.into_iter()
        .take(12)
        .map(|step| told(ops, step))
        .collect::<Vec<_>>()
        .join("; ")
}

/// An operation as the search sees it: what it needs to find, and what it leaves.
#[derive(Clone, Copy, Debug)]
struct Step {
    begin: Time,
    end: Time,
    /// The state must be this.
    needs: Option<Option<Value>>,
    /// The state must not be this.
    unlike: Option<Option<Value>>,
    leaves: Option<Value>,
    op: Option<usize>,
}

fn steps(ops: &[&Op], at_end: Option<(Value, Time)>) -> Vec<Step> {
    let mut shown: HashMap<Value, Time> = HashMap::new();
    let mut found: Vec<(Value, Time)> = at_end.into_iter().collect();
    let mut swapped: HashMap<Value, Value> = HashMap::new();
    for op in ops {
        found.extend(
            op.answer()
                .and_then(Answer::seen)
                .flatten()
                .map(|seen| (seen.value, op.ended)),
        );
        if let Call::Cas {
            expect: Some((old, _)),
            value,
            ..
        } = op.call
        {
            swapped.insert(value, old);
            if op.written().is_some() {
                found.push((old, op.ended));
            }
        }
    }
    while let Some((value, time)) = found.pop() {
        if shown.get(&value).is_some_and(|first| *first <= time) {
            continue;
        }
        shown.insert(value, time);
        // A swap that has happened has seen what it replaced.
        found.extend(swapped.get(&value).map(|&old| (old, time)));
    }
    ops.iter()
        .enumerate()
        .filter_map(|(index, op)| step(index, op, &shown))
        .collect()
}

fn step(index: usize, op: &Op, shown: &HashMap<Value, Time>) -> Option<Step> {
    let expected = |expect: Option<(Value, i64)>| expect.map(|(value, _)| value);
    let (needs, unlike, leaves) = match (&op.outcome, op.call) {
        (Outcome::Failed(_), _) | (Outcome::Unknown(_), Call::Read) => return None,
        (Outcome::Ok(Answer::Read(_, seen)), _) => (Some(seen.map(|seen| seen.value)), None, None),
        (Outcome::Ok(Answer::Refused(_, seen)), Call::Cas { by, expect, .. }) => {
            // By revision or by value is the same, since no value is written twice.
            let (By::Revision | By::Value) = by;
            (
                Some(seen.map(|seen| seen.value)),
                Some(expected(expect)),
                None,
            )
        }
        (Outcome::Ok(Answer::Refused(_, seen)), _) => {
            (Some(seen.map(|seen| seen.value)), None, None)
        }
        (_, Call::Cas { expect, value, .. }) => (Some(expected(expect)), None, Some(value)),
        (_, Call::Put(value)) => (None, None, Some(value)),
        (Outcome::Ok(Answer::Written(_)), Call::Read) => return None,
    };
    let end = match (&op.outcome, leaves) {
        (Outcome::Unknown(_), Some(value)) => *shown.get(&value)?,
        _ => op.ended,
    };
    Some(Step {
        begin: op.invoked,
        end,
        needs,
        unlike,
        leaves,
        op: Some(index),
    })
}

enum Found {
    Order,
    GaveUp,
    Stuck { at: usize, state: Option<Value> },
}

/// Depth-first over the orders. A step may come next when no step that is still open ended before it began; the
/// number of steps taken and their set with the state reached are remembered, so no situation is tried twice.
fn search(steps: &[Step], start: Option<Value>) -> Found {
    let mut by_begin: Vec<usize> = (0..steps.len()).collect();
    by_begin.sort_unstable_by_key(|&index| steps.get(index).map(|step| step.begin));
    let mut been: HashSet<(Vec<u64>, Option<Value>)> = HashSet::new();
    let mut taken = Taken {
        set: vec![0; steps.len().div_ceil(64)],
        count: 0,
        first_open: 0,
    };
    let mut path: Vec<(usize, Option<Value>, usize)> = Vec::new();
    let mut state = start;
    let mut from = 0;
    let mut deepest = (0, 0, start);
    loop {
        if taken.count == steps.len() {
            return Found::Order;
        }
        if been.len() > MOST_STATES {
            return Found::GaveUp;
        }
        taken.skip(&by_begin);
        let (next, due) = candidate(steps, &by_begin, &taken, from.max(taken.first_open), state);
        if taken.count >= deepest.0 {
            deepest = (taken.count, due, state);
        }
        match next {
            Some((position, index)) => {
                let after = steps.get(index).and_then(|step| step.leaves).or(state);
                taken.flip(index);
                if been.insert((taken.set.clone(), after)) {
                    path.push((position, state, taken.first_open));
                    state = after;
                    from = 0;
                } else {
                    taken.flip(index);
                    from = position + 1;
                }
            }
            None => {
                let Some((position, earlier, first_open)) = path.pop() else {
                    return Found::Stuck {
                        at: deepest.1,
                        state: deepest.2,
                    };
                };
                if let Some(&index) = by_begin.get(position) {
                    taken.flip(index);
                }
                taken.first_open = first_open;
                state = earlier;
                from = position + 1;
            }
        }
    }
}

/// The next step to try, from a position on, and the open step that is due first.
fn candidate(
    steps: &[Step],
    by_begin: &[usize],
    taken: &Taken,
    from: usize,
    state: Option<Value>,
) -> (Option<(usize, usize)>, usize) {
    let mut due: Option<(Time, usize)> = None;
    let mut found = None;
    for (position, &index) in by_begin.iter().enumerate().skip(taken.first_open) {
        let Some(step) = steps.get(index) else {
            continue;
        };
        if taken.has(index) {
            continue;
        }
        // Nothing that began after an open step's end may come before it, nor may anything later in this order.
        if due.is_some_and(|(end, _)| step.begin > end) {
            break;
        }
        if due.is_none_or(|(end, _)| step.end < end) {
            due = Some((step.end, index));
        }
        let fits = step.needs.is_none_or(|needs| needs == state)
            && step.unlike.is_none_or(|unlike| unlike != state);
        if fits && found.is_none() && position >= from {
            found = Some((position, index));
        }
    }
    (found, due.map_or(0, |(_, index)| index))
}

struct Taken {
    set: Vec<u64>,
    count: usize,
    /// Everything before this position, by begin, is taken.
    first_open: usize,
}

impl Taken {
    fn has(&self, index: usize) -> bool {
        self.set
            .get(index / 64)
            .is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    fn flip(&mut self, index: usize) {
        let had = self.has(index);
        if let Some(word) = self.set.get_mut(index / 64) {
            *word ^= 1 << (index % 64);
        }
        self.count = if had { self.count - 1 } else { self.count + 1 };
    }

    fn skip(&mut self, by_begin: &[usize]) {
        while by_begin
            .get(self.first_open)
            .is_some_and(|&index| self.has(index))
        {
            self.first_open += 1;
        }
    }
}
