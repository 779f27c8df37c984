//! The content of events, and their deduplication.

use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::Value;

use super::*;
use crate::clock::TestClock;
use crate::fake;

/// A recorder, and a server that stores its events and answers with a status.
struct Fixture {
    clock: TestClock,
    events: EventRecorder,
    written: Arc<Mutex<Vec<(String, Value)>>>,
    status: Arc<AtomicU16>,
}

impl Fixture {
    fn new() -> Self {
        let (clock, written) = (TestClock::default(), Arc::new(Mutex::new(Vec::new())));
        let status = Arc::new(AtomicU16::new(201));
        let (stored, answer) = (written.clone(), status.clone());
        let client = fake::client(move |head, event| {
            let status = answer.load(Ordering::Relaxed);
            if status == 201 {
                stored
                    .lock()
                    .push((head.uri.path().to_owned(), event.clone()));
            }
            async move {
                if status == 201 {
                    (201, event)
                } else {
                    fake::failure(status, "no")
                }
            }
        });
        let events = EventRecorder::new(client, "evenkeel.dev/etcd", "operator-1", clock.shared());
        Self {
            clock,
            events,
            written,
            status,
        }
    }

    fn count(&self) -> usize {
        self.written.lock().len()
    }
}

fn orders() -> ObjectReference {
    ObjectReference {
        kind: Some("EtcdCluster".into()),
        namespace: Some("shop".into()),
        name: Some("orders".into()),
        uid: Some("1".into()),
        ..ObjectReference::default()
    }
}

fn replaced(member: &str) -> EventSpec {
    EventSpec::normal(
        "MemberReplaced",
        "Replace",
        format!("{member} was replaced"),
    )
}

#[tokio::test]
async fn an_event_has_every_field_that_the_api_server_requires() {
    let fixture = Fixture::new();
    fixture
        .events
        .publish(
            &orders(),
            &EventSpec::warning("QuorumLost", "Wait", "two of three are gone"),
        )
        .await;
    let (path, event) = fixture.written.lock()[0].clone();
    assert!(
        path.starts_with("/apis/events.k8s.io/v1/namespaces/shop/events"),
        "{path}"
    );
    // The API server rejects a prefix that ends in a dot.
    assert_eq!(event["metadata"]["generateName"], "orders-");
    assert_eq!(event["type"], "Warning");
    assert_eq!(
        (&event["reason"], &event["action"]),
        (&"QuorumLost".into(), &"Wait".into())
    );
    assert_eq!(event["note"], "two of three are gone");
    assert_eq!(event["reportingController"], "evenkeel.dev/etcd");
    assert_eq!(event["reportingInstance"], "operator-1");
    assert_eq!(event["regarding"]["name"], "orders");
    assert!(
        event["eventTime"]
            .as_str()
            .unwrap()
            .starts_with("2027-01-15T08:00:00"),
        "{event}"
    );
}

#[tokio::test]
async fn an_event_is_not_repeated_within_ten_minutes() {
    let fixture = Fixture::new();
    fixture.events.publish(&orders(), &replaced("a")).await;
    fixture.events.publish(&orders(), &replaced("a")).await;
    assert_eq!(fixture.count(), 1);
    fixture.clock.advance(Duration::from_secs(600));
    fixture.events.publish(&orders(), &replaced("a")).await;
    assert_eq!(fixture.count(), 2);
}

#[tokio::test]
async fn an_event_is_repeated_after_another_one_and_for_another_object() {
    let fixture = Fixture::new();
    for event in [replaced("a"), replaced("b"), replaced("a")] {
        fixture.events.publish(&orders(), &event).await;
    }
    assert_eq!(fixture.count(), 3, "the note is part of the event");
    let other = ObjectReference {
        uid: Some("2".into()),
        ..orders()
    };
    fixture.events.publish(&other, &replaced("a")).await;
    assert_eq!(fixture.count(), 4);
}

#[tokio::test]
async fn two_events_of_a_state_are_published_once_until_a_third_one() {
    let fixture = Fixture::new();
    let two = [replaced("a"), replaced("b")];
    for _ in 0..5 {
        fixture.events.publish_all(&orders(), &two).await;
    }
    assert_eq!(fixture.count(), 2);
    fixture.events.publish(&orders(), &replaced("c")).await;
    fixture.events.publish_all(&orders(), &two).await;
    assert_eq!(fixture.count(), 5);
}

#[tokio::test]
async fn an_event_that_failed_is_published_the_next_time() {
    let fixture = Fixture::new();
    fixture.status.store(403, Ordering::Relaxed);
    fixture.events.publish(&orders(), &replaced("a")).await;
    assert_eq!(fixture.count(), 0);
    fixture.status.store(201, Ordering::Relaxed);
    fixture.events.publish(&orders(), &replaced("a")).await;
    assert_eq!(fixture.count(), 1);
}

#[test]
fn a_long_note_is_truncated_at_a_character_boundary() {
    let short = truncate_note(&"é".repeat(2000));
    assert!(short.len() <= MAX_NOTE_BYTES && short.ends_with('…'));
    assert_eq!(truncate_note("as it is"), "as it is");
}
