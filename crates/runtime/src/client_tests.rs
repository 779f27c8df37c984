//! The layer around the requests of a client.

use std::future::pending;

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, WatchParams};
use serde_json::json;

use super::*;
use crate::clock::TestClock;
use crate::fake;

fn call(method: &str, uri: &str) -> Call {
    Call::of(
        &Request::builder()
            .method(method)
            .uri(uri)
            .body(Body::empty())
            .unwrap(),
    )
}

#[test]
fn a_request_has_a_verb_and_a_resource() {
    for (method, uri, verb, resource) in [
        ("GET", "/api/v1/namespaces/shop/pods/a", "get", "pods"),
        (
            "GET",
            "/api/v1/namespaces/shop/pods/a/log",
            "get",
            "pods/log",
        ),
        ("GET", "/api/v1/pods?labelSelector=a", "list", "pods"),
        (
            "GET",
            "/api/v1/namespaces/shop/pods?&watch=true",
            "watch",
            "pods",
        ),
        ("GET", "/api/v1/namespaces/shop", "get", "namespaces"),
        ("GET", "/api/v1/nodes", "list", "nodes"),
        (
            "PUT",
            "/apis/coordination.k8s.io/v1/namespaces/x/leases/y",
            "update",
            "leases.coordination.k8s.io",
        ),
        (
            "PATCH",
            "/apis/evenkeel.dev/v1/namespaces/x/etcds/y/status",
            "patch",
            "etcds.evenkeel.dev/status",
        ),
        (
            "POST",
            "/api/v1/namespaces/shop/pods/a/eviction",
            "create",
            "pods/eviction",
        ),
        ("DELETE", "/api/v1/namespaces/shop/pods/a", "delete", "pods"),
        (
            "DELETE",
            "/api/v1/namespaces/shop/pods",
            "deletecollection",
            "pods",
        ),
        ("GET", "/version", "get", "none"),
        ("GET", "/apis", "get", "none"),
    ] {
        let call = call(method, uri);
        assert_eq!(
            (call.verb.as_str(), call.resource.as_str()),
            (verb, resource),
            "{method} {uri}"
        );
    }
}

#[test]
fn only_watches_and_the_paged_lists_before_them_are_progress() {
    let watch = |uri| call("GET", uri).watch;
    let pods = Some("/api/v1/pods?labelSelector=a%3Db".to_owned());
    assert_eq!(
        watch("/api/v1/pods?&watch=true&labelSelector=a%3Db&resourceVersion=7"),
        pods
    );
    assert_eq!(watch("/api/v1/pods?&limit=250&labelSelector=a%3Db"), pods);
    assert_eq!(
        watch("/api/v1/pods?&labelSelector=a%3Db"),
        None,
        "a live list"
    );
    assert_eq!(watch("/api/v1/namespaces/shop/pods/a"), None);
}

/// Returns a client whose server lists nothing, and hangs at deletions.
fn pods(clock: &TestClock) -> (Api<Pod>, ClientLayer) {
    let requests = ClientLayer::new(clock.shared(), Metrics::new("test"));
    let service = fake::service(|head, _| async move {
        if head.method == "DELETE" {
            pending::<()>().await;
        }
        if head.uri.path().ends_with("/missing") {
            return fake::failure(404, "no such pod");
        }
        (
            200,
            json!({"metadata": {"resourceVersion": "1"}, "items": []}),
        )
    });
    (
        Api::namespaced(kube::Client::new(requests.layer(service), "shop"), "shop"),
        requests,
    )
}

#[tokio::test]
async fn a_request_without_a_response_times_out() {
    let clock = TestClock::default();
    let (pods, requests) = pods(&clock);
    let deletion = tokio::spawn(async move { pods.delete("a", &DeleteParams::default()).await });
    clock.run_for(Duration::from_secs(19)).await;
    assert!(!deletion.is_finished());
    clock.run_for(Duration::from_secs(1)).await;
    let error = deletion.await.unwrap().unwrap_err().to_string();
    assert!(
        error.contains("delete of pods timed out after 20 s"),
        "{error}"
    );
    let line = r#"test_requests_total{verb="delete",resource="pods",status="none"} 1"#;
    assert!(requests.metrics.encode().contains(line));
}

