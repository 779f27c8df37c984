//! The recorded history: operations with their times and outcomes, and the order of writes from a watch. The types
//! are compact (numbers instead of texts), because a long run has millions of operations.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Nanoseconds on the run's monotonic clock.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct RunTime(pub u64);

impl fmt::Display for RunTime {
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
    /// Stands for every key under the workload's prefix that the workload never writes.
    pub const FOREIGN: Self = Self(u32::MAX);

    /// Parses the number at the end of the key's name.
    pub fn parse(text: &[u8]) -> Self {
        parse_number(text)
            .and_then(|n| u32::try_from(n).ok())
            .map_or(Self::FOREIGN, Self)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::FOREIGN {
            f.write_str("an unknown key")
        } else {
            write!(f, "key {}", self.0)
        }
    }
}

/// A value, by number. Each is written at most once in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Value(pub u64);

impl Value {
    /// Stands for every value that the workload never writes.
    pub const FOREIGN: Self = Self(u64::MAX);

    /// Parses the number stored in etcd.
    pub fn parse(text: &[u8]) -> Self {
        parse_number(text).map_or(Self::FOREIGN, Self)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::FOREIGN {
            f.write_str("an unknown value")
        } else {
            write!(f, "value {}", self.0)
        }
    }
}

fn parse_number(text: &[u8]) -> Option<u64> {
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
pub struct ClientId(pub u32);

/// How a client reaches etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ClientKind {
    /// Always the same member.
    Pinned,
    /// All members in turn.
    AllMembers,
    /// The Service in front of the members.
    Service,
}

impl fmt::Display for ClientKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pinned => "pinned to a member",
            Self::AllMembers => "using all members",
            Self::Service => "using the Service",
        })
    }
}

/// A client of the workload, over all the [`ClientId`] numbers that it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Lane(pub u16);

/// The state of a key in etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeyState {
    /// The value.
    pub value: Value,
    /// The revision that wrote it.
    pub revision: i64,
    /// The number of writes to the key.
    pub version: i64,
}

impl fmt::Display for KeyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of revision {} (version {})",
            self.value, self.revision, self.version
        )
    }
}

/// The comparison of a compare-and-swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CompareBy {
    /// The revision of the last write; 0 for a missing key.
    Revision,
    /// The value.
    Value,
}

/// A request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Request {
    /// Writes unconditionally.
    Put(Value),
    /// Writes if the key is as expected, otherwise reads it, in one transaction.
    CompareAndSwap {
        /// The compared attribute.
        by: CompareBy,
        /// The expected value with its revision; `None` for a missing key.
        expect: Option<(Value, i64)>,
        /// The value to write.
        value: Value,
    },
    /// A linearizable read.
    Read,
}

impl Request {
    /// Returns the value that the request would write.
    pub fn written_value(&self) -> Option<Value> {
        match *self {
            Self::Put(value) | Self::CompareAndSwap { value, .. } => Some(value),
            Self::Read => None,
        }
    }
}

/// The response of etcd with the store's revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Response {
    /// Written at this revision.
    Written(i64),
    /// The compare-and-swap found this state instead of the expected one.
    Mismatch(i64, Option<KeyState>),
    /// The state that was read.
    Read(i64, Option<KeyState>),
}

impl Response {
    /// Returns the store's revision of the response.
    pub fn revision(&self) -> i64 {
        match *self {
            Self::Written(revision) | Self::Mismatch(revision, _) | Self::Read(revision, _) => {
                revision
            }
        }
    }

    /// Returns the state of the key in the response, if it contains one.
    pub fn observed(&self) -> Option<Option<KeyState>> {
        match *self {
            Self::Written(_) => None,
            Self::Mismatch(_, observed) | Self::Read(_, observed) => Some(observed),
        }
    }
}

/// The outcome of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OperationOutcome {
    /// etcd responded.
    Ok(Response),
    /// The operation had no effect and never will.
    Failed(Box<str>),
    /// The operation may have taken effect, may take effect later, or never.
    Unknown(Box<str>),
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Operation {
    /// The sequential client.
    pub client: ClientId,
    /// The client of the workload.
    pub lane: Lane,
    /// The key.
    pub key: Key,
    /// The request.
    pub request: Request,
    /// The time just before the request was sent.
    pub invoked: RunTime,
    /// The time just after the outcome was known.
    pub ended: RunTime,
    /// The outcome.
    pub outcome: OperationOutcome,
}

