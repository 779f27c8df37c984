//! A resource that is deleted and created again. If its bootstrap is not finished, no client can have written, and all objects are
//! deleted with the resource; if it is finished, the new resource adopts the cluster with its data.

mod full;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use serde_json::json;

use super::{assert_new_epoch, run_clients};
use crate::assertions::CLUSTER_LIMIT;
use crate::interrupts::{HeldWrites, identity, intent_written, names, wait_converged, wait_idle};

const KEEP_SPEC: &str = "version: 3.6.16\nmembers: 3\nstorage: {size: 1Gi}";

#[test]
fn a_resource_recreated_after_bootstrap_adopts_the_cluster_with_its_data() {
    let story = Story::begin("recreated-late");
    let operator = Operator::start(&story);
    let cluster = Cluster::apply(&story, "a", KEEP_SPEC);
    let cluster_id = wait_converged(&story, &cluster, 3);
    let uids = |cluster: &Cluster<'_>| {
        cluster
            .pods()
            .into_iter()
            .map(|pod| pod.uid)
            .collect::<Vec<_>>()
    };
    let (members, pods) = (names(&story, "a", "pods"), uids(&cluster));
    cluster.etcdctl(&["put", "greeting", "hello"]);
    let is_adopted = || {
        assert_eq!(
            wait_converged(&story, &cluster, 3),
            cluster_id,
            "the cluster ID differs"
        );
        assert_eq!(
            (&identity(&story, "a")["epoch"], names(&story, "a", "pods")),
            (&json!(1), members.clone())
        );
        assert_eq!(
            cluster
                .etcdctl(&["get", "greeting", "--print-value-only"])
                .trim(),
            "hello"
        );
        let uid = story.field(&["etcd", "a"], ".metadata.uid");
        for pod in cluster.pods() {
            let owner = story.field(
                &["pod", &pod.name],
                ".metadata.ownerReferences[?(@.controller)].uid",
            );
            assert_eq!(owner, uid, "{} is not owned by the new resource", pod.name);
        }
    };

    // The objects are orphaned, not deleted: clients are not disturbed.
    let workload = cluster.workload();
    story.kubectl(&["delete", "etcd", "a", "--cascade=orphan"]);
    Cluster::apply(&story, "a", KEEP_SPEC);
    is_adopted();
    wait_idle(&operator);
    assert_eq!(uids(&cluster), pods, "a pod was replaced");
    workload.finish();

    // Only PVCs and the identity are kept.
    story.kubectl(&["delete", "etcd", "a"]);
    story.eventually("the pods are gone", || cluster.pods().is_empty());
    assert_eq!(names(&story, "a", "pvc"), members, "the PVCs differ");
    Cluster::apply(&story, "a", KEEP_SPEC);
    is_adopted();
    wait_idle(&operator);
    run_clients(&[cluster]);
}
