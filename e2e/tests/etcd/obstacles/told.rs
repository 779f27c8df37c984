//! Obstacles that were once met in silence, or with words that helped nobody: etcd's own users, names of authorities and of the
//! identity that are taken, quotas.

mod full;

use std::collections::BTreeMap;

use evenkeel_e2e::Story;
use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::Operator;

use super::locked::{has_auth, locked};
use super::{complaint, substance, until_replaced};
use crate::look::{follower, formed, ids, leader, until_whole};
use crate::middle::{lives_again, spec};
use crate::noted::{dies_once_noting, take_pod_and_claim};

// An event is gone after an hour.
#[test]
fn what_a_quota_refuses_is_said_in_the_status_where_people_look_first_and_can_be_taken_back() {
    let story = Story::begin("quota-status");
    let _operator = Operator::start(&story);
    let cluster = formed(&story, "version: 3.6.16\nmembers: 1", 1);
    story.kubectl(&["create", "quota", "none", "--hard=pods=0"]);
    story.eventually("the quota counts", || {
        story.field(&["quota", "none"], ".status.used.pods") == "1"
    });
    story.kubectl(&["scale", "etcd", "orders", "--replicas=2"]);
    story.eventually("the status says so", || {
        complaint(&cluster).contains("exceeded quota: none")
    });
    story.kubectl(&["scale", "etcd", "orders", "--replicas=1"]);
    until_whole(&story, &cluster, 1);
    story.kubectl(&["delete", "pod", &cluster.pods().remove(0).name]);
    story.eventually("the status says so", || {
        complaint(&cluster).contains("exceeded quota: none")
    });
    story.kubectl(&["delete", "quota", "none"]);
    until_whole(&story, &cluster, 1);
}
