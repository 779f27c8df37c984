//! The stories of this topic that `make test-all` runs.

use super::*;

#[test]
fn members_in_memory_are_replaced_in_a_window_only_and_one_that_is_lost_at_any_time() {
    let story = Story::begin("windows-memory");
    let operator = Operator::start(&story);
    let cluster = formed(
        &story,
        &spec("3.6.16", 3).replace("{size: 1Gi}", "{ephemeral: true}"),
        3,
    );
    let (workload, members) = (cluster.workload(), ids(&cluster));
    waits_and_heals(&story, &cluster);
    let stayed = ids(&cluster)
        .into_keys()
        .filter(|name| members.contains_key(name))
        .count();
    assert_eq!(stayed, 2, "the one that was lost is another one now");

    cluster.patch(&open());
    until_all_ask(&story, "96Mi", 3);
    ends_well(&story, &cluster, 3);
    assert!(
        ids(&cluster).keys().all(|name| !members.contains_key(name)),
        "all have been replaced"
    );
    comes_to_rest(&operator);
    workload.finish();
    cluster.holds_the_same_everywhere();
}
