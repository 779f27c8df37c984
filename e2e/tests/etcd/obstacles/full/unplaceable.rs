//! Members that cannot be placed: a quota that rejects their pods, and volumes without a StorageClass.

mod alone;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use serde_json::json;

use crate::assertions::{CLUSTER_LIMIT, create_orders, events, follower, member_ids, wait_healthy};
use crate::intents::{delete_pod_and_claim, kill_after_intent_and_restart};
use crate::interrupts::{spec, wait_idle};
use crate::obstacles::problem_report;

/// Creates a quota of two pods, and waits until it is in effect.
fn create_quota_of_two(story: &Story) {
    let two = ["create", "quota", "two", "--hard=pods=2"];
    story.kubectl(&two);
    story.eventually("the quota has counted the pods", || {
        story.field(&["quota", "two"], ".status.used.pods") == "3"
    });
}

/// Waits for an event about a pod of such a name that the quota rejected.
fn wait_rejection_event(story: &Story, cluster: &Cluster<'_>, of_name: impl Fn(&str) -> bool) {
    story.within(CLUSTER_LIMIT, "an event reports the rejected pod", || {
        let reported = events(story, cluster);
        let rejected = reported.iter().filter(|(reason, note)| {
            reason == "WriteRejected" && note.contains("exceeded quota: two")
        });
        let mut names = rejected.filter_map(|(_, note)| {
            note.split("failed to create Pod ")
                .nth(1)?
                .split(':')
                .next()
        });
        names.any(|name| of_name(name.trim()))
    });
}

#[test]
fn a_pod_rejected_by_a_quota_is_reported_and_created_when_the_quota_is_gone() {
    let story = Story::begin("quota");
    let mut operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec(3), 3);
    let (clients, before) = (cluster.workload(), member_ids(&cluster));

    create_quota_of_two(&story);
    let victim = follower(&story, &cluster);
    story.kubectl(&["delete", "pod", &victim.name]);
    wait_rejection_event(&story, &cluster, |name| name == victim.name);
    // Objects that the quota does not affect are restored.
    let uid = story.field(&["pdb", "orders-etcd"], ".metadata.uid");
    story.kubectl(&["delete", "pdb", "orders-etcd"]);
    story.eventually("the budget is created again", || {
        let there = story
            .read("/apis/policy/v1", "poddisruptionbudgets/orders-etcd")
            .unwrap_or_default();
        there["metadata"]["uid"]
            .as_str()
            .is_some_and(|now| now != uid)
    });
    story.kubectl(&["delete", "quota", "two"]);
    wait_healthy(&story, &cluster, 3);
    assert_eq!(member_ids(&cluster), before, "the members differ");

    // The same for a new member, after the lost one is removed.
    create_quota_of_two(&story);
    let lost = follower(&story, &cluster);
    kill_after_intent_and_restart(&story, &mut operator, &cluster, "Remove", || {
        delete_pod_and_claim(&story, &lost.name)
    });
    wait_rejection_event(&story, &cluster, |name| !before.contains_key(name));
    story.kubectl(&["delete", "quota", "two"]);
    wait_healthy(&story, &cluster, 3);
    clients.finish();
    cluster.wait_same_data();
}

#[test]
fn a_cluster_serves_while_two_of_three_members_are_unschedulable() {
    let story = Story::begin("two-nowhere");
    let operator = Operator::start(&story);
    let apart = "version: 3.6.16\nmembers: 3\nstorage: {size: 1Gi}\nresources: {requests: {cpu: 10m, memory: 64Mi}}\n\
                 scheduling: {nodeSelector: {kubernetes.io/hostname: node-1}, spread: {require: true}}";
    let cluster = Cluster::apply(&story, "orders", apart);
    cluster.wait_ready(CLUSTER_LIMIT);
    cluster.etcdctl(&["put", "kept", "yes"]);
    let members = cluster.member_list().len();
    assert!(members <= 2, "more than one learner is pending: {members}");
    // Pods that do not run are recreated at once.
    cluster.patch(&json!({ "scheduling": { "nodeSelector": null } }));
    wait_healthy(&story, &cluster, 3);
    assert!(cluster.etcdctl(&["get", "kept"]).contains("yes"));
    wait_idle(&operator);
}
