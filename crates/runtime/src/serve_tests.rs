//! The endpoints, over a real connection.

use std::io::Write;
use std::net::TcpStream;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, WatchParams};
use serde_json::json;
use tower::Layer;

use super::*;
use crate::clock::TestClock;
use crate::fake;

async fn get_path(address: SocketAddr, path: &'static str) -> (u16, String) {
    let response = tokio::task::spawn_blocking(move || {
        let mut connection = TcpStream::connect(address)?;
        write!(
            connection,
            "GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n"
        )?;
        io::read_to_string(connection)
    });
    let response = response.await.unwrap().unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (
        head.split(' ').nth(1).unwrap().parse().unwrap(),
        body.to_owned(),
    )
}

#[tokio::test]
async fn health_and_metrics_are_served_until_shutdown() {
    let (clock, metrics, shutdown) = (
        TestClock::default(),
        Metrics::new("test"),
        CancellationToken::new(),
    );
    let requests = ClientLayer::new(clock.shared(), metrics.clone());
    let health = Health::new(requests.clone());
    let any_port = "127.0.0.1:0".parse().unwrap();
    let (address, server) = serve(any_port, health.clone(), metrics, shutdown.clone())
        .await
        .unwrap();
    let server = tokio::spawn(server);

    assert_eq!(get_path(address, "/readyz").await.0, 503);
    health.set_stage(Stage::StandingBy);
    assert_eq!(get_path(address, "/readyz").await.0, 200);
    assert_eq!(get_path(address, "/livez").await, (200, "ok\n".into()));

    // A watch starts and makes no progress.
    let service = fake::service(|_, _| async { (200, json!([])) });
    let pods: Api<Pod> =
        Api::namespaced(kube::Client::new(requests.layer(service), "shop"), "shop");
    drop(pods.watch(&WatchParams::default(), "0").await.unwrap());
    assert_eq!(get_path(address, "/livez").await.0, 200);
    clock.advance(Duration::from_secs(361));
    let (status, body) = get_path(address, "/livez").await;
    assert_eq!(status, 500);
    assert_eq!(body, "no progress in watch /api/v1/namespaces/shop/pods\n");

    let (status, text) = get_path(address, "/metrics").await;
    assert!(
        status == 200 && text.contains("test_requests_total{verb=\"watch\""),
        "{text}"
    );
    assert_eq!(get_path(address, "/").await.0, 404);

    shutdown.cancel();
    server.await.unwrap().unwrap();
}
