//! What passes through the proxy, in words: requests as patterns, writes with what became of them, and per object how
//! often it was created and deleted.

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
    /// What was sent; null where it is not JSON (some of `kubectl` speaks protobuf).
    pub body: Value,
    /// Its number among all writes through this proxy, from 1.
    pub number: u64,
    /// Its number among the deeds, from 1. Leases are renewed and events told by the clock: were they counted, the
    /// nth write would be another one in each run. They have none.
    pub deed: Option<u64>,
}

impl Write {
    /// Whether it goes to this sort of object (`pods`, `leases`), a subresource of it included.
    pub fn is_to(&self, resource: &str) -> bool {
        Parts::of(&self.path).resource == resource
    }

    /// The subresource it goes to (`status`, `eviction`), if any.
    pub fn subresource(&self) -> Option<&str> {
        Parts::of(&self.path).subresource
    }

    /// The object's name, by the path or, for one that is created, by the body.
    pub fn name(&self) -> Option<&str> {
        Parts::of(&self.path)
            .name
            .or_else(|| self.body.pointer("/metadata/name")?.as_str())
    }
}

/// A write, and what became of it.
#[derive(Clone, Debug)]
pub struct Written {
    /// The write.
    pub write: Write,
    /// When it came to the proxy.
    pub at: Instant,
    /// What the API server answered; `None` where it never got it, or has not answered yet.
    pub answered: Option<u16>,
    /// What the sender was told; `None` where it got no answer, or has none yet.
    pub told: Option<u16>,
    /// The name in the API server's answer: the one that an object of a generated name has.
    pub(super) named: Option<String>,
}

impl Written {
    /// Whether the API server has done it.
    pub fn is_applied(&self) -> bool {
        self.answered.is_some_and(|code| (200..300).contains(&code))
    }

    /// The object as `resource/name`: `pods/orders-1`.
    pub fn object(&self) -> String {
        let name = self.write.name().or(self.named.as_deref()).unwrap_or("?");
        format!("{}/{name}", Parts::of(&self.write.path).resource)
    }
}

impl std::fmt::Display for Written {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Write {
            number, verb, path, ..
        } = &self.write;
        let code = |code: Option<u16>| code.map_or("nothing".to_owned(), |code| code.to_string());
        write!(
            f,
            "{number}. {verb} {path}: answered {}, told {}",
            code(self.answered),
            code(self.told)
        )
    }
}

/// Every request that came, and every write.
#[derive(Debug, Default)]
pub(super) struct Record {
    requests: BTreeMap<(String, String), usize>,
    /// When an object was last read by its name, by resource and name.
    reads: BTreeMap<(String, String), Instant>,
    writes: Vec<Written>,
    deeds: u64,
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
        let by_the_clock = matches!(parts.resource, "leases" | "events");
        self.deeds += u64::from(!by_the_clock);
        let deed = (!by_the_clock).then_some(self.deeds);
        let write = Write {
            verb: verb.to_owned(),
            path: path.to_owned(),
            body,
            number,
            deed,
        };
        self.writes.push(Written {
            write: write.clone(),
            at: Instant::now(),
            answered: None,
            told: None,
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

    pub(super) fn told(&mut self, number: u64, code: u16) {
        if let Some(written) = self.nth(number) {
            written.told = Some(code);
        }
    }

    fn nth(&mut self, number: u64) -> Option<&mut Written> {
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

    pub(super) fn writes(&self) -> Vec<Written> {
        self.writes.clone()
    }
}

/// How often an object was created and deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lives {
    /// Created, by a create or by the apply that found none.
    pub created: usize,
    /// Deleted or evicted.
    pub deleted: usize,
}

/// Creates and deletes that the API server has done, per object (`pods/orders-1`): an operator that was disturbed makes
/// no more of them than one that was not.
pub fn lives(writes: &[Written]) -> BTreeMap<String, Lives> {
    let mut lives: BTreeMap<String, Lives> = BTreeMap::new();
    for written in writes.iter().filter(|written| written.is_applied()) {
        let created = written.answered == Some(201);
        let deleted = match (written.write.verb.as_str(), written.write.subresource()) {
            ("DELETE", None) | ("POST", Some("eviction")) => true,
            (_, None) if created => false,
            _ => continue,
        };
        let of = lives.entry(written.object()).or_default();
        if deleted {
            of.deleted += 1;
        } else {
            of.created += 1;
        }
    }
    lives
}

/// The writes since a time, in order, `ignoring` some.
pub(super) fn since(
    writes: Vec<Written>,
    time: Instant,
    ignoring: impl Fn(&Write) -> bool,
) -> Vec<Written> {
    writes
        .into_iter()
        .filter(|written| written.at >= time && !ignoring(&written.write))
        .collect()
}

/// For how long there was no write at the end, among those that count.
pub(super) fn quiet(
    writes: &[Written],
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

/// Whether a request changes something: questions that are asked by POST do not.
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

/// A request's path without what differs from object to object: `/api/v1/namespaces/{namespace}/pods/{name}`.
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

/// A path of the API, taken apart. Where it names no resource (`/version`, discovery) that is empty.
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
        // The slash after the group and version: the third of `/api/v1/…`, the fourth of `/apis/apps/v1/…`.
        let Some((slash, _)) = bare.match_indices('/').nth(depth - 1) else {
            return Self::default();
        };
        let (group, rest) = bare.split_at(slash);
        let mut words = rest.split('/').skip(1).filter(|word| !word.is_empty());
        let mut parts = Self {
            group,
            ..Self::default()
        };
        let (Some(first), second, third) = (words.next(), words.next(), words.next()) else {
            return parts;
        };
        match (first, second, third) {
            // `namespaces/x/status` and `namespaces/x/finalize` are of the namespace itself.
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
