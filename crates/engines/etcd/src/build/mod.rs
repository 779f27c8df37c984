//! The Kubernetes objects of a cluster, as pure functions of the desired state. No function here
//! reads existing objects.

pub mod claim;
pub mod pod;
pub mod restore_pod;
pub mod service;
pub mod start_mode;
pub mod tls;

use evenkeel_api::{BackupSchedule, labels};
use evenkeel_kit::{identity_object, objects, ownership};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::{Value, json};

use crate::desired::DesiredCluster;
use crate::identity::Identity;
use crate::names::ENGINE;

pub use evenkeel_kit::{BuildError, MemberRef};

/// Returns the labels that every object of a cluster carries.
pub fn common_labels(desired: &DesiredCluster) -> Value {
    ownership::common_labels(desired.cluster_ref())
}

/// Returns the controller reference to the resource.
pub fn owner_reference(desired: &DesiredCluster) -> Value {
    ownership::owner_reference(desired.cluster_ref())
}

/// Returns the labels that select the pods of all members.
fn member_selector(desired: &DesiredCluster) -> Value {
    ownership::selector(desired.cluster_ref())
}

/// Returns the labels that select the pods that serve clients: voters with the role label.
fn voter_selector(desired: &DesiredCluster) -> Value {
    let mut selector = member_selector(desired);
    selector[labels::ROLE] = json!(labels::ROLE_VOTER);
    selector
}

/// Returns the identity object. It is deleted with the resource if the data is, or if there is no data yet: bootstrap is not
/// finished.
pub fn identity(desired: &DesiredCluster, identity: &Identity) -> Result<ConfigMap, BuildError> {
    identity_object::build(
        desired.cluster_ref(),
        &desired.names().identity(),
        identity,
        &desired.spec,
        desired.owns_data() || !identity.bootstrapped,
    )
}

/// Returns the PodDisruptionBudget. Only voters count, by the label that routes clients to them.
pub fn pod_disruption_budget(
    desired: &DesiredCluster,
    min_available: u8,
) -> Result<PodDisruptionBudget, BuildError> {
    objects::pod_disruption_budget(
        desired.cluster_ref(),
        &desired.names().pod_disruption_budget(),
        &voter_selector(desired),
        min_available,
    )
}

/// Returns the BackupSchedule; `None` if the cluster is not backed up.
pub fn backup_schedule(desired: &DesiredCluster) -> Result<Option<BackupSchedule>, BuildError> {
    let Some(policy) = &desired.backup else {
        return Ok(None);
    };
    let mut spec = json!(policy);
    spec["cluster"] = json!({ "kind": ENGINE.kind, "name": desired.name });
    let name = desired.names().backup_schedule();
    let object = json!({
        "apiVersion": ENGINE.api_version,
        "kind": "BackupSchedule",
        "metadata": ownership::owned_metadata(desired.cluster_ref(), &name),
        "spec": spec,
    });
    objects::from_json("BackupSchedule", object).map(Some)
}

#[cfg(test)]
#[path = "build_tests.rs"]
mod tests;
