//! Members that have nowhere to be: a quota that refuses their pods, and volumes that nobody provides.

mod alone;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use serde_json::json;

use crate::look::{LONG, events, follower, formed, ids, until_whole};
use crate::middle::{comes_to_rest, spec};
use crate::noted::{dies_once_noting, take_pod_and_claim};
use crate::obstacles::complaint;

/// A quota that takes no more than two pods, in force.
fn two_pods_only(story: &Story) {
    let two = ["create", "quota", "two", "--hard=pods=2"];
    story.kubectl(&two);
    story.eventually("the quota counts", || {
        story.field(&["quota", "two"], ".status.used.pods") == "3"
    });
}

/// Waits until an event tells that the quota has refused a pod of such a name.
fn is_told(story: &Story, cluster: &Cluster<'_>, of_name: impl Fn(&str) -> bool) {
    story.within(LONG, "the refusal is told", || {
        let told = events(story, cluster);
        let refused = told.iter().filter(|(reason, note)| {
            reason == "WriteRejected" && note.contains("exceeded quota: two")
        });
        let mut names =
            refused.filter_map(|(_, note)| note.split("the Pod ").nth(1)?.split(':').next());
        names.any(|name| of_name(name.trim()))
    });
}

#[test]
fn a_quota_that_refuses_a_members_pod_is_told_and_when_it_goes_the_member_is_back() {
    let story = Story::begin("quota");
    let mut operator = Operator::start(&story);
    let cluster = formed(&story, &spec(3), 3);
    let (clients, before) = (cluster.workload(), ids(&cluster));

    two_pods_only(&story);
    let victim = follower(&story, &cluster);
    story.kubectl(&["delete", "pod", &victim.name]);
    is_told(&story, &cluster, |name| name == victim.name);
    // What the quota does not forbid is healed as ever.
    let uid = story.field(&["pdb", "orders-etcd"], ".metadata.uid");
    story.kubectl(&["delete", "pdb", "orders-etcd"]);
    story.eventually("the budget is there again", || {
        let there = story
            .read("/apis/policy/v1", "poddisruptionbudgets/orders-etcd")
            .unwrap_or_default();
        there["metadata"]["uid"]
            .as_str()
            .is_some_and(|now| now != uid)
    });
    story.kubectl(&["delete", "quota", "two"]);
    until_whole(&story, &cluster, 3);
    assert_eq!(ids(&cluster), before, "the same members");

    // The same for a newcomer, which the one that is lost must make way for first.
    two_pods_only(&story);
    let lost = follower(&story, &cluster);
    dies_once_noting(&story, &mut operator, &cluster, "Remove", || {
        take_pod_and_claim(&story, &lost.name)
    });
    is_told(&story, &cluster, |name| !before.contains_key(name));
    story.kubectl(&["delete", "quota", "two"]);
    until_whole(&story, &cluster, 3);
    clients.finish();
    cluster.holds_the_same_everywhere();
}

#[test]
fn a_cluster_of_three_of_which_two_have_no_node_serves_and_they_follow_when_they_have() {
    let story = Story::begin("two-nowhere");
    let operator = Operator::start(&story);
    let apart = "version: 3.6.16\nmembers: 3\nstorage: {size: 1Gi}\nresources: {requests: {cpu: 10m, memory: 64Mi}}\n\
                 scheduling: {nodeSelector: {kubernetes.io/hostname: node-1}, spread: {require: true}}";
    let cluster = Cluster::apply(&story, "orders", apart);
    cluster.wait_ready(LONG);
    cluster.etcdctl(&["put", "kept", "yes"]);
    let members = cluster.member_list().len();
    assert!(members <= 2, "one is waited for at most: {members}");
    // Pods that do not run are built anew at once.
    cluster.patch(&json!({ "scheduling": { "nodeSelector": null } }));
    until_whole(&story, &cluster, 3);
    assert!(cluster.etcdctl(&["get", "kept"]).contains("yes"));
    comes_to_rest(&operator);
}
