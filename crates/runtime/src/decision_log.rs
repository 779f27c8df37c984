//! The decision log: the latest decisions of each resource, the facts they were made on, and their
//! results. It is stored in a ConfigMap in the namespace of the resource, so that it survives the
//! operator. Its size is bounded; it is written at most once per reconcile, and only if a decision
//! differs from the last. No decision depends on it: a failed write is retried together with later
//! decisions.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::time::Duration;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::clock::{SharedClock, with_timeout};
use crate::reconciler::ResourceKey;

/// The version of the entry format. Entries without a version are older; their plan record is empty.
const FORMAT: u32 = 1;
/// The number of decisions in a log.
const MAX_ENTRIES: usize = 40;
/// The size of a log in bytes: far below the limit of Kubernetes for an object (1 MiB).
const MAX_BYTES: usize = 256 * 1024;
/// The maximum size of decompressed facts in bytes. Facts have a few kilobytes; larger data was not written here.
const MAX_FACTS_BYTES: u64 = 16 * 1024 * 1024;
/// The timeout of one write.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The interval between attempts after a failed write.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);
/// The suffix of the key under which the facts of a decision are stored.
const FACTS_SUFFIX: &str = ".facts";

/// One decision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// The version of the entry format.
    #[serde(default)]
    pub format: u32,
    /// The version of the facts ([`Engine::FACTS_VERSION`](crate::Engine::FACTS_VERSION)).
    #[serde(default)]
    pub facts_version: u32,
    /// The time of the decision, in RFC 3339.
    pub at: String,
    /// The operator instance that made the decision.
    pub by: String,
    /// The plan, machine-readable.
    #[serde(default)]
    pub plan: PlanRecord,
    /// The plan as sentences.
    #[serde(flatten)]
    pub explained: Explanation,
    /// The result, machine-readable.
    #[serde(default)]
    pub result: DecisionResult,
    /// The result as a sentence, empty if the plan had no actions.
    pub outcome: String,
    /// The events that were published.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<String>,
    /// The facts as JSON text: a number may exceed the range of a JSON value in other languages.
    #[serde(skip)]
    pub facts: Option<String>,
}

/// A plan, machine-readable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanRecord {
    /// The actions, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<ActionRecord>,
    /// The waits of the engine, as JSON.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<Value>,
}

/// An action, machine-readable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionRecord {
    /// The name of the action.
    pub name: String,
    /// The object of the action, as JSON.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub target: Value,
}

/// The result of a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DecisionResult {
    /// The plan had no actions.
    #[default]
    Noop,
    /// All actions were executed.
    Completed,
    /// Some independent actions failed; the others were executed.
    Partial,
    /// An object had changed since it was observed.
    Conflict,
    /// The application or the API server declined the disruption for now.
    Declined,
    /// A part of the disruption is done.
    InProgress,
    /// The disruption or a prerequisite failed.
    Failed,
}

/// The result of a decision, and the same as a sentence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DecisionOutcome {
    pub(crate) result: DecisionResult,
    pub(crate) text: String,
}

/// A plan as sentences.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The actions, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<String>,
    /// The reasons for the actions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// The waits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<String>,
}

/// A decision to be logged.
#[derive(Debug, Default)]
pub(crate) struct NewDecision {
    pub(crate) plan: PlanRecord,
    pub(crate) explanation: Explanation,
    pub(crate) outcome: DecisionOutcome,
    pub(crate) events: Vec<String>,
    pub(crate) facts_version: u32,
}

impl Decision {
    /// Returns the decisions in a log, the oldest first. Entries that cannot be read are left out.
    pub fn read(object: &ConfigMap) -> Vec<Self> {
        let entries = object.data.iter().flatten();
        let decisions = entries.filter_map(|(key, text)| {
            let mut decision: Self = serde_json::from_str(text).ok()?;
            decision.facts = facts_of(object, key).and_then(|facts| decompress(&facts.0));
            Some(decision)
        });
        decisions.collect()
    }

    /// Returns true if both decisions have the same actions, waits and result. Texts, facts, the time and the operator
    /// may differ: text of Kubernetes, such as a message of the scheduler, changes with every node.
    fn repeats(&self, other: &Self) -> bool {
        self.plan == other.plan && self.result == other.result
    }
}

/// Returns the default metadata of a decision log: named after the resource, which owns it.
pub fn decision_log_meta<K: Resource<DynamicType = ()>>(resource: &K) -> ObjectMeta {
    ObjectMeta {
        name: Some(format!(
            "{}-{}-decisions",
            resource.name_any(),
            K::kind(&()).to_lowercase()
        )),
        namespace: resource.namespace(),
        owner_references: resource.controller_owner_ref(&()).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    }
}

/// The decision logs of one kind of resource.
pub(crate) struct DecisionLog {
    client: Client,
    clock: SharedClock,
    by: String,
    logs: Mutex<HashMap<ResourceKey, LogState>>,
}

