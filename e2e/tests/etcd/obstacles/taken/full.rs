//! The stories of this topic that `make test-all` runs.

use super::*;

/// An object as somebody has it who put a copy back, without what tells whose it is.
fn copied(mut object: Value) -> Value {
    let (kind, version) = (object["kind"].take(), object["apiVersion"].take());
    let mut copy = json!({"apiVersion": version, "kind": kind,
        "metadata": {"name": object["metadata"]["name"].take(), "labels": {"app": "somebody-elses"}}});
    for field in ["spec", "data", "type"] {
        if !object[field].is_null() {
            copy[field] = object[field].take();
        }
    }
    copy
}

#[test]
fn objects_in_the_way_of_a_running_cluster_are_told_and_left_alone_and_members_are_replaced_meanwhile()
 {
    let story = Story::begin("taken-running");
    let mut operator = Operator::start(&story);
    let cluster = formed(&story, &spec(3), 3);
    let clients = cluster.workload();

    // While nobody is there to put the cluster's own back at once.
    operator.kill();
    let paths = ["pdb/orders-etcd", "secret/orders-etcd-client-tls"];
    let before = paths.map(|path| {
        let copy = copied(story.get(&[path]));
        story.kubectl(&["delete", path]);
        story.apply(&copy.to_string());
        substance(story.get(&[path]))
    });
    lives_again(&story, &mut operator);
    let lost = follower(&story, &cluster);
    dies_once_noting(&story, &mut operator, &cluster, "Remove", || {
        take_pod_and_claim(&story, &lost.name)
    });
    until_replaced(&story, &cluster, 3, &lost);
    story.eventually("it is told", || {
        cluster.condition("Degraded").1 == "NameConflict"
    });
    story.eventually("also as an event", || {
        events(&story, &cluster)
            .iter()
            .any(|(reason, _)| reason == "NameConflict")
    });
    for (path, before) in paths.into_iter().zip(before) {
        assert_eq!(
            substance(story.get(&[path])),
            before,
            "{path} is somebody else's"
        );
        story.kubectl(&["delete", path]);
    }
    until_whole(&story, &cluster, 3);
    assert_eq!(
        story.field(&["pdb", "orders-etcd"], ".spec.minAvailable"),
        "2",
        "guarded again"
    );
    comes_to_rest(&operator);
    clients.finish();
    cluster.holds_the_same_everywhere();
}
