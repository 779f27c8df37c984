//! Faults of the S3 server and of the link to it.

use std::time::{Duration, Instant};

use evenkeel_e2e::s3::{LinkState, S3Server};
use evenkeel_e2e::{BUSYBOX_IMAGE, Story};

const KEY: &str = "key";

/// Returns the status code of an upload; `None` without an answer.
fn put(server: &S3Server<'_>, body: &[u8]) -> Option<u16> {
    let credentials = &server.access().credentials;
    let answer = server.request("PUT", KEY, body, credentials);
    answer.map(|answer| answer.code).ok()
}

#[test]
fn faults_of_the_s3_server_reach_its_clients_and_end() {
    let story = Story::begin("s3-faults");
    let server = S3Server::start(&story);
    assert_eq!(put(&server, b"first"), Some(200));

    server.freeze();
    assert_eq!(put(&server, b"frozen"), None);
    server.thaw();
    story.eventually("a thawed server answers", || {
        put(&server, b"thawed") == Some(200)
    });

    server.fill_disk();
    let full = put(&server, &[7; 1 << 20]);
    assert!(full.is_some_and(|code| code >= 500), "{full:?}");
    server.free_disk();
    assert_eq!(put(&server, b"freed"), Some(200));

    server.reject_credentials();
    assert_eq!(put(&server, b"rejected"), Some(403));
    server.accept_credentials();
    assert_eq!(put(&server, b"accepted"), Some(200));

    server.kill();
    story.eventually("a killed server answers again", || {
        put(&server, b"restarted") == Some(200)
    });

    server.stop();
    assert_eq!(put(&server, b"stopped"), None);
    server.start_again();
    assert_eq!(put(&server, b"started"), Some(200));
    assert_eq!(server.read(KEY), b"started");
}

#[test]
fn the_link_to_the_s3_server_slows_stalls_and_cuts_connections() {
    let story = Story::begin("s3-link");
    let server = S3Server::start(&story);
    let link = server.link();
    let body = vec![7; 1 << 20];
    assert_eq!(put(&server, &body), Some(200));
    assert!(link.traffic().sent > 1 << 20, "{:?}", link.traffic());

    link.cut_after(100_000);
    assert_eq!(put(&server, &body), None);
    assert!(!link.is_planned());
    assert_eq!(put(&server, &body), Some(200));

    link.set_after(100_000, LinkState::Down);
    assert_eq!(put(&server, &body), None);
    assert_eq!(put(&server, b"small"), None);
    link.set(LinkState::Open);
    assert_eq!(put(&server, b"small"), Some(200));

    let began = Instant::now();
    link.set(LinkState::Slow(256 * 1024));
    assert_eq!(put(&server, &body), Some(200));
    assert!(began.elapsed() > Duration::from_secs(3));

    link.set(LinkState::Stalled);
    assert_eq!(put(&server, b"stalled"), None);
    link.set(LinkState::Open);
    assert_eq!(put(&server, b"open"), Some(200));
}

#[test]
fn a_pod_reaches_the_s3_server_by_the_name_of_its_certificate() {
    let story = Story::begin("s3-pod");
    let server = S3Server::start(&story);
    let before = server.link().traffic();
    let host = server.access().endpoint.replace("https://", "");
    // busybox cannot verify a certificate; the request shows that the name and the way through the link are right.
    let pod = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "client"}, "spec": {
        "restartPolicy": "Never",
        "containers": [{"name": "client", "image": BUSYBOX_IMAGE,
            "command": ["sh", "-c", format!("printf x | timeout 20 nc {host} 443")],
            "securityContext": {"allowPrivilegeEscalation": false, "runAsNonRoot": true, "runAsUser": 65532,
                "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}}}],
    }});
    story.apply(&pod.to_string());
    story.eventually("a byte of the pod has passed the link", || {
        server.link().traffic().sent > before.sent
    });
}
