//! Nodes that are drained at a bad time: under clusters that have nobody to spare, while a member is being replaced, while
//! members come and go. An eviction that would cost the quorum is refused, also while no operator is there; the same drain
//! goes through when there are enough.
//!
//! Storage is ephemeral throughout, so that members can move. An eviction too many would be the end of such a cluster: that
//! each is whole afterwards, with all that its clients were promised, says that there was none.

use std::collections::BTreeSet;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::{Cluster, MemberPod};
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::watched::told;
use serde_json::json;

use crate::look::{LONG, follower, leader, until_whole};
use crate::middle::lives_again;
use crate::noted::{dies_noting, dies_once_noting};

/// Opens all nodes for pods again, whatever becomes of the story.
struct Uncordon<'s>(&'s Story);

impl Uncordon<'_> {
    fn all(&self) {
        let nodes = self.0.lab().nodes().iter();
        let refused: Vec<_> = nodes
            .filter_map(|node| self.0.try_kubectl(&["uncordon", &node.name]).err())
            .collect();
        assert!(
            refused.is_empty() || std::thread::panicking(),
            "{refused:?}"
        );
    }
}

impl Drop for Uncordon<'_> {
    fn drop(&mut self) {
        self.all();
    }
}

/// Drains a node of a cluster's members, for at most so many seconds.
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

/// That a drain gets nowhere, because of the disruption budget, and nobody is harmed by it.
fn is_held_up(story: &Story, cluster: &Cluster<'_>, node: &str) {
    let before = uids(cluster);
    let said = drain(story, cluster, node, 12).expect_err("there is nobody to spare");
    assert!(
        said.contains("violate the pod's disruption budget"),
        "{said}"
    );
    assert_eq!(uids(cluster), before, "nobody was evicted");
}

/// That the same drain goes through, and the members that were there are elsewhere.
fn goes_through(story: &Story, cluster: &Cluster<'_>, node: &str, members: usize) {
    drain(story, cluster, node, 240)
        .unwrap_or_else(|said| panic!("{said}\n{:#}", cluster.status()));
    until_whole(story, cluster, members);
    assert!(
        cluster.pods().iter().all(|pod| pod.node != node),
        "{node}: {:?}",
        cluster.pods()
    );
}

fn uids(cluster: &Cluster<'_>) -> BTreeSet<String> {
    cluster.pods().into_iter().map(|pod| pod.uid).collect()
}

/// Waits until Kubernetes has counted: this many may be evicted.
fn until_allowed(story: &Story, cluster: &Cluster<'_>, evictions: u32) {
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
fn a_drain_under_one_or_two_members_waits_and_goes_through_once_there_are_three() {
    let story = Story::alone("drain-few");
    let mut operator = Operator::start(&story);
    let nodes = Uncordon(&story);
    let clusters =
        [("one", 1), ("two", 2)].map(|(name, members)| (ephemeral(&story, name, members), members));
    for (cluster, members) in &clusters {
        cluster.wait_ready(LONG);
        until_whole(&story, cluster, *members);
    }
    for (cluster, members) in &clusters {
        let clients = cluster.workload();
        until_allowed(&story, cluster, 0);
        let node = cluster.pods().remove(0).node;
        is_held_up(&story, cluster, &node);

        // The node is closed, and two others are open: room for a third member, if it may share.
        dies_once_noting(&story, &mut operator, cluster, "Promote", || {
            cluster.patch(&json!({"members": 3}));
        });
        goes_through(&story, cluster, &node, 3);
        nodes.all();
        cluster.patch(&json!({"members": members}));
        until_whole(&story, cluster, *members);
        clients.finish();
        cluster.holds_the_same_everywhere();
    }
}

/// The node of somebody else than this one.
fn node_of_another(cluster: &Cluster<'_>, lost: &MemberPod) -> String {
    let other = cluster
        .pods()
        .into_iter()
        .find(|pod| pod.name != lost.name && pod.node != lost.node);
    other
        .unwrap_or_else(|| panic!("all are on {}", lost.node))
        .node
}

#[test]
fn a_drain_while_a_member_is_replaced_waits_until_somebody_is_in_its_place() {
    let story = Story::alone("drain-replaced");
    let mut operator = Operator::start(&story);
    let _nodes = Uncordon(&story);
    let cluster = ephemeral(&story, "orders", 3);
    cluster.wait_ready(LONG);
    until_whole(&story, &cluster, 3);
    until_allowed(&story, &cluster, 1);
    let clients = cluster.workload();
    let since = clients.now();

    let lost = follower(&story, &cluster);
    let intent = dies_noting(&mut operator, &cluster, "Remove", || {
        story.kubectl(&["delete", "pod", &lost.name, "--wait=false"]);
    });
    assert_eq!(intent.voters, 3);
    until_allowed(&story, &cluster, 0);
    let node = node_of_another(&cluster, &lost);
    is_held_up(&story, &cluster, &node);
    lives_again(&story, &mut operator);
    goes_through(&story, &cluster, &node, 3);
    println!("{}", told("drained while replacing", &clients.stats(since)));
    clients.finish();
    cluster.holds_the_same_everywhere();
}

#[test]
fn drains_while_three_become_five_and_three_again_wait_for_a_vote_that_is_about_to_be_given() {
    let story = Story::alone("drain-scaled");
    let mut operator = Operator::start(&story);
    let nodes = Uncordon(&story);
    let cluster = ephemeral(&story, "orders", 3);
    cluster.wait_ready(LONG);
    until_whole(&story, &cluster, 3);
    until_allowed(&story, &cluster, 1);
    let clients = cluster.workload();
    let voters = uids(&cluster);

    // Of four three must agree: the budget is raised before the fourth has its vote, and nobody can be spared until then.
    let intent = dies_noting(&mut operator, &cluster, "Promote", || {
        cluster.patch(&json!({"members": 5}))
    });
    assert_eq!(intent.voters, 3);
    assert_eq!(
        story.field(&["pdb", "orders-etcd"], ".spec.minAvailable"),
        "3"
    );
    until_allowed(&story, &cluster, 0);
    // The newcomer has no vote, and may be evicted: it is not to be on the node that is drained.
    let pods = cluster.pods();
    let newcomers: BTreeSet<_> = pods
        .iter()
        .filter(|pod| !voters.contains(&pod.uid))
        .map(|pod| pod.node.clone())
        .collect();
    let leads = leader(&story, &cluster).name;
    let mut followers = pods
        .iter()
        .filter(|pod| voters.contains(&pod.uid) && pod.name != leads);
    let node = followers
        .find(|pod| !newcomers.contains(&pod.node))
        .expect("there is one newcomer")
        .node
        .clone();
    is_held_up(&story, &cluster, &node);
    lives_again(&story, &mut operator);
    goes_through(&story, &cluster, &node, 5);
    nodes.all();

    // With one of five about to go the quorum is that of five until it has gone.
    let intent = dies_noting(&mut operator, &cluster, "Remove", || {
        cluster.patch(&json!({"members": 3}))
    });
    assert_eq!(intent.voters, 5);
    assert_eq!(
        story.field(&["pdb", "orders-etcd"], ".spec.minAvailable"),
        "3"
    );
    let node = follower(&story, &cluster).node;
    lives_again(&story, &mut operator);
    goes_through(&story, &cluster, &node, 3);
    clients.finish();
    cluster.holds_the_same_everywhere();
}
