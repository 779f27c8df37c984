//! Forged anomalies: each function returns a copy of a correct history with one anomaly that is otherwise consistent.
//! A checker that does not detect it is useless.

use std::collections::{BTreeMap, HashMap};

use crate::check::AnomalyKind;
use crate::history::{
    History, Key, KeyState, Operation, OperationOutcome, Response, Value, WatchedWrite,
};

/// A history with a forged anomaly.
#[derive(Clone, Debug)]
pub struct Forgery {
    /// The forged copy.
    pub history: History,
    /// The key of the anomaly.
    pub key: Key,
    /// The kind that the revision-ordered checker must report.
    pub kind: AnomalyKind,
}

/// Forges an anomaly; `None` if the history is too small.
pub type Forge = fn(&History) -> Option<Forgery>;

/// All forgeries with their names.
pub const FORGERIES: [(&str, Forge); 4] = [
    ("a lost write", lost_write),
    ("a stale read", stale_read),
    ("an invented value", invented_value),
    ("reordered writes", reordered_writes),
];

/// Removes the last writes of a key, an acknowledged one among them, from the order and from every response.
pub fn lost_write(history: &History) -> Option<Forgery> {
    let (first, second) = KeyWrites::of(history).final_pair()?;
    let key = second.key;
    let mut forged = history.clone();
    forged
        .writes
        .retain(|write| write.key != key || write.revision <= first.revision);
    rewrite_observed(&mut forged, key, |observed| {
        if observed.revision > first.revision {
            first.state()
        } else {
            Some(observed)
        }
    });
    Some(Forgery {
        history: forged,
        key,
        kind: AnomalyKind::LostWrite,
    })
}

/// Lets a read return a value that was overwritten before the read started, as a lagging member would.
pub fn stale_read(history: &History) -> Option<Forgery> {
    let writes = KeyWrites::of(history);
    history
        .operations
        .iter()
        .enumerate()
        .find_map(|(index, read)| {
            let Some(Response::Read(_, Some(observed))) = read.response() else {
                return None;
            };
            let (first, second) = writes.ordered_pair(read.key, observed.revision)?;
            if writes.writers.get(&second.revision)?.ended >= read.invoked {
                return None;
            }
            let mut forged = history.clone();
            forged.operations.get_mut(index)?.outcome =
                OperationOutcome::Ok(Response::Read(first.revision, first.state()));
            Some(Forgery {
                history: forged,
                key: read.key,
                kind: AnomalyKind::OutOfOrder,
            })
        })
}

/// Adds a value that no client wrote to the watch and to the final read.
pub fn invented_value(history: &History) -> Option<Forgery> {
    let mut forged = history.clone();
    let highest = history
        .operations
        .iter()
        .filter_map(|op| op.request.written_value())
        .max()?;
    let end = forged.end.as_mut()?;
    let (&key, now) = end.state.iter_mut().next()?;
    let newest = history
        .writes
        .last()
        .map_or(end.revision, |write| write.revision.max(end.revision));
    *now = KeyState {
        value: Value(highest.0 + 1),
        revision: newest + 1,
        version: now.version + 1,
    };
    end.revision = newest + 1;
    forged.writes.push(WatchedWrite {
        revision: now.revision,
        key,
        value: Some(now.value),
        version: now.version,
    });
    Some(Forgery {
        history: forged,
        key,
        kind: AnomalyKind::InventedValue,
    })
}

/// Swaps two writes, the second of which started after the first had ended.
pub fn reordered_writes(history: &History) -> Option<Forgery> {
    let (first, second) = KeyWrites::of(history).final_pair()?;
    let key = second.key;
    let mut forged = history.clone();
    for write in &mut forged.writes {
        if write.revision == first.revision {
            write.value = second.value;
        } else if write.revision == second.revision {
            write.value = first.value;
        }
    }
    for op in &mut forged.operations {
        if let OperationOutcome::Ok(Response::Written(revision)) = &mut op.outcome {
            if *revision == first.revision {
                *revision = second.revision;
            } else if *revision == second.revision {
                *revision = first.revision;
            }
        }
    }
    let (one, two) = (first.value?, second.value?);
    rewrite_observed(&mut forged, key, |observed| {
        let value = if observed.value == one {
            two
        } else if observed.value == two {
            one
        } else {
            observed.value
        };
        Some(KeyState { value, ..observed })
    });
    Some(Forgery {
        history: forged,
        key,
        kind: AnomalyKind::OutOfOrder,
    })
}

/// The writes of each key with their operations.
struct KeyWrites<'a> {
    history: &'a History,
    keys: BTreeMap<Key, Vec<WatchedWrite>>,
    /// The acknowledged operations by revision.
    writers: HashMap<i64, &'a Operation>,
}

impl<'a> KeyWrites<'a> {
    fn of(history: &'a History) -> Self {
        let mut keys: BTreeMap<Key, Vec<WatchedWrite>> = BTreeMap::new();
        for write in &history.writes {
            keys.entry(write.key).or_default().push(*write);
        }
        let writers = history
            .operations
            .iter()
            .filter_map(|op| Some((op.acknowledged_revision()?, op)))
            .collect();
        Self {
            history,
            keys,
            writers,
        }
    }

    /// Returns the acknowledged write of a key at a revision, and the last write that had ended when it started. No
    /// other order explains both.
    fn ordered_pair(&self, key: Key, revision: i64) -> Option<(WatchedWrite, WatchedWrite)> {
        let writes = self.keys.get(&key)?;
        let at = writes
            .binary_search_by_key(&revision, |write| write.revision)
            .ok()?;
        let began = self.writers.get(&revision)?.invoked;
        let ended = |write: &&WatchedWrite| {
            self.writers
                .get(&write.revision)
                .is_some_and(|op| op.ended < began)
        };
        let first = writes.get(..at)?.iter().rev().find(ended)?;
        Some((*first, *writes.get(at)?))
    }

    /// Returns such a pair whose second write is in the final read.
    fn final_pair(&self) -> Option<(WatchedWrite, WatchedWrite)> {
        let end = self.history.end.as_ref()?;
        end.state
            .iter()
            .find_map(|(key, state)| self.ordered_pair(*key, state.revision))
    }
}

/// Changes every observed state of a key.
fn rewrite_observed(
    history: &mut History,
    key: Key,
    change: impl Fn(KeyState) -> Option<KeyState>,
) {
    for op in history.operations.iter_mut().filter(|op| op.key == key) {
        if let OperationOutcome::Ok(Response::Read(_, observed) | Response::Mismatch(_, observed)) =
            &mut op.outcome
        {
            *observed = observed.and_then(&change);
        }
    }
    if let Some(end) = &mut history.end {
        match end.state.get(&key).copied().and_then(change) {
            Some(now) => end.state.insert(key, now),
            None => end.state.remove(&key),
        };
    }
}
