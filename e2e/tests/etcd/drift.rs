//! Drift: a user deletes or edits objects of a cluster while clients work.

mod full;

use std::collections::BTreeSet;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use serde_json::{Value, json};

use crate::assertions::{CLUSTER_LIMIT, create_orders, events, follower, wait_healthy};
use crate::interrupts::{identity, spec, wait_idle};

/// Returns the uids of a cluster's pods: the same uids mean that no pod was replaced.
fn pods(cluster: &Cluster<'_>) -> BTreeSet<String> {
    cluster.pods().into_iter().map(|pod| pod.uid).collect()
}

fn has_event(story: &Story, cluster: &Cluster<'_>, reason: &str) -> bool {
    events(story, cluster)
        .iter()
        .any(|(event_reason, _)| event_reason == reason)
}

#[test]
fn deleted_or_edited_objects_are_restored_without_a_restart() {
    let story = Story::begin("meddled");
    let operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec(3), 3);
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
        "a serial could be used again: {now}"
    );
    story.eventually("the event IdentityRebuilt exists", || {
        has_event(&story, &cluster, "IdentityRebuilt")
    });

    // An old copy from before the bootstrap finished causes no deletion.
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
    story.eventually("the identity is corrected", || {
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
        r#"{"spec":{"selector":{"evenkeel.dev/role":"none"}}}"#,
    ]);
    story.eventually("the Service selects the members again", || {
        selector() == selected
    });
    for object in [
        "poddisruptionbudget/orders-etcd",
        "service/orders-etcd-peer",
        "secret/orders-etcd-client-tls",
    ] {
        let uid = story.field(&[object], ".metadata.uid");
        story.kubectl(&["delete", object]);
        // Secrets are not watched: they are read at the next reconcile.
        if object.starts_with("secret") {
            story.kubectl(&[
                "label",
                "service",
                "orders-etcd-client",
                "touched=by-a-story",
            ]);
        }
        story.eventually(&format!("{object} is created again"), || {
            story.try_kubectl(&["get", object]).is_ok()
                && story.field(&[object], ".metadata.uid") != uid
        });
    }

    let victim = follower(&story, &cluster).name;
    story.kubectl(&["label", "pod", &victim, "etcd.evenkeel.dev/cluster-"]);
    story.eventually("the label is restored", || {
        story.field(
            &["pod", &victim],
            ".metadata.labels.etcd\\.evenkeel\\.dev/cluster",
        ) == "orders"
    });

    // A new CA would separate running members from those that start later.
    let ca_secret = "secret/orders-etcd-peer-ca";
    let kept = without_server_fields(story.get(&[ca_secret]));
    story.kubectl(&["delete", ca_secret]);
    story.kubectl(&[
        "label",
        "service",
        "orders-etcd-client",
        "touched=again-by-a-story",
        "--overwrite",
    ]);
    story.eventually("Degraded has the reason CAMissing", || {
        cluster.condition("Degraded").1 == "CAMissing"
    });
    assert!(
        story.try_kubectl(&["get", ca_secret]).is_err(),
        "another CA was created"
    );
    story.apply(&kept.to_string());
    wait_healthy(&story, &cluster, 3);
    assert_eq!(pods(&cluster), before, "a member was restarted");
    wait_idle(&operator);
    workload.finish();
}

/// Returns an object as a user saves it to apply it later.
pub(crate) fn without_server_fields(mut object: Value) -> Value {
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
