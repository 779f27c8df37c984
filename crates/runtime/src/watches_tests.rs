//! The handling of single watch events, and a watch on a fake API server.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
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

/// Returns a pod that cannot be decoded: its containers are no list.
fn undecodable(name: &str) -> Value {
    let mut pod = pod(name, "9");
    pod["spec"]["containers"] = json!("none");
    pod
}

fn guarded(object: Value) -> DeserializeGuard<Pod> {
    serde_json::from_value(object).unwrap()
}

fn names(pods: Vec<Arc<Pod>>) -> Vec<String> {
    let mut names: Vec<_> = pods.iter().map(|pod| pod.name_any()).collect();
    names.sort();
    names
}

/// Returns a feed whose first list has these pods.
fn listed(pods: &[&str]) -> Feed<Pod> {
    let mut feed = Feed::new(Metrics::new("test"), None, |_| ());
    relist(&mut feed, pods);
    feed
}

fn relist(feed: &mut Feed<Pod>, pods: &[&str]) -> Vec<String> {
    assert!(feed.handle(Ok(Event::Init)).is_empty());
    for name in pods {
        assert!(
            feed.handle(Ok(Event::InitApply(guarded(pod(name, "1")))))
                .is_empty(),
            "emitted before the end of the list"
        );
    }
    names(feed.handle(Ok(Event::InitDone)))
}

fn error() -> watcher::Error {
    watcher::Error::NoResourceVersion
}

#[test]
fn a_list_is_emitted_when_the_store_has_all_of_it() {
    let mut feed = Feed::new(Metrics::new("test"), None, |_| ());
    feed.handle(Ok(Event::Init));
    feed.handle(Ok(Event::InitApply(guarded(pod("a", "1")))));
    assert!(feed.store.is_empty());
    assert_eq!(names(feed.handle(Ok(Event::InitDone))), ["a"]);
    assert_eq!(feed.store.len(), 1);
}

#[test]
fn objects_deleted_while_the_watch_was_interrupted_are_emitted() {
    let mut feed = listed(&["a", "b"]);
    assert_eq!(relist(&mut feed, &["b", "c"]), ["a", "b", "c"]);
    assert_eq!(feed.store.len(), 2);
}

#[test]
fn changes_and_deletions_are_in_the_store_when_they_are_emitted() {
    let mut feed = listed(&["a"]);
    let changed = feed.handle(Ok(Event::Apply(guarded(pod("a", "2")))));
    assert_eq!(changed[0].resource_version().as_deref(), Some("2"));
    assert_eq!(
        feed.store.state()[0].resource_version().as_deref(),
        Some("2")
    );
    assert!(changed[0].managed_fields().is_empty());
    assert_eq!(
        names(feed.handle(Ok(Event::Delete(guarded(pod("a", "3")))))),
        ["a"]
    );
    assert!(feed.store.is_empty());
}

