//! Forged violations: each takes a history that is right and returns a copy of a world in which one promise was
//! broken and everything else still fits. A checker that does not find it is blind.

use std::collections::{BTreeMap, HashMap};

use crate::check::Fault;
use crate::history::{Answer, History, Key, Op, Outcome, Value, Versioned, Write};

/// A history with a fault in it.
#[derive(Clone, Debug)]
pub struct Forgery {
    /// The copy.
    pub history: History,
    /// The key whose clients saw the fault.
    pub key: Key,
    /// What the revision-ordered checker must call it.
    pub fault: Fault,
}

/// Makes a forgery; `None` when too little happened in the history.
pub type Forge = fn(&History) -> Option<Forgery>;

/// All of them, by what they forge.
pub const ALL: [(&str, Forge); 4] = [
    ("a lost write", lost_write),
    ("a stale read", stale_read),
    ("an invented value", invented_value),
    ("reordered writes", reordered),
];

/// A key's last writes vanish, an acknowledged one among them: they are not in the order, and whoever saw them now sees
/// what was there before.
pub fn lost_write(history: &History) -> Option<Forgery> {
    let (first, second) = Writes::of(history).at_the_end()?;
    let key = second.key;
    let mut forged = history.clone();
    forged
        .log
        .retain(|write| write.key != key || write.revision <= first.revision);
    rewrite(&mut forged, key, |seen| {
        if seen.revision > first.revision {
            first.state()
        } else {
            Some(seen)
        }
    });
    Some(Forgery {
        history: forged,
        key,
        fault: Fault::Lost,
    })
}

/// A read returns, as a member left behind would, what had been overwritten before the read began.
pub fn stale_read(history: &History) -> Option<Forgery> {
    let writes = Writes::of(history);
    history.ops.iter().enumerate().find_map(|(index, read)| {
        let Some(Answer::Read(_, Some(seen))) = read.answer() else {
            return None;
        };
        let (first, second) = writes.before(read.key, seen.revision)?;
        if writes.writers.get(&second.revision)?.ended >= read.invoked {
            return None;
        }
        let mut forged = history.clone();
        forged.ops.get_mut(index)?.outcome =
            Outcome::Ok(Answer::Read(first.revision, first.state()));
        Some(Forgery {
            history: forged,
            key: read.key,
            fault: Fault::OutOfOrder,
        })
    })
}

/// A value that nobody wrote is there: the watch shows it, and the last read.
pub fn invented_value(history: &History) -> Option<Forgery> {
    let mut forged = history.clone();
    let highest = history.ops.iter().filter_map(|op| op.call.writes()).max()?;
    let end = forged.end.as_mut()?;
    let (&key, now) = end.state.iter_mut().next()?;
    let newest = history
        .log
        .last()
        .map_or(end.revision, |write| write.revision.max(end.revision));
    *now = Versioned {
        value: Value(highest.0 + 1),
        revision: newest + 1,
        version: now.version + 1,
    };
    end.revision = newest + 1;
    forged.log.push(Write {
        revision: now.revision,
        key,
        value: Some(now.value),
        version: now.version,
    });
    Some(Forgery {
        history: forged,
        key,
        fault: Fault::Invented,
    })
}

/// Two writes, the second begun after the first had ended, took effect the other way round.
pub fn reordered(history: &History) -> Option<Forgery> {
    let (first, second) = Writes::of(history).at_the_end()?;
    let key = second.key;
    let mut forged = history.clone();
    for write in &mut forged.log {
        if write.revision == first.revision {
            write.value = second.value;
        } else if write.revision == second.revision {
            write.value = first.value;
        }
    }
    for op in &mut forged.ops {
        if let Outcome::Ok(Answer::Written(revision)) = &mut op.outcome {
            if *revision == first.revision {
                *revision = second.revision;
            } else if *revision == second.revision {
                *revision = first.revision;
            }
        }
    }
    let (one, two) = (first.value?, second.value?);
    rewrite(&mut forged, key, |seen| {
        let value = if seen.value == one {
            two
        } else if seen.value == two {
            one
        } else {
            seen.value
        };
        Some(Versioned { value, ..seen })
    });
    Some(Forgery {
        history: forged,
        key,
        fault: Fault::OutOfOrder,
    })
}

/// The writes of each key, and who made them.
struct Writes<'a> {
    history: &'a History,
    keys: BTreeMap<Key, Vec<Write>>,
    /// The acknowledged ones, by revision.
    writers: HashMap<i64, &'a Op>,
}

impl<'a> Writes<'a> {
    fn of(history: &'a History) -> Self {
        let mut keys: BTreeMap<Key, Vec<Write>> = BTreeMap::new();
        for write in &history.log {
            keys.entry(write.key).or_default().push(*write);
        }
        let writers = history
            .ops
            .iter()
            .filter_map(|op| Some((op.written()?, op)))
            .collect();
        Self {
            history,
            keys,
            writers,
        }
    }

    /// An acknowledged write of a key at a revision, and the last one before it that had ended when it began: no order
    /// but this explains both.
    fn before(&self, key: Key, revision: i64) -> Option<(Write, Write)> {
        let writes = self.keys.get(&key)?;
        let at = writes
            .binary_search_by_key(&revision, |write| write.revision)
            .ok()?;
        let began = self.writers.get(&revision)?.invoked;
        let ended = |write: &&Write| {
            self.writers
                .get(&write.revision)
                .is_some_and(|op| op.ended < began)
        };
        let first = writes.get(..at)?.iter().rev().find(ended)?;
        Some((*first, *writes.get(at)?))
    }

    /// Such a pair whose second write the last read saw.
    fn at_the_end(&self) -> Option<(Write, Write)> {
        let end = self.history.end.as_ref()?;
        end.state
            .iter()
            .find_map(|(key, state)| self.before(*key, state.revision))
    }
}

/// Changes what everybody saw of a key.
fn rewrite(history: &mut History, key: Key, change: impl Fn(Versioned) -> Option<Versioned>) {
    for op in history.ops.iter_mut().filter(|op| op.key == key) {
        if let Outcome::Ok(Answer::Read(_, seen) | Answer::Refused(_, seen)) = &mut op.outcome {
            *seen = seen.and_then(&change);
        }
    }
    if let Some(end) = &mut history.end {
        match end.state.get(&key).copied().and_then(change) {
            Some(now) => end.state.insert(key, now),
            None => end.state.remove(&key),
        };
    }
}