/// The state of one log.
#[derive(Debug, Default)]
struct LogState {
    /// The stored log as last read or written, `None` before the first read.
    stored: Option<StoredLog>,
    /// The last decision, written or not.
    last: Option<Decision>,
    /// The entries that are not written yet.
    pending: Vec<PendingEntry>,
    /// The uptime before which no write is attempted.
    not_before: Duration,
    /// Whether a name conflict was reported.
    conflict_reported: bool,
}

/// The error of a write.
#[derive(Debug, thiserror::Error)]
enum LogError {
    /// A ConfigMap of this name has another owner.
    #[error("ConfigMap {0} does not belong to this resource")]
    NotOwned(String),
    /// The request failed.
    #[error(transparent)]
    Kubernetes(#[from] kube::Error),
    /// The ConfigMap cannot be built.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// The request took longer than the timeout.
    #[error("the request timed out")]
    Timeout,
}

/// A log in Kubernetes.
#[derive(Clone, Debug, Default)]
struct StoredLog {
    /// The version of the ConfigMap, `None` if there is none.
    version: Option<ObjectVersion>,
    /// The sizes of the entries in bytes, by number.
    sizes: BTreeMap<u64, usize>,
}

/// The uid and the resourceVersion of a ConfigMap: the preconditions of a patch.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectVersion {
    uid: String,
    resource_version: String,
}

impl ObjectVersion {
    fn of(object: &ConfigMap) -> Option<Self> {
        Some(Self {
            uid: object.uid()?,
            resource_version: object.resource_version()?,
        })
    }
}

/// An entry to be written.
#[derive(Clone, Debug)]
struct PendingEntry {
    decision: Decision,
    text: String,
    facts: Vec<u8>,
}

impl PendingEntry {
    fn size(&self) -> usize {
        self.text.len() + base64_len(self.facts.len())
    }
}

impl DecisionLog {
    pub(crate) fn new(client: Client, clock: SharedClock, by: &str) -> Self {
        Self {
            client,
            clock,
            by: by.to_owned(),
            logs: Mutex::default(),
        }
    }

    /// Starts the log of a resource. Decisions of resources without a log are dropped.
    pub(crate) fn open(&self, key: &ResourceKey) {
        self.logs.lock().entry(key.clone()).or_default();
    }

    /// Adds a decision, unless it repeats the last one.
    pub(crate) fn record<F: Serialize>(&self, key: &ResourceKey, new: NewDecision, facts: &F) {
        let at = Timestamp::from_second(self.clock.now().0)
            .unwrap_or_default()
            .to_string();
        let decision = Decision {
            format: FORMAT,
            facts_version: new.facts_version,
            at,
            by: self.by.clone(),
            plan: new.plan,
            explained: new.explanation,
            result: new.outcome.result,
            outcome: new.outcome.text,
            events: new.events,
            facts: None,
        };
        let mut logs = self.logs.lock();
        let Some(log) = logs.get_mut(key) else {
            return;
        };
        let is_repeated = log.last.as_ref().is_some_and(|last| decision.repeats(last));
        if is_repeated {
            return;
        }
        let Ok(text) = serde_json::to_string(&decision) else {
            return;
        };
        log.last = Some(decision.clone());
        log.pending.push(PendingEntry {
            decision,
            text,
            facts: compress(facts),
        });
        if log.pending.len() > MAX_ENTRIES {
            log.pending.remove(0);
        }
    }

    /// Writes the pending decisions into the ConfigMap with this metadata. Returns a problem that a person has to solve,
    /// the first time it occurs.
    pub(crate) async fn flush(&self, key: &ResourceKey, meta: ObjectMeta) -> Option<String> {
        let (stored, mut pending) = {
            let mut logs = self.logs.lock();
            let log = logs.get_mut(key)?;
            if log.pending.is_empty() || self.clock.uptime() < log.not_before {
                return None;
            }
            (log.stored.clone(), std::mem::take(&mut log.pending))
        };
        let write = self.write(&meta, stored, &mut pending);
        let result = with_timeout(&*self.clock, REQUEST_TIMEOUT, write)
            .await
            .unwrap_or(Err(LogError::Timeout));
        let mut logs = self.logs.lock();
        let log = logs.get_mut(key)?;
        let error = match result {
            Ok(stored) => {
                log.stored = Some(stored);
                log.conflict_reported = false;
                return None;
            }
            Err(error) => error,
        };
        tracing::debug!(resource = %key, %error, "failed to write the decision log");
        pending.append(&mut log.pending);
        log.pending = pending;
        log.stored = None;
        log.not_before = self.clock.uptime() + RETRY_INTERVAL;
        match error {
            LogError::NotOwned(name) if !std::mem::replace(&mut log.conflict_reported, true) => {
                Some(format!(
                    "ConfigMap {name} does not belong to this resource. The decision log is not written. Delete the \
                     ConfigMap to have the decision log written."
                ))
            }
            _ => None,
        }
    }

    /// Drops the log of a deleted resource.
    pub(crate) fn forget(&self, key: &ResourceKey) {
        self.logs.lock().remove(key);
    }

