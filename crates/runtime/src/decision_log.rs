//! The log of decisions: what was decided, on which facts, and what came of it. It is kept in a ConfigMap beside the resource,
//! so that it outlives the operator; it has an end; and it is written once a go at most, and only when something else was decided
//! than the last time. Nothing rests on it: what cannot be written is tried again with what comes next.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::clock::{SharedClock, with_timeout};
use crate::reconciler::ResourceKey;

/// How many decisions are kept.
const MAX_ENTRIES: usize = 40;
/// How many bytes they may have together: an object of Kubernetes has an end, and so has its patience with large ones.
const MAX_BYTES: usize = 256 * 1024;
/// Nobody waits longer than this for it to be written.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How soon it is tried again when it could not be written.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);
/// What the facts of a decision are called, beside it.
const FACTS_SUFFIX: &str = ".facts";

/// One decision, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// When it was made.
    pub at: String,
    /// Which operator made it.
    pub by: String,
    /// What it was, as far as it was known then.
    #[serde(flatten)]
    pub explained: Explanation,
    /// What came of it.
    pub outcome: String,
    /// What people were told by events.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<String>,
    /// What it rested on, all that was known and what was not, as JSON: as text, for numbers may be larger than most programs
    /// take them for.
    #[serde(skip)]
    pub facts: Option<String>,
}

/// What a plan comes to, as sentences.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// What is done, one thing after the other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// What is waited for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<String>,
}

impl Decision {
    /// The decisions in a log, the oldest first. What cannot be read is left out.
    pub fn read(object: &ConfigMap) -> Vec<Self> {
        let pages = object.data.iter().flatten();
        let decisions = pages.filter_map(|(number, text)| {
            let mut decision: Self = serde_json::from_str(text).ok()?;
            let facts = object
                .binary_data
                .as_ref()
                .and_then(|all| all.get(&format!("{number}{FACTS_SUFFIX}")));
            decision.facts = facts.and_then(|packed| decompress(&packed.0));
            Some(decision)
        });
        decisions.collect()
    }

    /// Whether it is the same decision again. The time, who made it and what was seen may differ; and so may what Kubernetes has
    /// to say about what is waited for, which follows a colon and changes with every node that comes or goes.
    fn repeats(&self, other: &Self) -> bool {
        let waits = |one: &Self| -> Vec<String> {
            one.explained
                .waits
                .iter()
                .map(|wait| wait.split(": ").next().unwrap_or(wait).to_owned())
                .collect()
        };
        self.explained.actions == other.explained.actions
            && self.outcome == other.outcome
            && waits(self) == waits(other)
    }
}

/// The name and the owner of a resource's log.
pub fn decision_log_meta<R: Resource<DynamicType = ()>>(resource: &R) -> ObjectMeta {
    ObjectMeta {
        name: Some(format!(
            "{}-{}-decisions",
            resource.name_any(),
            R::kind(&()).to_lowercase()
        )),
        namespace: resource.namespace(),
        owner_references: resource.controller_owner_ref(&()).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    }
}

/// Keeps the logs of one kind of resources.
pub(crate) struct DecisionLog {
    client: Client,
    clock: SharedClock,
    by: String,
    books: Mutex<HashMap<ResourceKey, LogState>>,
}

/// What is known of one log.
#[derive(Debug, Default)]
struct LogState {
    /// The log as it was found or written last; nothing if it has not been looked at.
    found: Option<LogEntries>,
    /// What was decided last, written or not.
    last: Option<Decision>,
    /// What is yet to be written.
    pending: Vec<LogEntry>,
    /// It is not tried before.
    not_before: Duration,
    /// Whether people were told that it cannot be kept.
    told: bool,
}

/// Why a log is not written.
#[derive(Debug, thiserror::Error)]
enum LogError {
    /// There is one of its name that is somebody else's.
    #[error("the ConfigMap {0} is not this resource's")]
    NotOurs(String),
    /// Whatever else: it is tried again.
    #[error("{0}")]
    ForNow(String),
}

impl From<kube::Error> for LogError {
    fn from(error: kube::Error) -> Self {
        Self::ForNow(error.to_string())
    }
}

/// The log in Kubernetes.
#[derive(Clone, Debug, Default)]
struct LogEntries {
    /// Its uid and version; nothing if there is none yet.
    pin: Option<(String, String)>,
    /// How large each page is.
    sizes: BTreeMap<u64, usize>,
}

