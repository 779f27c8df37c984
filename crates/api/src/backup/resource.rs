//! The `Backup` resource: one backup of a cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ClusterReference, immutable_spec, name_rule};
use crate::common::cel::{duration, duration_at_least, duration_at_most};
use crate::common::schema::for_users;

/// One backup of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = for_users)]
#[kube(
    group = "evenkeel.dev",
    version = "v1alpha1",
    kind = "Backup",
    plural = "backups",
    shortname = "ekb",
    category = "evenkeel",
    namespaced,
    doc = "One backup of a cluster. The operator takes it once, when the object is created. Deleting the object deletes no data in the store.",
    status = "BackupStatus",
    derive = "PartialEq",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.cluster.name"),
    printcolumn(name = "Store", type_ = "string", json_path = ".spec.store"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Position", type_ = "string", json_path = ".status.position"),
    printcolumn(name = "Size", type_ = "string", json_path = ".status.size"),
    printcolumn(name = "Proven", type_ = "date", json_path = ".status.proven.at"),
    printcolumn(name = "Finished", type_ = "date", json_path = ".status.finishedAt"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type=='Complete')].message", priority = "1"),
    printcolumn(name = "Location", type_ = "string", json_path = ".status.location", priority = "1"),
    validation = name_rule("size(self.metadata.name) <= 63", "must have at most 63 characters: pods are labelled with it"),
    validation = name_rule("!self.metadata.name.contains('.')", "must not contain a dot: pods are named after it"),
    validation = immutable_spec("is immutable: a Backup is taken once. Create another Backup"),
)]
pub struct BackupSpec {
    /// The cluster, in the same namespace.
    pub cluster: ClusterReference,
    /// The name of the BackupStore, in the same namespace.
    #[schemars(length(min = 1, max = 40))]
    pub store: String,
    /// How long the backup may take, such as 30m. A backup that is not complete by then has failed.
    #[serde(default = "default_deadline")]
    #[schemars(length(max = 16))]
    #[x_kube(
        validation = duration(),
        validation = duration_at_least("1m", DEADLINE_TOO_SHORT),
        validation = duration_at_most("24h", DEADLINE_TOO_LONG),
    )]
    pub deadline: String,
    /// The place of an existing backup in the store, as `kubectl evenkeel backups --from-store` lists it. The object then only
    /// represents that backup, and no new one is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 1024))]
    pub existing: Option<String>,
}

/// The message for a deadline that no backup meets.
pub(crate) const DEADLINE_TOO_SHORT: &str = "must be at least 1m";
/// The message for a deadline that lets a stalled backup block the next ones.
pub(crate) const DEADLINE_TOO_LONG: &str = "must be at most 24h";

pub(super) fn default_deadline() -> String {
    "30m".to_owned()
}

/// The phase of a backup.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::Display,
    strum::IntoStaticStr,
)]
pub enum BackupPhase {
    /// The backup has not started.
    #[default]
    Pending,
    /// The agent reads the data of the cluster and writes it to the store.
    Running,
    /// The backup is complete: its manifest is in the store.
    Complete,
    /// The backup has failed, and is not tried again.
    Failed,
    /// A phase of a newer operator.
    #[serde(other)]
    Unknown,
}

impl BackupPhase {
    /// Returns true if the phase does not change any more.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Complete | Self::Failed)
    }
}

/// The observed state of a backup.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = for_users)]
pub struct BackupStatus {
    /// The phase.
    #[serde(default)]
    pub phase: BackupPhase,
    /// The place of the backup in its store.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub location: String,
    /// The position in the history of the cluster that the backup contains: for etcd, the revision.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub position: String,
    /// The version of the application that the data is from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub engine_version: String,
    /// The ID of the cluster that the data is from: for etcd, the cluster ID.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster_id: String,
    /// The member that the data was read from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub member: String,
    /// The size of the data, such as 25Mi.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub size: String,
    /// The size of the compressed data in the store.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stored_size: String,
    /// The number of keys or rows, as far as the application reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64")]
    pub keys: Option<i64>,
    /// When the backup started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub started_at: Option<Time>,
    /// When the backup was complete or had failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub finished_at: Option<Time>,
    /// The last drill that restored this backup and found the expected data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ProvenStatus")]
    pub proven: Option<ProvenStatus>,
    /// The drill that found that this backup cannot be restored, or that its data differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DamagedStatus")]
    pub damaged: Option<DamagedStatus>,
    /// The number of pods that were started for this backup.
    #[serde(default, skip_serializing_if = "crate::common::is_default")]
    pub attempts: i32,
    /// The attempts that have failed, in the order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub failed_attempts: Vec<FailedAttempt>,
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64")]
    pub observed_generation: Option<i64>,
    /// Complete: the manifest of the backup is in the store.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_owned()]))]
    pub conditions: Vec<Condition>,
}

/// An attempt that has failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailedAttempt {
    /// When the attempt ended.
    pub at: Time,
    /// The member that the data was read from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub member: String,
    /// The reason in one word.
    #[serde(default)]
    pub reason: String,
    /// The problem and its remedy.
    #[serde(default)]
    pub message: String,
}

/// The result of the last successful drill of a backup.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvenStatus {
    /// When the drill ended.
    pub at: Time,
    /// The version of the application that the backup was restored with.
    #[serde(default)]
    pub version: String,
    /// How long the restore took, from the first byte to the first read, in seconds.
    #[serde(default)]
    pub seconds: i64,
}

/// The result of a drill that found a damaged backup.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DamagedStatus {
    /// When the drill ended.
    pub at: Time,
    /// The damage.
    #[serde(default)]
    pub message: String,
}
