//! Backups of all engines: their stores, their schedules, and the result of each backup.

pub mod labels;
pub mod resource;
pub mod restore;
pub mod schedule;
pub mod store;
pub mod summary;

use kube::KubeSchema;
use kube::core::Rule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The cluster that is backed up, in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterReference {
    /// The kind of the cluster.
    #[serde(default)]
    pub kind: ClusterKind,
    /// The name of the cluster.
    #[schemars(length(min = 1, max = 40))]
    pub name: String,
}

/// The kind of a cluster that can be backed up.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::Display,
    strum::IntoStaticStr,
)]
pub enum ClusterKind {
    /// An etcd cluster.
    #[default]
    EtcdCluster,
}

/// The message for a name that no Backup can have.
pub(crate) const MUST_BE_BACKUP_NAME: &str =
    "must be the name of a Backup: lower-case letters, digits and hyphens";

/// Requires a property of the name. The message names the field, since the rule belongs to the whole resource.
fn name_rule(rule: &str, message: &str) -> Rule {
    Rule::new(rule).message(&*format!("metadata.name {message}"))
}

/// Rejects any change of the spec.
fn immutable_spec(message: &str) -> Rule {
    Rule::new("self.spec == oldSelf.spec")
        .message(message)
        .field_path(".spec")
}
