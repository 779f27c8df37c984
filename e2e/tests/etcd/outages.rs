//! The loss of what clusters depend on: the namespace together with the operator, the API server, and the quorum of a cluster that is
//! to be deleted.

mod alone;
mod full;

use std::collections::BTreeMap;
use std::time::Instant;

use evenkeel_e2e::etcd::{Cluster, members};
use evenkeel_e2e::operator::{ACCOUNT, Operator, grant, install, load_operator_image};
use evenkeel_e2e::workload::format_stats;
use evenkeel_e2e::{Story, checkout};

use crate::assertions::{
    CLUSTER_LIMIT, are_ready, create_orders, follower, member_ids, nodes, wait_healthy,
};
use crate::intents::{delete_pod_and_claim, kill_after_intent, kill_after_intent_and_restart};
use crate::interrupts::{names, spec, start_after_kill, wait_converged};

const IMAGE: &str = "evenkeel-operator:0.1.0";

/// Deploys the operator into the story's namespace, for this namespace only.
fn deploy_operator(story: &Story) {
    load_operator_image(story, IMAGE);
    install(story);
    grant(story);
    let manifest =
        std::fs::read_to_string(checkout().join("deploy/operator/operator.yaml")).unwrap();
    let (all, only) = ("value: \"\"", format!("value: {}", story.namespace()));
    assert!(
        manifest.contains(all),
        "the manifest has no empty value for the namespaces"
    );
    let manifest = manifest
        .replace(
            "namespace: evenkeel-system",
            &format!("namespace: {}", story.namespace()),
        )
        .replace(
            "serviceAccountName: evenkeel-operator",
            &format!("serviceAccountName: {ACCOUNT}"),
        )
        .replace(all, &only);
    story.apply(&manifest);
    story.kubectl(&[
        "rollout",
        "status",
        "deployment/evenkeel-operator",
        "--timeout=180s",
    ]);
}

#[test]
fn a_namespace_with_clusters_and_the_operator_is_deleted() {
    let story = Story::begin("namespace");
    deploy_operator(&story);
    let policies = [("kept", "Keep"), ("dropped", "Delete")];
    let clusters = policies.map(|(name, policy)| {
        let spec =
            format!("version: 3.6.16\nmembers: 1\nstorage: {{size: 1Gi, onDelete: {policy}}}");
        Cluster::apply(&story, name, &spec)
    });
    for cluster in &clusters {
        cluster.wait_ready(CLUSTER_LIMIT);
        wait_healthy(&story, cluster, 1);
        // Deleted during a change.
        story.kubectl(&["scale", "etcd", cluster.name(), "--replicas=3"]);
    }
    let [kept, _] = &clusters;
    story.within(CLUSTER_LIMIT, "a second member is listed", || {
        let listed = kept.try_etcdctl(&["member", "list", "--write-out=json"]);
        listed.is_ok_and(|printed| members(&printed).len() > 1)
    });
    let began = Instant::now();
    story.kubectl(&["delete", "namespace", story.namespace(), "--wait=false"]);
    story.within(CLUSTER_LIMIT, "the namespace is gone", || {
        story
            .field(
                &["namespace", story.namespace(), "--ignore-not-found"],
                ".metadata.name",
            )
            .is_empty()
    });
    println!(
        "the namespace was gone after {:.0} s",
        began.elapsed().as_secs_f64()
    );
}
