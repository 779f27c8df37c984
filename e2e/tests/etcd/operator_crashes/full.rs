//! The stories of this topic for `make test-all`.

mod frozen;

use super::*;

#[test]
fn three_ephemeral_members_form_and_recover_despite_operator_crashes() {
    crash_after_each_intent("killed-memory", "{ephemeral: true}", |story, name| {
        story.kubectl(&["delete", "pod", name, "--wait=false"]);
    });
}

#[test]
fn a_cluster_is_scaled_up_and_down_despite_operator_crashes() {
    let story = Story::begin("killed-edited");
    let mut operator = Operator::start(&story);
    let cluster = Cluster::apply(&story, "a", &spec(1));
    let cluster_id = wait_converged(&story, &cluster, 1);
    let workload = cluster.workload();
    let more = kill_after_each_intent(&story, &mut operator, &cluster, 3, || {
        cluster.patch(&json!({"members": 3}));
    });
    assert_eq!(kinds(&more), ["Add", "Promote", "Add", "Promote"]);
    assert_eq!(wait_converged(&story, &cluster, 3), cluster_id);
    let fewer = kill_after_each_intent(&story, &mut operator, &cluster, 1, || {
        cluster.patch(&json!({"members": 1}));
    });
    assert_eq!(kinds(&fewer), ["Remove", "Remove"]);
    assert_eq!(wait_converged(&story, &cluster, 1), cluster_id);
    workload.finish();
    wait_idle(&operator);
}
