//! The checker that does not use revisions: for each key it searches for *any* order of the operations, each between
//! its start and its end, that explains every response. The algorithm is Wing and Gong's search with Lowe's
//! memoization.
//!
//! Operations without a response make the search explode, so two rules limit them: a write that no response ever
//! showed may be left out (a failed compare-and-swap returns the state it saw, so leaving the write out changes no
//! response), and a write that a response showed must have happened before that response. Neither rule hides an
//! anomaly.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{Anomalies, AnomalyKind};
use crate::history::{
    CompareBy, History, Key, KeyState, Operation, OperationOutcome, Request, Response, RunTime,
    Value,
};

/// The maximum number of operations per key. A key with more is reported as undecided; the workload moves to new keys
/// long before.
pub const MAX_OPERATIONS_PER_KEY: usize = 1_000;
/// The maximum number of search states per key.
const MAX_SEARCH_STATES: usize = 1_000_000;

/// Checks every key. Returns the number of keys and the anomalies.
pub fn check(history: &History) -> (usize, Anomalies) {
    let mut keys: BTreeMap<Key, Vec<&Operation>> = BTreeMap::new();
    for op in &history.operations {
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
    let mut anomalies = Anomalies::default();
    for (&key, ops) in &keys {
        check_operations(history, key, ops, &mut anomalies);
    }
    (keys.len(), anomalies)
}

/// Checks one key.
pub fn check_key(history: &History, key: Key) -> Anomalies {
    let ops: Vec<&Operation> = history
        .operations
        .iter()
        .filter(|op| op.key == key)
        .collect();
    let mut anomalies = Anomalies::default();
    check_operations(history, key, &ops, &mut anomalies);
    anomalies
}

fn check_operations(history: &History, key: Key, ops: &[&Operation], anomalies: &mut Anomalies) {
    let value = |state: Option<&KeyState>| state.map(|state| state.value);
    let start = value(history.start.state.get(&key));
    let at_end = history
        .end
        .as_ref()
        .and_then(|end| Some((end.state.get(&key)?.value, end.ended)));
    let mut steps = search_steps(ops, at_end);
    if let Some(end) = &history.end {
        let observed = value(end.state.get(&key));
        steps.push(Step {
            begin: end.invoked,
            end: end.ended,
            required: Some(observed),
            forbidden: None,
            writes: None,
            op: None,
        });
    }
    if steps.len() > MAX_OPERATIONS_PER_KEY {
        let count = steps.len();
        anomalies.add(AnomalyKind::Undecided, || {
            format!("{key} has {count} operations, more than {MAX_OPERATIONS_PER_KEY}")
        });
        return;
    }
    match search(&steps, start) {
        SearchResult::Linearizable => {}
        SearchResult::LimitReached => anomalies.add(AnomalyKind::Undecided, || {
            format!("{key}: undecided after {MAX_SEARCH_STATES} search states")
        }),
        SearchResult::Stuck { at, state } => anomalies.add(AnomalyKind::NotLinearizable, || {
            let held = state.map_or_else(|| "nothing".to_owned(), |value: Value| value.to_string());
            let this = steps
                .get(at)
                .map(|step| describe_step(ops, step))
                .unwrap_or_default();
            let around = describe_neighbours(ops, &steps, at);
            format!(
                "{key}: no order explains this operation on {held}: {this}; neighbours: {around}"
            )
        }),
    }
}

fn describe_step(ops: &[&Operation], step: &Step) -> String {
    step.op
        .and_then(|index| ops.get(index))
        .map_or_else(|| "the final read".to_owned(), |op| op.to_string())
}

/// Describes the operations that overlap with a step, and the last ones that ended before it.
fn describe_neighbours(ops: &[&Operation], steps: &[Step], at: usize) -> String {
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
        .map(|step| describe_step(ops, step))
        .collect::<Vec<_>>()
        .join("; ")
}

/// An operation in the search: the state that it requires, and the value that it writes.
#[derive(Clone, Copy, Debug)]
struct Step {
    begin: RunTime,
    end: RunTime,
    /// The state that the operation requires.
    required: Option<Option<Value>>,
    /// The state that the operation excludes.
    forbidden: Option<Option<Value>>,
    writes: Option<Value>,
    op: Option<usize>,
}

fn search_steps(ops: &[&Operation], at_end: Option<(Value, RunTime)>) -> Vec<Step> {
    let mut shown: HashMap<Value, RunTime> = HashMap::new();
    let mut actual: Vec<(Value, RunTime)> = at_end.into_iter().collect();
    let mut swapped: HashMap<Value, Value> = HashMap::new();
    for op in ops {
        actual.extend(
            op.response()
                .and_then(Response::observed)
                .flatten()
                .map(|observed| (observed.value, op.ended)),
        );
        if let Request::CompareAndSwap {
            expect: Some((old, _)),
            value,
            ..
        } = op.request
        {
            swapped.insert(value, old);
            if op.acknowledged_revision().is_some() {
                actual.push((old, op.ended));
            }
        }
    }
    while let Some((value, time)) = actual.pop() {
        if shown.get(&value).is_some_and(|first| *first <= time) {
            continue;
        }
        shown.insert(value, time);
        // A compare-and-swap that took effect has seen the value that it replaced.
        actual.extend(swapped.get(&value).map(|&old| (old, time)));
    }
    ops.iter()
        .enumerate()
        .filter_map(|(index, op)| search_step(index, op, &shown))
        .collect()
}

fn search_step(index: usize, op: &Operation, shown: &HashMap<Value, RunTime>) -> Option<Step> {
    let expected = |expect: Option<(Value, i64)>| expect.map(|(value, _)| value);
    let (needs, unlike, leaves) = match (&op.outcome, op.request) {
        (OperationOutcome::Failed(_), _) | (OperationOutcome::Unknown(_), Request::Read) => {
            return None;
        }
        (OperationOutcome::Ok(Response::Read(_, observed)), _) => {
            (Some(observed.map(|observed| observed.value)), None, None)
        }
        (
            OperationOutcome::Ok(Response::Mismatch(_, observed)),
            Request::CompareAndSwap { by, expect, .. },
        ) => {
            // Comparing by revision or by value is equivalent, because no value is written twice.
            let (CompareBy::Revision | CompareBy::Value) = by;
            (
                Some(observed.map(|observed| observed.value)),
                Some(expected(expect)),
                None,
            )
        }
        (OperationOutcome::Ok(Response::Mismatch(_, observed)), _) => {
            (Some(observed.map(|observed| observed.value)), None, None)
        }
        (_, Request::CompareAndSwap { expect, value, .. }) => {
            (Some(expected(expect)), None, Some(value))
        }
        (_, Request::Put(value)) => (None, None, Some(value)),
        (OperationOutcome::Ok(Response::Written(_)), Request::Read) => return None,
    };
    let end = match (&op.outcome, leaves) {
        (OperationOutcome::Unknown(_), Some(value)) => *shown.get(&value)?,
        _ => op.ended,
    };
    Some(Step {
        begin: op.invoked,
        end,
        required: needs,
        forbidden: unlike,
        writes: leaves,
        op: Some(index),
    })
}

enum SearchResult {
    Linearizable,
    LimitReached,
    Stuck { at: usize, state: Option<Value> },
}

/// Searches depth first over the orders. A step may come next if no untaken step ended before it started. The set of
/// taken steps together with the state is memoized, so no situation is tried twice.
fn search(steps: &[Step], start: Option<Value>) -> SearchResult {
    let mut by_begin: Vec<usize> = (0..steps.len()).collect();
    by_begin.sort_unstable_by_key(|&index| steps.get(index).map(|step| step.begin));
    let mut visited: HashSet<(Vec<u64>, Option<Value>)> = HashSet::new();
    let mut taken = TakenSteps {
        set: vec![0; steps.len().div_ceil(64)],
        count: 0,
        first_untaken: 0,
    };
    let mut path: Vec<(usize, Option<Value>, usize)> = Vec::new();
    let mut state = start;
    let mut from = 0;
    let mut deepest = (0, 0, start);
    loop {
        if taken.count == steps.len() {
            return SearchResult::Linearizable;
        }
        if visited.len() > MAX_SEARCH_STATES {
            return SearchResult::LimitReached;
        }
        taken.skip_taken(&by_begin);
        let (next, due) = next_step(
            steps,
            &by_begin,
            &taken,
            from.max(taken.first_untaken),
            state,
        );
        if taken.count >= deepest.0 {
            deepest = (taken.count, due, state);
        }
        match next {
            Some((position, index)) => {
                let after = steps.get(index).and_then(|step| step.writes).or(state);
                taken.toggle(index);
                if visited.insert((taken.set.clone(), after)) {
                    path.push((position, state, taken.first_untaken));
                    state = after;
                    from = 0;
                } else {
                    taken.toggle(index);
                    from = position + 1;
                }
            }
            None => {
                let Some((position, earlier, first_open)) = path.pop() else {
                    return SearchResult::Stuck {
                        at: deepest.1,
                        state: deepest.2,
                    };
                };
                if let Some(&index) = by_begin.get(position) {
                    taken.toggle(index);
                }
                taken.first_untaken = first_open;
                state = earlier;
                from = position + 1;
            }
        }
    }
}

/// Returns the next step to try, from a position on, and the untaken step that ends first.
fn next_step(
    steps: &[Step],
    by_begin: &[usize],
    taken: &TakenSteps,
    from: usize,
    state: Option<Value>,
) -> (Option<(usize, usize)>, usize) {
    let mut due: Option<(RunTime, usize)> = None;
    let mut actual = None;
    for (position, &index) in by_begin.iter().enumerate().skip(taken.first_untaken) {
        let Some(step) = steps.get(index) else {
            continue;
        };
        if taken.contains(index) {
            continue;
        }
        // A step that started after the end of an untaken step cannot come before it, and neither can any later step.
        if due.is_some_and(|(end, _)| step.begin > end) {
            break;
        }
        if due.is_none_or(|(end, _)| step.end < end) {
            due = Some((step.end, index));
        }
        let fits = step.required.is_none_or(|needs| needs == state)
            && step.forbidden.is_none_or(|unlike| unlike != state);
        if fits && actual.is_none() && position >= from {
            actual = Some((position, index));
        }
    }
    (actual, due.map_or(0, |(_, index)| index))
}

struct TakenSteps {
    set: Vec<u64>,
    count: usize,
    /// All steps before this position, by start time, are taken.
    first_untaken: usize,
}

impl TakenSteps {
    fn contains(&self, index: usize) -> bool {
        self.set
            .get(index / 64)
            .is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    fn toggle(&mut self, index: usize) {
        let had = self.contains(index);
        if let Some(word) = self.set.get_mut(index / 64) {
            *word ^= 1 << (index % 64);
        }
        self.count = if had { self.count - 1 } else { self.count + 1 };
    }

    fn skip_taken(&mut self, by_begin: &[usize]) {
        while by_begin
            .get(self.first_untaken)
            .is_some_and(|&index| self.contains(index))
        {
            self.first_untaken += 1;
        }
    }
}