impl Operation {
    /// Returns etcd's response, if there was one.
    pub fn response(&self) -> Option<&Response> {
        match &self.outcome {
            OperationOutcome::Ok(response) => Some(response),
            OperationOutcome::Failed(_) | OperationOutcome::Unknown(_) => None,
        }
    }

    /// Returns the revision of an acknowledged write.
    pub fn acknowledged_revision(&self) -> Option<i64> {
        match self.outcome {
            OperationOutcome::Ok(Response::Written(revision)) => Some(revision),
            _ => None,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "client {}, {} to {}: ",
            self.client.0, self.invoked, self.ended
        )?;
        match self.request {
            Request::Put(value) => write!(f, "put {value} to {}", self.key)?,
            Request::CompareAndSwap {
                expect: None,
                value,
                ..
            } => write!(f, "create {} with {value}", self.key)?,
            Request::CompareAndSwap {
                by: CompareBy::Value,
                expect: Some((old, _)),
                value,
            } => {
                write!(f, "swap {} from {old} to {value}", self.key)?;
            }
            Request::CompareAndSwap {
                by: CompareBy::Revision,
                expect: Some((old, at)),
                value,
            } => {
                write!(f, "swap {} from revision {at} ({old}) to {value}", self.key)?;
            }
            Request::Read => write!(f, "read {}", self.key)?,
        }
        match &self.outcome {
            OperationOutcome::Ok(Response::Written(revision)) => {
                write!(f, " → written at revision {revision}")
            }
            OperationOutcome::Ok(Response::Mismatch(revision, observed)) => {
                write!(
                    f,
                    " → mismatch at revision {revision}: {}",
                    describe_state(*observed)
                )
            }
            OperationOutcome::Ok(Response::Read(revision, observed)) => {
                write!(
                    f,
                    " → at revision {revision}: {}",
                    describe_state(*observed)
                )
            }
            OperationOutcome::Failed(why) => write!(f, " → failed: {why}"),
            OperationOutcome::Unknown(why) => write!(f, " → unknown outcome: {why}"),
        }
    }
}

/// Describes the state of a key.
pub(crate) fn describe_state(observed: Option<KeyState>) -> String {
    observed.map_or_else(|| "nothing".to_owned(), |observed| observed.to_string())
}

/// A write that the watch reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WatchedWrite {
    /// The revision: its place in etcd's order.
    pub revision: i64,
    /// The key.
    pub key: Key,
    /// The written value; `None` for a deletion, which no workload requests.
    pub value: Option<Value>,
    /// The number of writes to the key.
    pub version: i64,
}

impl WatchedWrite {
    /// Returns the state of the key after the write.
    pub fn state(&self) -> Option<KeyState> {
        self.value.map(|value| KeyState {
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
    /// The time just before the read.
    pub invoked: RunTime,
    /// The time just after the read.
    pub ended: RunTime,
    /// The store's revision.
    pub revision: i64,
    /// The keys and their states.
    pub state: BTreeMap<Key, KeyState>,
}

/// The recording of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The kind of each client, by lane.
    pub lanes: Vec<ClientKind>,
    /// The state before the first operation.
    pub start: Snapshot,
    /// The operations, unordered.
    pub operations: Vec<Operation>,
    /// Every write after `start`, in etcd's order, from the watch.
    pub writes: Vec<WatchedWrite>,
    /// The state after the last operation; `None` if it could not be read.
    pub end: Option<Snapshot>,
}

impl History {
    /// Returns the state of all keys at a revision: the state that a restored snapshot of that revision must have.
    pub fn state_at(&self, revision: i64) -> BTreeMap<Key, KeyState> {
        let mut state = self.start.state.clone();
        for write in self
            .writes
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
    fn keys_and_values_of_other_writers_are_parsed_as_foreign() {
        assert_eq!(Key::parse(b"12"), Key(12));
        assert_eq!(Key::parse(b"+12"), Key::FOREIGN);
        assert_eq!(Value::parse(b"hello"), Value::FOREIGN);
        assert_eq!(Value::parse(b""), Value::FOREIGN);
    }
}
