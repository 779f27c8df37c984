//! The manifest of a backup: the last object that is written, and the proof that the backup is complete.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version of the layout and of manifests that this crate writes. A reader rejects newer ones.
pub const FORMAT_VERSION: u32 = 1;

/// The description of a complete backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// The version of the format.
    pub format_version: u32,
    /// The engine, such as `etcd`.
    pub engine: String,
    /// The version of the application that the data was read from, such as `3.6.16`.
    pub engine_version: String,
    /// The cluster.
    pub cluster: ClusterInfo,
    /// The number of the bootstrap or restore that the data belongs to.
    pub epoch: u32,
    /// The position in the cluster's history. Only the engine can compare positions.
    pub position: Value,
    /// The position for people, such as `revision 4711`.
    pub position_text: String,
    /// When reading began, in RFC 3339.
    pub started_at: String,
    /// When all data was stored, in RFC 3339.
    pub finished_at: String,
    /// The data before compression.
    pub plain: Content,
    /// The data as it is stored.
    pub stored: Content,
    /// The compression, `zstd`.
    pub compression: String,
    /// The engine's own facts, such as hashes and sampled keys, for verification and drills.
    pub verification: Value,
    /// The resource that described the cluster, without its status.
    pub resource: Value,
    /// The version of the program that wrote the backup.
    pub written_by: String,
}

/// The cluster that a backup is from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterInfo {
    /// The namespace of the resource.
    pub namespace: String,
    /// The name of the resource.
    pub name: String,
    /// The random identifier of the cluster's history.
    pub lineage: String,
    /// The application's own ID of the cluster.
    pub cluster_id: String,
    /// The member that the data was read from.
    pub member: String,
}

/// The size and checksum of a content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Content {
    /// The number of bytes.
    pub size: u64,
    /// The SHA-256 in hexadecimal digits.
    pub sha256: String,
}
