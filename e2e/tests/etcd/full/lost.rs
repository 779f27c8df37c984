//! Nodes that are gone for a while, or look as if they were: who is replaced, who is not, and what comes of those who return.

mod alone;

use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel_e2e::Story;
use evenkeel_e2e::operator::Operator;
use evenkeel_e2e::watched::told;
use serde_json::{Value, json};

use crate::look::{LONG, events, follower, formed, ids, until_whole};
use crate::middle::{Stops, comes_to_rest, intent_in, kill_and_restart, member_pod, names};

/// Has a node be as it was, whatever becomes of the story.
pub(crate) struct Healed<'s>(pub(crate) &'s Story);

impl Drop for Healed<'_> {
    fn drop(&mut self) {
        let _ = self.0.lab().heal();
        for node in self.0.lab().nodes() {
            let _ = self.0.lab().wait_until_ready(&node.name);
        }
    }
}

/// The claim of this name, as Kubernetes has it.
fn claim(story: &Story, name: &str) -> Option<Value> {
    story.read("/api/v1", &format!("persistentvolumeclaims/{name}"))
}

fn is_kept(claim: &Value) -> bool {
    claim["metadata"]["annotations"]
        .get("evenkeel.dev/removed-at")
        .is_some()
}

pub(crate) fn until_lost(story: &Story, node: &str) {
    let ready = "-o=jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
    story.eventually(&format!("Kubernetes takes {node} for lost"), || {
        story.kubectl(&["get", "node", node, ready]) == "Unknown"
    });
}

#[test]
fn volumes_of_members_that_left_are_kept_for_as_long_as_was_said() {
    let story = Story::begin("kept");
    let operator = Operator::start(&story);
    let cluster = formed(
        &story,
        "version: 3.6.16\nmembers: 3\nstorage: {size: 1Gi}",
        3,
    );
    let all = names(&story, "orders", "pvc");
    cluster.patch(&json!({"members": 1}));
    until_whole(&story, &cluster, 1);
    let stays: BTreeSet<_> = cluster.pods().into_iter().map(|pod| pod.claim).collect();
    let left: Vec<_> = all.difference(&stays).cloned().collect();
    story.eventually("those who left leave volumes that are kept", || {
        left.iter()
            .all(|name| claim(&story, name).is_some_and(|claim| is_kept(&claim)))
    });
    comes_to_rest(&operator);
    assert_eq!(
        cluster.status()["members"],
        1,
        "they are no members: {:#}",
        cluster.status()
    );

    // A cluster that loses its only pod comes back as it was: nobody else's volume brings a member back.
    let pod = cluster.pods().remove(0);
    story.kubectl(&["delete", "pod", &pod.name]);
    until_whole(&story, &cluster, 1);
    assert!((1..3).all(|serial| member_pod(&story, "orders", serial).is_none()));
    cluster.patch(&json!({"storage": {"keepRemovedFor": "0"}}));
    story.within(LONG, "they go", || {
        left.iter().all(|name| claim(&story, name).is_none())
    });
    assert_eq!(names(&story, "orders", "pvc"), stays);
}
