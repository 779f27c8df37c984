//! Stories that cannot run beside others: the operator installed with `make deploy`, which manages every story's namespace; drains of
//! nodes; a power cut of everything.

use std::time::Duration;

use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::{Operator, load_operator_image};
use evenkeel_e2e::workload::format_stats;
use evenkeel_e2e::{Story, checkout, http_get};
use evenkeel_lab::command::Cmd;

use crate::assertions::wait_healthy;

const IMAGE: &str = "evenkeel-operator:0.1.0";
const LIMIT: Duration = Duration::from_secs(180);

/// The operator deployed by `make`, deleted on drop.
struct Deployed<'s>(&'s Story);

impl<'s> Deployed<'s> {
    fn by_make(story: &'s Story) -> Self {
        load_operator_image(story, IMAGE);
        let deployed = Self(story);
        let output = Cmd::new(checkout().join("hack/deploy"))
            .env("KUBECONFIG", story.lab().kubeconfig())
            .env("KUBECTL", story.lab().programs().join("kubectl"))
            .run()
            .unwrap();
        assert!(output.contains("manages all namespaces"), "{output}");
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

    /// Returns the replica that holds the lease.
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
        // Best effort: the lab is deleted after the stories. The CRD stays, because other stories use it.
        let manifests = checkout()
            .join("deploy/operator")
            .to_string_lossy()
            .into_owned();
        let args = ["delete", "--ignore-not-found", "--filename", &manifests];
        let _ = self.0.lab().kubectl().args(args).run();
    }
}

#[test]
fn the_deployed_operator_runs_and_its_second_replica_takes_over() {
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
        story.eventually(&format!("{page} answers ok"), || {
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

    // A replica releases its lease when it exits: the other one acts at once, and recovers the member.
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
    cluster.wait_same_data();

    // A second deployment does not touch the cluster.
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
    assert_eq!(after, before, "a member was restarted for the new operator");
}

/// Uncordons a node on drop.
struct Uncordon<'s>(&'s Story, String);

impl Drop for Uncordon<'_> {
    fn drop(&mut self) {
        let _ = self.0.try_kubectl(&["uncordon", &self.1]);
    }
}

#[test]
fn drains_of_all_nodes_keep_the_quorum_and_a_power_cut_loses_no_data() {
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
        wait_healthy(&story, cluster, 3);
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
        // Members on volumes stay on their nodes.
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
        wait_healthy(&story, &cluster, 3);
        assert!(
            cluster.pods().iter().all(|pod| pod.node != *node),
            "{:?}",
            cluster.pods()
        );
        println!(
            "drained {node}: {}",
            format_stats("orders", &workload.stats(since))
        );
    }
    workload.finish();
    cluster.wait_same_data();
    drop(operator);

    let members = kept.member_list();
    let workload = kept.workload();
    story.lab().power_cycle().unwrap();
    let _operator = Operator::start(&story);
    wait_healthy(&story, &kept, 3);
    assert_eq!(kept.member_list(), members, "the members differ");
    workload.finish();
    kept.wait_same_data();
}
