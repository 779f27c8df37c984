//! Where members may run.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Toleration;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::schema::bounded_text;

/// Where members may run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Scheduling {
    /// How members are kept apart, so that what takes one away leaves the others.
    #[serde(default)]
    pub spread: Spread,
    /// Labels that a node must have for members to run on it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16, "additionalProperties" = bounded_text(63)))]
    pub node_selector: BTreeMap<String, String>,
    /// Taints of nodes that members put up with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub tolerations: Vec<Toleration>,
    /// The PriorityClass of members; without one, the default of the Kubernetes cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 253))]
    pub priority_class: Option<String>,
}

/// How members are kept apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Spread {
    /// What members are spread over: Node keeps them on different nodes, Zone in different zones as well as nodes.
    #[serde(default)]
    pub across: Across,
    /// What if there are too few nodes or zones: with false members share one, with true they wait for another.
    #[serde(default)]
    pub require: bool,
}

/// What members are spread over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Across {
    /// Nodes, by `kubernetes.io/hostname`.
    #[default]
    Node,
    /// Zones, by `topology.kubernetes.io/zone`, and nodes within them.
    Zone,
}
