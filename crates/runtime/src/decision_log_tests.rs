//! The decision log against a fake ConfigMap.

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::clock::TestClock;
use crate::fake;
use crate::time::UnixTime;

/// An API server with one ConfigMap.
#[derive(Default)]
struct FakeServer {
    object: Option<Value>,
    requests: Vec<String>,
    rejects: bool,
}

type SharedServer = Arc<Mutex<FakeServer>>;

fn client(server: &SharedServer) -> Client {
    let server = server.clone();
    fake::client(move |request, body| {
        let mut server = server.lock();
        server.requests.push(request.method.to_string());
        let answer = match request.method.as_str() {
            _ if server.rejects => fake::failure(403, "no"),
            "GET" => server
                .object
                .clone()
                .map_or_else(|| fake::failure(404, "none"), |object| (200, object)),
            "POST" if server.object.is_some() => fake::failure(409, "it exists"),
            "POST" => {
                let mut object = body;
                object["metadata"]["uid"] = json!("made");
                object["metadata"]["resourceVersion"] = json!("1");
                server.object = Some(object.clone());
                (201, object)
            }
            _ => {
                let object = server.object.get_or_insert(Value::Null);
                let version = |one: &Value| {
                    (
                        one["metadata"]["uid"].clone(),
                        one["metadata"]["resourceVersion"].clone(),
                    )
                };
                if version(object) != version(&body) {
                    return std::future::ready(fake::failure(409, "conflict"));
                }
                merge(object, body);
                let version = object["metadata"]["resourceVersion"]
                    .as_str()
                    .unwrap()
                    .parse::<u32>()
                    .unwrap();
                object["metadata"]["resourceVersion"] = json!((version + 1).to_string());
                (200, object.clone())
            }
        };
        std::future::ready(answer)
    })
}

fn merge(under: &mut Value, over: Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                if value.is_null() {
                    under.remove(&key);
                } else {
                    merge(under.entry(key).or_insert(Value::Null), value);
                }
            }
        }
        (under, over) => *under = over,
    }
}

struct Fixture {
    server: SharedServer,
    clock: TestClock,
    log: DecisionLog,
}

impl Fixture {
    fn new() -> Self {
        Self::with_server(SharedServer::default())
    }

    /// Returns another operator on the same server.
    fn with_server(server: SharedServer) -> Self {
        let clock = TestClock::new(UnixTime(1_800_000_000));
        let log = DecisionLog::new(client(&server), clock.shared(), "operator-1");
        log.open(&key());
        Self { server, clock, log }
    }

    /// Records a decision with one action.
    fn record(&self, action: &str) {
        let decision = NewDecision {
            plan: PlanRecord {
                actions: vec![ActionRecord {
                    name: action.to_owned(),
                    target: Value::Null,
                }],
                waits: Vec::new(),
            },
            outcome: DecisionOutcome {
                result: DecisionResult::Completed,
                text: "done".to_owned(),
            },
            facts_version: 3,
            ..NewDecision::default()
        };
        self.log
            .record(&key(), decision, &json!({ "action": action }));
    }

    async fn flush(&self) -> Option<String> {
        self.log.flush(&key(), meta("resource-1")).await
    }

    fn read(&self) -> Vec<Decision> {
        let object = self.server.lock().object.clone().unwrap();
        Decision::read(&serde_json::from_value(object).unwrap())
    }

    fn actions(&self) -> Vec<String> {
        let decisions = self.read().into_iter();
        let actions = decisions.flat_map(|decision| decision.plan.actions);
        actions.map(|action| action.name).collect()
    }

    fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.server.lock().requests)
    }
}

fn key() -> ResourceKey {
    ResourceKey {
        namespace: "shop".to_owned(),
        name: "orders".to_owned(),
    }
}

fn meta(owner: &str) -> ObjectMeta {
    serde_json::from_value(
        json!({ "name": "orders-etcd-decisions", "namespace": "shop", "ownerReferences": [
        { "apiVersion": "v1", "kind": "Thing", "name": "orders", "uid": owner, "controller": true },
    ] }),
    )
    .unwrap()
}

