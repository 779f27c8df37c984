//! The tasks of the agent: requests, which the operator writes into an annotation of the agent's pod, and outcomes, which the
//! agent writes as its termination message. Neither contains a secret. An outcome has at most 4,096 bytes of JSON.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::manifest::{ClusterInfo, Manifest};

/// A store as the agent's container sees it: secrets are files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StoreConfig {
    /// A bucket.
    S3(S3Config),
    /// A directory on a mounted volume.
    Directory(PathBuf),
}

/// A bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct S3Config {
    /// The name of the bucket.
    pub bucket: String,
    /// The path in the bucket; empty for its root.
    #[serde(default)]
    pub prefix: String,
    /// The region.
    pub region: String,
    /// The URL of the server; Amazon S3 if unset.
    pub endpoint: Option<String>,
    /// Whether the bucket is a part of the path.
    pub path_style: bool,
    /// The source of credentials.
    pub credentials: CredentialSource,
    /// A PEM file with CA certificates that replace the system's.
    pub ca_file: Option<PathBuf>,
    /// The encryption by the server.
    pub encryption: Option<ServerEncryption>,
    /// Whether http is allowed.
    pub allow_http: bool,
    /// Whether the endpoint may resolve to private addresses.
    pub allow_private_addresses: bool,
}

/// The source of credentials. There is no default: a missing source is an error, never a metadata service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CredentialSource {
    /// A directory with the files `accessKeyID`, `secretAccessKey` and optionally `sessionToken`. They are read again when
    /// they change.
    Directory(PathBuf),
    /// A role that is assumed with a token.
    WebIdentity {
        /// The ARN of the role.
        role_arn: String,
        /// The file with the token.
        token_file: PathBuf,
        /// The URL of the security token service; Amazon's in the region if unset.
        endpoint: Option<String>,
    },
}

/// The encryption by the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ServerEncryption {
    /// With the server's own key.
    Server,
    /// With this key of the key management service.
    Kms(String),
}

/// A request to the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// The store.
    pub store: StoreConfig,
    /// The task.
    pub task: Task,
    /// How many seconds the task may take.
    pub deadline_seconds: u64,
}

/// A task of the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Task {
    /// Writes, reads and deletes a test object.
    CheckStore,
    /// Reads a snapshot from etcd and stores it as a backup.
    SnapshotEtcd(EtcdSnapshotTask),
    /// Downloads a backup, verifies it and writes it to a file.
    Fetch(FetchTask),
    /// Moves restored data into place.
    Install(InstallTask),
    /// Compares a restored etcd with the manifest of the backup that it was restored from.
    DrillEtcd(EtcdDrillTask),
    /// Deletes the backups that a policy does not keep.
    Prune(PruneTask),
    /// Reads the manifest of one backup.
    ReadManifest {
        /// The place of the backup in the store.
        location: String,
    },
    /// Lists the backups in the store on the standard output, one JSON object per line.
    List,
}

/// A snapshot of etcd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EtcdSnapshotTask {
    /// The client URL of the member.
    pub endpoint: String,
    /// The directory with `ca.crt`, `tls.crt` and `tls.key`.
    pub tls: PathBuf,
    /// The cluster and the member.
    pub cluster: ClusterInfo,
    /// The epoch.
    pub epoch: u32,
    /// The version of etcd that the member runs.
    pub version: String,
    /// The quota of the member in bytes: the snapshot is aborted before it fills the member.
    pub quota: u64,
    /// The resource, without its status.
    pub resource: Value,
    /// A name that the operator chose for this attempt. A second attempt with the same name does not create a second backup.
    pub name: String,
}

/// A download.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FetchTask {
    /// The place of the backup in the store.
    pub location: String,
    /// The file to write.
    pub file: PathBuf,
    /// The engine that the backup must be of.
    pub engine: String,
    /// The version of the application that will read the data. A backup of a newer minor version is rejected.
    pub version: String,
    /// The number of bytes that the restore needs per byte of data, in percent; checked against the free space.
    pub space_percent: u32,
    /// The directory to which a new CA and a certificate for 127.0.0.1 are written, for an application that serves the data in
    /// the same pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificates: Option<PathBuf>,
}

/// The last step of a restore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstallTask {
    /// The directory that the restore has written.
    pub from: PathBuf,
    /// The directory that the application reads. It must not exist or be empty.
    pub to: PathBuf,
    /// Files and directories of the restore that are deleted.
    pub remove: Vec<PathBuf>,
}

/// A comparison of restored data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EtcdDrillTask {
    /// The place of the backup in the store.
    pub location: String,
    /// The URL of the restored etcd, on loopback.
    pub endpoint: String,
    /// The directory with `ca.crt`, `tls.crt` and `tls.key`, if the URL is https. The certificate is one of the user `root`: the
    /// data of a cluster that requires authentication can be compared without a password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<PathBuf>,
    /// When the drill began, in RFC 3339.
    pub started_at: String,
}

