//! A bootstrap that is disturbed: its first member lost, its resource edited, deleted, created again, all in the middle of
//! it. Nobody has written to it yet, so it may begin again, but it must end as one cluster, with nothing left over.

mod alone;
mod anew;
mod full;

use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::proxy::{Verdict, Written, lives};
use evenkeel_lab::up::{add_node, delete_node};
use serde_json::json;

use crate::middle::{
    Stops, comes_to_rest, ends_well, identity, intent_in, names, notes, pod_of, spec,
};

/// How long clients work on a cluster whose members stay as they are.
const A_WHILE: Duration = Duration::from_secs(4);

/// Has clients work on clusters that stay as they are, and proves what they saw.
fn serve_clients(clusters: &[Cluster<'_>]) {
    let workloads: Vec<_> = clusters.iter().map(Cluster::workload).collect();
    std::thread::sleep(A_WHILE);
    for (workload, cluster) in workloads.into_iter().zip(clusters) {
        workload.finish();
        cluster.holds_the_same_everywhere();
    }
}

/// That a cluster has begun again, under names that nothing had before.
fn has_begun_again(
    story: &Story,
    cluster: &Cluster<'_>,
    members: usize,
    before: &BTreeSet<String>,
) {
    ends_well(story, cluster, members);
    let identity = identity(story, cluster.name());
    assert_eq!(identity["epoch"], 2, "{identity}");
    let now = names(story, cluster.name(), "pods");
    assert!(now.is_disjoint(before), "{now:?} has a name of {before:?}");
}
