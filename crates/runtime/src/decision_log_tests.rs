//! The log of decisions, against a ConfigMap that is a variable.

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::clock::TestClock;
use crate::fake;
use crate::time::UnixTime;

/// What Kubernetes has, and what it was asked.
#[derive(Default)]
struct Kubernetes {
    object: Option<Value>,
    requests: Vec<String>,
    refuses: bool,
}

type Shared = Arc<Mutex<Kubernetes>>;

fn kubernetes(shared: &Shared) -> Client {
    let shared = shared.clone();
    fake::client(move |request, body| {
        let mut has = lock(&shared);
        has.requests.push(request.method.to_string());
        let answer = match request.method.as_str() {
            _ if has.refuses => fake::failure(403, "no"),
            "GET" => has
                .object
                .clone()
                .map_or_else(|| fake::failure(404, "none"), |object| (200, object)),
            "POST" if has.object.is_some() => fake::failure(409, "it exists"),
            "POST" => {
                let mut object = body;
                object["metadata"]["uid"] = json!("made");
                object["metadata"]["resourceVersion"] = json!("1");
                has.object = Some(object.clone());
                (201, object)
            }
            _ => {
                let object = has.object.get_or_insert(Value::Null);
                let pinned = |one: &Value| {
                    (
                        one["metadata"]["uid"].clone(),
                        one["metadata"]["resourceVersion"].clone(),
                    )
                };
                if pinned(object) != pinned(&body) {
                    return std::future::ready(fake::failure(409, "it is another one"));
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Scene {
    shared: Shared,
    clock: TestClock,
    journal: DecisionLog,
}

impl Scene {
    fn new() -> Self {
        Self::with(Shared::default())
    }

    /// Another operator, which has seen nothing yet.
    fn with(shared: Shared) -> Self {
        let clock = TestClock::new(UnixTime(1_800_000_000));
        let journal = DecisionLog::new(kubernetes(&shared), clock.shared(), "operator-1");
        journal.open(&key());
        Self {
            shared,
            clock,
            journal,
        }
    }

    fn note(&self, does: &str) {
        let explained = Explanation {
            actions: vec![does.to_owned()],
            ..Explanation::default()
        };
        self.journal.record(
            &key(),
            explained,
            ("done".to_owned(), Vec::new()),
            &json!({ "saw": does }),
        );
    }

    async fn flush(&self) -> Option<String> {
        self.journal.flush(&key(), meta("resource-1")).await
    }

    fn read(&self) -> Vec<Decision> {
        let object = lock(&self.shared).object.clone().unwrap();
        Decision::read(&serde_json::from_value(object).unwrap())
    }

    fn does(&self) -> Vec<String> {
        self.read()
            .into_iter()
            .flat_map(|decision| decision.explained.actions)
            .collect()
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.shared).requests)
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
async fn decisions_are_written_together_with_the_facts_they_rested_on() {
    let scene = Scene::new();
    scene.note("one");
    scene.note("two");
    scene.flush().await;
    assert_eq!(scene.asked(), ["GET", "POST"]);
    scene.note("three");
    scene.flush().await;
    assert_eq!(scene.asked(), ["PATCH"], "where it is, is known");
    let read = scene.read();
    assert_eq!(scene.does(), ["one", "two", "three"]);
    assert_eq!(read[2].facts.as_deref(), Some(r#"{"saw":"three"}"#));
    assert_eq!(
        (read[0].by.as_str(), read[0].outcome.as_str()),
        ("operator-1", "done")
    );
}

#[tokio::test]
async fn the_same_again_is_not_written_not_even_by_another_operator() {
    let scene = Scene::new();
    scene.note("one");
    scene.flush().await;
    scene.asked();
    scene.note("one");
    scene.flush().await;
    assert!(scene.asked().is_empty());
    let next = Scene::with(scene.shared.clone());
    next.note("one");
    next.flush().await;
    assert_eq!(next.asked(), ["GET"]);
    next.note("two");
    next.flush().await;
    assert_eq!(
        (next.asked(), next.does()),
        (
            vec!["PATCH".to_owned()],
            vec!["one".to_owned(), "two".to_owned()]
        )
    );
}

#[tokio::test]
async fn it_has_an_end() {
    let scene = Scene::new();
    for number in 0..MAX_ENTRIES + 5 {
        scene.note(&format!("decision {number}"));
        scene.flush().await;
    }
    let does = scene.does();
    assert_eq!((does.len(), does[0].as_str()), (MAX_ENTRIES, "decision 5"));
    let object = lock(&scene.shared).object.clone().unwrap();
    assert_eq!(
        object["binaryData"].as_object().unwrap().len(),
        MAX_ENTRIES,
        "facts go with their decisions"
    );
    // Large ones make room sooner.
    let scene = Scene::new();
    for number in 0..9 {
        scene.note(&format!("{number}{}", "x".repeat(MAX_BYTES / 8)));
        scene.flush().await;
    }
    assert!(scene.does().len() < 9 && scene.does().last().unwrap().starts_with('8'));
}

#[tokio::test]
async fn what_cannot_be_written_is_tried_again_later_and_nothing_is_lost_meanwhile() {
    let scene = Scene::new();
    lock(&scene.shared).refuses = true;
    scene.note("one");
    scene.flush().await;
    scene.note("two");
    scene.flush().await;
    assert_eq!(scene.asked(), ["GET"], "not at once");
    lock(&scene.shared).refuses = false;
    scene.clock.advance(RETRY_INTERVAL);
    scene.flush().await;
    assert_eq!(scene.does(), ["one", "two"]);
}

#[tokio::test]
async fn somebody_elses_is_never_touched() {
    let scene = Scene::new();
    let theirs = json!({ "metadata": { "name": "orders-etcd-decisions", "uid": "theirs", "resourceVersion": "9" }, "data": { "a": "b" } });
    lock(&scene.shared).object = Some(theirs.clone());
    scene.note("one");
    scene.flush().await;
    assert_eq!(
        (scene.asked(), lock(&scene.shared).object.clone()),
        (vec!["GET".to_owned()], Some(theirs.clone()))
    );
    // Nor one that took the place of ours.
    let scene = Scene::new();
    scene.note("one");
    scene.flush().await;
    lock(&scene.shared).object = Some(theirs.clone());
    scene.note("two");
    scene.flush().await;
    assert_eq!(lock(&scene.shared).object, Some(theirs));
}

#[tokio::test]
async fn what_kubernetes_adds_to_a_wait_is_no_news() {
    let scene = Scene::new();
    let waits = |why: &str| {
        let explained = Explanation {
            waits: vec![format!("orders-a must join: {why}")],
            ..Explanation::default()
        };
        scene
            .journal
            .record(&key(), explained, (String::new(), Vec::new()), &());
    };
    waits("0/3 nodes are available");
    waits("0/4 nodes are available");
    scene.flush().await;
    assert_eq!(scene.read().len(), 1);
}

#[tokio::test]
async fn what_was_written_unheard_is_not_written_again() {
    let scene = Scene::new();
    scene.note("one");
    scene.note("two");
    scene.flush().await;
    let next = Scene::with(scene.shared.clone());
    ["one", "two", "three"]
        .into_iter()
        .for_each(|what| next.note(what));
    next.flush().await;
    assert_eq!(next.does(), ["one", "two", "three"]);
}

#[tokio::test]
async fn nothing_is_kept_of_what_is_forgotten() {
    let scene = Scene::new();
    scene.note("one");
    scene.journal.forget(&key());
    scene.note("two");
    scene.flush().await;
    assert!(scene.asked().is_empty() && lock(&scene.journal.books).is_empty());
    // A number that only somebody else can have written ends nothing.
    scene.journal.open(&key());
    scene.note("one");
    scene.flush().await;
    let far = json!({ "18446744073709551615": "{}" });
    merge(
        &mut lock(&scene.shared).object.as_mut().unwrap()["data"],
        far,
    );
    let next = Scene::with(scene.shared.clone());
    next.note("two");
    next.flush().await;
    assert_eq!(next.does(), ["one", "two"]);
}
