//! The Kubernetes objects of a cluster, as pure functions of what is wanted. Nothing here looks at what exists.

pub mod claim;
pub mod pod;
pub mod service;
pub mod start_mode;
pub mod superset;
pub mod tls;

use evenkeel_api::labels;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::desired::DesiredCluster;
use crate::identity::Identity;
use crate::names::{Epoch, Lineage, Serial};

/// An object that could not be put together: a fault of ours, never of a user.
#[derive(Debug, thiserror::Error)]
#[error("cannot build {what}: {why}")]
pub struct BuildError {
    what: &'static str,
    why: serde_json::Error,
}

/// A typed object from its description.
pub(crate) fn from_json<K: DeserializeOwned>(
    what: &'static str,
    object: Value,
) -> Result<K, BuildError> {
    serde_json::from_value(object).map_err(|why| BuildError { what, why })
}

/// Who a pod or a claim belongs to, written on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberRef {
    /// Which cluster's history.
    pub lineage: Lineage,
    /// Which epoch of it.
    pub epoch: Epoch,
    /// Which member.
    pub serial: Serial,
}

impl MemberRef {
    /// What is written on its objects, so that an identity that was deleted can be rebuilt from them.
    pub fn annotations(&self) -> Value {
        json!({
            labels::LINEAGE: format!("{:08x}", self.lineage.0),
            labels::EPOCH: self.epoch.0.to_string(),
            labels::SERIAL: self.serial.0.to_string(),
        })
    }

    /// Who it is, from what is written on its objects.
    pub fn read(annotations: &std::collections::BTreeMap<String, String>) -> Option<Self> {
        let lineage = u32::from_str_radix(annotations.get(labels::LINEAGE)?, 16).ok()?;
        let epoch = annotations.get(labels::EPOCH)?.parse().ok()?;
        let serial = annotations.get(labels::SERIAL)?.parse().ok()?;
        Some(Self {
            lineage: Lineage(lineage),
            epoch: Epoch(epoch),
            serial: Serial(serial),
        })
    }
}

/// The labels that every object of a cluster carries.
pub fn common_labels(desired: &DesiredCluster) -> Value {
    json!({
        "app.kubernetes.io/name": "etcd",
        "app.kubernetes.io/instance": desired.name,
        "app.kubernetes.io/component": "database",
        "app.kubernetes.io/part-of": desired.name,
        "app.kubernetes.io/managed-by": "evenkeel",
        labels::CLUSTER: desired.name,
    })
}

/// What finds all pods of a cluster.
pub fn selector(desired: &DesiredCluster) -> Value {
    json!({ labels::CLUSTER: desired.name })
}

/// The reference that has an object go with the resource.
pub fn owner_reference(desired: &DesiredCluster) -> Value {
    json!({
        "apiVersion": "evenkeel.dev/v1alpha1",
        "kind": "EtcdCluster",
        "name": desired.name,
        "uid": desired.uid.to_string(),
        "controller": true,
    })
}

/// Metadata of an object that goes with the resource.
fn owned_metadata(desired: &DesiredCluster, name: &str) -> Value {
    json!({
        "name": name,
        "namespace": desired.namespace,
        "labels": common_labels(desired),
        "ownerReferences": [owner_reference(desired)],
    })
}

/// The key under which the identity is kept.
pub const IDENTITY_KEY: &str = "identity";
/// The key under which the spec is kept that was accepted last.
pub const SPEC_KEY: &str = "spec";

/// The identity object.
pub fn identity(desired: &DesiredCluster, identity: &Identity) -> Result<ConfigMap, BuildError> {
    let what = "the identity";
    let text = serde_json::to_string(identity).map_err(|why| BuildError { what, why })?;
    let mut metadata = owned_metadata(desired, &desired.names().identity());
    if !desired.owns_data() {
        metadata["ownerReferences"] = json!([]);
    }
    let object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": { IDENTITY_KEY: text, SPEC_KEY: desired.spec },
    });
    from_json(what, object)
}

/// The disruption budget: only voters count, by the label that routes clients to them.
pub fn pod_disruption_budget(
    desired: &DesiredCluster,
    min: u8,
) -> Result<PodDisruptionBudget, BuildError> {
    let mut chosen = selector(desired);
    chosen[labels::ROLE] = json!(labels::ROLE_VOTER);
    let object = json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": owned_metadata(desired, &desired.names().pod_disruption_budget()),
        "spec": {
            "minAvailable": min,
            "selector": { "matchLabels": chosen },
            // A pod that is not ready guards nothing: it may always be evicted.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    });
    from_json("the disruption budget", object)
}

#[cfg(test)]
#[path = "build_tests.rs"]
mod tests;
