//! The stories of this topic that `make test-all` runs.

use super::*;

#[test]
fn no_private_key_is_in_the_log_at_its_loudest_nor_in_what_people_are_shown() {
    let story = Story::begin("secret");
    let operator = loud(&story);
    let cluster = formed(
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
    story.eventually("it is being healed", || {
        cluster.pods().len() != 3 || cluster.pods().iter().any(|pod| !pod.ready)
    });
    until_whole(&story, &cluster, 3);
    clients.finish();

    are_told_nowhere(&story, &cluster, &operator);
}
