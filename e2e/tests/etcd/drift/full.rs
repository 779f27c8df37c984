//! The stories of this topic for `make test-all`.

use super::*;

#[test]
fn a_member_removed_by_a_user_is_replaced_under_a_new_name() {
    let story = Story::begin("removed");
    let _operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec(3), 3);
    let workload = cluster.workload();
    let removed = cluster.member_list().into_iter().next_back().unwrap();
    // etcd rejects changes for five seconds after the last one.
    let id = format!("{:x}", removed.id);
    story.eventually("etcd removes the member", || {
        let error = cluster.try_etcdctl(&["member", "remove", &id]).err();
        // A removal that timed out was executed nevertheless.
        error.is_none_or(|output| output.contains("member not found"))
    });
    story.within(CLUSTER_LIMIT, "another member replaces it", || {
        let names: BTreeSet<_> = cluster.pods().into_iter().map(|pod| pod.name).collect();
        names.len() == 3 && !names.contains(&removed.name)
    });
    wait_healthy(&story, &cluster, 3);
    workload.finish();
    cluster.wait_same_data();
}

#[test]
fn a_wiped_status_is_restored() {
    let story = Story::begin("wiped");
    let operator = Operator::start(&story);
    let cluster = create_orders(&story, &spec(1), 1);
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
    wait_healthy(&story, &cluster, 1);
    let now = cluster.status();
    for field in ["clusterId", "leader", "memberList", "summary", "ready"] {
        assert_eq!(now[field], before[field], "{field}");
    }
    wait_idle(&operator);
}
