//! The stories of this topic that `make test-all` runs.

use super::*;

#[test]
fn with_authentication_switched_on_pods_are_brought_back_and_the_cluster_is_ready_as_ever() {
    let story = Story::begin("locked");
    let operator = Operator::start(&story);
    let cluster = locked(&story);
    let (clients, before) = (cluster.workload(), ids(&cluster));
    for victim in [follower(&story, &cluster), leader(&story, &cluster)] {
        story.kubectl(&["delete", "pod", &victim.name]);
        until_whole(&story, &cluster, 3);
    }
    assert_eq!(ids(&cluster), before, "the same members");
    assert!(has_auth(&cluster));
    comes_to_rest(&operator);
    clients.finish();
    cluster.holds_the_same_everywhere();
}
