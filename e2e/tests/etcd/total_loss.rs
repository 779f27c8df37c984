//! The loss of everything at once: all pods of a cluster, with their data or without, and the resource itself.

mod full;

use std::collections::BTreeSet;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;

use crate::assertions::{CLUSTER_LIMIT, create_orders, member_ids, wait_healthy};
use crate::interrupts::{identity, names, spec, wait_idle};

#[test]
fn all_pods_deleted_at_once_come_back_as_the_same_members() {
    let story = Story::begin("all-gone");
    let operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec(3), 3);
    let (before, workload) = (member_ids(&cluster), cluster.workload());
    let by_force = ["--grace-period=0", "--force", "--wait=false"];
    for how in [&["--wait=false"][..], &by_force] {
        let old: BTreeSet<_> = cluster.pods().into_iter().map(|pod| pod.uid).collect();
        let command = story.command(&[
            "delete",
            "pods",
            "--selector",
            "etcd.evenkeel.dev/cluster=orders",
        ]);
        command.args(how.iter().copied()).run().unwrap();
        // Until then the old pods may still be Ready.
        story.within(CLUSTER_LIMIT, "all old pods are gone", || {
            cluster.pods().iter().all(|pod| !old.contains(&pod.uid))
        });
        wait_healthy(&story, &cluster, 3);
        assert_eq!(member_ids(&cluster), before, "the members differ");
    }
    wait_idle(&operator);
    workload.finish();
    cluster.wait_same_data();
}

#[test]
fn the_loss_of_all_data_is_reported_and_no_empty_cluster_is_created() {
    let story = Story::begin("lost");
    let operator = Operator::start(&story);
    let cluster = create_orders(
        &story,
        "version: 3.6.16\nmembers: 3\nstorage: {ephemeral: true}",
        3,
    );
    let before = identity(&story, "orders");
    // First they are frozen: while two of them answer, the operator begins to replace the third.
    for pod in cluster.pods() {
        story
            .lab()
            .pod(story.namespace(), &pod.name)
            .unwrap()
            .freeze(None, None)
            .unwrap();
    }
    story.within(CLUSTER_LIMIT, "Degraded has the reason QuorumLost", || {
        cluster.condition("Degraded").1 == "QuorumLost"
    });
    let mine = [
        "--selector",
        "etcd.evenkeel.dev/cluster=orders",
        "--grace-period=0",
        "--force",
    ];
    story.command(&["delete", "pods"]).args(mine).run().unwrap();
    story.within(CLUSTER_LIMIT, "Degraded has the reason DataLost", || {
        cluster.condition("Degraded") == ("True".to_owned(), "DataLost".to_owned())
    });
    let status = cluster.status();
    assert_eq!(
        status["summary"], "All pods and PersistentVolumeClaims are gone",
        "{status:#}"
    );
    assert!(
        cluster
            .condition_message("Degraded")
            .contains("delete the EtcdCluster"),
        "the status has no remedy: {status:#}"
    );
    assert_eq!(
        status["memberList"].as_array().map(Vec::len),
        Some(3),
        "{status:#}"
    );
    story.eventually("Ready is False", || cluster.condition("Ready").0 == "False");
    wait_idle(&operator);
    assert_eq!(
        names(&story, "orders", "pods"),
        BTreeSet::new(),
        "a member was started without data"
    );
    assert_eq!(identity(&story, "orders"), before);

    // The remedy of the status.
    story.kubectl(&["delete", "etcd", "orders"]);
    story.kubectl(&[
        "delete",
        "configmap",
        "orders-etcd-identity",
        "--ignore-not-found",
    ]);
    let recreated = Cluster::apply(
        &story,
        "orders",
        "version: 3.6.16\nmembers: 1\nstorage: {ephemeral: true}",
    );
    recreated.wait_ready(CLUSTER_LIMIT);
    wait_healthy(&story, &recreated, 1);
}
