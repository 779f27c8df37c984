//! What is recorded: operations with their times and outcomes, and the order of writes as a watch showed it. Kept
//! compact (numbers, not texts), since a long run has millions.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Nanoseconds on the run's monotonic clock.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Time(pub u64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{:06} s",
            self.0 / 1_000_000_000,
            self.0 / 1_000 % 1_000_000
        )
    }
}

/// A key of the workload, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Key(pub u32);

impl Key {
    /// Stands for every key under the workload's prefix that the workload would never make.
    pub const FOREIGN: Self = Self(u32::MAX);

    /// Its number, read from the end of its name in etcd.
    pub fn parse(text: &[u8]) -> Self {
        number(text)
            .and_then(|n| u32::try_from(n).ok())
            .map_or(Self::FOREIGN, Self)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::FOREIGN {
            f.write_str("a key not ours")
        } else {
            write!(f, "key {}", self.0)
        }
    }
}

/// A value, by number; each is written at most once in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Value(pub u64);

impl Value {
    /// Stands for every value that the workload would never write.
    pub const FOREIGN: Self = Self(u64::MAX);

    /// Its number, read from what etcd holds.
    pub fn parse(text: &[u8]) -> Self {
        number(text).map_or(Self::FOREIGN, Self)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::FOREIGN {
            f.write_str("a value not ours")
        } else {
            write!(f, "value {}", self.0)
        }
    }
}

fn number(text: &[u8]) -> Option<u64> {
    // Digits alone: Rust would also take "+7", which is another key.
    std::str::from_utf8(text)
        .ok()
        .filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?
        .parse()
        .ok()
}

/// One sequential client; after an outcome that is not known it is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Client(pub u32);

/// How a client reaches etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// Always the same member.
    Pinned,
    /// Any member: it goes on to the next one when one fails it.
    Everywhere,
    /// What stands before the members.
    Service,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pinned => "pinned to a member",
            Self::Everywhere => "knowing all members",
            Self::Service => "through the service",
        })
    }
}

/// A client of the workload for its whole life, over all the [`Client`] numbers it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Lane(pub u16);

/// A key's state as etcd tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Versioned {
    /// The value.
    pub value: Value,
    /// The revision that wrote it.
    pub revision: i64,
    /// How many times the key has been written.
    pub version: i64,
}

impl fmt::Display for Versioned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of revision {} (version {})",
            self.value, self.revision, self.version
        )
    }
}

/// What a compare-and-swap compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum By {
    /// The revision that wrote the key last; 0 when there is to be none.
    Revision,
    /// The value.
    Value,
}

/// What a client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Call {
    /// Write, whatever is there.
    Put(Value),
    /// Write if the key is as expected, else read it, in one transaction.
    Cas {
        /// What is compared.
        by: By,
        /// The expected value with its revision; `None` for a key that is not there.
        expect: Option<(Value, i64)>,
        /// The value to write.
        value: Value,
    },
    /// A linearizable read.
    Read,
}

impl Call {
    /// The value that this would write.
    pub fn writes(&self) -> Option<Value> {
        match *self {
            Self::Put(value) | Self::Cas { value, .. } => Some(value),
            Self::Read => None,
        }
    }
}

/// What etcd answered, with the store's revision at that point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// Written, at this revision.
    Written(i64),
    /// The compare-and-swap found something else, and this is what.
    Refused(i64, Option<Versioned>),
    /// What was read.
    Read(i64, Option<Versioned>),
}

impl Answer {
    /// The store's revision where this took effect.
    pub fn revision(&self) -> i64 {
        match *self {
            Self::Written(revision) | Self::Refused(revision, _) | Self::Read(revision, _) => {
                revision
            }
        }
    }

    /// The key's state that this tells of.
    pub fn seen(&self) -> Option<Option<Versioned>> {
        match *self {
            Self::Written(_) => None,
            Self::Refused(_, seen) | Self::Read(_, seen) => Some(seen),
        }
    }
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// It was answered.
    Ok(Answer),
    /// It certainly had no effect, and never will.
    Failed(Box<str>),
    /// It may have had its effect, or may have it at any time later, or never.
    Unknown(Box<str>),
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Op {
    /// Which sequential client.
    pub client: Client,
    /// Which client of the workload.
    pub lane: Lane,
    /// On which key.
    pub key: Key,
    /// What was asked.
    pub call: Call,
    /// Just before it was sent.
    pub invoked: Time,
    /// Just after its end was known.
    pub ended: Time,
    /// How it ended.
    pub outcome: Outcome,
}

impl Op {
    /// etcd's answer, if there was one.
    pub fn answer(&self) -> Option<&Answer> {
        match &self.outcome {
            Outcome::Ok(answer) => Some(answer),
            Outcome::Failed(_) | Outcome::Unknown(_) => None,
        }
    }

