//! The stories of this topic for `make test-all`.

use super::*;

#[test]
fn lost_pods_come_back_with_etcd_authentication_enabled() {
    let story = Story::begin("locked");
    let operator = Operator::start(&story);
    let cluster = locked(&story);
    let (clients, before) = (cluster.workload(), member_ids(&cluster));
    for victim in [follower(&story, &cluster), leader(&story, &cluster)] {
        story.kubectl(&["delete", "pod", &victim.name]);
        wait_healthy(&story, &cluster, 3);
    }
    assert_eq!(member_ids(&cluster), before, "the members differ");
    assert!(has_auth(&cluster));
    wait_idle(&operator);
    clients.finish();
    cluster.wait_same_data();
}
