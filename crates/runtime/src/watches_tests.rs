//! What becomes of a watch's events, one by one, and a watch on a small imitation of the API.

use std::sync::Mutex;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use serde_json::{Value, json};

use super::*;
use crate::fake;

fn pod(name: &str, version: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "shop", "resourceVersion": version,
            "managedFields": [{"manager": "kubectl"}],
        },
        "spec": {"containers": []},
    })
}

/// A pod that is none: its containers are no list.
fn unreadable(name: &str) -> Value {
    let mut pod = pod(name, "9");
    pod["spec"]["containers"] = json!("none");
    pod
}

fn guarded(object: Value) -> DeserializeGuard<Pod> {
    serde_json::from_value(object).unwrap()
}

fn names(told: Vec<Arc<Pod>>) -> Vec<String> {
    let mut names: Vec<_> = told.iter().map(|pod| pod.name_any()).collect();
    names.sort();
    names
}

/// A watch whose list has brought these.
fn listed(pods: &[&str]) -> Feed<Pod> {
    let mut feed = Feed::new(Metrics::new(), None);
    relist(&mut feed, pods);
    feed
}

fn relist(feed: &mut Feed<Pod>, pods: &[&str]) -> Vec<String> {
    assert!(feed.take(Ok(Event::Init)).is_empty());
    for name in pods {
        assert!(
            feed.take(Ok(Event::InitApply(guarded(pod(name, "1")))))
                .is_empty(),
            "told before its time"
        );
    }
    names(feed.take(Ok(Event::InitDone)))
}

fn error() -> watcher::Error {
    watcher::Error::NoResourceVersion
}

#[test]
fn a_list_is_told_when_the_store_shows_all_of_it() {
    let mut feed = Feed::new(Metrics::new(), None);
    feed.take(Ok(Event::Init));
    feed.take(Ok(Event::InitApply(guarded(pod("a", "1")))));
    assert!(feed.store.is_empty());
    assert_eq!(names(feed.take(Ok(Event::InitDone))), ["a"]);
    assert_eq!(feed.store.len(), 1);
}

#[test]
fn what_vanished_while_the_watch_was_away_is_told_too() {
    let mut feed = listed(&["a", "b"]);
    assert_eq!(relist(&mut feed, &["b", "c"]), ["a", "b", "c"]);
    assert_eq!(feed.store.len(), 2);
}

#[test]
fn changes_and_deletions_are_in_the_store_when_they_are_told() {
    let mut feed = listed(&["a"]);
    let told = feed.take(Ok(Event::Apply(guarded(pod("a", "2")))));
    assert_eq!(told[0].resource_version().as_deref(), Some("2"));
    assert_eq!(
        feed.store.state()[0].resource_version().as_deref(),
        Some("2")
    );
    assert!(told[0].managed_fields().is_empty());
    assert_eq!(
        names(feed.take(Ok(Event::Delete(guarded(pod("a", "3")))))),
        ["a"]
    );
    assert!(feed.store.is_empty());
}

