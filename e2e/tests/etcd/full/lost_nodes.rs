//! Nodes that are lost for some time, or only seem to be: which members are replaced, and what happens to volumes that return.

mod alone;

use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel_e2e::Story;
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::workload::format_stats;
use serde_json::{Value, json};

use crate::assertions::{CLUSTER_LIMIT, create_orders, events, follower, member_ids, wait_healthy};
use crate::interrupts::{
    HeldWrites, intent_written, kill_and_restart, member_pod, names, wait_idle,
};

/// Restores all nodes on drop.
pub(crate) struct RestoreNodes<'s>(pub(crate) &'s Story);

impl Drop for RestoreNodes<'_> {
    fn drop(&mut self) {
        let _ = self.0.lab().heal();
        for node in self.0.lab().nodes() {
            let _ = self.0.lab().wait_until_ready(&node.name);
        }
    }
}

/// Returns a PVC.
fn claim(story: &Story, name: &str) -> Option<Value> {
    story.read("/api/v1", &format!("persistentvolumeclaims/{name}"))
}

fn is_retained(claim: &Value) -> bool {
    let has_time = claim["metadata"]["annotations"]
        .get("evenkeel.dev/removed-at")
        .is_some();
    let has_label = claim["metadata"]["labels"]["evenkeel.dev/removed"] == "true";
    assert_eq!(has_time, has_label, "{claim:#}");
    has_time
}

pub(crate) fn wait_lost(story: &Story, node: &str) {
    let ready = "-o=jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
    story.eventually(&format!("Kubernetes reports {node} as lost"), || {
        story.kubectl(&["get", "node", node, ready]) == "Unknown"
    });
}

#[test]
fn claims_of_removed_members_are_retained_as_configured() {
    let story = Story::begin("kept");
    let operator = Operator::start(&story);
    let cluster = create_orders(
        &story,
        "version: 3.6.16\nmembers: 3\nstorage: {size: 1Gi}",
        3,
    );
    let all = names(&story, "orders", "pvc");
    cluster.patch(&json!({"members": 1}));
    wait_healthy(&story, &cluster, 1);
    let assert_unchanged: BTreeSet<_> = cluster.pods().into_iter().map(|pod| pod.claim).collect();
    let left: Vec<_> = all.difference(&assert_unchanged).cloned().collect();
    story.eventually("the PVCs of removed members are retained", || {
        left.iter()
            .all(|name| claim(&story, name).is_some_and(|claim| is_retained(&claim)))
    });
    wait_idle(&operator);
    assert_eq!(
        cluster.status()["members"],
        1,
        "removed members are counted: {:#}",
        cluster.status()
    );

    // The only member comes back on its own PVC: a retained PVC brings no member back.
    let pod = cluster.pods().remove(0);
    story.kubectl(&["delete", "pod", &pod.name]);
    wait_healthy(&story, &cluster, 1);
    assert!((1..3).all(|serial| member_pod(&story, "orders", serial).is_none()));
    cluster.patch(&json!({"storage": {"keepRemovedFor": "0"}}));
    story.within(CLUSTER_LIMIT, "the retained PVCs are deleted", || {
        left.iter().all(|name| claim(&story, name).is_none())
    });
    assert_eq!(names(&story, "orders", "pvc"), assert_unchanged);
}
