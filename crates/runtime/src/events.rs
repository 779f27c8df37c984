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

use crate::clock::{SharedClock, with_timeout};

/// For how long the same thing is not said again.
const REPEAT_INTERVAL: Duration = Duration::from_secs(600);
/// What the API server accepts as a note.
const MAX_NOTE_BYTES: usize = 1024;
/// Nobody waits longer than this for an event to be written.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum EventType {
    /// Worth knowing.
    Normal,
    /// Worth looking at.
    Warning,
}

/// Something that people should be told.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EventSpec {
    /// Whether to worry.
    pub kind: EventType,
    /// What has happened, in one PascalCase word: `MemberReplaced`.
    pub reason: String,
    /// What was being done, likewise: `Replace`.
    pub action: String,
    /// The same for people, with names and numbers, and what they can do.
    pub note: String,
}

impl EventSpec {
    /// Something worth knowing.
    pub fn normal(reason: &str, action: &str, note: impl Into<String>) -> Self {
        Self {
            kind: EventType::Normal,
            reason: reason.into(),
            action: action.into(),
            note: note.into(),
        }
    }

    /// Something worth looking at.
    pub fn warning(reason: &str, action: &str, note: impl Into<String>) -> Self {
        Self {
            kind: EventType::Warning,
            ..Self::normal(reason, action, note)
        }
    }
}

/// Tells people. Clones remember together what has been told.
#[derive(Clone)]
pub struct EventRecorder {
    client: Client,
    controller: String,
    instance: String,
    clock: SharedClock,
    published: Arc<Mutex<HashMap<String, Vec<PublishedEvent>>>>,
}

/// What was told about an object, the latest last.
#[derive(Debug)]
struct PublishedEvent {
    event: EventSpec,
    at: Duration,
}

impl EventRecorder {
    /// Tells in the name of `controller` (a qualified name, such as `evenkeel.dev/etcd`); `instance` is which of its
    /// processes.
    pub fn new(client: Client, controller: &str, instance: &str, clock: SharedClock) -> Self {
        Self {
            client,
            controller: controller.into(),
            instance: instance.into(),
            clock,
            published: Arc::default(),
        }
    }

    /// Which process tells.
    pub(crate) fn instance(&self) -> &str {
        &self.instance
    }

    /// Tells one thing about an object, unless it was the last thing told about it and that within ten minutes.
    pub async fn publish(&self, regarding: &ObjectReference, notice: &EventSpec) {
        self.publish_all(regarding, std::slice::from_ref(notice))
            .await;
    }

    /// Tells what one look at an object brought. Two notices of the same look do not count as "something else" for each
    /// other: otherwise a state with two of them would be told at every look.
    pub async fn publish_all(&self, regarding: &ObjectReference, notices: &[EventSpec]) {
        for notice in self.deduplicate(regarding, notices) {
            let request = self.create_event(regarding, &notice);
            let error = match with_timeout(&*self.clock, REQUEST_TIMEOUT, request).await {
                Some(Ok(())) => continue,
                Some(Err(error)) => error.to_string(),
                None => "it took too long".into(),
            };
            let (object, reason) = (
                regarding.name.as_deref().unwrap_or_default(),
                &notice.reason,
            );
            tracing::warn!(
                object,
                reason,
                note = notice.note,
                error,
                "could not write an event"
            );
            self.forget_published(regarding, &notice);
        }
    }

    /// The notices that are news, noted as told.
    fn deduplicate(&self, regarding: &ObjectReference, notices: &[EventSpec]) -> Vec<EventSpec> {
        let now = self.clock.uptime();
        let mut told = self
            .published
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // Everything old is forgotten, so nothing is kept for objects that are gone.
        told.retain(|_, about| {
            about.retain(|told| now.saturating_sub(told.at) < REPEAT_INTERVAL);
            !about.is_empty()
        });
        let about = told.entry(object_id(regarding)).or_default();
        let mut fresh = Vec::new();
        for notice in notices {
            let since = about
                .iter()
                .rev()
                .take_while(|told| told.event == *notice || notices.contains(&told.event));
            if since.into_iter().any(|told| told.event == *notice) {
                continue;
            }
            about.retain(|told| told.event != *notice);
            about.push(PublishedEvent {
                event: notice.clone(),
                at: now,
            });
            fresh.push(notice.clone());
        }
        fresh
    }

    fn forget_published(&self, regarding: &ObjectReference, notice: &EventSpec) {
        let mut told = self
            .published
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(about) = told.get_mut(&object_id(regarding)) {
            about.retain(|told| told.event != *notice);
        }
    }

    async fn create_event(
        &self,
        regarding: &ObjectReference,
        notice: &EventSpec,
    ) -> kube::Result<()> {
        // The API server wants events about cluster-scoped objects in `default`.
        let namespace = regarding.namespace.as_deref().unwrap_or("default");
        let event = Event {
            metadata: ObjectMeta {
                generate_name: Some(format!("{}-", regarding.name.as_deref().unwrap_or("event"))),
                ..ObjectMeta::default()
            },
            event_time: Timestamp::from_second(self.clock.now().0)
                .ok()
                .map(MicroTime),
            regarding: Some(regarding.clone()),
            type_: Some(format!("{:?}", notice.kind)),
            reason: Some(notice.reason.clone()),
            action: Some(notice.action.clone()),
            note: Some(truncate_note(&notice.note)),
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
fn object_id(regarding: &ObjectReference) -> String {
    regarding.uid.clone().unwrap_or_else(|| {
        let parts = [&regarding.kind, &regarding.namespace, &regarding.name];
        parts
            .map(|part| part.as_deref().unwrap_or_default())
            .join("/")
    })
}

fn truncate_note(note: &str) -> String {
    if note.len() <= MAX_NOTE_BYTES {
        return note.to_owned();
    }
    const MORE: &str = "…";
    let end = (0..=MAX_NOTE_BYTES - MORE.len())
        .rfind(|end| note.is_char_boundary(*end))
        .unwrap_or(0);
    format!("{}{MORE}", &note[..end])
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
