//! The judgement of a history, in words. [`ordered`] trusts etcd's revisions and is quick; [`general`] trusts
//! nothing but the clients' own clock. [`check_and_prove`] also shows, on forged copies, that both would have seen a fault.

pub mod general;
pub mod ordered;

use std::fmt;

use crate::forge::{self, Forgery};
use crate::history::{History, Key, shown};

/// What sort of promise was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// An acknowledged write is not there.
    Lost,
    /// Something is there that nobody wrote.
    Invented,
    /// A write is there that was reported as not done, or twice, or elsewhere than reported.
    Misreported,
    /// A compare-and-swap wrote over, or refused, the wrong state.
    WrongSwap,
    /// A read returned something else than the newest state at its revision.
    WrongRead,
    /// An operation took effect before one that had ended before it began: a stale read is such.
    OutOfOrder,
    /// What was there at the end is not what the writes add up to.
    WrongEnd,
    /// No order at all explains what a key's clients saw.
    NotLinearizable,
    /// The general checker gave up on a key.
    Undecided,
    /// The recording itself is at fault.
    Malformed,
}

/// One broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What sort.
    pub fault: Fault,
    /// What happened, with the operations involved and their times.
    pub text: String,
}

impl Violation {
    pub(crate) fn new(fault: Fault, text: impl Into<String>) -> Self {
        Self {
            fault,
            text: text.into(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.fault, self.text)
    }
}

/// Violations, the first ones in words and all of them counted: a history gone wrong has thousands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Violations {
    listed: Vec<Violation>,
    count: usize,
}

impl Violations {
    const LISTED: usize = 100;

    pub(crate) fn add(&mut self, fault: Fault, text: impl FnOnce() -> String) {
        // Each sort is listed at least once, however many others came before.
        if self.listed.len() < Self::LISTED || !self.has(fault) {
            self.listed.push(Violation::new(fault, text()));
        }
        self.count += 1;
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.count += other.count;
        self.listed.extend(other.listed);
    }

    /// The first ones.
    pub fn listed(&self) -> &[Violation] {
        &self.listed
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether one is of this sort.
    pub fn has(&self, fault: Fault) -> bool {
        self.listed.iter().any(|violation| violation.fault == fault)
    }
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// How many operations were judged.
    pub ops: usize,
    /// How many writes the watch showed.
    pub writes: usize,
    /// How many keys the general checker went through.
    pub keys: usize,
    /// What was wrong.
    pub violations: Violations,
}

impl Verdict {
    /// Whether all is well.
    pub fn is_ok(&self) -> bool {
        self.violations.count() == 0
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} operations, {} writes, {} keys: ",
            self.ops, self.writes, self.keys
        )?;
        if self.is_ok() {
            return f.write_str("linearizable, nothing lost, nothing invented");
        }
        write!(f, "{} violations", self.violations.count())?;
        for violation in self.violations.listed().iter().take(20) {
            write!(f, "\n- {violation}")?;
        }
        Ok(())
    }
}

/// Judges a history by both checkers.
pub fn check(history: &History) -> Verdict {
    let mut violations = ordered::check(history);
    let (keys, found) = general::check(history);
    violations.extend(found);
    Verdict {
        ops: history.ops.len(),
        writes: history.log.len(),
        keys,
        violations,
    }
}

/// Judges what a restore brought back: exactly what had been there at the snapshot's revision. `after` is the
/// history of a workload with the same prefix, begun on the restored cluster.
pub fn check_restore(before: &History, at_revision: i64, after: &History) -> Violations {
    let wanted = before.prefix(at_revision);
    let found = &after.start.state;
    let mut violations = Violations::default();
    let keys: std::collections::BTreeSet<Key> =
        wanted.keys().chain(found.keys()).copied().collect();
    for key in keys {
        let (wanted, found) = (wanted.get(&key).copied(), found.get(&key).copied());
        let fault = match (wanted, found) {
            _ if wanted == found => continue,
            (None, Some(_)) => Fault::Invented,
            _ => Fault::Lost,
        };
        violations.add(fault, || {
            format!(
                "{key} was {} at the snapshot's revision {at_revision}; restored, it is {}",
                shown(wanted),
                shown(found)
            )
        });
    }
    violations
}

/// A history that passed, and the forgeries that would not have.
#[derive(Clone, Debug)]
pub struct Proof {
    /// The verdict on the true history.
    pub verdict: Verdict,
    /// What was forged, each found by both checkers.
    pub found: Vec<&'static str>,
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}; forged and found by both checkers: {}",
            self.verdict,
            self.found.join(", ")
        )
    }
}

/// Why a history proves nothing.
#[derive(Debug, thiserror::Error)]
pub enum NotProven {
    /// The history is wrong.
    #[error("the history is not what etcd promises: {0}")]
    Violated(Box<Verdict>),
    /// The history has nothing to forge.
    #[error(
        "too little happened to forge {0} into the history ({1} operations); let the workload run longer"
    )]
    TooSmall(&'static str, usize),
    /// A checker is blind.
    #[error(
        "the {checker} checker did not find {forged} that was forged into the history of {key}"
    )]
    Missed {
        /// Which one.
        checker: &'static str,
        /// What was forged.
        forged: &'static str,
        /// Into which key.
        key: Key,
    },
}

/// Judges a history, and shows that both checkers find a lost write, a stale read, an invented value and two
/// reordered writes once they are forged into copies of it.
pub fn check_and_prove(history: &History) -> Result<Proof, NotProven> {
    let verdict = check(history);
    if !verdict.is_ok() {
        return Err(NotProven::Violated(Box::new(verdict)));
    }
    let mut found = Vec::new();
    for (name, forge) in forge::ALL {
        let Forgery {
            history: forged,
            key,
            fault,
        } = forge(history).ok_or(NotProven::TooSmall(name, history.ops.len()))?;
        if !ordered::check(&forged).has(fault) {
            return Err(NotProven::Missed {
                checker: "revision-ordered",
                forged: name,
                key,
            });
        }
        if !general::check_key(&forged, key).has(Fault::NotLinearizable) {
            return Err(NotProven::Missed {
                checker: "general",
                forged: name,
                key,
            });
        }
        found.push(name);
    }
    Ok(Proof { verdict, found })
}
