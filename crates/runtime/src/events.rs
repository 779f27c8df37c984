//! Events: what has happened, told to people beside the object it happened to. Telling never fails a reconcile, and
//! says nothing twice.
//!
//! kube's `Recorder` does not fit: it counts notices of one reason together and keeps the first one's note, so of two
//! replaced members only one would be named.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use serde::{Deserialize, Serialize};

use crate::clock::{SharedClock, within};

/// For how long the same thing is not said again.
const QUIET: Duration = Duration::from_secs(600);
/// What the API server accepts as a note.
const NOTE: usize = 1024;
/// Nobody waits longer than this for an event to be written.
const LIMIT: Duration = Duration::from_secs(5);

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum NoticeKind {
    /// Worth knowing.
    Normal,
    /// Worth looking at.
    Warning,
}

/// Something that people should be told.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Notice {
    /// Whether to worry.
    pub kind: NoticeKind,
    /// What has happened, in one PascalCase word: `MemberReplaced`.
    pub reason: String,
    /// What was being done, likewise: `Replace`.
    pub action: String,
    /// The same for people, with names and numbers, and what they can do.
    pub note: String,
}

impl Notice {
    /// Something worth knowing.
    pub fn normal(reason: &str, action: &str, note: impl Into<String>) -> Self {
        Self { kind: NoticeKind::Normal, reason: reason.into(), action: action.into(), note: note.into() }
    }

    /// Something worth looking at.
    pub fn warning(reason: &str, action: &str, note: impl Into<String>) -> Self {
        Self { kind: NoticeKind::Warning, ..Self::normal(reason, action, note) }
    }
}

/// Tells people. Clones remember together what has been told.
#[derive(Clone)]
pub struct Events {
    client: Client,
    controller: String,
    instance: String,
    clock: SharedClock,
    told: Arc<Mutex<HashMap<String, Vec<Told>>>>,
}

/// What was told about an object, the latest last.
#[derive(Debug)]
struct Told {
    notice: Notice,
    at: Duration,
}

impl Events {
    /// Tells in the name of `controller` (a qualified name, such as `evenkeel.dev/etcd`); `instance` is which of its
    /// processes.
    pub fn new(client: Client, controller: &str, instance: &str, clock: SharedClock) -> Self {
        Self { client, controller: controller.into(), instance: instance.into(), clock, told: Arc::default() }
    }

    /// Which process tells.
    pub(crate) fn instance(&self) -> &str {
        &self.instance
    }

    /// Tells one thing about an object, unless it was the last thing told about it and that within ten minutes.
    pub async fn tell(&self, regarding: &ObjectReference, notice: &Notice) {
        self.tell_all(regarding, std::slice::from_ref(notice)).await;
    }

    /// Tells what one look at an object brought. Two notices of the same look do not count as "something else" for each
    /// other: otherwise a state with two of them would be told at every look.
    pub async fn tell_all(&self, regarding: &ObjectReference, notices: &[Notice]) {
        for notice in self.fresh(regarding, notices) {
            let request = self.publish(regarding, &notice);
            let error = match within(&*self.clock, LIMIT, request).await {
                Some(Ok(())) => continue,
                Some(Err(error)) => error.to_string(),
                None => "it took too long".into(),
            };
            let (object, reason) = (regarding.name.as_deref().unwrap_or_default(), &notice.reason);
            tracing::warn!(object, reason, note = notice.note, error, "could not write an event");
            self.untold(regarding, &notice);
        }
    }

    /// The notices that are news, noted as told.
    fn fresh(&self, regarding: &ObjectReference, notices: &[Notice]) -> Vec<Notice> {
        let now = self.clock.uptime();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        // Everything old is forgotten, so nothing is kept for objects that are gone.
        told.retain(|_, about| {
            about.retain(|told| now.saturating_sub(told.at) < QUIET);
            !about.is_empty()
        });
        let about = told.entry(id(regarding)).or_default();
        let mut fresh = Vec::new();
        for notice in notices {
            let since = about
                .iter()
                .rev()
                .take_while(|told| told.notice == *notice || notices.contains(&told.notice));
            if since.into_iter().any(|told| told.notice == *notice) {
                continue;
            }
            about.retain(|told| told.notice != *notice);
            about.push(Told { notice: notice.clone(), at: now });
            fresh.push(notice.clone());
        }
        fresh
    }

    fn untold(&self, regarding: &ObjectReference, notice: &Notice) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(about) = told.get_mut(&id(regarding)) {
            about.retain(|told| told.notice != *notice);
        }
    }

    async fn publish(&self, regarding: &ObjectReference, notice: &Notice) -> kube::Result<()> {
        // The API server wants events about cluster-scoped objects in `default`.
        let namespace = regarding.namespace.as_deref().unwrap_or("default");
        let event = Event {
            metadata: ObjectMeta {
                generate_name: Some(format!("{}-", regarding.name.as_deref().unwrap_or("event"))),
                ..ObjectMeta::default()
            },
            event_time: Timestamp::from_second(self.clock.now().0).ok().map(MicroTime),
            regarding: Some(regarding.clone()),
            type_: Some(format!("{:?}", notice.kind)),
            reason: Some(notice.reason.clone()),
            action: Some(notice.action.clone()),
            note: Some(shortened(&notice.note)),
            reporting_controller: Some(self.controller.clone()),
            reporting_instance: Some(self.instance.clone()),
            ..Event::default()
        };
        Api::<Event>::namespaced(self.client.clone(), namespace)
            .create(&PostParams::default(), &event)
            .await?;
        Ok(())
    }
}

/// What tells objects apart: the uid, or failing that the place.
fn id(regarding: &ObjectReference) -> String {
    regarding.uid.clone().unwrap_or_else(|| {
        let parts = [&regarding.kind, &regarding.namespace, &regarding.name];
        parts.map(|part| part.as_deref().unwrap_or_default()).join("/")
    })
}

fn shortened(note: &str) -> String {
    if note.len() <= NOTE {
        return note.to_owned();
    }
    const MORE: &str = "…";
    let end = (0..=NOTE - MORE.len()).rfind(|end| note.is_char_boundary(*end)).unwrap_or(0);
    format!("{}{MORE}", &note[..end])
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
