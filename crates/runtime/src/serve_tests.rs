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

async fn ask(address: SocketAddr, path: &'static str) -> (u16, String) {
    let asked = tokio::task::spawn_blocking(move || {
        let mut connection = TcpStream::connect(address)?;
        write!(
            connection,
            "GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n"
        )?;
        io::read_to_string(connection)
    });
    let answer = asked.await.unwrap().unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (
        head.split(' ').nth(1).unwrap().parse().unwrap(),
        body.to_owned(),
    )
}

#[tokio::test]
async fn the_kubelet_hears_how_it_is_until_shutdown() {
    let (clock, metrics, shutdown) = (
        TestClock::default(),
        Metrics::new(),
        CancellationToken::new(),
    );
    let requests = ClientLayer::new(clock.shared(), metrics.clone());
    let health = Health::new(requests.clone());
    let anywhere = "127.0.0.1:0".parse().unwrap();
    let (address, serving) = serve(anywhere, health.clone(), metrics, shutdown.clone())
        .await
        .unwrap();
    let serving = tokio::spawn(serving);

    assert_eq!(ask(address, "/readyz").await.0, 503);
    health.set_stage(Stage::StandingBy);
    assert_eq!(ask(address, "/readyz").await.0, 200);
    assert_eq!(ask(address, "/livez").await, (200, "ok\n".into()));

    // A watch begins, and is never heard of again.
    let service = fake::service(|_, _| async { (200, json!([])) });
    let pods: Api<Pod> =
        Api::namespaced(kube::Client::new(requests.layer(service), "shop"), "shop");
    drop(pods.watch(&WatchParams::default(), "0").await.unwrap());
    assert_eq!(ask(address, "/livez").await.0, 200);
    clock.advance(Duration::from_secs(361));
    let (status, why) = ask(address, "/livez").await;
    assert_eq!(status, 500);
    assert_eq!(
        why,
        "no progress in watching /api/v1/namespaces/shop/pods\n"
    );

    let (status, text) = ask(address, "/metrics").await;
    assert!(
        status == 200 && text.contains("evenkeel_requests_total{verb=\"watch\""),
        "{text}"
    );
    assert_eq!(ask(address, "/").await.0, 404);

    shutdown.cancel();
    serving.await.unwrap().unwrap();
}
