//! etcd's own authentication, switched on by its user: the operator has a name of its own there, and is not locked out.

mod full;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;

use crate::look::{LONG, follower, ids, leader, until_whole};
use crate::middle::{comes_to_rest, spec};

/// As the documentation says: the user of the clients' certificate gets its roles first, and then the door is shut. It may
/// do everything here, for the story's own questions.
fn enable_auth(cluster: &Cluster<'_>) {
    let commands: [&[&str]; 5] = [
        &["user", "add", "root", "--no-password"],
        &["user", "grant-role", "root", "root"],
        &["user", "add", "client", "--no-password"],
        &["user", "grant-role", "client", "root"],
        &["auth", "enable"],
    ];
    for command in commands {
        cluster.etcdctl(command);
    }
}

pub(super) fn has_auth(cluster: &Cluster<'_>) -> bool {
    cluster
        .etcdctl(&["auth", "status"])
        .contains("Authentication Status: true")
}

/// A cluster of three, whole, whose door is shut.
pub(super) fn locked(story: &Story) -> Cluster<'_> {
    let cluster = Cluster::apply(story, "orders", &spec(3));
    cluster.wait_ready(LONG);
    until_whole(story, &cluster, 3);
    enable_auth(&cluster);
    assert!(has_auth(&cluster));
    cluster
}