#[test]
fn an_undecodable_object_is_counted_and_its_last_version_stays() {
    let mut feed = listed(&["a"]);
    assert!(
        feed.handle(Ok(Event::Apply(guarded(undecodable("a")))))
            .is_empty()
    );
    assert!(
        feed.handle(Ok(Event::Apply(guarded(undecodable("b")))))
            .is_empty()
    );
    assert_eq!(
        feed.store.state()[0].resource_version().as_deref(),
        Some("1")
    );
    assert!(
        feed.metrics
            .encode()
            .contains(r#"test_undecodable_total{kind="Pod"} 2"#)
    );
}

#[test]
fn a_deletion_counts_also_if_the_last_version_is_undecodable() {
    let mut feed = listed(&["a"]);
    assert!(
        feed.handle(Ok(Event::Delete(guarded(undecodable("b")))))
            .is_empty(),
        "was not in the store"
    );
    assert_eq!(
        names(feed.handle(Ok(Event::Delete(guarded(undecodable("a")))))),
        ["a"]
    );
    assert!(feed.store.is_empty());
}

#[test]
fn an_error_is_kept_until_the_watch_recovers() {
    let mut feed = listed(&["a"]);
    for _ in 0..3 {
        assert!(feed.handle(Err(error())).is_empty());
        assert!(feed.handle(Ok(Event::Init)).is_empty());
        assert!(feed.error.is_some(), "another attempt is no recovery");
    }
    assert!(
        feed.metrics
            .encode()
            .contains(r#"test_watch_errors_total{kind="Pod"} 3"#)
    );
    assert_eq!(relist(&mut feed, &["a"]), ["a"]);
    assert!(feed.error.is_none());
}

/// Returns a client whose API server serves pods while the flag is set.
fn api_with_pods(is_served: Arc<Mutex<bool>>) -> Client {
    fake::client(move |head, _| {
        let is_watch = head.uri.query().unwrap_or_default().contains("watch=true");
        let is_served = *is_served.lock();
        async move {
            if !is_served {
                // The API server answers with a text.
                return (404, json!("404 page not found"));
            }
            if is_watch {
                std::future::pending::<()>().await;
            }
            let list = json!({"metadata": {"resourceVersion": "1"}, "items": [pod("a", "1")]});
            (200, list)
        }
    })
}

#[tokio::test]
async fn a_kind_that_is_not_served_delays_no_other_and_is_watched_once_it_is() {
    let is_served = Arc::new(Mutex::new(false));
    let client = api_with_pods(Arc::clone(&is_served));
    let watches = Watches::new(client, Scope::All, Metrics::new("test"));
    let sync = watches.cache_sync();
    let (store, mut changed) = watches.watch::<Pod>(None);
    assert!(!sync.is_complete());
    let limit = Duration::from_secs(20);
    let synced = tokio::time::timeout(limit, async {
        tokio::select! {
            pod = changed.next() => panic!("no pod is served: {pod:?}"),
            () = sync.complete() => {}
        }
    });
    synced.await.unwrap();
    assert!(store.is_empty());
    *is_served.lock() = true;
    let pod = tokio::time::timeout(limit, changed.next()).await.unwrap();
    assert_eq!(pod.unwrap().unwrap().name_any(), "a");
    assert_eq!(store.state().len(), 1);
}

#[test]
fn other_errors_do_not_complete_a_list() {
    let sync = CacheSync::default();
    let mut feed = Feed::<Pod>::new(Metrics::new("test"), Some(Box::new(sync.add())), |_| ());
    feed.handle(Err(error()));
    assert!(!sync.is_complete());
    let missing = kube::core::Status::failure("404 page not found", "")
        .with_code(404)
        .boxed();
    feed.handle(Err(watcher::Error::InitialListFailed(kube::Error::Api(
        missing,
    ))));
    assert!(sync.is_complete());
    assert_eq!(relist(&mut feed, &["a"]), ["a"]);
}

/// The path and the Accept header of each request.
type Requests = Arc<Mutex<Vec<(String, String)>>>;

/// Returns a client that lists one pod and then watches another appear, and its requests.
fn api() -> (Client, Requests) {
    let requests = Requests::default();
    let log = requests.clone();
    let client = fake::client(move |head, _| {
        let query = head.uri.query().unwrap_or_default().to_owned();
        let accept = head
            .headers
            .get("accept")
            .map(|accept| accept.to_str().unwrap().to_owned());
        log.lock().push((
            format!("{}?{query}", head.uri.path()),
            accept.unwrap_or_default(),
        ));
        async move {
            if !query.contains("watch=true") {
                return (
                    200,
                    json!({"metadata": {"resourceVersion": "1"}, "items": [pod("a", "1"), undecodable("x")]}),
                );
            }
            if query.contains("resourceVersion=2") {
                std::future::pending::<()>().await;
            }
            (200, json!([{"type": "ADDED", "object": pod("b", "2")}]))
        }
    });
    (client, requests)
}

#[tokio::test]
async fn a_watch_lists_in_pages_by_label_in_its_namespace() {
    let (client, requests) = api();
    let watches = Watches::new(
        client,
        Scope::Namespace("shop".into()),
        Metrics::new("test"),
    );
    let (store, changed) = watches.watch::<Pod>(Some("app=etcd"));
    let names: Vec<_> = changed
        .take(2)
        .map(|pod| pod.unwrap().name_any())
        .collect()
        .await;
    assert_eq!(names, ["a", "b"]);
    assert_eq!(store.len(), 2);
    let requests = requests.lock();
    for (request, _) in requests.iter() {
        assert!(
            request.starts_with("/api/v1/namespaces/shop/pods?"),
            "{request}"
        );
        assert!(request.contains("labelSelector=app%3Detcd"), "{request}");
    }
    assert!(
        requests[0].0.contains("limit=250") && requests[1].0.contains("watch=true"),
        "{requests:?}"
    );
}

#[test]
fn objects_are_trimmed_before_they_are_stored() {
    let trim =
        |pod: &mut Pod| pod.metadata.labels = Some([("trimmed".into(), "yes".into())].into());
    let mut feed = Feed::new(Metrics::new("test"), None, trim);
    assert_eq!(relist(&mut feed, &["a", "b"]), ["a", "b"]);
    let stored = feed.store.state();
    assert_eq!(stored.len(), 2);
    assert!(
        stored
            .iter()
            .all(|pod| pod.labels().contains_key("trimmed"))
    );
}

#[tokio::test]
async fn every_waiter_is_notified_when_all_first_lists_are_complete() {
    let (client, _) = api();
    let watches = Watches::new(client, Scope::All, Metrics::new("test"));
    let (_, pods) = watches.watch::<Pod>(None);
    let (_, labelled) = watches.watch::<Pod>(Some("app=etcd"));
    let sync = watches.cache_sync();
    let waiters: Vec<_> = (0..3).map(|_| tokio::spawn(sync.complete())).collect();
    assert!(!sync.is_complete());
    let _pods: Vec<_> = pods.take(1).collect().await;
    assert!(!sync.is_complete(), "one list is missing");
    let _labelled: Vec<_> = labelled.take(1).collect().await;
    assert!(sync.is_complete());
    for waiter in waiters {
        waiter.await.unwrap();
    }
}
