//! What is written, and what is not said twice.

use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::Value;

use super::*;
use crate::clock::TestClock;
use crate::fake;

/// A server that keeps the events it is sent, and answers with this status.
struct Board {
    clock: TestClock,
    events: EventRecorder,
    posted: Arc<Mutex<Vec<(String, Value)>>>,
    status: Arc<AtomicU16>,
}

impl Board {
    fn new() -> Self {
        let (clock, posted) = (TestClock::default(), Arc::new(Mutex::new(Vec::new())));
        let status = Arc::new(AtomicU16::new(201));
        let (kept, answer) = (posted.clone(), status.clone());
        let client = fake::client(move |head, event| {
            let status = answer.load(Ordering::Relaxed);
            if status == 201 {
                kept.lock()
                    .unwrap()
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
            posted,
            status,
        }
    }

    fn count(&self) -> usize {
        self.posted.lock().unwrap().len()
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
async fn an_event_has_all_that_the_api_server_insists_on() {
    let board = Board::new();
    board
        .events
        .publish(
            &orders(),
            &EventSpec::warning("QuorumLost", "Wait", "two of three are gone"),
        )
        .await;
    let (path, event) = board.posted.lock().unwrap()[0].clone();
    assert!(
        path.starts_with("/apis/events.k8s.io/v1/namespaces/shop/events"),
        "{path}"
    );
    // A prefix that ends in a dot is refused.
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
async fn the_same_is_not_said_again_within_ten_minutes() {
    let board = Board::new();
    board.events.publish(&orders(), &replaced("a")).await;
    board.events.publish(&orders(), &replaced("a")).await;
    assert_eq!(board.count(), 1);
    board.clock.advance(Duration::from_secs(600));
    board.events.publish(&orders(), &replaced("a")).await;
    assert_eq!(board.count(), 2);
}

#[tokio::test]
async fn it_is_said_again_after_something_else_and_of_something_else() {
    let board = Board::new();
    for notice in [replaced("a"), replaced("b"), replaced("a")] {
        board.events.publish(&orders(), &notice).await;
    }
    assert_eq!(board.count(), 3, "the note is part of what was said");
    let other = ObjectReference {
        uid: Some("2".into()),
        ..orders()
    };
    board.events.publish(&other, &replaced("a")).await;
    assert_eq!(board.count(), 4);
}

#[tokio::test]
async fn a_state_with_two_notices_is_told_once_and_a_third_makes_it_news() {
    let board = Board::new();
    let two = [replaced("a"), replaced("b")];
    for _ in 0..5 {
        board.events.publish_all(&orders(), &two).await;
    }
    assert_eq!(board.count(), 2);
    board.events.publish(&orders(), &replaced("c")).await;
    board.events.publish_all(&orders(), &two).await;
    assert_eq!(board.count(), 5);
}

#[tokio::test]
async fn what_could_not_be_told_is_told_next_time_and_fails_nobody() {
    let board = Board::new();
    board.status.store(403, Ordering::Relaxed);
    board.events.publish(&orders(), &replaced("a")).await;
    assert_eq!(board.count(), 0);
    board.status.store(201, Ordering::Relaxed);
    board.events.publish(&orders(), &replaced("a")).await;
    assert_eq!(board.count(), 1);
}

#[test]
fn a_long_note_is_cut_between_characters() {
    let short = truncate_note(&"é".repeat(2000));
    assert!(short.len() <= MAX_NOTE_BYTES && short.ends_with('…'));
    assert_eq!(truncate_note("as it is"), "as it is");
}
