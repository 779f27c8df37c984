//! The stories of this topic for `make test-all`.

use super::*;

#[test]
fn no_private_key_is_in_the_trace_log_or_in_other_objects() {
    let story = Story::begin("secret");
    let operator = start_with_trace(&story);
    let cluster = create_orders(
        &story,
        "version: 3.6.16\nmembers: 3\nstorage: {ephemeral: true}",
        3,
    );
    let clients = cluster.workload();
    story.kubectl(&[
        "delete",
        "pod",
        &follower(&story, &cluster).name,
        "--wait=false",
    ]);
    story.eventually("the operator recovers the member", || {
        cluster.pods().len() != 3 || cluster.pods().iter().any(|pod| !pod.ready)
    });
    wait_healthy(&story, &cluster, 3);
    clients.finish();

    assert_keys_only_in_secrets(&story, &cluster, &operator);
}