/// The deletion of backups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PruneTask {
    /// The engine.
    pub engine: String,
    /// The namespace of the cluster.
    pub namespace: String,
    /// The name of the cluster.
    pub name: String,
    /// The lineage of the cluster. Backups of other lineages are never deleted.
    pub lineage: String,
    /// The places of the backups to delete.
    pub delete: Vec<String>,
}

/// The outcome of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// The task is done.
    Succeeded(TaskResult),
    /// The task has failed.
    Failed(TaskFailure),
}

/// The result of a task that is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TaskResult {
    /// The store can be used.
    StoreChecked {
        /// Whether the store creates an object only if it does not exist.
        conditional_writes: bool,
    },
    /// A backup is complete, or was read.
    Backup {
        /// Its place in the store.
        location: String,
        /// A summary of its manifest.
        summary: BackupSummary,
    },
    /// Data was fetched or installed.
    Done,
    /// The restored data is the expected data.
    Proven {
        /// The seconds from the begin of the drill to the first read.
        seconds: u64,
        /// The number of keys that were compared.
        keys: u64,
    },
    /// Backups were listed in the log.
    Listed {
        /// The number of listed backups.
        listed: u32,
        /// The number of older backups that the log has no room for.
        omitted: u32,
        /// The SHA-256 of the lines, each with its line feed, in hexadecimal digits.
        sha256: String,
    },
    /// Backups were deleted.
    Pruned {
        /// The number of deleted backups.
        deleted: u32,
        /// The backups that the store does not allow to be deleted yet: positions in [`PruneTask::delete`].
        locked: Vec<u32>,
        /// The time in RFC 3339 at which the first of them can be deleted, if the store says so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        locked_until: Option<String>,
    },
}

/// The parts of a manifest that the operator records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupSummary {
    /// The position for people, such as `revision 4711`.
    pub position: String,
    /// The version of the application.
    pub engine_version: String,
    /// The application's own ID of the cluster.
    pub cluster_id: String,
    /// The member.
    pub member: String,
    /// The bytes before compression.
    pub size: u64,
    /// The bytes in the store.
    pub stored_size: u64,
    /// The number of keys, if known.
    pub keys: Option<u64>,
    /// When reading began, in RFC 3339.
    pub started_at: String,
    /// When all data was stored, in RFC 3339.
    pub finished_at: String,
}

impl BackupSummary {
    /// Returns the summary of a manifest. `keys` is a fact of the engine.
    pub fn of(manifest: &Manifest) -> Self {
        Self {
            position: manifest.position_text.clone(),
            engine_version: manifest.engine_version.clone(),
            cluster_id: manifest.cluster.cluster_id.clone(),
            member: manifest.cluster.member.clone(),
            size: manifest.plain.size,
            stored_size: manifest.stored.size,
            keys: manifest.verification.get("keys").and_then(Value::as_u64),
            started_at: manifest.started_at.clone(),
            finished_at: manifest.finished_at.clone(),
        }
    }
}

/// Why a task has failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskFailure {
    /// The machine-readable reason.
    pub reason: FailureReason,
    /// The problem and its remedy, for people.
    pub message: String,
}

/// The reason of a failure. Conditions of resources have the same words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FailureReason {
    /// The bucket, or the directory on the volume, does not exist.
    BucketNotFound,
    /// The server rejects the credentials.
    InvalidCredentials,
    /// The credentials do not allow the operation.
    AccessDenied,
    /// The bucket is in another region.
    WrongRegion,
    /// The server cannot be reached.
    Unreachable,
    /// The certificate of the server is not trusted.
    InvalidCertificate,
    /// The endpoint resolves to an address that is not allowed.
    AddressNotAllowed,
    /// The store has no space left.
    StoreFull,
    /// The store failed otherwise.
    StoreFailed,
    /// The task did not end before its deadline.
    DeadlineExceeded,
    /// No data arrived for a while.
    NoProgress,
    /// The member's database came too close to its quota while it was read.
    MemberTooFull,
    /// The application failed or cannot be reached.
    SourceFailed,
    /// The backup does not exist in the store.
    BackupNotFound,
    /// The backup is damaged or incomplete.
    BackupDamaged,
    /// The backup is of another engine, of a newer version, or of a newer format.
    NotSupported,
    /// The volume has not enough free space.
    NoSpace,
    /// The restored data differs from the manifest.
    DataDiffers,
    /// The request is invalid: operator and agent are of different versions.
    InvalidRequest,
    /// Any other failure.
    Other,
}

impl FailureReason {
    /// Returns true if another attempt may succeed without a change by a person.
    pub fn is_transient(self) -> bool {
        matches!(
            self,
            Self::Unreachable
                | Self::StoreFailed
                | Self::NoProgress
                | Self::SourceFailed
                | Self::Other
        )
    }
}
