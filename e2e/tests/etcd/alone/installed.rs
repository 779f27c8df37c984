//! What cannot be told beside other stories: the operator as people install it, which looks after every story's namespace
//! while it is there; nodes that are drained; everything without power.

use std::time::Duration;

use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::{Operator, built, load_image};
use evenkeel_e2e::watched::told;
use evenkeel_e2e::{Story, checkout, http_get};
use evenkeel_lab::command::Cmd;

use crate::look::until_whole;

const IMAGE: &str = "evenkeel-operator:0.1.0";
const LIMIT: Duration = Duration::from_secs(180);

/// Takes the operator away again, however the story ends.
struct Deployed<'s>(&'s Story);

impl<'s> Deployed<'s> {
    fn by_make(story: &'s Story) -> Self {
        load_image(story, IMAGE, &built());
        let deployed = Self(story);
        let said = Cmd::new(checkout().join("hack/deploy"))
            .env("KUBECONFIG", story.lab().kubeconfig())
            .env("KUBECTL", story.lab().programs().join("kubectl"))
            .run()
            .unwrap();
        assert!(said.contains("looks after all namespaces"), "{said}");
        deployed
    }

    fn kubectl(&self, args: &[&str]) -> String {
        self.0
            .lab()
            .kubectl()
            .args(["--namespace", "evenkeel-system"])
            .args(args)
            .run()
            .unwrap()
    }

    /// The replica that holds the lease.
    fn leader(&self) -> Option<String> {
        let path = "-o=jsonpath={.spec.holderIdentity}";
        let holder = self.kubectl(&["get", "lease", "evenkeel-operator", path]);
        let pods = self.kubectl(&["get", "pods", "-o=jsonpath={.items[*].metadata.name}"]);
        pods.split_whitespace()
            .find(|pod| holder.starts_with(*pod))
            .map(str::to_owned)
    }

    fn address(&self, pod: &str) -> String {
        format!(
            "{}:8080",
            self.kubectl(&["get", "pod", pod, "-o=jsonpath={.status.podIP}"])
                .trim()
        )
    }
}

impl Drop for Deployed<'_> {
    fn drop(&mut self) {
        // Best effort: the lab itself goes after the stories. The definition stays: other stories use it.
        let manifests = checkout()
            .join("deploy/operator")
            .to_string_lossy()
            .into_owned();
        let args = ["delete", "--ignore-not-found", "--filename", &manifests];
        let _ = self.0.lab().kubectl().args(args).run();
    }
}

#[test]
fn deployed_by_make_it_runs_in_the_cluster_and_its_second_replica_takes_over() {
    let story = Story::alone("deployed");
    let deployed = Deployed::by_make(&story);
    let cluster = Cluster::apply(&story, "orders", "version: 3.6.16\nmembers: 3");
    cluster.wait_ready(LIMIT);
    let workload = cluster.workload();

    let leader = deployed
        .leader()
        .expect("one of the replicas holds the lease");
    let address = deployed.address(&leader);
    for page in ["/livez", "/readyz"] {
        story.eventually(&format!("{page} is ok"), || {
            http_get(&address, page).as_deref() == Some("ok")
        });
    }
    let mut metrics = None;
    story.eventually("metrics are served", || {
        metrics = http_get(&address, "/metrics");
        metrics.is_some()
    });
    let metrics = metrics.unwrap();
    assert!(metrics.contains("evenkeel_lease_held 1"), "{metrics}");
    assert!(
        metrics
            .contains(r#"evenkeel_actions_total{kind="EtcdCluster",action="finish-bootstrap"} 1"#),
        "{metrics}"
    );

    // A replica that ends gives its lease back: the other one acts at once, and heals.
    deployed.kubectl(&["delete", "pod", &leader, "--wait=false"]);
    let lost = cluster.pods()[0].clone();
    story.kubectl(&["delete", "pod", &lost.name, "--wait=false"]);
    story.within(LIMIT, "the member is back", || {
        cluster
            .pods()
            .iter()
            .any(|pod| pod.name == lost.name && pod.uid != lost.uid && pod.ready)
    });
    let successor = deployed
        .leader()
        .expect("the other replica holds the lease");
    assert_ne!(successor, leader);
    cluster.wait_ready(LIMIT);
    workload.finish();
    cluster.holds_the_same_everywhere();

    // Deployed again, nothing of the cluster is touched.
    let before: Vec<_> = cluster.pods().iter().map(|pod| pod.uid.clone()).collect();
    deployed.kubectl(&["rollout", "restart", "deployment/evenkeel-operator"]);
    deployed.kubectl(&[
        "rollout",
        "status",
        "deployment/evenkeel-operator",
        "--timeout=120s",
    ]);
    cluster.wait_ready(LIMIT);
    let after: Vec<_> = cluster.pods().iter().map(|pod| pod.uid.clone()).collect();
    assert_eq!(
        after, before,
        "an operator that is replaced restarts no member"
    );
}

/// Opens a node for pods again, whatever becomes of the story.
struct Uncordon<'s>(&'s Story, String);

impl Drop for Uncordon<'_> {
    fn drop(&mut self) {
        let _ = self.0.try_kubectl(&["uncordon", &self.1]);
    }
}

#[test]
fn draining_each_node_in_turn_costs_no_quorum_and_a_power_cut_of_everything_no_data() {
    let story = Story::alone("drained");
    let operator = Operator::start(&story);
    let cluster = Cluster::apply(
        &story,
        "orders",
        "version: 3.6.16\nmembers: 3\nstorage: {ephemeral: true}",
    );
    let kept = Cluster::apply(&story, "kept", "version: 3.6.16\nmembers: 3");
    for cluster in [&cluster, &kept] {
        cluster.wait_ready(LIMIT);
        until_whole(&story, cluster, 3);
    }
    let workload = cluster.workload();
    let nodes: Vec<String> = story
        .lab()
        .nodes()
        .iter()
        .map(|node| node.name.clone())
        .collect();
    for node in &nodes {
        let _open = Uncordon(&story, node.clone());
        let since = workload.now();
        // Members on volumes stay where their disks are.
        let mine = "--pod-selector=etcd.evenkeel.dev/cluster=orders";
        let drain = [
            "drain",
            node,
            "--ignore-daemonsets",
            "--delete-emptydir-data",
            "--timeout=180s",
            mine,
        ];
        story.kubectl(&drain);
        until_whole(&story, &cluster, 3);
        assert!(
            cluster.pods().iter().all(|pod| pod.node != *node),
            "{:?}",
            cluster.pods()
        );
        println!("drained {node}: {}", told("orders", &workload.stats(since)));
    }
    workload.finish();
    cluster.holds_the_same_everywhere();
    drop(operator);

    let members = kept.member_list();
    let workload = kept.workload();
    story.lab().power_cycle().unwrap();
    let _operator = Operator::start(&story);
    until_whole(&story, &kept, 3);
    assert_eq!(
        kept.member_list(),
        members,
        "they are the members they were"
    );
    workload.finish();
    kept.holds_the_same_everywhere();
}
