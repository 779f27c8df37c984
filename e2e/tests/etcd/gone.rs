//! What everything stands on goes: the namespace with the operator in it, the API server, and, of a cluster that is to be
//! deleted, the quorum.

mod alone;
mod full;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use evenkeel_e2e::etcd::{Cluster, members};
use evenkeel_e2e::operator::{ACCOUNT, Operator, built, grant, install, load_image};
use evenkeel_e2e::watched::told;
use evenkeel_e2e::{Story, checkout};

use crate::look::{LONG, are_well, follower, formed, ids, nodes, until_whole};
use crate::middle::{ends_well, lives_again, names, spec};
use crate::noted::{dies_noting, dies_once_noting, take_pod_and_claim};

const IMAGE: &str = "evenkeel-operator:0.1.0";

/// Deploys the operator into the story's own namespace, to look after that one only.
fn deploy_inside(story: &Story) {
    load_image(story, IMAGE, &built());
    install(story);
    grant(story);
    let manifest =
        std::fs::read_to_string(checkout().join("deploy/operator/operator.yaml")).unwrap();
    let (all, only) = ("value: \"\"", format!("value: {}", story.namespace()));
    assert!(
        manifest.contains(all),
        "where the namespaces are said has moved"
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
fn a_namespace_is_gone_within_a_minute_though_the_operator_is_in_it_and_a_change_was_under_way() {
    let story = Story::begin("namespace");
    deploy_inside(&story);
    let policies = [("kept", "Keep"), ("dropped", "Delete")];
    let clusters = policies.map(|(name, policy)| {
        let spec =
            format!("version: 3.6.16\nmembers: 1\nstorage: {{size: 1Gi, onDelete: {policy}}}");
        Cluster::apply(&story, name, &spec)
    });
    for cluster in &clusters {
        cluster.wait_ready(LONG);
        until_whole(&story, cluster, 1);
        // In the middle of it.
        story.kubectl(&["scale", "etcd", cluster.name(), "--replicas=3"]);
    }
    let [kept, _] = &clusters;
    story.within(LONG, "somebody joins", || {
        let listed = kept.try_etcdctl(&["member", "list", "--write-out=json"]);
        listed.is_ok_and(|printed| members(&printed).len() > 1)
    });
    let began = Instant::now();
    story.kubectl(&["delete", "namespace", story.namespace(), "--wait=false"]);
    story.within(Duration::from_secs(60), "the namespace is gone", || {
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