    async fn write(
        &self,
        meta: &ObjectMeta,
        stored: Option<StoredLog>,
        pending: &mut Vec<PendingEntry>,
    ) -> Result<StoredLog, LogError> {
        let namespace = meta.namespace.clone().unwrap_or_default();
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &namespace);
        let mut stored = match stored {
            Some(stored) => stored,
            None => load(&api, meta, pending).await?,
        };
        if pending.is_empty() {
            return Ok(stored);
        }
        let name = meta.name.clone().unwrap_or_default();
        let first = stored.sizes.keys().next_back().map_or(1, |last| last + 1);
        let (mut data, mut facts) = (serde_json::Map::new(), serde_json::Map::new());
        for (number, entry) in (first..).zip(pending.iter()) {
            stored.sizes.insert(number, entry.size());
            data.insert(entry_key(number), json!(entry.text));
            facts.insert(facts_key(number), json!(ByteString(entry.facts.clone())));
        }
        while stored.sizes.len() > MAX_ENTRIES || stored.sizes.values().sum::<usize>() > MAX_BYTES {
            let Some((oldest, _)) = stored.sizes.pop_first() else {
                break;
            };
            if oldest >= first {
                data.remove(&entry_key(oldest));
                facts.remove(&facts_key(oldest));
            } else {
                data.insert(entry_key(oldest), Value::Null);
                facts.insert(facts_key(oldest), Value::Null);
            }
        }
        let written = match &stored.version {
            Some(version) => {
                // With preconditions: not even an operator that was frozen and does not know yet
                // that it lost the lease changes a ConfigMap that another operator has replaced or
                // written.
                let patch = json!({ "metadata": version, "data": data, "binaryData": facts });
                api.patch(&name, &PatchParams::default(), &Patch::Merge(patch))
                    .await?
            }
            None => {
                let object = json!({ "metadata": meta, "data": data, "binaryData": facts });
                api.create(&PostParams::default(), &serde_json::from_value(object)?)
                    .await?
            }
        };
        Ok(StoredLog {
            version: ObjectVersion::of(&written),
            ..stored
        })
    }
}

/// Reads the log from Kubernetes, and drops pending entries that are stored already.
async fn load(
    api: &Api<ConfigMap>,
    meta: &ObjectMeta,
    pending: &mut Vec<PendingEntry>,
) -> Result<StoredLog, LogError> {
    let name = meta.name.clone().unwrap_or_default();
    let Some(object) = api.get_opt(&name).await? else {
        return Ok(StoredLog::default());
    };
    if owner_uid(&object.metadata) != owner_uid(meta) {
        return Err(LogError::NotOwned(name));
    }
    pending.drain(..stored_count(&Decision::read(&object), pending));
    let entries = object.data.iter().flatten();
    let own_entries = entries.filter(|(key, _)| key.len() == entry_key(0).len());
    let sizes = own_entries.filter_map(|(key, text)| {
        let facts = facts_of(&object, key).map_or(0, |facts| base64_len(facts.0.len()));
        Some((key.parse().ok()?, text.len() + facts))
    });
    Ok(StoredLog {
        sizes: sizes.collect(),
        version: ObjectVersion::of(&object),
    })
}

/// Returns how many of the first pending entries are the last stored ones: another operator made the same decisions, or
/// the answer to an earlier write was lost.
fn stored_count(stored: &[Decision], pending: &[PendingEntry]) -> usize {
    let are_stored = |count: &usize| {
        let Some(skipped) = stored.len().checked_sub(*count) else {
            return false;
        };
        let mut pairs = stored[skipped..].iter().zip(pending);
        pairs.all(|(stored, entry)| entry.decision.repeats(stored))
    };
    let counts = (0..=pending.len()).rev();
    counts.into_iter().find(are_stored).unwrap_or_default()
}

fn owner_uid(meta: &ObjectMeta) -> Option<&str> {
    let owner = meta.owner_references.iter().flatten().next()?;
    Some(&owner.uid)
}

/// Returns the key of an entry. Keys sort by number.
fn entry_key(number: u64) -> String {
    format!("{number:08}")
}

fn facts_key(number: u64) -> String {
    format!("{}{FACTS_SUFFIX}", entry_key(number))
}

fn facts_of<'o>(object: &'o ConfigMap, key: &str) -> Option<&'o ByteString> {
    object
        .binary_data
        .as_ref()?
        .get(&format!("{key}{FACTS_SUFFIX}"))
}

/// Returns the size of bytes in JSON.
fn base64_len(bytes: usize) -> usize {
    bytes * 4 / 3
}

fn compress<F: Serialize>(facts: &F) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let text = serde_json::to_vec(facts).unwrap_or_default();
    encoder
        .write_all(&text)
        .and_then(|()| encoder.finish())
        .unwrap_or_default()
}

fn decompress(compressed: &[u8]) -> Option<String> {
    let mut text = String::new();
    GzDecoder::new(compressed)
        .take(MAX_FACTS_BYTES)
        .read_to_string(&mut text)
        .ok()?;
    Some(text)
}

#[cfg(test)]
#[path = "decision_log_tests.rs"]
mod tests;