#[tokio::test]
async fn decisions_are_written_with_their_facts_and_versions() {
    let fixture = Fixture::new();
    fixture.record("one");
    fixture.record("two");
    fixture.flush().await;
    assert_eq!(fixture.take_requests(), ["GET", "POST"]);
    fixture.record("three");
    fixture.flush().await;
    assert_eq!(fixture.take_requests(), ["PATCH"], "no second read");
    let read = fixture.read();
    assert_eq!(fixture.actions(), ["one", "two", "three"]);
    assert_eq!(read[2].facts.as_deref(), Some(r#"{"action":"three"}"#));
    assert_eq!(
        (read[0].by.as_str(), read[0].outcome.as_str()),
        ("operator-1", "done")
    );
    assert_eq!((read[0].format, read[0].facts_version), (FORMAT, 3));
    assert_eq!(read[0].result, DecisionResult::Completed);
}

#[tokio::test]
async fn a_repeated_decision_is_not_written_also_by_another_operator() {
    let fixture = Fixture::new();
    fixture.record("one");
    fixture.flush().await;
    fixture.take_requests();
    fixture.record("one");
    fixture.flush().await;
    assert!(fixture.take_requests().is_empty());
    let next = Fixture::with_server(fixture.server.clone());
    next.record("one");
    next.flush().await;
    assert_eq!(next.take_requests(), ["GET"]);
    next.record("two");
    next.flush().await;
    assert_eq!(
        (next.take_requests(), next.actions()),
        (
            vec!["PATCH".to_owned()],
            vec!["one".to_owned(), "two".to_owned()]
        )
    );
}

#[tokio::test]
async fn the_log_is_bounded() {
    let fixture = Fixture::new();
    for number in 0..MAX_ENTRIES + 5 {
        fixture.record(&format!("decision {number}"));
        fixture.flush().await;
    }
    let actions = fixture.actions();
    assert_eq!(
        (actions.len(), actions[0].as_str()),
        (MAX_ENTRIES, "decision 5")
    );
    let object = fixture.server.lock().object.clone().unwrap();
    assert_eq!(
        object["binaryData"].as_object().unwrap().len(),
        MAX_ENTRIES,
        "facts are removed with their decisions"
    );
    // Large entries are removed earlier.
    let fixture = Fixture::new();
    for number in 0..9 {
        fixture.record(&format!("{number}{}", "x".repeat(MAX_BYTES / 8)));
        fixture.flush().await;
    }
    assert!(fixture.actions().len() < 9 && fixture.actions().last().unwrap().starts_with('8'));
}

#[tokio::test]
async fn a_failed_write_is_retried_later_without_loss() {
    let fixture = Fixture::new();
    fixture.server.lock().rejects = true;
    fixture.record("one");
    fixture.flush().await;
    fixture.record("two");
    fixture.flush().await;
    assert_eq!(fixture.take_requests(), ["GET"], "not at once");
    fixture.server.lock().rejects = false;
    fixture.clock.advance(RETRY_INTERVAL);
    fixture.flush().await;
    assert_eq!(fixture.actions(), ["one", "two"]);
}

#[tokio::test]
async fn a_config_map_of_another_owner_is_not_touched() {
    let fixture = Fixture::new();
    let foreign = json!({ "metadata": { "name": "orders-etcd-decisions", "uid": "foreign", "resourceVersion": "9" }, "data": { "a": "b" } });
    fixture.server.lock().object = Some(foreign.clone());
    fixture.record("one");
    fixture.flush().await;
    assert_eq!(
        (
            fixture.take_requests(),
            fixture.server.lock().object.clone()
        ),
        (vec!["GET".to_owned()], Some(foreign.clone()))
    );
    // The same for one that replaced the log.
    let fixture = Fixture::new();
    fixture.record("one");
    fixture.flush().await;
    fixture.server.lock().object = Some(foreign.clone());
    fixture.record("two");
    fixture.flush().await;
    assert_eq!(fixture.server.lock().object, Some(foreign));
}

#[tokio::test]
async fn texts_and_facts_do_not_make_a_decision_new() {
    let fixture = Fixture::new();
    let record = |member: &str, message: &str, result: DecisionResult| {
        let decision = NewDecision {
            plan: PlanRecord {
                actions: Vec::new(),
                waits: vec![json!({ "memberJoin": member })],
            },
            explanation: Explanation {
                waits: vec![format!("{member} must join: {message}")],
                ..Explanation::default()
            },
            outcome: DecisionOutcome {
                result,
                text: message.to_owned(),
            },
            ..NewDecision::default()
        };
        fixture
            .log
            .record(&key(), decision, &json!({ "message": message }));
    };
    record("orders-a", "0/3 nodes are available", DecisionResult::Noop);
    record("orders-a", "0/4 nodes are available", DecisionResult::Noop);
    fixture.flush().await;
    assert_eq!(fixture.read().len(), 1);
    record("orders-b", "0/4 nodes are available", DecisionResult::Noop);
    record(
        "orders-b",
        "0/4 nodes are available",
        DecisionResult::Conflict,
    );
    fixture.flush().await;
    assert_eq!(fixture.read().len(), 3, "another wait, and another result");
}

#[tokio::test]
async fn entries_of_a_write_whose_response_was_lost_are_not_repeated() {
    let fixture = Fixture::new();
    fixture.record("one");
    fixture.record("two");
    fixture.flush().await;
    let next = Fixture::with_server(fixture.server.clone());
    ["one", "two", "three"]
        .into_iter()
        .for_each(|action| next.record(action));
    next.flush().await;
    assert_eq!(next.actions(), ["one", "two", "three"]);
}

#[tokio::test]
async fn nothing_is_kept_of_a_deleted_resource() {
    let fixture = Fixture::new();
    fixture.record("one");
    fixture.log.forget(&key());
    fixture.record("two");
    fixture.flush().await;
    assert!(fixture.take_requests().is_empty() && fixture.log.logs.lock().is_empty());
    // A key with a number that the log never writes is ignored.
    fixture.log.open(&key());
    fixture.record("one");
    fixture.flush().await;
    let far = json!({ "18446744073709551615": "{}" });
    merge(
        &mut fixture.server.lock().object.as_mut().unwrap()["data"],
        far,
    );
    let next = Fixture::with_server(fixture.server.clone());
    next.record("two");
    next.flush().await;
    assert_eq!(next.actions(), ["one", "two"]);
}
