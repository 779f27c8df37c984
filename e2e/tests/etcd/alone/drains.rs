//! Drains at a bad time: under clusters of one or two members, while a member is replaced, while a cluster is scaled. The API
//! server rejects an eviction that would cost the quorum, also while no operator runs; the same drain succeeds when there are
//! enough members.
//!
//! Storage is ephemeral, so that members can move. One eviction too many would destroy such a cluster: a healthy cluster with all
//! acknowledged writes at the end shows that there was none.

use std::collections::BTreeSet;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::{Cluster, MemberPod};
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::workload::format_stats;
use serde_json::json;

use crate::assertions::{CLUSTER_LIMIT, follower, leader, wait_healthy};
use crate::intents::{kill_after_intent, kill_after_intent_and_restart};
use crate::interrupts::start_after_kill;

/// Uncordons all nodes on drop.
struct Uncordon<'s>(&'s Story);

impl Uncordon<'_> {
    fn all(&self) {
        let nodes = self.0.lab().nodes().iter();
        let errors: Vec<_> = nodes
            .filter_map(|node| self.0.try_kubectl(&["uncordon", &node.name]).err())
            .collect();
        assert!(errors.is_empty() || std::thread::panicking(), "{errors:?}");
    }
}

impl Drop for Uncordon<'_> {
    fn drop(&mut self) {
        self.all();
    }
}

/// Drains a node of a cluster's members, with a timeout in seconds.
fn drain(story: &Story, cluster: &Cluster<'_>, node: &str, seconds: u32) -> Result<String, String> {
    let mine = format!(
        "--pod-selector=etcd.evenkeel.dev/cluster={}",
        cluster.name()
    );
    let limit = format!("--timeout={seconds}s");
    story.try_kubectl(&[
        "drain",
        node,
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        &mine,
        &limit,
    ])
}

/// Asserts that a drain is blocked by the disruption budget and evicts no member.
fn assert_drain_blocked(story: &Story, cluster: &Cluster<'_>, node: &str) {
    let before = uids(cluster);
    let output = drain(story, cluster, node, 12).expect_err("the budget blocks the drain");
    assert!(
        output.contains("violate the pod's disruption budget"),
        "{output}"
    );
    assert_eq!(uids(cluster), before, "a pod was evicted");
}

/// Asserts that the same drain succeeds, and that no member is on the node afterwards.
fn assert_drain_succeeds(story: &Story, cluster: &Cluster<'_>, node: &str, members: usize) {
    drain(story, cluster, node, 240)
        .unwrap_or_else(|output| panic!("{output}\n{:#}", cluster.status()));
    wait_healthy(story, cluster, members);
    assert!(
        cluster.pods().iter().all(|pod| pod.node != node),
        "{node}: {:?}",
        cluster.pods()
    );
}

fn uids(cluster: &Cluster<'_>) -> BTreeSet<String> {
    cluster.pods().into_iter().map(|pod| pod.uid).collect()
}

/// Waits until Kubernetes allows this number of evictions.
fn wait_evictions_allowed(story: &Story, cluster: &Cluster<'_>, evictions: u32) {
    story.eventually(
        &format!("{evictions} of {} may be evicted", cluster.name()),
        || {
            let budget = story.read(
                "/apis/policy/v1",
                &format!("poddisruptionbudgets/{}-etcd", cluster.name()),
            );
            let budget = budget.unwrap_or_default();
            budget["status"]["disruptionsAllowed"] == evictions
                && budget["status"]["observedGeneration"] == budget["metadata"]["generation"]
        },
    );
}

fn ephemeral<'s>(story: &'s Story, name: &str, members: usize) -> Cluster<'s> {
    let spec = format!(
        "version: 3.6.16\nmembers: {members}\nstorage: {{ephemeral: true}}\nresources: {{requests: {{cpu: 10m, memory: \
         64Mi}}}}"
    );
    Cluster::apply(story, name, &spec)
}

#[test]
fn a_drain_of_one_or_two_members_waits_until_there_are_three() {
    let story = Story::alone("drain-few");
    let mut operator = Operator::start(&story);
    let nodes = Uncordon(&story);
    let clusters =
        [("one", 1), ("two", 2)].map(|(name, members)| (ephemeral(&story, name, members), members));
    for (cluster, members) in &clusters {
        cluster.wait_ready(CLUSTER_LIMIT);
        wait_healthy(&story, cluster, *members);
    }
    for (cluster, members) in &clusters {
        let clients = cluster.workload();
        wait_evictions_allowed(&story, cluster, 0);
        let node = cluster.pods().remove(0).node;
        assert_drain_blocked(&story, cluster, &node);

        // The node is cordoned, and two others are not: room for a third member, if members may share a node.
        kill_after_intent_and_restart(&story, &mut operator, cluster, "Promote", || {
            cluster.patch(&json!({"members": 3}));
        });
        assert_drain_succeeds(&story, cluster, &node, 3);
        nodes.all();
        cluster.patch(&json!({"members": members}));
        wait_healthy(&story, cluster, *members);
        clients.finish();
        cluster.wait_same_data();
    }
}

