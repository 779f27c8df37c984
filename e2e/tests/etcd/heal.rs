//! All at once: every pod of a cluster goes, with its data or without; and the resource itself goes.

mod full;

use std::collections::BTreeSet;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;

use crate::look::{LONG, formed, ids, until_whole};
use crate::middle::{comes_to_rest, identity, names, spec};

#[test]
fn all_pods_deleted_at_once_come_back_as_the_members_they_were() {
    let story = Story::begin("all-gone");
    let operator = Operator::start(&story);
    let cluster = formed(&story, &spec(3), 3);
    let (before, workload) = (ids(&cluster), cluster.workload());
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
        // Until then they may still be called Ready.
        story.within(LONG, "all of them are gone", || {
            cluster.pods().iter().all(|pod| !old.contains(&pod.uid))
        });
        until_whole(&story, &cluster, 3);
        assert_eq!(ids(&cluster), before, "they are the same members");
    }
    comes_to_rest(&operator);
    workload.finish();
    cluster.holds_the_same_everywhere();
}

#[test]
fn when_all_data_is_gone_that_is_said_and_no_empty_cluster_is_made() {
    let story = Story::begin("lost");
    let operator = Operator::start(&story);
    let cluster = formed(
        &story,
        "version: 3.6.16\nmembers: 3\nstorage: {ephemeral: true}",
        3,
    );
    let before = identity(&story, "orders");
    // First they fall silent: while two of them answer, the replacement of one that is gone is begun, as it should be.
    for pod in cluster.pods() {
        story
            .lab()
            .pod(story.namespace(), &pod.name)
            .unwrap()
            .freeze(None, None)
            .unwrap();
    }
    story.within(LONG, "it has seen that nobody answers", || {
        cluster.condition("Degraded").1 == "QuorumLost"
    });
    let mine = [
        "--selector",
        "etcd.evenkeel.dev/cluster=orders",
        "--grace-period=0",
        "--force",
    ];
    story.command(&["delete", "pods"]).args(mine).run().unwrap();
    story.within(LONG, "it says that all data is gone", || {
        cluster.condition("Degraded") == ("True".to_owned(), "DataLost".to_owned())
    });
    let status = cluster.status();
    assert_eq!(
        status["summary"], "All pods and volumes are gone",
        "{status:#}"
    );
    assert!(
        status["waitingFor"]
            .to_string()
            .contains("delete the resource"),
        "it says how to go on: {status:#}"
    );
    assert_eq!(
        status["memberList"].as_array().map(Vec::len),
        Some(3),
        "{status:#}"
    );
    story.eventually("it is not Ready", || {
        cluster.condition("Ready").0 == "False"
    });
    comes_to_rest(&operator);
    assert_eq!(
        names(&story, "orders", "pods"),
        BTreeSet::new(),
        "no empty member is started"
    );
    assert_eq!(identity(&story, "orders"), before);

    // As it says.
    story.kubectl(&["delete", "etcd", "orders"]);
    story.kubectl(&[
        "delete",
        "configmap",
        "orders-etcd-identity",
        "--ignore-not-found",
    ]);
    let anew = Cluster::apply(
        &story,
        "orders",
        "version: 3.6.16\nmembers: 1\nstorage: {ephemeral: true}",
    );
    anew.wait_ready(LONG);
    until_whole(&story, &anew, 1);
}
