//! Obstacles that earlier builds did not report, or not in a useful way: etcd's authentication, conflicts with the names of CAs and
//! identity, quotas.

mod full;

use std::collections::BTreeMap;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;

use super::authentication::{has_auth, locked};
use super::{operator_independent_parts, problem_report, wait_replaced};
use crate::assertions::{create_orders, follower, leader, member_ids, wait_healthy};
use crate::intents::{delete_pod_and_claim, kill_after_intent_and_restart};
use crate::interrupts::{spec, start_after_kill};

// An event is deleted after an hour; the status is not.
#[test]
fn the_status_reports_a_rejection_by_a_quota() {
    let story = Story::begin("quota-status");
    let _operator = Operator::start(&story);
    let cluster = create_orders(&story, "version: 3.6.16\nmembers: 1", 1);
    story.kubectl(&["create", "quota", "none", "--hard=pods=0"]);
    story.eventually("the quota has counted the pods", || {
        story.field(&["quota", "none"], ".status.used.pods") == "1"
    });
    story.kubectl(&["scale", "etcd", "orders", "--replicas=2"]);
    story.eventually("the status reports the quota", || {
        problem_report(&cluster).contains("exceeded quota: none")
    });
    story.kubectl(&["scale", "etcd", "orders", "--replicas=1"]);
    wait_healthy(&story, &cluster, 1);
    story.kubectl(&["delete", "pod", &cluster.pods().remove(0).name]);
    story.eventually("the status reports the quota", || {
        problem_report(&cluster).contains("exceeded quota: none")
    });
    story.kubectl(&["delete", "quota", "none"]);
    wait_healthy(&story, &cluster, 1);
}