    /// The revision of an acknowledged write.
    pub fn written(&self) -> Option<i64> {
        match self.outcome {
            Outcome::Ok(Answer::Written(revision)) => Some(revision),
            _ => None,
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "client {}, {} to {}: ",
            self.client.0, self.invoked, self.ended
        )?;
        match self.call {
            Call::Put(value) => write!(f, "put {value} to {}", self.key)?,
            Call::Cas {
                expect: None,
                value,
                ..
            } => write!(f, "create {} with {value}", self.key)?,
            Call::Cas {
                by: By::Value,
                expect: Some((old, _)),
                value,
            } => {
                write!(f, "swap {} from {old} to {value}", self.key)?;
            }
            Call::Cas {
                by: By::Revision,
                expect: Some((old, at)),
                value,
            } => {
                write!(f, "swap {} from revision {at} ({old}) to {value}", self.key)?;
            }
            Call::Read => write!(f, "read {}", self.key)?,
        }
        match &self.outcome {
            Outcome::Ok(Answer::Written(revision)) => {
                write!(f, " → written at revision {revision}")
            }
            Outcome::Ok(Answer::Refused(revision, seen)) => {
                write!(f, " → refused at revision {revision}: {}", shown(*seen))
            }
            Outcome::Ok(Answer::Read(revision, seen)) => {
                write!(f, " → at revision {revision}: {}", shown(*seen))
            }
            Outcome::Failed(why) => write!(f, " → failed: {why}"),
            Outcome::Unknown(why) => write!(f, " → not known: {why}"),
        }
    }
}

/// A key's state in words.
pub(crate) fn shown(seen: Option<Versioned>) -> String {
    seen.map_or_else(|| "nothing".to_owned(), |seen| seen.to_string())
}

/// A write as the watch showed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Write {
    /// Its place in etcd's order.
    pub revision: i64,
    /// The key.
    pub key: Key,
    /// What was written; `None` for a deletion, which no workload asks for.
    pub value: Option<Value>,
    /// How many times the key has been written.
    pub version: i64,
}

impl Write {
    /// The key's state after it.
    pub fn state(&self) -> Option<Versioned> {
        self.value.map(|value| Versioned {
            value,
            revision: self.revision,
            version: self.version,
        })
    }
}

/// All keys of the workload in one linearizable read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// Just before it was read.
    pub invoked: Time,
    /// Just after.
    pub ended: Time,
    /// The store's revision.
    pub revision: i64,
    /// What was there.
    pub state: BTreeMap<Key, Versioned>,
}

/// All that was recorded in one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// How each lane reached etcd, by the lane's number.
    pub lanes: Vec<Kind>,
    /// What was there before the first operation.
    pub start: Snapshot,
    /// Operations, in no order.
    pub ops: Vec<Op>,
    /// The watch: every write after `start`, in etcd's order.
    pub log: Vec<Write>,
    /// What was there after the last operation; `None` when it could not be read.
    pub end: Option<Snapshot>,
}

impl History {
    /// The keys' state when this revision was the newest: what a snapshot of that revision must bring back.
    pub fn prefix(&self, revision: i64) -> BTreeMap<Key, Versioned> {
        let mut state = self.start.state.clone();
        for write in self
            .log
            .iter()
            .take_while(|write| write.revision <= revision)
        {
            match write.state() {
                Some(now) => state.insert(write.key, now),
                None => state.remove(&write.key),
            };
        }
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_workload_would_never_write_is_foreign() {
        assert_eq!(Key::parse(b"12"), Key(12));
        assert_eq!(Key::parse(b"+12"), Key::FOREIGN);
        assert_eq!(Value::parse(b"hello"), Value::FOREIGN);
        assert_eq!(Value::parse(b""), Value::FOREIGN);
    }
}