/// Returns the node of another member, which is not on the node of this one.
fn node_of_another(cluster: &Cluster<'_>, lost: &MemberPod) -> String {
    let other = cluster
        .pods()
        .into_iter()
        .find(|pod| pod.name != lost.name && pod.node != lost.node);
    other
        .unwrap_or_else(|| panic!("all members are on {}", lost.node))
        .node
}

#[test]
fn a_drain_during_a_replacement_waits_for_the_new_member() {
    let story = Story::alone("drain-replaced");
    let mut operator = Operator::start(&story);
    let _nodes = Uncordon(&story);
    let cluster = ephemeral(&story, "orders", 3);
    cluster.wait_ready(CLUSTER_LIMIT);
    wait_healthy(&story, &cluster, 3);
    wait_evictions_allowed(&story, &cluster, 1);
    let clients = cluster.workload();
    let since = clients.now();

    let lost = follower(&story, &cluster);
    let intent = kill_after_intent(&mut operator, &cluster, "Remove", || {
        story.kubectl(&["delete", "pod", &lost.name, "--wait=false"]);
    });
    assert_eq!(intent.voters, 3);
    wait_evictions_allowed(&story, &cluster, 0);
    let node = node_of_another(&cluster, &lost);
    assert_drain_blocked(&story, &cluster, &node);
    start_after_kill(&story, &mut operator);
    assert_drain_succeeds(&story, &cluster, &node, 3);
    println!(
        "{}",
        format_stats("drained while replacing", &clients.stats(since))
    );
    clients.finish();
    cluster.wait_same_data();
}

#[test]
fn drains_while_a_cluster_is_scaled_wait_for_the_promotion() {
    let story = Story::alone("drain-scaled");
    let mut operator = Operator::start(&story);
    let nodes = Uncordon(&story);
    let cluster = ephemeral(&story, "orders", 3);
    cluster.wait_ready(CLUSTER_LIMIT);
    wait_healthy(&story, &cluster, 3);
    wait_evictions_allowed(&story, &cluster, 1);
    let clients = cluster.workload();
    let voters = uids(&cluster);

    // Four voters need three: the budget is raised before the fourth is promoted, and no voter can be evicted until then.
    let intent = kill_after_intent(&mut operator, &cluster, "Promote", || {
        cluster.patch(&json!({"members": 5}))
    });
    assert_eq!(intent.voters, 3);
    assert_eq!(
        story.field(&["pdb", "orders-etcd"], ".spec.minAvailable"),
        "3"
    );
    wait_evictions_allowed(&story, &cluster, 0);
    // The learner may be evicted, so another node is drained than its own.
    let pods = cluster.pods();
    let learner_nodes: BTreeSet<_> = pods
        .iter()
        .filter(|pod| !voters.contains(&pod.uid))
        .map(|pod| pod.node.clone())
        .collect();
    let leader_name = leader(&story, &cluster).name;
    let mut followers = pods
        .iter()
        .filter(|pod| voters.contains(&pod.uid) && pod.name != leader_name);
    let node = followers
        .find(|pod| !learner_nodes.contains(&pod.node))
        .expect("there is one learner")
        .node
        .clone();
    assert_drain_blocked(&story, &cluster, &node);
    start_after_kill(&story, &mut operator);
    assert_drain_succeeds(&story, &cluster, &node, 5);
    nodes.all();

    // While one of five is to be removed, the quorum is that of five until it has been removed.
    let intent = kill_after_intent(&mut operator, &cluster, "Remove", || {
        cluster.patch(&json!({"members": 3}))
    });
    assert_eq!(intent.voters, 5);
    assert_eq!(
        story.field(&["pdb", "orders-etcd"], ".spec.minAvailable"),
        "3"
    );
    let node = follower(&story, &cluster).node;
    start_after_kill(&story, &mut operator);
    assert_drain_succeeds(&story, &cluster, &node, 3);
    clients.finish();
    cluster.wait_same_data();
}
