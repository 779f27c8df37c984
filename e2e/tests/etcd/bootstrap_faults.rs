//! Faults during a bootstrap: the seed is lost, the resource is edited, deleted or created again. No client has written yet, so the
//! bootstrap may begin again; it must end as one cluster, with nothing left over.

mod alone;
mod full;
mod recreated;

use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::proxy::{RecordedWrite, Verdict, object_counts};
use evenkeel_lab::up::{add_node, delete_node};
use serde_json::json;

use crate::interrupts::{
    HeldWrites, identity, intent_written, names, pod_name, records_intent, spec, wait_converged,
    wait_idle,
};

/// How long clients work on a cluster whose members do not change.
const CLIENT_TIME: Duration = Duration::from_secs(4);

/// Runs clients on clusters that do not change, and checks their histories.
fn run_clients(clusters: &[Cluster<'_>]) {
    let workloads: Vec<_> = clusters.iter().map(Cluster::workload).collect();
    std::thread::sleep(CLIENT_TIME);
    for (workload, cluster) in workloads.into_iter().zip(clusters) {
        workload.finish();
        cluster.wait_same_data();
    }
}

/// Asserts that a cluster began again in epoch 2, with names that were not used before.
fn assert_new_epoch(
    story: &Story,
    cluster: &Cluster<'_>,
    members: usize,
    before: &BTreeSet<String>,
) {
    wait_converged(story, cluster, members);
    let identity = identity(story, cluster.name());
    assert_eq!(identity["epoch"], 2, "{identity}");
    let now = names(story, cluster.name(), "pods");
    assert!(
        now.is_disjoint(before),
        "{now:?} reuses a name of {before:?}"
    );
}
