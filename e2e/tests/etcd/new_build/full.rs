//! The stories of this topic that `make test-all` runs.

use super::*;

#[test]
fn a_new_build_that_takes_over_in_the_middle_of_a_roll_finishes_it_and_restarts_nobody_twice() {
    let story = Story::begin("new-build-roll");
    let mut old = Operator::start(&story);
    let cluster = formed(&story, &spec("3.6.16", 3), 3);
    let (workload, members, volumes) = (cluster.workload(), ids(&cluster), claims(&cluster));
    comes_to_rest(&old);
    let began = Instant::now();
    cluster.patch(&memory("96Mi"));
    story.within(LONG, "the first one has had its turn", || {
        how_many_ask(&story, "96Mi") > 0
    });
    let next = replaced(&story, &mut old, "next");
    assert!(
        how_many_ask(&story, "96Mi") < 3,
        "else there is nothing left to be taken over"
    );
    until_all_ask(&story, "96Mi", 3);
    ends_well(&story, &cluster, 3);
    comes_to_rest(&next);
    let mut writes = old.proxy().writes_since(began);
    writes.extend(next.proxy().writes());
    each_was_restarted_once(&writes, 3);
    assert_eq!(ids(&cluster), members, "they are the same members");
    assert_eq!(claims(&cluster), volumes, "on the same volumes");
    workload.finish();
    cluster.holds_the_same_everywhere();
}
