//! More members and fewer, by `kubectl scale` and by edits, in the middle of one another, while clients work.

mod full;

use std::time::Duration;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::{Cluster, MemberPod};
use evenkeel_e2e::operator::Operator;
use serde_json::json;

use crate::look::{LONG, formed, leader, says, until_whole};
use crate::middle::{comes_to_rest, ends_well, identity};

/// Little of everything: five members beside all other stories.
const SPEC: &str = "version: 3.6.16\nmembers: 1\nstorage: {size: 1Gi}\nresources: {requests: {cpu: 10m, memory: 64Mi}}";

#[test]
fn one_becomes_three_and_five_and_three_and_one_again_and_clients_hardly_notice() {
    let story = Story::begin("scaled");
    let operator = Operator::start(&story);
    let cluster = Cluster::apply(&story, "orders", SPEC);
    cluster.wait_ready(LONG);
    let workload = cluster.workload();
    let began = identity(&story, "orders");
    for (members, by_scale) in [(3, true), (5, false), (3, true), (1, false)] {
        let since = workload.now();
        if by_scale {
            story.kubectl(&["scale", "etcd/orders", &format!("--replicas={members}")]);
        } else {
            cluster.patch(&json!({"members": members}));
        }
        until_whole(&story, &cluster, members);
        let stats = workload.stats(since);
        println!(
            "scaled to {members}: {}",
            evenkeel_e2e::watched::told("orders", &stats)
        );
    }
    ends_well(&story, &cluster, 1);
    assert_eq!(
        identity(&story, "orders")["cluster_id"],
        began["cluster_id"],
        "it is the same cluster"
    );
    comes_to_rest(&operator);
    workload.finish();
    cluster.holds_the_same_everywhere();
}
