//! A resource that is deleted and created again. Before the seal nobody can have written, and the bootstrap begins again;
//! after it the cluster lives on under the new resource, with its data.

mod full;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use serde_json::json;

use super::{has_begun_again, serve_clients};
use crate::look::LONG;
use crate::middle::{Stops, comes_to_rest, ends_well, identity, intent_in, names};

const KEPT: &str = "version: 3.6.16\nmembers: 3\nstorage: {size: 1Gi}";

#[test]
fn a_resource_created_again_after_the_seal_takes_up_the_cluster_with_its_data() {
    let story = Story::begin("anew-late");
    let operator = Operator::start(&story);
    let cluster = Cluster::apply(&story, "a", KEPT);
    let formed = ends_well(&story, &cluster, 3);
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
            ends_well(&story, &cluster, 3),
            formed,
            "it is another cluster"
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
            assert_eq!(owner, uid, "{} is not the new resource's", pod.name);
        }
    };

    // Its objects are let go, not deleted: clients notice nothing.
    let workload = cluster.workload();
    story.kubectl(&["delete", "etcd", "a", "--cascade=orphan"]);
    Cluster::apply(&story, "a", KEPT);
    is_adopted();
    comes_to_rest(&operator);
    assert_eq!(uids(&cluster), pods, "no pod was touched");
    workload.finish();

    // Nothing is kept but claims and identity.
    story.kubectl(&["delete", "etcd", "a"]);
    story.eventually("its pods are gone", || cluster.pods().is_empty());
    assert_eq!(names(&story, "a", "pvc"), members, "its volumes are kept");
    Cluster::apply(&story, "a", KEPT);
    is_adopted();
    comes_to_rest(&operator);
    serve_clients(&[cluster]);
}
