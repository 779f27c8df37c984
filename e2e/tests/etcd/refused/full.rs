//! The stories of this topic that `make test-all` runs.

use super::*;

#[test]
fn edits_that_are_refused_say_what_to_do_and_leave_a_running_change_and_healing_as_they_were() {
    let story = Story::begin("refused");
    let mut operator = Operator::start(&story);
    let cluster = formed(&story, &spec(1), 1);
    let clients = cluster.workload();
    // In the middle of a change that was asked for before.
    dies_noting(&mut operator, &cluster, "Add", || {
        cluster.patch(&json!({"members": 3}))
    });
    let before = story.get(&["etcd/orders"]);
    edits_are_refused(&story);
    let after = story.get(&["etcd/orders"]);
    assert_eq!(after["spec"], before["spec"]);
    assert_eq!(
        after["metadata"]["generation"],
        before["metadata"]["generation"]
    );
    lives_again(&story, &mut operator);
    until_whole(&story, &cluster, 3);

    let victim = cluster.pods().remove(0);
    story.kubectl(&["delete", "pod", &victim.name]);
    until_whole(&story, &cluster, 3);
    assert_ne!(cluster.pod(&victim.name).uid, victim.uid);
    clients.finish();
    cluster.holds_the_same_everywhere();
}
