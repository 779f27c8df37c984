//! The check of a history. [`ordered`] uses etcd's revisions and is fast; [`general`] uses only the clients' clock.
//! [`check_and_prove`] also shows, on forged copies, that both checkers detect anomalies.

pub mod general;
pub mod ordered;

use std::fmt;

use crate::forge::{self, Forgery};
use crate::history::{History, Key, describe_state};

/// The kind of an anomaly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AnomalyKind {
    /// An acknowledged write is missing.
    LostWrite,
    /// A value exists that no client wrote.
    InventedValue,
    /// A write exists that was reported as failed, or exists twice, or at another revision or key than reported.
    MisreportedWrite,
    /// A compare-and-swap replaced, or was rejected by, the wrong state.
    WrongCompareAndSwap,
    /// A read did not return the state at its revision.
    WrongRead,
    /// An operation took effect before another one that ended before it started. A stale read is an example.
    OutOfOrder,
    /// The final state is not the result of the writes.
    WrongFinalState,
    /// No order of operations explains the responses for a key.
    NotLinearizable,
    /// The general checker reached its limit for a key.
    Undecided,
    /// The recording itself is inconsistent.
    MalformedRecording,
}

/// One anomaly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// The kind.
    pub kind: AnomalyKind,
    /// A description with the operations involved and their times.
    pub text: String,
}

impl Anomaly {
    pub(crate) fn new(kind: AnomalyKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
        }
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.text)
    }
}

/// Anomalies: the first ones with a description, all of them counted. A broken history can have thousands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Anomalies {
    listed: Vec<Anomaly>,
    count: usize,
}

impl Anomalies {
    const MAX_LISTED: usize = 100;

    pub(crate) fn add(&mut self, kind: AnomalyKind, text: impl FnOnce() -> String) {
        // Each kind is listed at least once.
        if self.listed.len() < Self::MAX_LISTED || !self.contains(kind) {
            self.listed.push(Anomaly::new(kind, text()));
        }
        self.count += 1;
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.count += other.count;
        self.listed.extend(other.listed);
    }

    /// Returns the listed anomalies.
    pub fn listed(&self) -> &[Anomaly] {
        &self.listed
    }

    /// Returns the number of anomalies.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns true if an anomaly of this kind was found.
    pub fn contains(&self, kind: AnomalyKind) -> bool {
        self.listed.iter().any(|anomaly| anomaly.kind == kind)
    }
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckResult {
    /// The number of checked operations.
    pub operations: usize,
    /// The number of writes that the watch reported.
    pub writes: usize,
    /// The number of keys that the general checker checked.
    pub keys: usize,
    /// The anomalies.
    pub anomalies: Anomalies,
}

impl CheckResult {
    /// Returns true if no anomaly was found.
    pub fn is_ok(&self) -> bool {
        self.anomalies.count() == 0
    }
}

impl fmt::Display for CheckResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} operations, {} writes, {} keys: ",
            self.operations, self.writes, self.keys
        )?;
        if self.is_ok() {
            return f.write_str("linearizable, nothing lost, nothing invented");
        }
        write!(f, "{} violations", self.anomalies.count())?;
        for anomaly in self.anomalies.listed().iter().take(20) {
            write!(f, "\n- {anomaly}")?;
        }
        Ok(())
    }
}

/// Checks a history with both checkers.
pub fn check(history: &History) -> CheckResult {
    let mut anomalies = ordered::check(history);
    let (keys, from_general) = general::check(history);
    anomalies.extend(from_general);
    CheckResult {
        operations: history.operations.len(),
        writes: history.writes.len(),
        keys,
        anomalies,
    }
}

/// Checks a restored cluster: its state must be exactly the state at the snapshot's revision. `after` is the history
/// of a workload with the same prefix that was started on the restored cluster.
pub fn check_restore(before: &History, at_revision: i64, after: &History) -> Anomalies {
    let expected = before.state_at(at_revision);
    let actual = &after.start.state;
    let mut anomalies = Anomalies::default();
    let keys: std::collections::BTreeSet<Key> =
        expected.keys().chain(actual.keys()).copied().collect();
    for key in keys {
        let (expected, actual) = (expected.get(&key).copied(), actual.get(&key).copied());
        let kind = match (expected, actual) {
            _ if expected == actual => continue,
            (None, Some(_)) => AnomalyKind::InventedValue,
            _ => AnomalyKind::LostWrite,
        };
        anomalies.add(kind, || {
            format!(
                "{key} was {} at the snapshot's revision {at_revision}; restored, it is {}",
                describe_state(expected),
                describe_state(actual)
            )
        });
    }
    anomalies
}

/// The proof that a history is correct and that the checkers detect forgeries.
#[derive(Clone, Debug)]
pub struct Proof {
    /// The result for the recorded history.
    pub result: CheckResult,
    /// The forgeries, each detected by both checkers.
    pub detected: Vec<&'static str>,
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}; forgeries detected by both checkers: {}",
            self.result,
            self.detected.join(", ")
        )
    }
}

/// The reason why a history is not accepted as a proof.
#[derive(Debug, thiserror::Error)]
pub enum ProofError {
    /// The history has anomalies.
    #[error("the history has anomalies: {0}")]
    Anomalous(Box<CheckResult>),
    /// The history is too small to forge an anomaly.
    #[error("cannot forge {0} into the history: only {1} operations; let the workload run longer")]
    TooSmall(&'static str, usize),
    /// A checker did not detect a forgery.
    #[error("the {checker} checker did not detect {forged} forged into the history of {key}")]
    ForgeryMissed {
        /// The checker.
        checker: &'static str,
        /// The forgery.
        forged: &'static str,
        /// The key of the forgery.
        key: Key,
    },
}

/// Checks a history, and shows that both checkers detect a lost write, a stale read, an invented value and two
/// reordered writes when these are forged into copies of it.
pub fn check_and_prove(history: &History) -> Result<Proof, ProofError> {
    let result = check(history);
    if !result.is_ok() {
        return Err(ProofError::Anomalous(Box::new(result)));
    }
    let mut actual = Vec::new();
    for (name, forge) in forge::FORGERIES {
        let Forgery {
            history: forged,
            key,
            kind,
        } = forge(history).ok_or(ProofError::TooSmall(name, history.operations.len()))?;
        if !ordered::check(&forged).contains(kind) {
            return Err(ProofError::ForgeryMissed {
                checker: "revision-ordered",
                forged: name,
                key,
            });
        }
        if !general::check_key(&forged, key).contains(AnomalyKind::NotLinearizable) {
            return Err(ProofError::ForgeryMissed {
                checker: "general",
                forged: name,
                key,
            });
        }
        actual.push(name);
    }
    Ok(Proof {
        result,
        detected: actual,
    })
}
