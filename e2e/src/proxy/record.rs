//! The record of the requests through the proxy: requests as patterns, writes with their answers, and the number of creates
//! and deletes per object.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A write on its way to the API server.
#[derive(Clone, Debug)]
pub struct Write {
    /// `POST`, `PUT`, `PATCH` or `DELETE`.
    pub verb: String,
    /// Path and query, as sent.
    pub path: String,
    /// The body; null if it is not JSON (`kubectl` sends protobuf for some writes).
    pub body: Value,
    /// The number among all writes through this proxy, from 1.
    pub number: u64,
    /// The number among all writes except those to Leases and Events, from 1. Those depend on the clock, so that with them
    /// the nth write would differ from run to run.
    pub ordinal: Option<u64>,
}

impl Write {
    /// Whether the write is to this resource (`pods`, `leases`), a subresource included.
    pub fn is_to(&self, resource: &str) -> bool {
        Parts::of(&self.path).resource == resource
    }

    /// The subresource (`status`, `eviction`), if any.
    pub fn subresource(&self) -> Option<&str> {
        Parts::of(&self.path).subresource
    }

    /// The name of the object, from the path or, for a create, from the body.
    pub fn name(&self) -> Option<&str> {
        Parts::of(&self.path)
            .name
            .or_else(|| self.body.pointer("/metadata/name")?.as_str())
    }
}

/// A write and its answers.
#[derive(Clone, Debug)]
pub struct RecordedWrite {
    /// The write.
    pub write: Write,
    /// The time at which the write reached the proxy.
    pub at: Instant,
    /// The status code of the API server; `None` if it did not get the write or has not answered yet.
    pub answered: Option<u16>,
    /// The status code that the sender got; `None` if it got none, or none yet.
    pub returned: Option<u16>,
    /// The name in the API server's answer, for objects with generated names.
    pub(super) named: Option<String>,
}

impl RecordedWrite {
    /// Whether the API server has applied the write.
    pub fn is_applied(&self) -> bool {
        self.answered.is_some_and(|code| (200..300).contains(&code))
    }

    /// Returns the object as `resource/name`: `pods/orders-1`.
    pub fn object(&self) -> String {
        let name = self.write.name().or(self.named.as_deref()).unwrap_or("?");
        format!("{}/{name}", Parts::of(&self.write.path).resource)
    }
}

impl std::fmt::Display for RecordedWrite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Write {
            number, verb, path, ..
        } = &self.write;
        let code = |code: Option<u16>| code.map_or("nothing".to_owned(), |code| code.to_string());
        write!(
            f,
            "{number}. {verb} {path}: the API server answered {}, the sender got {}",
            code(self.answered),
            code(self.returned)
        )
    }
}

/// Every request, and every write.
#[derive(Debug, Default)]
pub(super) struct Record {
    requests: BTreeMap<(String, String), usize>,
    /// When an object was last read by name, by resource and name.
    reads: BTreeMap<(String, String), Instant>,
    writes: Vec<RecordedWrite>,
    ordinals: u64,
}

impl Record {
    pub(super) fn request(&mut self, verb: &str, path: &str) {
        let (verb, parts) = (verb_of(verb, path), Parts::of(path));
        *self
            .requests
            .entry((verb.to_owned(), pattern(path)))
            .or_default() += 1;
        if let ("GET", Some(name)) = (verb, parts.name) {
            self.reads
                .insert((parts.resource.to_owned(), name.to_owned()), Instant::now());
        }
    }

    pub(super) fn write(&mut self, verb: &str, path: &str, body: Value) -> Write {
        let number = self.writes.len() as u64 + 1;
        let parts = Parts::of(path);
        let is_clock_driven = matches!(parts.resource, "leases" | "events");
        self.ordinals += u64::from(!is_clock_driven);
        let ordinal = (!is_clock_driven).then_some(self.ordinals);
        let write = Write {
            verb: verb.to_owned(),
            path: path.to_owned(),
            body,
            number,
            ordinal,
        };
        self.writes.push(RecordedWrite {
            write: write.clone(),
            at: Instant::now(),
            answered: None,
            returned: None,
            named: None,
        });
        write
    }

    pub(super) fn answered(&mut self, number: u64, code: u16, answer: &[u8]) {
        if let Some(written) = self.nth(number) {
            written.answered = Some(code);
            let answer: Option<Value> = serde_json::from_slice(answer).ok();
            let name = answer
                .as_ref()
                .and_then(|answer| answer.pointer("/metadata/name")?.as_str());
            written.named = name.map(str::to_owned);
        }
    }

    pub(super) fn returned(&mut self, number: u64, code: u16) {
        if let Some(written) = self.nth(number) {
            written.returned = Some(code);
        }
    }

    fn nth(&mut self, number: u64) -> Option<&mut RecordedWrite> {
        self.writes
            .get_mut(usize::try_from(number).ok()?.checked_sub(1)?)
    }

    pub(super) fn requests(&self) -> BTreeMap<(String, String), usize> {
        self.requests.clone()
    }

