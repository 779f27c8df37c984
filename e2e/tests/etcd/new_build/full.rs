//! The stories of this topic for `make test-all`.

use super::*;

#[test]
fn a_new_build_finishes_a_rollout_and_restarts_no_member_twice() {
    let story = Story::begin("new-build-roll");
    let mut old = Operator::start(&story);
    let cluster = create_orders(&story, &spec("3.6.16", 3), 3);
    let (workload, members, volumes) = (cluster.workload(), member_ids(&cluster), claims(&cluster));
    wait_idle(&old);
    let began = Instant::now();
    cluster.patch(&memory_request("96Mi"));
    story.within(CLUSTER_LIMIT, "the first member has been restarted", || {
        count_with_memory(&story, "96Mi") > 0
    });
    let next = replaced(&story, &mut old, "next");
    assert!(
        count_with_memory(&story, "96Mi") < 3,
        "the rollout ended before the upgrade"
    );
    wait_all_have_memory(&story, "96Mi", 3);
    wait_converged(&story, &cluster, 3);
    wait_idle(&next);
    let mut writes = old.proxy().writes_since(began);
    writes.extend(next.proxy().writes());
    assert_each_restarted_once(&writes, 3);
    assert_eq!(member_ids(&cluster), members, "the members differ");
    assert_eq!(claims(&cluster), volumes, "the PVCs differ");
    workload.finish();
    cluster.wait_same_data();
}
