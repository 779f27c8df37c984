//! A cluster comes to be: from the smallest manifest, in every size, on either storage, in every version; and what it is
//! then: secured, spread out, guarded, and used as the README tells.

mod cases;
mod full;
mod tls;

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::{Story, checkout, http_get};
use serde_json::Value;

use crate::look::{LONG, nodes, nodes_were_well_since, until_right, until_whole};
use tls::{Caller, secret};

/// Puts a key through the Service and gets it back, as the first thing that a user tries.
fn is_of_use(cluster: &Cluster<'_>) {
    cluster.etcdctl(&["put", "greeting", "hello"]);
    assert_eq!(
        cluster
            .etcdctl(&["get", "greeting", "--print-value-only"])
            .trim(),
        "hello"
    );
}

/// How many members are on each node.
fn by_node(cluster: &Cluster<'_>) -> BTreeMap<String, usize> {
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
fn the_smallest_manifest_gives_three_members_secured_spread_out_and_guarded() {
    let story = Story::begin("smallest");
    let (mut operator, lab) = (Operator::start(&story), nodes(&story));
    let sample = checkout().join("deploy/samples/orders.yaml");
    story.kubectl(&["apply", "--filename", &sample.to_string_lossy()]);
    let cluster = Cluster::named(&story, "orders");
    cluster.wait_ready(LONG);
    is_of_use(&cluster);
    until_whole(&story, &cluster, 3);

    if nodes_were_well_since(&story, &lab) {
        let nodes = by_node(&cluster);
        assert_eq!(
            nodes.len(),
            3,
            "each member is on a node of its own: {nodes:?}"
        );
    }
    let resource = story.get(&["etcd/orders"]);
    assert_eq!(
        resource["metadata"]["finalizers"],
        Value::Null,
        "nothing can hang its deletion"
    );
    for pod in cluster.pods() {
        is_a_pod_as_promised(&story.get(&["pod", &pod.name]), &pod.claim);
    }
    nobody_gets_in_without_the_right_certificate(&cluster, &story);
    is_shown_and_explained(&story);
    one_may_be_evicted_and_not_a_second(&story, &mut operator, &cluster);
    until_whole(&story, &cluster, 3);
    assert_eq!(
        cluster
            .etcdctl(&["get", "greeting", "--print-value-only"])
            .trim(),
        "hello"
    );
}

/// Labels as Kubernetes recommends them, a claim of its own, no token. That it is restricted the namespace itself has
/// enforced.
fn is_a_pod_as_promised(pod: &Value, claim: &str) {
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
    assert_eq!(claim, name, "a member is a reflection of its volume");
    let owners = pod["metadata"]["ownerReferences"].as_array().unwrap();
    assert!(
        owners.iter().any(|owner| owner["controller"] == true),
        "kubectl drain refuses {name}: {owners:?}"
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
        "throttling causes elections"
    );
}

/// Each refusal has its counterpart that is let in, so that none is refused for another reason than it should.
fn nobody_gets_in_without_the_right_certificate(cluster: &Cluster<'_>, story: &Story) {
    let pod = cluster.pods().remove(0);
    let (clients, peers) = (
        secret(story, "orders-etcd-client-tls"),
        secret(story, "orders-etcd-peer-tls"),
    );
    assert_eq!(
        clients.keys().map(String::as_str).collect::<Vec<_>>(),
        ["ca.crt", "tls.crt", "tls.key"]
    );
    assert_ne!(clients["ca.crt"], peers["ca.crt"], "two authorities");
    for ip in [&cluster.service_ip(), &pod.ip] {
        let caller = Caller {
            ip,
            port: 2379,
            name: &cluster.host(),
            trusts: &clients["ca.crt"],
        };
        let version = caller.asks(Some(&clients)).unwrap();
        assert!(version.contains("3.6.16"), "{version}");
        assert_eq!(
            http_get(&format!("{ip}:2379"), "/version"),
            None,
            "plain text is refused"
        );
        let said = caller
            .asks(None)
            .expect_err("nobody is let in without a certificate");
        assert!(said.contains("CertificateRequired"), "{said}");
        let said = caller
            .asks(Some(&peers))
            .expect_err("nor with one of the members'");
        assert!(said.contains("UnknownCA"), "{said}");
    }
    let name = format!("{}.orders-etcd-peer.{}.svc", pod.name, story.namespace());
    let caller = Caller {
        ip: &pod.ip,
        port: 2380,
        name: &name,
        trusts: &peers["ca.crt"],
    };
    assert!(
        caller.asks(Some(&peers)).unwrap().contains("3.6.16"),
        "members reach each other"
    );
    assert_eq!(
        http_get(&format!("{}:2380", pod.ip), "/version"),
        None,
        "plain text is refused"
    );
    let said = caller
        .asks(None)
        .expect_err("the members' port takes no nameless caller");
    assert!(said.contains("CertificateRequired"), "{said}");
    let said = caller
        .asks(Some(&clients))
        .expect_err("a client's certificate does not open the members' port");
    assert!(said.contains("UnknownCA"), "{said}");
}

fn is_shown_and_explained(story: &Story) {
    // Whole it has been; but a member that is silent for a moment is told, too.
    until_right("it is shown as it is", || {
        let shown = story.kubectl(&["get", "etcd"]);
        let lines: Vec<Vec<_>> = shown
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(
            lines[0],
            ["NAME", "VERSION", "MEMBERS", "STATUS", "AGE"],
            "{shown}"
        );
        if lines[1].starts_with(&["orders", "3.6.16", "3/3", "Healthy"]) {
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

/// As `kubectl drain` does it.
fn one_may_be_evicted_and_not_a_second(
    story: &Story,
    operator: &mut Operator,
    cluster: &Cluster<'_>,
) {
    assert_eq!(budget(story, cluster), "2", "the quorum of three");
    story.eventually("the budget allows one", || {
        story.field(&["pdb", "orders-etcd"], ".status.disruptionsAllowed") == "1"
    });
    let pods = cluster.pods();
    // Nobody brings the first one back while the second is tried.
    let (first, second) =
        operator.stands_still_while(|| (story.evict(&pods[0].name), story.evict(&pods[1].name)));
    first.expect("one may go");
    let said = second.expect_err("a second may not");
    assert!(
        said.contains("TooManyRequests") && said.contains("disruption budget"),
        "{said}"
    );
    story.eventually("the first one is another pod now", || {
        cluster
            .pods()
            .iter()
            .any(|pod| pod.name == pods[0].name && pod.uid != pods[0].uid)
    });
    assert_eq!(
        cluster.pod(&pods[1].name).uid,
        pods[1].uid,
        "the second was left alone"
    );
}