    pub(super) fn read_since(&self, resource: &str, time: Instant) -> BTreeSet<String> {
        let since = self
            .reads
            .iter()
            .filter(|((of, _), at)| of == resource && **at >= time);
        since.map(|((_, name), _)| name.clone()).collect()
    }

    pub(super) fn writes(&self) -> Vec<RecordedWrite> {
        self.writes.clone()
    }
}

/// The number of creates and deletes of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectCounts {
    /// Creates, and applies of an object that did not exist.
    pub created: usize,
    /// Deletes and evictions.
    pub deleted: usize,
}

/// Counts the creates and deletes that the API server has applied, per object (`pods/orders-1`). An operator that was disturbed
/// must not need more of them than one that was not.
pub fn object_counts(writes: &[RecordedWrite]) -> BTreeMap<String, ObjectCounts> {
    let mut object_counts: BTreeMap<String, ObjectCounts> = BTreeMap::new();
    for written in writes.iter().filter(|written| written.is_applied()) {
        let created = written.answered == Some(201);
        let deleted = match (written.write.verb.as_str(), written.write.subresource()) {
            ("DELETE", None) | ("POST", Some("eviction")) => true,
            (_, None) if created => false,
            _ => continue,
        };
        let of = object_counts.entry(written.object()).or_default();
        if deleted {
            of.deleted += 1;
        } else {
            of.created += 1;
        }
    }
    object_counts
}

/// Returns the writes since a time in order, without those to ignore.
pub(super) fn since(
    writes: Vec<RecordedWrite>,
    time: Instant,
    ignoring: impl Fn(&Write) -> bool,
) -> Vec<RecordedWrite> {
    writes
        .into_iter()
        .filter(|written| written.at >= time && !ignoring(&written.write))
        .collect()
}

/// Returns the time since the last write that is not ignored, or since `began`.
pub(super) fn idle_time(
    writes: &[RecordedWrite],
    began: Instant,
    ignoring: impl Fn(&Write) -> bool,
) -> Duration {
    let counts = writes.iter().filter(|written| !ignoring(&written.write));
    counts
        .map(|written| written.at)
        .max()
        .map_or(began, |last| last.max(began))
        .elapsed()
}

/// Whether a request changes something. Reviews are sent by POST and do not.
pub(super) fn changes(verb: &str, path: &str) -> bool {
    let review = path.starts_with("/apis/authorization.k8s.io/")
        || path.starts_with("/apis/authentication.k8s.io/");
    matches!(verb, "POST" | "PUT" | "PATCH" | "DELETE") && !review
}

fn verb_of<'a>(verb: &'a str, path: &str) -> &'a str {
    let query = path.split_once('?').map_or("", |(_, query)| query);
    let watches = query
        .split('&')
        .any(|pair| matches!(pair, "watch=true" | "watch=1"));
    if watches { "WATCH" } else { verb }
}

/// Returns a request's path without namespace and name: `/api/v1/namespaces/{namespace}/pods/{name}`.
pub fn pattern(path: &str) -> String {
    let bare = path.split_once('?').map_or(path, |(bare, _)| bare);
    let parts = Parts::of(path);
    if parts.resource.is_empty() {
        return bare.to_owned();
    }
    let mut pattern = parts.group.to_owned();
    if parts.namespaced {
        pattern.push_str("/namespaces/{namespace}");
    }
    pattern.push('/');
    pattern.push_str(parts.resource);
    if parts.name.is_some() {
        pattern.push_str("/{name}");
    }
    if let Some(subresource) = parts.subresource {
        pattern.push('/');
        pattern.push_str(subresource);
    }
    pattern
}

/// The parts of an API path. `resource` is empty if the path names none (`/version`, discovery).
#[derive(Default)]
struct Parts<'a> {
    group: &'a str,
    namespaced: bool,
    resource: &'a str,
    name: Option<&'a str>,
    subresource: Option<&'a str>,
}

impl<'a> Parts<'a> {
    fn of(path: &'a str) -> Self {
        let bare = path.split_once('?').map_or(path, |(bare, _)| bare);
        let depth = match bare {
            _ if bare.starts_with("/api/") => 3,
            _ if bare.starts_with("/apis/") => 4,
            _ => return Self::default(),
        };
        // The slash after group and version: the third of `/api/v1/…`, the fourth of `/apis/apps/v1/…`.
        let Some((slash, _)) = bare.match_indices('/').nth(depth - 1) else {
            return Self::default();
        };
        let (group, rest) = bare.split_at(slash);
        let mut words = rest
            .split('/')
            .skip(1)
            .filter(|resumed| !resumed.is_empty());
        let mut parts = Self {
            group,
            ..Self::default()
        };
        let (Some(first), second, third) = (words.next(), words.next(), words.next()) else {
            return parts;
        };
        match (first, second, third) {
            // `namespaces/x/status` and `namespaces/x/finalize` are subresources of the namespace.
            ("namespaces", Some(_), Some(third)) if !matches!(third, "status" | "finalize") => {
                parts.namespaced = true;
                parts.resource = third;
                parts.name = words.next();
                parts.subresource = words.next();
            }
            _ => {
                parts.resource = first;
                parts.name = second;
                parts.subresource = third;
            }
        }
        parts
    }
}
