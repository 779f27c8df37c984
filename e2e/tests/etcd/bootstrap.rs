//! Creation of clusters: from the smallest manifest, in every size, on either storage, in every version; and the properties that the
//! docs promise: TLS, spread, disruption budget.

mod cases;
mod full;
mod tls;

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::{Story, checkout, http_get};
use serde_json::Value;

use crate::assertions::{
    CLUSTER_LIMIT, nodes, nodes_were_ready_since, wait_healthy, wait_until_ok,
};
use tls::{TlsClient, secret};

/// Writes a key through the Service and reads it back.
fn assert_usable(cluster: &Cluster<'_>) {
    cluster.etcdctl(&["put", "greeting", "hello"]);
    assert_eq!(
        cluster
            .etcdctl(&["get", "greeting", "--print-value-only"])
            .trim(),
        "hello"
    );
}

/// Counts the members on each node.
fn members_by_node(cluster: &Cluster<'_>) -> BTreeMap<String, usize> {
    let mut nodes = BTreeMap::new();
    for pod in cluster.pods() {
        *nodes.entry(pod.node).or_default() += 1;
    }
    nodes
}

fn budget(story: &Story, cluster: &Cluster<'_>) -> String {
    story.field(
        &["pdb", &format!("{}-etcd", cluster.name())],
        ".spec.minAvailable",
    )
}

#[test]
fn the_smallest_manifest_gives_three_members_with_tls_spread_and_budget() {
    let story = Story::begin("smallest");
    let (mut operator, lab) = (Operator::start(&story), nodes(&story));
    let sample = checkout().join("deploy/samples/orders.yaml");
    story.kubectl(&["apply", "--filename", &sample.to_string_lossy()]);
    let cluster = Cluster::named(&story, "orders");
    cluster.wait_ready(CLUSTER_LIMIT);
    assert_usable(&cluster);
    wait_healthy(&story, &cluster, 3);

    if nodes_were_ready_since(&story, &lab) {
        let nodes = members_by_node(&cluster);
        assert_eq!(nodes.len(), 3, "members share a node: {nodes:?}");
    }
    let resource = story.get(&["etcd/orders"]);
    assert_eq!(
        resource["metadata"]["finalizers"],
        Value::Null,
        "a finalizer could block the deletion"
    );
    for pod in cluster.pods() {
        assert_pod(&story.get(&["pod", &pod.name]), &pod.claim);
    }
    assert_tls_required(&cluster, &story);
    assert_kubectl_output(&story);
    assert_one_eviction_allowed(&story, &mut operator, &cluster);
    wait_healthy(&story, &cluster, 3);
    assert_eq!(
        cluster
            .etcdctl(&["get", "greeting", "--print-value-only"])
            .trim(),
        "hello"
    );
}

/// Asserts the recommended labels, a PVC per member and no token. The namespace itself enforces the restricted Pod Security
/// Standard.
fn assert_pod(pod: &Value, claim: &str) {
    let name = pod["metadata"]["name"].as_str().unwrap();
    let labels = [
        ("app.kubernetes.io/name", "etcd"),
        ("app.kubernetes.io/instance", "orders"),
        ("app.kubernetes.io/version", "3.6.16"),
        ("app.kubernetes.io/component", "database"),
        ("app.kubernetes.io/part-of", "orders"),
        ("app.kubernetes.io/managed-by", "evenkeel"),
        ("etcd.evenkeel.dev/cluster", "orders"),
    ];
    for (key, value) in labels {
        assert_eq!(pod["metadata"]["labels"][key], value, "{name}: {key}");
    }
    assert_eq!(claim, name, "the PVC has another name than its member");
    let owners = pod["metadata"]["ownerReferences"].as_array().unwrap();
    assert!(
        owners.iter().any(|owner| owner["controller"] == true),
        "kubectl drain rejects {name}: {owners:?}"
    );
    let spec = &pod["spec"];
    assert_eq!(spec["automountServiceAccountToken"], false, "{name}");
    assert!(
        !spec["volumes"].to_string().contains("serviceAccountToken"),
        "{}",
        spec["volumes"]
    );
    let mounts = spec["containers"][0]["volumeMounts"].to_string();
    assert!(!mounts.contains("/var/run/secrets"), "{mounts}");
    assert_eq!(
        spec["containers"][0]["resources"]["limits"]["cpu"],
        Value::Null,
        "a CPU limit could cause elections"
    );
}

