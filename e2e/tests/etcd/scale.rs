//! Scaling up and down, by `kubectl scale` and by edits, also during an earlier change, while clients work.

mod full;

use std::time::Duration;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::{Cluster, MemberPod};
use evenkeel_e2e::operator::Operator;
use serde_json::json;

use crate::alarms;
use crate::assertions::{CLUSTER_LIMIT, create_orders, endpoint_status, leader, wait_healthy};
use crate::interrupts::{identity, wait_converged, wait_idle};

/// Small requests: five members beside all other stories.
const SPEC: &str = "version: 3.6.16\nmembers: 1\nstorage: {size: 1Gi}\nresources: {requests: {cpu: 10m, memory: 64Mi}}";

#[test]
fn a_cluster_is_scaled_from_one_to_five_and_back_while_clients_write() {
    let story = Story::begin("scaled");
    let operator = Operator::start(&story);
    let cluster = Cluster::apply(&story, "orders", SPEC);
    cluster.wait_ready(CLUSTER_LIMIT);
    let workload = cluster.workload();
    let began = identity(&story, "orders");
    let alarms = alarms::Recorder::start(&story, &cluster);
    for (members, by_scale) in [(3, true), (5, false), (3, true), (1, false)] {
        let since = workload.now();
        if by_scale {
            story.kubectl(&["scale", "etcd/orders", &format!("--replicas={members}")]);
        } else {
            cluster.patch(&json!({"members": members}));
        }
        wait_healthy(&story, &cluster, members);
        let stats = workload.stats(since);
        println!(
            "scaled to {members}: {}",
            evenkeel_e2e::workload::format_stats("orders", &stats)
        );
    }
    wait_converged(&story, &cluster, 1);
    alarms.assert_none();
    assert_eq!(
        identity(&story, "orders")["cluster_id"],
        began["cluster_id"],
        "the cluster ID changed"
    );
    wait_idle(&operator);
    workload.finish();
    cluster.wait_same_data();
}