/// A decision as it is written.
#[derive(Clone, Debug)]
struct LogEntry {
    decision: Decision,
    text: String,
    facts: Vec<u8>,
}

impl LogEntry {
    fn size(&self) -> usize {
        // In JSON bytes take a third more.
        self.text.len() + self.facts.len() * 4 / 3
    }
}

impl DecisionLog {
    pub(crate) fn new(client: Client, clock: SharedClock, by: &str) -> Self {
        Self {
            client,
            clock,
            by: by.to_owned(),
            books: Mutex::default(),
        }
    }

    /// A resource is looked at: from now on its decisions are noted, until it is [forgotten](Self::forget).
    pub(crate) fn open(&self, key: &ResourceKey) {
        self.lock().entry(key.clone()).or_default();
    }

    /// Notes a decision, unless it is the last one again.
    pub(crate) fn record<F: Serialize>(
        &self,
        key: &ResourceKey,
        explained: Explanation,
        (outcome, events): (String, Vec<String>),
        facts: &F,
    ) {
        let at = Timestamp::from_second(self.clock.now().0)
            .unwrap_or_default()
            .to_string();
        let decision = Decision {
            at,
            by: self.by.clone(),
            explained,
            outcome,
            events,
            facts: None,
        };
        let mut books = self.lock();
        let Some(book) = books.get_mut(key) else {
            return;
        };
        if book
            .last
            .as_ref()
            .is_some_and(|last| decision.repeats(last))
        {
            return;
        }
        let Ok(text) = serde_json::to_string(&decision) else {
            return;
        };
        book.last = Some(decision.clone());
        book.pending.push(LogEntry {
            decision,
            text,
            facts: compress(facts),
        });
        if book.pending.len() > MAX_ENTRIES {
            book.pending.remove(0);
        }
    }

    /// Writes what was noted into the log that is to be like `meta`. Says why it cannot be kept, the first time that it cannot for
    /// a reason that stands.
    pub(crate) async fn flush(&self, key: &ResourceKey, meta: ObjectMeta) -> Option<String> {
        let (found, mut pending) = {
            let mut books = self.lock();
            let book = books.get_mut(key)?;
            if book.pending.is_empty() || self.clock.uptime() < book.not_before {
                return None;
            }
            (book.found.clone(), std::mem::take(&mut book.pending))
        };
        let went = with_timeout(
            &*self.clock,
            REQUEST_TIMEOUT,
            self.write(&meta, found, &mut pending),
        )
        .await;
        let went = went.unwrap_or_else(|| Err(LogError::ForNow("it took too long".to_owned())));
        let mut books = self.lock();
        let book = books.get_mut(key)?;
        let why = match went {
            Ok(found) => {
                (book.found, book.told) = (Some(found), false);
                return None;
            }
            Err(why) => why,
        };
        tracing::debug!(resource = %key, %why, "the log of decisions is not written");
        pending.append(&mut book.pending);
        (book.pending, book.found, book.not_before) =
            (pending, None, self.clock.uptime() + RETRY_INTERVAL);
        match why {
            LogError::NotOurs(name) if !std::mem::replace(&mut book.told, true) => Some(format!(
                "the log of decisions is not kept: the ConfigMap {name} is not this resource's. Delete it, and it is"
            )),
            LogError::NotOurs(_) | LogError::ForNow(_) => None,
        }
    }

    /// A resource is gone, and its log goes with it.
    pub(crate) fn forget(&self, key: &ResourceKey) {
        self.lock().remove(key);
    }

