//! The summary of backups in the status of a cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// The backups that a cluster asks for. The BackupSchedule and the Backups have the details.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterBackupStatus {
    /// When the last complete backup ended: the recovery point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub last_success: Option<Time>,
    /// When the last backup ended, complete or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub last_backup: Option<Time>,
    /// When the next backup is due, as known at the end of the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Time")]
    pub next_backup: Option<Time>,
    /// Whether a drill has restored a recent backup and found the expected data: True, False or Unknown.
    #[serde(default)]
    pub recoverable: String,
    /// The reason of recoverable, as in the condition of the BackupSchedule.
    #[serde(default)]
    pub reason: String,
}
