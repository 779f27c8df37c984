//! The stories of this topic that `make test-all` runs.

use super::*;

#[test]
fn a_member_removed_behind_our_back_is_replaced_under_a_new_name() {
    let story = Story::begin("removed");
    let _operator = Operator::start(&story);
    let cluster = formed(&story, &spec(3), 3);
    let workload = cluster.workload();
    let removed = cluster.member_list().into_iter().next_back().unwrap();
    // etcd refuses for five seconds after the last change.
    let id = format!("{:x}", removed.id);
    story.eventually("etcd removes it", || {
        let refused = cluster.try_etcdctl(&["member", "remove", &id]).err();
        // One that was answered too late is done nevertheless.
        refused.is_none_or(|said| said.contains("member not found"))
    });
    story.within(LONG, "somebody else is in its place", || {
        let names: BTreeSet<_> = cluster.pods().into_iter().map(|pod| pod.name).collect();
        names.len() == 3 && !names.contains(&removed.name)
    });
    until_whole(&story, &cluster, 3);
    workload.finish();
    cluster.holds_the_same_everywhere();
}

#[test]
fn a_status_that_was_wiped_is_told_again() {
    let story = Story::begin("wiped");
    let operator = Operator::start(&story);
    let cluster = formed(&story, &spec(1), 1);
    let before = cluster.status();
    let wiped = json!([{"op": "replace", "path": "/status", "value": {}}]).to_string();
    story.kubectl(&[
        "patch",
        "etcd",
        "orders",
        "--subresource=status",
        "--type=json",
        "-p",
        &wiped,
    ]);
    until_whole(&story, &cluster, 1);
    let now = cluster.status();
    for field in ["clusterId", "leader", "memberList", "summary", "ready"] {
        assert_eq!(now[field], before[field], "{field}");
    }
    comes_to_rest(&operator);
}
