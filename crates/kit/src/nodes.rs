//! Nodes: their failure domains, and whether they can run pods.

use std::collections::BTreeMap;

use evenkeel_runtime::UnixTime;
use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeSpec, NodeStatus};
use kube::ResourceExt;
use kube::runtime::reflector::Store;
use serde::{Deserialize, Serialize};

use crate::volumes::HOSTNAME;

/// The label of a node that names its zone.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// The key of the taint of a cordoned node.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// The state of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeState {
    /// The name of the node.
    pub name: String,
    /// The value of its hostname label. Local volumes name their node by it.
    pub hostname: Option<String>,
    /// Its zone.
    pub zone: Option<String>,
    /// Whether the node is cordoned: no pod is scheduled to it. Its taint is removed some moments after it was uncordoned.
    pub is_cordoned: bool,
    /// Whether the node has a taint that keeps pods away, that of a cordoned node included.
    #[serde(default)]
    pub is_tainted: bool,
    /// Whether the node is Ready.
    pub is_ready: bool,
    /// Since when the node is not Ready, if Kubernetes reports it.
    pub unready_since: Option<UnixTime>,
}

impl NodeState {
    /// Returns the state of a node.
    pub fn of(node: &Node) -> Self {
        let ready = ready_condition(node);
        let is_ready = ready.is_some_and(|ready| ready.status == "True");
        let since = ready.and_then(|ready| ready.last_transition_time.as_ref());
        let since = since.map(|since| UnixTime(since.0.as_second()));
        let spec = node.spec.as_ref();
        let taints = spec.and_then(|spec| spec.taints.as_deref());
        let taints = taints.unwrap_or_default();
        let has_unschedulable_taint = taints.iter().any(|taint| taint.key == UNSCHEDULABLE);
        Self {
            name: node.name_any(),
            hostname: node.labels().get(HOSTNAME).cloned(),
            zone: node.labels().get(ZONE).cloned(),
            is_cordoned: spec.is_some_and(|spec| spec.unschedulable == Some(true))
                || has_unschedulable_taint,
            is_tainted: taints
                .iter()
                .any(|taint| taint.effect != "PreferNoSchedule"),
            is_ready,
            unready_since: since.filter(|_| !is_ready),
        }
    }
}

/// Returns the states of the cached nodes by name; `None` while no node is cached, as without permission to list them.
pub fn states(nodes: &Store<Node>) -> Option<BTreeMap<String, NodeState>> {
    let states = nodes.state();
    let states = states
        .iter()
        .map(|node| (node.name_any(), NodeState::of(node)));
    let states: BTreeMap<_, _> = states.collect();
    (!states.is_empty()).then_some(states)
}

/// Removes everything from a node that [`NodeState`] does not need: images and heartbeats, for example.
pub fn trim(node: &mut Node) {
    node.metadata.annotations = None;
    node.spec = node.spec.take().map(|spec| NodeSpec {
        unschedulable: spec.unschedulable,
        taints: spec.taints,
        ..NodeSpec::default()
    });
    let ready = ready_condition(node).cloned().map(|ready| NodeCondition {
        last_heartbeat_time: None,
        ..ready
    });
    node.status = Some(NodeStatus {
        conditions: Some(ready.into_iter().collect()),
        ..NodeStatus::default()
    });
}

fn ready_condition(node: &Node) -> Option<&NodeCondition> {
    let mut conditions = node.status.as_ref()?.conditions.as_ref()?.iter();
    conditions.find(|condition| condition.type_ == "Ready")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(ready: &str, unschedulable: bool) -> NodeState {
        let ready = json!({ "type": "Ready", "status": ready, "lastTransitionTime": "2027-01-15T07:00:00Z",
            "lastHeartbeatTime": "2027-01-15T07:30:00Z" });
        let node: Node = serde_json::from_value(json!({
            "metadata": { "name": "node-1", "labels": { HOSTNAME: "host-1", ZONE: "zone-a" } },
            "spec": { "unschedulable": unschedulable },
            "status": { "conditions": [{ "type": "MemoryPressure", "status": "False" }, ready] },
        }))
        .unwrap();
        let mut trimmed = node.clone();
        trim(&mut trimmed);
        assert_ne!(trimmed, node);
        assert_eq!(NodeState::of(&trimmed), NodeState::of(&node));
        NodeState::of(&node)
    }

    #[test]
    fn a_node_is_described_by_its_labels_and_its_ready_condition() {
        let ready = node("True", true);
        assert_eq!(
            (ready.name.as_str(), ready.hostname.as_deref()),
            ("node-1", Some("host-1"))
        );
        assert_eq!(ready.zone.as_deref(), Some("zone-a"));
        assert!(ready.is_ready && ready.is_cordoned && ready.unready_since.is_none());
    }

    #[test]
    fn a_node_is_cordoned_until_its_taint_is_removed() {
        let node = |taints: serde_json::Value| {
            let node = json!({ "metadata": {}, "spec": { "taints": taints } });
            NodeState::of(&serde_json::from_value(node).unwrap())
        };
        let cordoned = node(json!([{ "key": UNSCHEDULABLE, "effect": "NoSchedule" }]));
        assert!(cordoned.is_cordoned && cordoned.is_tainted);
        let reserved = node(json!([{ "key": "gpu", "effect": "NoSchedule" }]));
        assert!(!reserved.is_cordoned && reserved.is_tainted);
        let preferred = node(json!([{ "key": "gpu", "effect": "PreferNoSchedule" }]));
        assert!(!preferred.is_tainted);
    }

    #[test]
    fn a_node_that_does_not_report_is_not_ready() {
        let unknown = node("Unknown", false);
        assert!(!unknown.is_ready && !unknown.is_cordoned);
        assert_eq!(unknown.unready_since, Some(UnixTime(1_799_996_400)));
        assert!(!NodeState::of(&Node::default()).is_ready);
    }
}
