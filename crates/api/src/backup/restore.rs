//! The `Restore` resource: replaces the data of an existing cluster with that of a backup.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ClusterReference, MUST_BE_BACKUP_NAME, name_rule};
use crate::common::cel::{duration, duration_at_most};
use crate::common::lenient;
use crate::common::schema::for_users;

/// The message for an ID that is not one.
const INVALID_CLUSTER_ID: &str = "must be the ID of the cluster that is given up, as its status shows it: hexadecimal digits such as 9c1f4e5a0b7d2c11";
/// The message for a time that is probably a mistake.
const KEPT_TOO_LONG: &str = "must be at most 8760h";
/// The fields that say what is restored do not change.
const SAME_SOURCE: &str = "self.spec.cluster == oldSelf.spec.cluster && self.spec.from == oldSelf.spec.from && \
    self.spec.replaces == oldSelf.spec.replaces";
/// The message for a change of these fields.
const IMMUTABLE_SOURCE: &str =
    "cluster, from and replaces are immutable: a Restore runs once. Create another Restore";

/// The desired state of a restore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = for_users)]
#[kube(
    group = "evenkeel.dev",
    version = "v1alpha1",
    kind = "Restore",
    plural = "restores",
    shortname = "ekr",
    category = "evenkeel",
    namespaced,
    doc = "Replaces the data of an existing cluster with that of a backup, once. The cluster keeps its name, its endpoints and its certificates. Its old data is kept for a while, and the restore can be undone.",
    status = "RestoreStatus",
    derive = "PartialEq",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.cluster.name"),
    printcolumn(name = "Backup", type_ = "string", json_path = ".spec.from.backup"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Undo Until", type_ = "string", json_path = ".status.undoUntil"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message"),
    printcolumn(name = "Replaces", type_ = "string", json_path = ".spec.replaces", priority = "1"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = name_rule("size(self.metadata.name) <= 63", "must have at most 63 characters: objects are labelled with it"),
    validation = Rule::new(SAME_SOURCE).message(IMMUTABLE_SOURCE).field_path(".spec"),
)]
pub struct RestoreSpec {
    /// The cluster whose data is replaced, in the same namespace.
    pub cluster: ClusterReference,
    /// The data that the cluster is to have.
    pub from: RestoreSource,
    /// The ID of the cluster that is given up, as its status shows it. The restore has no effect on a cluster with another
    /// ID: each restore gives the cluster a new ID, so that it runs only once.
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^[0-9a-f]{1,64}$')").message(INVALID_CLUSTER_ID))]
    pub replaces: String,
    /// How long the volumes of the replaced cluster are kept, such as 72h. The restore can be undone until then.
    #[serde(default = "default_keep")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = duration(), validation = duration_at_most("8760h", KEPT_TOO_LONG))]
    pub keep_old_data_for: String,
    /// If true, the cluster gets its old data back, as long as that is kept. Writes to the restored cluster are given up then,
    /// and its volumes are kept for the same time.
    #[serde(default, skip_serializing_if = "crate::common::is_default")]
    pub undo: bool,
}

/// The data that a cluster is restored from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreSource {
    /// The name of a Backup in the same namespace. Its data must be of the same or an earlier minor version.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')")
        .message(MUST_BE_BACKUP_NAME))]
    pub backup: String,
}

fn default_keep() -> String {
    "72h".to_owned()
}

/// The phase of a restore.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::Display,
    strum::IntoStaticStr,
)]
pub enum RestorePhase {
    /// The restore has not begun.
    #[default]
    Pending,
    /// A new volume is filled with the data of the backup. The cluster serves meanwhile.
    Preparing,
    /// The members of the replaced cluster are stopped.
    Replacing,
    /// The members of the restored cluster start.
    Starting,
    /// Clients are served from the restored data.
    Complete,
    /// The members of the restored cluster are stopped, and those of the replaced cluster start again.
    Undoing,
    /// Clients are served from the old data again.
    Undone,
    /// The cluster does not have the ID that the restore replaces. Nothing was changed.
    NotNeeded,
    /// A phase of a newer operator.
    #[serde(other)]
    Unknown,
}

/// The observed state of a restore.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = for_users)]
pub struct RestoreStatus {
    /// The phase.
    #[serde(default)]
    pub phase: RestorePhase,
    /// The state in words: what happens now, what it waits for, and what to do.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The ID of the cluster with the restored data.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster_id: String,
    /// When the operator began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub started_at: Option<Time>,
    /// When clients were served from the restored data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub finished_at: Option<Time>,
    /// Until when the restore can be undone: the volumes of the replaced cluster are deleted then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub undo_until: Option<Time>,
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64")]
    pub observed_generation: Option<i64>,
    /// Complete: clients are served from the restored data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_owned()]))]
    pub conditions: Vec<Condition>,
}

/// The progress of a restore, in the status of its cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreProgress {
    /// The name of the Restore.
    pub name: String,
    /// The phase.
    #[serde(default, deserialize_with = "lenient::field")]
    pub phase: RestorePhase,
    /// What happens now, what it waits for, and what to do.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The ID of the cluster that is given up.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub replaces: String,
    /// Until when the restore can be undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub undo_until: Option<Time>,
}
