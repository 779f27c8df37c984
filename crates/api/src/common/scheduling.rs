//! `spec.scheduling`: the nodes that members may run on.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Toleration;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::schema::bounded_string;

/// The nodes that members may run on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Scheduling {
    /// How members are spread, so that the failure of one node or zone affects as few of them as possible.
    #[serde(default)]
    pub spread: Spread,
    /// Labels that a node must have for members to be scheduled on it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16, "additionalProperties" = bounded_string(63)))]
    pub node_selector: BTreeMap<String, String>,
    /// Taints of nodes that members tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub tolerations: Vec<Toleration>,
    /// The PriorityClass of the pods. If unset, the default PriorityClass of the Kubernetes cluster is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 253))]
    pub priority_class: Option<String>,
}

/// How members are spread over nodes and zones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Spread {
    /// The failure domain. Node spreads members over nodes; Zone spreads them over zones, and over nodes as well.
    #[serde(default)]
    pub across: TopologyDomain,
    /// If true, never place two members on the same node or zone; members without a node stay Pending. If false,
    /// spreading is best effort.
    #[serde(default)]
    pub require: bool,
}

/// A failure domain that members are spread over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TopologyDomain {
    /// Nodes, by `kubernetes.io/hostname`.
    #[default]
    Node,
    /// Zones, by `topology.kubernetes.io/zone`, and nodes within them.
    Zone,
}
