//! The stories of this topic that `make test-all` runs.

mod frozen;

use super::*;

#[test]
fn three_in_memory_are_bootstrapped_and_one_replaced_though_the_operator_dies_after_each_intent() {
    of_storage("killed-memory", "{ephemeral: true}", |story, name| {
        story.kubectl(&["delete", "pod", name, "--wait=false"]);
    });
}

#[test]
fn one_becomes_three_and_one_again_though_the_operator_dies_after_each_intent() {
    let story = Story::begin("killed-edited");
    let mut operator = Operator::start(&story);
    let cluster = Cluster::apply(&story, "a", &spec(1));
    let formed = ends_well(&story, &cluster, 1);
    let workload = cluster.workload();
    let more = killed_after_each_intent(&story, &mut operator, &cluster, 3, || {
        cluster.patch(&json!({"members": 3}));
    });
    assert_eq!(kinds(&more), ["Add", "Promote", "Add", "Promote"]);
    assert_eq!(ends_well(&story, &cluster, 3), formed);
    let fewer = killed_after_each_intent(&story, &mut operator, &cluster, 1, || {
        cluster.patch(&json!({"members": 1}));
    });
    assert_eq!(kinds(&fewer), ["Remove", "Remove"]);
    assert_eq!(ends_well(&story, &cluster, 1), formed);
    workload.finish();
    comes_to_rest(&operator);
}
