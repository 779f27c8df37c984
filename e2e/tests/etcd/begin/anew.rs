//! A resource that is deleted and created again. Before the seal nobody can have written, and the bootstrap begins again;
//! after it the cluster lives on under the new resource, with its data.

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use serde_json::json;

use super::{has_begun_again, serve_clients};
use crate::look::LONG;
use crate::middle::{Stops, comes_to_rest, ends_well, identity, intent_in, names};

const KEPT: &str = "version: 3.6.16\nmembers: 3\nstorage: {size: 1Gi}";
const DELETED: &str = "version: 3.6.16\nmembers: 3\nstorage: {size: 1Gi, onDelete: Delete}";

#[test]
fn a_resource_created_again_before_the_seal_begins_again_whatever_was_left_of_the_first() {
    let story = Story::begin("anew-early");
    let operator = Operator::start(&story);
    // All three are members by then, and the first vote is about to be given.
    let stops = Stops::before(operator.proxy(), |write| {
        let first_vote = |cluster: &&str| {
            intent_in(write, cluster)
                .is_some_and(|intent| intent.kind == "Promote" && intent.voters == 1)
        };
        ["plain", "orphaned", "owned"]
            .into_iter()
            .find(first_vote)
            .map(str::to_owned)
    });
    let all = [
        ("plain", KEPT, "background"),
        ("orphaned", KEPT, "orphan"),
        ("owned", DELETED, "background"),
    ];
    let clusters = all.map(|(name, spec, _)| Cluster::apply(&story, name, spec));
    let mut before = Vec::new();
    for _ in &all {
        let (name, stopped) = stops.next();
        let (_, spec, cascade) = all.into_iter().find(|one| one.0 == name).unwrap();
        before.push((
            name.clone(),
            identity(&story, &name),
            names(&story, &name, "pods"),
        ));
        story.kubectl(&["delete", "etcd", &name, &format!("--cascade={cascade}")]);
        Cluster::apply(&story, &name, spec);
        stops.let_go(&name);
        stopped.go_on();
    }
    let known = |name: &str| before.iter().find(|one| one.0 == name).unwrap();
    for cluster in clusters.iter().filter(|cluster| cluster.name() != "owned") {
        has_begun_again(&story, cluster, 3, &known(cluster.name()).2);
    }
    // All of it was to go with the resource, and what is there now is quite another.
    let owned = &clusters[2];
    ends_well(&story, owned, 3);
    let (was, is) = (&known("owned").1, identity(&story, "owned"));
    assert!(
        is["lineage"] != was["lineage"] && is["epoch"] == 1,
        "{is}, and was {was}"
    );
    assert!(names(&story, "owned", "pods").is_disjoint(&known("owned").2));
    comes_to_rest(&operator);
    serve_clients(&clusters);
}

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

#[test]
fn a_resource_that_takes_its_volumes_along_begins_anew_when_they_are_gone_and_is_not_ready_before()
{
    let story = Story::begin("anew-owned");
    let operator = Operator::start(&story);
    let all = [
        ("volumes", DELETED),
        (
            "pods",
            "version: 3.6.16\nmembers: 3\nstorage: {ephemeral: true}",
        ),
    ];
    let clusters = all.map(|(name, spec)| Cluster::apply(&story, name, spec));
    for (cluster, (name, spec)) in clusters.iter().zip(all) {
        let formed = ends_well(&story, cluster, 3);
        cluster.etcdctl(&["put", "greeting", "hello"]);
        story.kubectl(&["delete", "etcd", name]);
        Cluster::apply(&story, name, spec);
        // Whoever waits for Ready must not be led to what is about to go.
        story.within(LONG, "another cluster is ready", || {
            let (id, ready) = (
                cluster.status()["clusterId"].clone(),
                cluster.condition("Ready").0,
            );
            assert!(
                ready != "True" || id != format!("{formed:x}"),
                "{:#}",
                cluster.status()
            );
            ready == "True"
        });
        assert_ne!(ends_well(&story, cluster, 3), formed);
        assert_eq!(
            cluster
                .etcdctl(&["get", "greeting", "--print-value-only"])
                .trim(),
            ""
        );
    }
    comes_to_rest(&operator);
    serve_clients(&clusters);
}