/// Returns a client whose server sends one bookmark after 100 s and never ends a response.
fn endless(clock: &TestClock) -> (Api<Pod>, ClientLayer) {
    const BOOKMARK: &str = r#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"1"}}}"#;
    let (requests, clock) = (
        ClientLayer::new(clock.shared(), Metrics::new("test")),
        clock.shared(),
    );
    let service = tower::service_fn(move |_: Request<Body>| {
        let later = clock.sleep(Duration::from_secs(100));
        let events = later
            .map(|()| Ok::<_, BoxError>(format!("{BOOKMARK}\n")))
            .into_stream();
        let body = ResponseBody::from_stream(events.chain(futures::stream::pending()));
        async { Ok::<_, BoxError>(Response::new(body)) }
    });
    (
        Api::namespaced(kube::Client::new(requests.layer(service), "shop"), "shop"),
        requests,
    )
}

#[tokio::test]
async fn a_body_that_never_ends_times_out() {
    let clock = TestClock::default();
    let (pods, _) = endless(&clock);
    let list = tokio::spawn(async move { pods.list(&ListParams::default()).await.map(|_| ()) });
    clock.run_for(Duration::from_secs(20)).await;
    assert!(list.is_finished() && list.await.unwrap().is_err());
}

#[tokio::test]
async fn a_watch_has_no_timeout_and_every_event_is_progress() {
    let clock = TestClock::default();
    let (pods, requests) = endless(&clock);
    let mut events = Box::pin(pods.watch(&WatchParams::default(), "0").await.unwrap());
    let watching = tokio::spawn(async move { while let Ok(Some(_)) = events.try_next().await {} });
    clock.run_for(Duration::from_secs(90)).await;
    assert_eq!(
        requests.stalled(Duration::from_secs(80)),
        ["/api/v1/namespaces/shop/pods"]
    );
    clock.run_for(Duration::from_secs(20)).await;
    assert!(
        requests.stalled(Duration::from_secs(80)).is_empty(),
        "a bookmark came 10 s ago"
    );
    clock.run_for(Duration::from_secs(300)).await;
    assert!(!watching.is_finished());
    assert_eq!(requests.stalled(Duration::from_secs(300)).len(), 1);
    watching.abort();
}

#[tokio::test]
async fn responses_are_counted_by_status() {
    let clock = TestClock::default();
    let (pods, requests) = pods(&clock);
    pods.list(&ListParams::default()).await.unwrap();
    assert!(pods.get_opt("missing").await.unwrap().is_none());
    let text = requests.metrics.encode();
    assert!(
        text.contains(r#"{verb="list",resource="pods",status="200"} 1"#),
        "{text}"
    );
    assert!(
        text.contains(r#"{verb="get",resource="pods",status="404"} 1"#),
        "{text}"
    );
    assert!(
        requests.stalled(Duration::ZERO).is_empty(),
        "there is no watch"
    );
}

#[tokio::test]
async fn the_client_does_not_retry_by_itself() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let busy = axum::Router::new().fallback(|| async { http::StatusCode::SERVICE_UNAVAILABLE });
    let server = tokio::spawn(async move { axum::serve(listener, busy).await });
    let requests = ClientLayer::new(crate::SystemClock::shared(), Metrics::new("test"));
    let config = kube::Config::new(format!("http://{address}").parse().unwrap());
    let pods: Api<Pod> = Api::namespaced(client(config, &requests).unwrap(), "shop");
    let asked = std::time::Instant::now();
    assert!(pods.get("a").await.is_err());
    assert!(asked.elapsed() < Duration::from_secs(5));
    assert!(requests.metrics.encode().contains(r#"status="503"} 1"#));
    server.abort();
}