    async fn write(
        &self,
        meta: &ObjectMeta,
        found: Option<LogEntries>,
        pending: &mut Vec<LogEntry>,
    ) -> Result<LogEntries, LogError> {
        let namespace = meta.namespace.clone().unwrap_or_default();
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &namespace);
        let mut pages = match found {
            Some(pages) => pages,
            None => load(&api, meta, pending).await?,
        };
        if pending.is_empty() {
            return Ok(pages);
        }
        let name = meta.name.clone().unwrap_or_default();
        let first = pages.sizes.keys().next_back().map_or(1, |last| last + 1);
        let (mut data, mut facts) = (serde_json::Map::new(), serde_json::Map::new());
        for (number, page) in (first..).zip(pending.iter()) {
            pages.sizes.insert(number, page.size());
            data.insert(entry_key(number), json!(page.text));
            facts.insert(
                format!("{}{FACTS_SUFFIX}", entry_key(number)),
                json!(ByteString(page.facts.clone())),
            );
        }
        while pages.sizes.len() > MAX_ENTRIES || pages.sizes.values().sum::<usize>() > MAX_BYTES {
            let Some((oldest, _)) = pages.sizes.pop_first() else {
                break;
            };
            if oldest >= first {
                data.remove(&entry_key(oldest));
                facts.remove(&format!("{}{FACTS_SUFFIX}", entry_key(oldest)));
            } else {
                data.insert(entry_key(oldest), Value::Null);
                facts.insert(format!("{}{FACTS_SUFFIX}", entry_key(oldest)), Value::Null);
            }
        }
        let written = match &pages.pin {
            Some((uid, version)) => {
                // Pinned: one that somebody else has made or written meanwhile is left alone, also by whoever was frozen and
                // does not know yet that another operator acts.
                let pin = json!({ "uid": uid, "resourceVersion": version });
                let patch = json!({ "metadata": pin, "data": data, "binaryData": facts });
                api.patch(&name, &PatchParams::default(), &Patch::Merge(patch))
                    .await
            }
            None => {
                let object = json!({ "metadata": meta, "data": data, "binaryData": facts });
                let object = serde_json::from_value(object)
                    .map_err(|error| LogError::ForNow(error.to_string()))?;
                api.create(&PostParams::default(), &object).await
            }
        };
        Ok(LogEntries {
            pin: pin(&written?),
            ..pages
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ResourceKey, LogState>> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The log as Kubernetes has it. What another operator decided last, and wrote, is not written again.
async fn load(
    api: &Api<ConfigMap>,
    meta: &ObjectMeta,
    pending: &mut Vec<LogEntry>,
) -> Result<LogEntries, LogError> {
    let name = meta.name.clone().unwrap_or_default();
    let Some(object) = api.get_opt(&name).await? else {
        return Ok(LogEntries::default());
    };
    let owner = |meta: &ObjectMeta| {
        meta.owner_references
            .iter()
            .flatten()
            .map(|one| one.uid.clone())
            .next()
    };
    if owner(&object.metadata) != owner(meta) {
        return Err(LogError::NotOurs(name));
    }
    // As many of the first as are the last there: a write of which nobody heard may have been made.
    let there = Decision::read(&object);
    let are_there = |count: &usize| {
        let last = there.iter().rev().take(*count).rev();
        *count <= there.len()
            && last
                .zip(pending.iter())
                .all(|(there, page)| page.decision.repeats(there))
    };
    let known = (0..=pending.len())
        .rev()
        .find(are_there)
        .unwrap_or_default();
    pending.drain(..known);
    let ours = object
        .data
        .iter()
        .flatten()
        .filter(|(number, _)| number.len() == entry_key(0).len());
    let texts = ours.filter_map(|(number, text)| {
        let facts = object
            .binary_data
            .as_ref()
            .and_then(|all| all.get(&format!("{number}{FACTS_SUFFIX}")));
        Some((
            number.parse().ok()?,
            text.len() + facts.map_or(0, |facts| facts.0.len() * 4 / 3),
        ))
    });
    Ok(LogEntries {
        sizes: texts.collect(),
        pin: pin(&object),
    })
}

/// What tells an object from any other that was, or will be, in its place.
fn pin(object: &ConfigMap) -> Option<(String, String)> {
    object
        .metadata
        .uid
        .clone()
        .zip(object.metadata.resource_version.clone())
}

/// A page's number, so that it sorts.
fn entry_key(number: u64) -> String {
    format!("{number:08}")
}

fn compress<F: Serialize>(facts: &F) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let text = serde_json::to_vec(facts).unwrap_or_default();
    encoder
        .write_all(&text)
        .and_then(|()| encoder.finish())
        .unwrap_or_default()
}

fn decompress(packed: &[u8]) -> Option<String> {
    let mut text = String::new();
    // What a decision rests on is some kilobytes: what claims to be more was not written here.
    GzDecoder::new(packed)
        .take(16 * 1024 * 1024)
        .read_to_string(&mut text)
        .ok()?;
    Some(text)
}

#[cfg(test)]
#[path = "decision_log_tests.rs"]
mod tests;
