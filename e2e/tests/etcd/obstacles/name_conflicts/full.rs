//! The stories of this topic for `make test-all`.

use super::*;

/// Returns an object as a user copies it, without owner and cluster label.
fn copy_of(mut object: Value) -> Value {
    let (kind, version) = (object["kind"].take(), object["apiVersion"].take());
    let mut copy = json!({"apiVersion": version, "kind": kind,
        "metadata": {"name": object["metadata"]["name"].take(), "labels": {"app": "foreign"}}});
    for field in ["spec", "data", "type"] {
        if !object[field].is_null() {
            copy[field] = object[field].take();
        }
    }
    copy
}

#[test]
fn foreign_objects_do_not_block_the_replacement_of_members() {
    let story = Story::begin("conflict-running");
    let mut operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec(3), 3);
    let clients = cluster.workload();

    // While no operator runs that would restore the cluster's own objects.
    operator.kill();
    let paths = ["pdb/orders-etcd", "secret/orders-etcd-client-tls"];
    let before = paths.map(|path| {
        let copy = copy_of(story.get(&[path]));
        story.kubectl(&["delete", path]);
        story.apply(&copy.to_string());
        operator_independent_parts(story.get(&[path]))
    });
    start_after_kill(&story, &mut operator);
    let lost = follower(&story, &cluster);
    kill_after_intent_and_restart(&story, &mut operator, &cluster, "Remove", || {
        delete_pod_and_claim(&story, &lost.name)
    });
    wait_replaced(&story, &cluster, 3, &lost);
    story.eventually("Degraded has the reason NameConflict", || {
        cluster.condition("Degraded").1 == "NameConflict"
    });
    story.eventually("an event has the reason NameConflict", || {
        events(&story, &cluster)
            .iter()
            .any(|(reason, _)| reason == "NameConflict")
    });
    for (path, before) in paths.into_iter().zip(before) {
        assert_eq!(
            operator_independent_parts(story.get(&[path])),
            before,
            "{path} was changed"
        );
        story.kubectl(&["delete", path]);
    }
    wait_healthy(&story, &cluster, 3);
    assert_eq!(
        story.field(&["pdb", "orders-etcd"], ".spec.minAvailable"),
        "2",
        "minAvailable is not restored"
    );
    wait_idle(&operator);
    clients.finish();
    cluster.wait_same_data();
}
