//! The nodes on which pods of a cluster can be scheduled. Listing nodes requires a permission that many users lack: the
//! plan then says less about nodes.

use std::time::Duration;

use evenkeel_etcd::desired::DesiredCluster;
use evenkeel_etcd::identity::Uid;
use evenkeel_etcd::preview::AvailableNode;
use k8s_openapi::api::core::v1::{Node, Taint, Toleration};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

/// The label by which facts identify a node.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// The label of a node's zone.
const ZONE: &str = "topology.kubernetes.io/zone";
/// How long the request for nodes may take. The result only adds to the plan.
const NODES_TIMEOUT: Duration = Duration::from_secs(4);

/// Lists the nodes; `None` if that is not possible.
pub(super) async fn list_nodes(client: &Client) -> Option<Vec<Node>> {
    let api: Api<Node> = Api::all(client.clone());
    let all = ListParams::default();
    let response = tokio::time::timeout(NODES_TIMEOUT, api.list(&all)).await;
    response.ok()?.ok().map(|list| list.items)
}

/// Returns the nodes on which pods of the cluster can be scheduled.
pub(super) fn available_nodes(nodes: &[Node], desired: &DesiredCluster) -> Vec<AvailableNode> {
    let available = nodes.iter().filter(|node| is_available(node, desired));
    available
        .map(|node| {
            let name = node.name_any();
            AvailableNode {
                id: Uid::of_name(node.labels().get(HOSTNAME).unwrap_or(&name)),
                zone: node.labels().get(ZONE).cloned(),
            }
        })
        .collect()
}

fn is_available(node: &Node, desired: &DesiredCluster) -> bool {
    let spec = node.spec.as_ref();
    let is_cordoned = spec.and_then(|spec| spec.unschedulable) == Some(true);
    let is_selected = desired
        .node_selector
        .iter()
        .all(|(key, value)| node.labels().get(key) == Some(value));
    let taints = spec.and_then(|spec| spec.taints.as_ref());
    let is_tolerated = taints.into_iter().flatten().all(|taint| {
        let keeps_away = matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute");
        let mut tolerations = desired.tolerations.iter();
        !keeps_away || tolerations.any(|toleration| tolerates(toleration, taint))
    });
    !is_cordoned && is_selected && is_tolerated
}

/// Returns whether a toleration matches a taint, by the rules of Kubernetes.
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    let is_same_effect = effect.is_empty() || effect == taint.effect;
    let is_same_key = key.is_empty() || key == taint.key;
    let is_same_value = match toleration.operator.as_deref() {
        Some("Exists") => true,
        _ => !key.is_empty() && toleration.value.as_deref().unwrap_or_default() == value(taint),
    };
    is_same_effect && is_same_key && is_same_value
}

fn value(taint: &Taint) -> &str {
    taint.value.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use evenkeel_api::EtcdCluster;
    use serde_json::{Value, json};

    use super::*;

    fn desired(scheduling: &Value) -> DesiredCluster {
        let resource = json!({ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "EtcdCluster",
            "metadata": { "name": "orders", "uid": "0c9e8a1f-33aa-4bcd-9e01-0123456789ab" },
            "spec": { "version": "3.6.16", "scheduling": scheduling } });
        let resource: EtcdCluster = serde_json::from_value(resource).unwrap();
        DesiredCluster::of(&resource).unwrap()
    }

    fn node(name: &str, spec: &Value) -> Node {
        let labels = json!({ HOSTNAME: name, ZONE: "zone-1", "disk": name });
        serde_json::from_value(
            json!({ "metadata": { "name": name, "labels": labels }, "spec": spec }),
        )
        .unwrap()
    }

    fn count(nodes: &[Node], scheduling: &Value) -> usize {
        available_nodes(nodes, &desired(scheduling)).len()
    }

    #[test]
    fn cordoned_tainted_and_unselected_nodes_are_left_out() {
        let taint = |effect: &str| json!({ "taints": [{ "key": "gpu", "value": "yes", "effect": effect }] });
        let nodes = [
            node("a", &json!({})),
            node("b", &json!({ "unschedulable": true })),
            node("c", &taint("NoSchedule")),
            node("d", &taint("PreferNoSchedule")),
        ];
        let available = available_nodes(&nodes, &desired(&json!({})));
        assert_eq!(
            available.iter().map(|node| node.id).collect::<Vec<_>>(),
            ["a", "d"].map(Uid::of_name)
        );
        assert_eq!(available[0].zone.as_deref(), Some("zone-1"));
        assert_eq!(
            count(&nodes, &json!({ "nodeSelector": { "disk": "a" } })),
            1
        );
        let tolerating = |toleration: Value| json!({ "tolerations": [toleration] });
        assert_eq!(
            count(&nodes, &tolerating(json!({ "operator": "Exists" }))),
            3
        );
        let same =
            json!({ "key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule" });
        assert_eq!(count(&nodes, &tolerating(same)), 3);
        let other = json!({ "key": "gpu", "operator": "Equal", "value": "no" });
        assert_eq!(count(&nodes, &tolerating(other)), 2);
    }
}
