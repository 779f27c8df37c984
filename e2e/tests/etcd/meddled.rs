//! Somebody meddles: what belongs to a cluster is deleted or edited behind the operator's back, while clients work.

mod full;

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
    for field in [
        "lineage",
        "epoch",
        "cluster_id",
        "resource_uid",
        "bootstrapped",
    ] {
        assert_eq!(now[field], was[field], "{field} of {now}");
    }
    assert!(
        now["next_serial"].as_u64() >= was["next_serial"].as_u64(),
        "no name is used again: {now}"
    );
    story.eventually("that is told", || {
        has_event(&story, &cluster, "IdentityRebuilt")
    });

    // One that somebody kept from before clients were let in has nothing deleted.
    let mut kept = now.clone();
    (kept["bootstrapped"], kept["next_serial"]) = (json!(false), json!(3));
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
        identity(&story, "orders")["bootstrapped"] == true
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
        "poddisruptionbudget/orders-etcd",
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
        story.field(
            &["pod", &victim],
            ".metadata.labels.etcd\\.evenkeel\\.dev/cluster",
        ) == "orders"
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
        cluster.condition("Degraded").1 == "CAMissing"
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
