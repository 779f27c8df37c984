//! Somebody meddles: what belongs to a cluster is deleted or edited behind the operator's back, while clients work.

use std::collections::BTreeSet;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use serde_json::{Value, json};

use crate::look::{LONG, events, follower, formed, until_whole};
use crate::middle::{comes_to_rest, identity, spec};

/// The uids of a cluster's pods: the same ones mean that nothing was restarted.
fn pods(cluster: &Cluster<'_>) -> BTreeSet<String> {
    cluster.pods().into_iter().map(|pod| pod.uid).collect()
}

fn has_event(story: &Story, cluster: &Cluster<'_>, reason: &str) -> bool {
    events(story, cluster)
        .iter()
        .any(|(told, _)| told == reason)
}

#[test]
fn what_is_deleted_or_edited_is_as_it_was_again_and_no_member_notices() {
    let story = Story::begin("meddled");
    let operator = Operator::start(&story);
    let cluster = formed(&story, &spec(3), 3);
    let (before, was) = (pods(&cluster), identity(&story, "orders"));
    let workload = cluster.workload();

    story.kubectl(&["delete", "configmap", "orders-etcd-identity"]);
    story.eventually("the identity is rebuilt", || {
        story
            .try_kubectl(&["get", "configmap", "orders-etcd-identity"])
            .is_ok()
    });
    let now = identity(&story, "orders");
    for field in ["lineage", "epoch", "cluster", "resource", "sealed"] {
        assert_eq!(now[field], was[field], "{field} of {now}");
    }
    assert!(
        now["next"].as_u64() >= was["next"].as_u64(),
        "no name is used again: {now}"
    );
    story.eventually("that is told", || {
        has_event(&story, &cluster, "IdentityRebuilt")
    });

    // One that somebody kept from before clients were let in has nothing deleted.
    let mut kept = now.clone();
    (kept["sealed"], kept["next"]) = (json!(false), json!(3));
    let older = json!({ "data": { "identity": kept.to_string() } }).to_string();
    story.kubectl(&[
        "patch",
        "configmap",
        "orders-etcd-identity",
        "--type=merge",
        "-p",
        &older,
    ]);
    story.eventually("it is brought up to date", || {
        identity(&story, "orders")["sealed"] == true
    });
    assert_eq!(identity(&story, "orders")["epoch"], was["epoch"]);

    let selector = || story.get(&["service", "orders-etcd-client"])["spec"]["selector"].clone();
    let selected = selector();
    story.kubectl(&[
        "patch",
        "service",
        "orders-etcd-client",
        "--type=merge",
        "-p",
        r#"{"spec":{"selector":{"evenkeel.dev/role":"nobody"}}}"#,
    ]);
    story.eventually("clients are led to the members again", || {
        selector() == selected
    });
    for object in [
        "poddisruptionbudget/orders",
        "service/orders-etcd-peer",
        "secret/orders-etcd-client-tls",
    ] {
        let uid = story.field(&[object], ".metadata.uid");
        story.kubectl(&["delete", object]);
        // Secrets are not watched: they are looked at when anything else changes.
        if object.starts_with("secret") {
            story.kubectl(&[
                "label",
                "service",
                "orders-etcd-client",
                "touched=by-a-story",
            ]);
        }
        story.eventually(&format!("{object} is there again"), || {
            story.try_kubectl(&["get", object]).is_ok()
                && story.field(&[object], ".metadata.uid") != uid
        });
    }

    let victim = follower(&story, &cluster).name;
    story.kubectl(&["label", "pod", &victim, "etcd.evenkeel.dev/cluster-"]);
    story.eventually("it has the label by which it is found again", || {
        story.field(&["pod", &victim], ".metadata.labels.evenkeel\\.dev/cluster") == "orders"
    });

    // An authority cannot be made again without parting those who run from those who start.
    let authority = "secret/orders-etcd-peer-ca";
    let kept = without_its_place(story.get(&[authority]));
    story.kubectl(&["delete", authority]);
    story.kubectl(&[
        "label",
        "service",
        "orders-etcd-client",
        "touched=again-by-a-story",
        "--overwrite",
    ]);
    story.eventually("its loss is told", || {
        cluster.condition("Degraded").1 == "AuthorityLost"
    });
    assert!(
        story.try_kubectl(&["get", authority]).is_err(),
        "no other is made"
    );
    story.apply(&kept.to_string());
    until_whole(&story, &cluster, 3);
    assert_eq!(pods(&cluster), before, "no member was restarted");
    comes_to_rest(&operator);
    workload.finish();
}

/// An object as somebody keeps it who wants to put it back.
pub(crate) fn without_its_place(mut object: Value) -> Value {
    for field in [
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "managedFields",
    ] {
        object["metadata"].as_object_mut().unwrap().remove(field);
    }
    object
}

#[test]
fn a_member_removed_behind_our_back_is_replaced_under_a_new_name() {
    let story = Story::begin("removed");
    let _operator = Operator::start(&story);
    let cluster = formed(&story, &spec(3), 3);
    let workload = cluster.workload();
    let removed = cluster.member_list().into_iter().next_back().unwrap();
    // etcd refuses for five seconds after the last change.
    let id = format!("{:x}", removed.id);
    story.eventually("etcd removes it", || {
        let refused = cluster.try_etcdctl(&["member", "remove", &id]).err();
        // One that was answered too late is done nevertheless.
        refused.is_none_or(|said| said.contains("member not found"))
    });
    story.within(LONG, "somebody else is in its place", || {
        let names: BTreeSet<_> = cluster.pods().into_iter().map(|pod| pod.name).collect();
        names.len() == 3 && !names.contains(&removed.name)
    });
    until_whole(&story, &cluster, 3);
    workload.finish();
    cluster.holds_the_same_everywhere();
}

#[test]
fn a_status_that_was_wiped_is_told_again() {
    let story = Story::begin("wiped");
    let operator = Operator::start(&story);
    let cluster = formed(&story, &spec(1), 1);
    let before = cluster.status();
    let wiped = json!([{"op": "replace", "path": "/status", "value": {}}]).to_string();
    story.kubectl(&[
        "patch",
        "etcd",
        "orders",
        "--subresource=status",
        "--type=json",
        "-p",
        &wiped,
    ]);
    until_whole(&story, &cluster, 1);
    let now = cluster.status();
    for field in ["clusterId", "leader", "memberList", "phrase", "ready"] {
        assert_eq!(now[field], before[field], "{field}");
    }
    comes_to_rest(&operator);
}
