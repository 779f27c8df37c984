//! etcd's authentication, enabled by a user: the operator has its own certificate name there, and keeps its access.

mod full;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;

use crate::assertions::{CLUSTER_LIMIT, follower, leader, member_ids, wait_healthy};
use crate::interrupts::{spec, wait_idle};

/// Enables authentication as the docs describe: first the user of the client certificate gets its roles. Here it gets the role root,
/// for the story's own commands.
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

/// Creates a healthy cluster of three with authentication enabled.
pub(super) fn locked(story: &Story) -> Cluster<'_> {
    let cluster = Cluster::apply(story, "orders", &spec(3));
    cluster.wait_ready(CLUSTER_LIMIT);
    wait_healthy(story, &cluster, 3);
    enable_auth(&cluster);
    assert!(has_auth(&cluster));
    cluster
}
