//! Kubernetes events about resources. A failed write of an event does not fail the reconcile, and an event is not
//! repeated within ten minutes.
//!
//! kube's `Recorder` does not fit: it merges events by reason and keeps the note of the first, so of two replaced members
//! only one would be named.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::clock::{SharedClock, with_timeout};

/// The interval within which an event is not repeated.
const REPEAT_INTERVAL: Duration = Duration::from_secs(600);
/// The maximum length of a note that the API server accepts, in bytes.
const MAX_NOTE_BYTES: usize = 1024;
/// The timeout of the write of one event.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum EventType {
    /// Information.
    Normal,
    /// A problem.
    Warning,
}

/// The content of an event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EventSpec {
    /// The type.
    pub kind: EventType,
    /// The reason in PascalCase, such as `MemberReplaced`.
    pub reason: String,
    /// The action in PascalCase, such as `Replace`.
    pub action: String,
    /// The text for people, with names, numbers and a remedy.
    pub note: String,
}

impl EventSpec {
    /// Returns an event of type Normal.
    pub fn normal(reason: &str, action: &str, note: impl Into<String>) -> Self {
        Self {
            kind: EventType::Normal,
            reason: reason.into(),
            action: action.into(),
            note: note.into(),
        }
    }

    /// Returns an event of type Warning.
    pub fn warning(reason: &str, action: &str, note: impl Into<String>) -> Self {
        Self {
            kind: EventType::Warning,
            ..Self::normal(reason, action, note)
        }
    }
}

/// Publishes events. Clones share the record of published events.
#[derive(Clone)]
pub(crate) struct EventRecorder {
    client: Client,
    controller: String,
    instance: String,
    clock: SharedClock,
    published: Arc<Mutex<HashMap<String, Vec<PublishedEvent>>>>,
}

/// An event that was published.
#[derive(Debug)]
struct PublishedEvent {
    event: EventSpec,
    /// The uptime of the publication.
    at: Duration,
}

impl EventRecorder {
    /// Returns a recorder for `controller` (a qualified name, such as `evenkeel.dev/etcd`) in the process `instance`.
    pub(crate) fn new(
        client: Client,
        controller: &str,
        instance: &str,
        clock: SharedClock,
    ) -> Self {
        Self {
            client,
            controller: controller.into(),
            instance: instance.into(),
            clock,
            published: Arc::default(),
        }
    }

    /// Returns the name of the process.
    pub(crate) fn instance(&self) -> &str {
        &self.instance
    }

    /// Publishes an event, unless it repeats the last one about the object within ten minutes.
    pub(crate) async fn publish(&self, regarding: &ObjectReference, event: &EventSpec) {
        self.publish_all(regarding, std::slice::from_ref(event))
            .await;
    }

    /// Publishes the events of one observation. Events of the same observation are not compared
    /// with each other: otherwise a state with two events would be published at every observation.
    pub(crate) async fn publish_all(&self, regarding: &ObjectReference, events: &[EventSpec]) {
        for event in self.deduplicate(regarding, events) {
            let request = self.create_event(regarding, &event);
            let error = match with_timeout(&*self.clock, REQUEST_TIMEOUT, request).await {
                Some(Ok(())) => continue,
                Some(Err(error)) => error.to_string(),
                None => "the request timed out".into(),
            };
            let (object, reason) = (regarding.name.as_deref().unwrap_or_default(), &event.reason);
            tracing::warn!(
                object,
                reason,
                note = event.note,
                error,
                "failed to write event"
            );
            self.forget_published(regarding, &event);
        }
    }

    /// Returns the events that do not repeat the last ones, and records them as published.
    fn deduplicate(&self, regarding: &ObjectReference, events: &[EventSpec]) -> Vec<EventSpec> {
        let now = self.clock.uptime();
        let mut published = self.published.lock();
        // Old records are dropped, so that no record of a deleted object stays in memory.
        published.retain(|_, records| {
            records.retain(|record| now.saturating_sub(record.at) < REPEAT_INTERVAL);
            !records.is_empty()
        });
        let records = published.entry(object_id(regarding)).or_default();
        let mut news = Vec::new();
        for event in events {
            let latest = records.iter().rev();
            let mut recent = latest.take_while(|record| events.contains(&record.event));
            if recent.any(|record| record.event == *event) {
                continue;
            }
            records.retain(|record| record.event != *event);
            records.push(PublishedEvent {
                event: event.clone(),
                at: now,
            });
            news.push(event.clone());
        }
        news
    }

    fn forget_published(&self, regarding: &ObjectReference, event: &EventSpec) {
        if let Some(records) = self.published.lock().get_mut(&object_id(regarding)) {
            records.retain(|record| record.event != *event);
        }
    }

    async fn create_event(
        &self,
        regarding: &ObjectReference,
        spec: &EventSpec,
    ) -> kube::Result<()> {
        // The API server requires events about cluster-scoped objects to be in `default`.
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
            type_: Some(format!("{:?}", spec.kind)),
            reason: Some(spec.reason.clone()),
            action: Some(spec.action.clone()),
            note: Some(truncate_note(&spec.note)),
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

/// Returns the uid of the object, or its kind, namespace and name.
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
    const ELLIPSIS: &str = "…";
    let end = (0..=MAX_NOTE_BYTES - ELLIPSIS.len())
        .rfind(|end| note.is_char_boundary(*end))
        .unwrap_or(0);
    format!("{}{ELLIPSIS}", &note[..end])
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
