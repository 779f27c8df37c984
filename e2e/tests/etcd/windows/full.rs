//! The stories of this topic for `make test-all`.

use super::*;

#[test]
fn ephemeral_members_are_replaced_in_a_window_and_lost_ones_at_any_time() {
    let story = Story::begin("windows-memory");
    let operator = Operator::start(&story);
    let cluster = create_orders(
        &story,
        &spec("3.6.16", 3).replace("{size: 1Gi}", "{ephemeral: true}"),
        3,
    );
    let (workload, members) = (cluster.workload(), member_ids(&cluster));
    assert_waits_and_recovers(&story, &cluster);
    let stayed = member_ids(&cluster)
        .into_keys()
        .filter(|name| members.contains_key(name))
        .count();
    assert_eq!(stayed, 2, "not only the lost member was replaced");

    cluster.patch(&open());
    wait_all_have_memory(&story, "96Mi", 3);
    wait_converged(&story, &cluster, 3);
    assert!(
        member_ids(&cluster)
            .keys()
            .all(|name| !members.contains_key(name)),
        "a member was not replaced"
    );
    wait_idle(&operator);
    workload.finish();
    cluster.wait_same_data();
}
