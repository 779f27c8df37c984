//! The stories of this topic for `make test-all`.

use super::*;

#[test]
fn rejected_edits_name_a_remedy_and_do_not_affect_a_running_change() {
    let story = Story::begin("rejected");
    let mut operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec(1), 1);
    let clients = cluster.workload();
    // During a change that began before.
    kill_after_intent(&mut operator, &cluster, "Add", || {
        cluster.patch(&json!({"members": 3}))
    });
    let before = story.get(&["etcd/orders"]);
    assert_edits_rejected(&story);
    let after = story.get(&["etcd/orders"]);
    assert_eq!(after["spec"], before["spec"]);
    assert_eq!(
        after["metadata"]["generation"],
        before["metadata"]["generation"]
    );
    start_after_kill(&story, &mut operator);
    wait_healthy(&story, &cluster, 3);

    let victim = cluster.pods().remove(0);
    story.kubectl(&["delete", "pod", &victim.name]);
    wait_healthy(&story, &cluster, 3);
    assert_ne!(cluster.pod(&victim.name).uid, victim.uid);
    clients.finish();
    cluster.wait_same_data();
}