/// Tests each rejection together with a call that succeeds, so that no call is rejected for another reason.
fn assert_tls_required(cluster: &Cluster<'_>, story: &Story) {
    let pod = cluster.pods().remove(0);
    let (clients, peers) = (
        secret(story, "orders-etcd-client-tls"),
        secret(story, "orders-etcd-peer-tls"),
    );
    assert_eq!(
        clients.keys().map(String::as_str).collect::<Vec<_>>(),
        ["ca.crt", "tls.crt", "tls.key"]
    );
    assert_ne!(
        clients["ca.crt"], peers["ca.crt"],
        "clients and peers share a CA"
    );
    for ip in [&cluster.service_ip(), &pod.ip] {
        let client = TlsClient {
            ip,
            port: 2379,
            name: &cluster.host(),
            trusts: &clients["ca.crt"],
        };
        let version = client.request_version(Some(&clients)).unwrap();
        assert!(version.contains("3.6.16"), "{version}");
        assert_eq!(
            http_get(&format!("{ip}:2379"), "/version"),
            None,
            "plain text was answered"
        );
        let output = client
            .request_version(None)
            .expect_err("a client without a certificate is rejected");
        assert!(output.contains("CertificateRequired"), "{output}");
        let output = client
            .request_version(Some(&peers))
            .expect_err("a peer certificate is rejected");
        assert!(output.contains("UnknownCA"), "{output}");
    }
    let name = format!("{}.orders-etcd-peer.{}.svc", pod.name, story.namespace());
    let client = TlsClient {
        ip: &pod.ip,
        port: 2380,
        name: &name,
        trusts: &peers["ca.crt"],
    };
    assert!(
        client
            .request_version(Some(&peers))
            .unwrap()
            .contains("3.6.16"),
        "a peer certificate was rejected"
    );
    assert_eq!(
        http_get(&format!("{}:2380", pod.ip), "/version"),
        None,
        "plain text was answered"
    );
    let output = client
        .request_version(None)
        .expect_err("the peer port rejects a caller without a certificate");
    assert!(output.contains("CertificateRequired"), "{output}");
    let output = client
        .request_version(Some(&clients))
        .expect_err("the peer port rejects a client certificate");
    assert!(output.contains("UnknownCA"), "{output}");
}

fn assert_kubectl_output(story: &Story) {
    // Polled: a member that does not answer for a moment is reported, too.
    wait_until_ok("kubectl get shows a healthy cluster", || {
        let shown = story.kubectl(&["get", "etcd"]);
        let lines: Vec<Vec<_>> = shown
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(
            lines[0],
            [
                "NAME",
                "VERSION",
                "READY",
                "MEMBERS",
                "TOLERATES",
                "STATUS",
                "AGE"
            ],
            "{shown}"
        );
        let expected = ["orders", "3.6.16", "True", "3/3", "1", "node", "Healthy"];
        if lines[1].starts_with(&expected) {
            Ok(())
        } else {
            Err(shown)
        }
    });
    let explained = story.kubectl(&["explain", "etcdcluster.spec.version"]);
    assert!(
        explained.contains("The exact version of etcd, such as 3.6.16"),
        "{explained}"
    );
}

/// Evicts two pods as `kubectl drain` does: the first eviction is accepted, the second is not.
fn assert_one_eviction_allowed(story: &Story, operator: &mut Operator, cluster: &Cluster<'_>) {
    assert_eq!(
        budget(story, cluster),
        "2",
        "minAvailable is not the quorum of three"
    );
    story.eventually("the budget allows one disruption", || {
        story.field(&["pdb", "orders-etcd"], ".status.disruptionsAllowed") == "1"
    });
    let pods = cluster.pods();
    // The first pod is not recreated while the second eviction is tried.
    let (first, second) =
        operator.while_frozen(|| (story.evict(&pods[0].name), story.evict(&pods[1].name)));
    first.expect("the first eviction is accepted");
    let output = second.expect_err("the second eviction is rejected");
    assert!(
        output.contains("TooManyRequests") && output.contains("disruption budget"),
        "{output}"
    );
    story.eventually("the first pod is recreated", || {
        cluster
            .pods()
            .iter()
            .any(|pod| pod.name == pods[0].name && pod.uid != pods[0].uid)
    });
    assert_eq!(
        cluster.pod(&pods[1].name).uid,
        pods[1].uid,
        "the second pod was replaced"
    );
}
