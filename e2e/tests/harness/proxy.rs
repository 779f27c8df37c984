//! Requests through the proxy, and its record of them.

mod full;

use std::io::{BufRead, BufReader};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use evenkeel_e2e::proxy::{ObjectCounts, Verdict, pattern};
use evenkeel_e2e::{Story, WAIT_LIMIT};

use crate::proxied_kubectl::{ProxiedKubectl, Running, creates};

#[test]
fn paths_become_patterns() {
    for (path, expected) in [
        (
            "/api/v1/namespaces/a/pods?limit=500",
            "/api/v1/namespaces/{namespace}/pods",
        ),
        (
            "/api/v1/namespaces/a/pods/orders-1/eviction",
            "/api/v1/namespaces/{namespace}/pods/{name}/eviction",
        ),
        ("/api/v1/nodes/node-1", "/api/v1/nodes/{name}"),
        ("/api/v1/namespaces/a", "/api/v1/namespaces/{name}"),
        (
            "/api/v1/namespaces/a/status",
            "/api/v1/namespaces/{name}/status",
        ),
        ("/api/v1/namespaces", "/api/v1/namespaces"),
        (
            "/apis/evenkeel.dev/v1alpha1/namespaces/a/etcdclusters/orders/status?fieldManager=evenkeel",
            "/apis/evenkeel.dev/v1alpha1/namespaces/{namespace}/etcdclusters/{name}/status",
        ),
        ("/apis/apps/v1", "/apis/apps/v1"),
        ("/api/v1", "/api/v1"),
        ("/version?timeout=32s", "/version"),
    ] {
        assert_eq!(pattern(path), expected, "{path}");
    }
}