#[test]
fn what_cannot_be_read_is_skipped_and_counted_and_its_last_readable_state_stays() {
    let mut feed = listed(&["a"]);
    assert!(
        feed.take(Ok(Event::Apply(guarded(unreadable("a")))))
            .is_empty()
    );
    assert!(
        feed.take(Ok(Event::Apply(guarded(unreadable("b")))))
            .is_empty()
    );
    assert_eq!(
        feed.store.state()[0].resource_version().as_deref(),
        Some("1")
    );
    assert!(
        feed.metrics
            .encode()
            .contains(r#"evenkeel_undecodable_total{kind="Pod"} 2"#)
    );
}

#[test]
fn gone_is_gone_even_if_its_last_words_cannot_be_read() {
    let mut feed = listed(&["a"]);
    assert!(
        feed.take(Ok(Event::Delete(guarded(unreadable("b")))))
            .is_empty(),
        "never known"
    );
    assert_eq!(
        names(feed.take(Ok(Event::Delete(guarded(unreadable("a")))))),
        ["a"]
    );
    assert!(feed.store.is_empty());
}

#[test]
fn an_error_is_passed_to_nobody_and_complained_of_until_the_watch_is_back() {
    let mut feed = listed(&["a"]);
    for _ in 0..3 {
        assert!(feed.take(Err(error())).is_empty());
        assert!(feed.take(Ok(Event::Init)).is_empty());
        assert!(
            feed.complaint.is_some(),
            "beginning again is not being back"
        );
    }
    assert!(
        feed.metrics
            .encode()
            .contains(r#"evenkeel_watch_errors_total{kind="Pod"} 3"#)
    );
    assert_eq!(relist(&mut feed, &["a"]), ["a"]);
    assert!(feed.complaint.is_none());
}

/// What was asked for, and what was accepted as an answer.
type Asked = Arc<Mutex<Vec<(String, String)>>>;

/// A client that lists one pod and then sees another appear, and the requests that were made.
fn api() -> (Client, Asked) {
    let asked = Asked::default();
    let log = asked.clone();
    let client = fake::client(move |head, _| {
        let query = head.uri.query().unwrap_or_default().to_owned();
        let accept = head
            .headers
            .get("accept")
            .map(|accept| accept.to_str().unwrap().to_owned());
        log.lock().unwrap().push((
            format!("{}?{query}", head.uri.path()),
            accept.unwrap_or_default(),
        ));
        async move {
            if !query.contains("watch=true") {
                return (
                    200,
                    json!({"metadata": {"resourceVersion": "1"}, "items": [pod("a", "1"), unreadable("x")]}),
                );
            }
            if query.contains("resourceVersion=2") {
                std::future::pending::<()>().await;
            }
            (200, json!([{"type": "ADDED", "object": pod("b", "2")}]))
        }
    });
    (client, asked)
}

#[tokio::test]
async fn a_watch_lists_in_pages_by_label_in_its_namespace_and_goes_on_from_there() {
    let (client, asked) = api();
    let streams = Watches::new(client, Scope::Namespace("shop".into()), Metrics::new());
    let (store, touched) = streams.watch::<Pod>(Some("app=etcd"));
    let told: Vec<_> = touched
        .take(2)
        .map(|pod| pod.unwrap().name_any())
        .collect()
        .await;
    assert_eq!(told, ["a", "b"]);
    assert_eq!(store.len(), 2);
    let asked = asked.lock().unwrap();
    for (request, _) in asked.iter() {
        assert!(
            request.starts_with("/api/v1/namespaces/shop/pods?"),
            "{request}"
        );
        assert!(request.contains("labelSelector=app%3Detcd"), "{request}");
    }
    assert!(
        asked[0].0.contains("limit=250") && asked[1].0.contains("watch=true"),
        "{asked:?}"
    );
}

#[tokio::test]
async fn a_watch_for_metadata_asks_for_no_more_than_that_and_reads_everything() {
    let (client, asked) = api();
    let streams = Watches::new(client, Scope::All, Metrics::new());
    let (store, touched) = streams.watch_metadata::<ConfigMap>(None);
    let told: Vec<_> = touched
        .take(3)
        .map(|object| object.unwrap().name_any())
        .collect()
        .await;
    assert!(
        told.contains(&"x".to_owned()),
        "what is unreadable in the rest of it is no matter"
    );
    assert_eq!(store.len(), 3);
    let asked = asked.lock().unwrap();
    for (request, accept) in asked.iter() {
        assert!(request.starts_with("/api/v1/configmaps?"), "{request}");
        assert!(accept.contains("as=PartialObjectMetadata"), "{accept}");
    }
}

#[tokio::test]
async fn all_who_wait_are_told_when_every_watch_has_brought_everything_once() {
    let (client, _asked) = api();
    let streams = Watches::new(client, Scope::All, Metrics::new());
    let (_, pods) = streams.watch::<Pod>(None);
    let (_, maps) = streams.watch_metadata::<ConfigMap>(None);
    let listed = streams.listed();
    let waiting: Vec<_> = (0..3).map(|_| tokio::spawn(listed.complete())).collect();
    assert!(!listed.is_complete());
    let _pods: Vec<_> = pods.take(1).collect().await;
    assert!(!listed.is_complete(), "one is missing");
    let _maps: Vec<_> = maps.take(1).collect().await;
    assert!(listed.is_complete());
    for waits in waiting {
        waits.await.unwrap();
    }
}
