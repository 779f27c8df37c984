//! The stories of this topic for `make test-all`.

use super::*;

#[test]
fn an_ephemeral_member_whose_pod_is_deleted_is_replaced_under_a_new_name() {
    let story = Story::begin("missing-lost");
    let _operator = Operator::start(&story);
    let cluster = create_three(&story, "{ephemeral: true}");
    let mut names: BTreeSet<String> = member_ids(&cluster).into_keys().collect();
    let clients = cluster.workload();
    for fault in Fault::ALL {
        let victim = fault.victim(&story, &cluster);
        let before = member_ids(&cluster);
        let since = clients.now();
        fault.inject(&story, &cluster, &victim);
        wait_healthy(&story, &cluster, 3);
        assert_replaced(&cluster, &before, &victim, &mut names);
        assert_clients_continued(&format!("without volumes, {fault:?}"), &clients, since);
    }
    clients.finish();
    cluster.wait_same_data();
}
