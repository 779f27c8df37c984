//! The part of backups that depends on the application: the members that a snapshot can be read from.

use std::path::PathBuf;
use std::sync::Arc;

use evenkeel_api::{ClusterKind, RestoreProgress};
use evenkeel_archive::manifest::ClusterInfo;
use evenkeel_archive::tasks::Task;
use evenkeel_runtime::{Error, ResourceKey};
use futures::future::BoxFuture;
use serde_json::Value;

/// The knowledge of how to back up one kind of cluster.
pub trait BackupEngine: Send + Sync + 'static {
    /// Returns the kind of the clusters.
    fn kind(&self) -> ClusterKind;

    /// Returns the name of the engine in stores and in names of pods, such as `etcd`.
    fn name(&self) -> &'static str;

    /// Reads a cluster from the API server. Returns `None` if the resource does not exist or is being deleted.
    fn cluster<'a>(
        &'a self,
        key: &'a ResourceKey,
    ) -> BoxFuture<'a, Result<Option<ClusterSource>, Error>>;

    /// Returns the task that reads a snapshot from a member. `name` names the backup: a second snapshot with the same name
    /// does not create a second backup. `tls` is the directory that the Secret of the member is mounted at.
    fn snapshot_task(&self, source: &SnapshotSource, name: &str, tls: PathBuf) -> Task;

    /// Returns the parts of a pod that restores a backup of a cluster, and serves the restored data on loopback. Returns `None`
    /// if the cluster does not exist, or if the engine has no drills.
    fn drill_parts<'a>(
        &'a self,
        _key: &'a ResourceKey,
        _source: DrillSource,
    ) -> BoxFuture<'a, Result<Option<DrillParts>, Error>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Reads the state of a cluster whose data a restore replaces. Returns `None` if the resource does not exist or is being
    /// deleted, or if the engine restores into new clusters only.
    fn restore_state<'a>(
        &'a self,
        _key: &'a ResourceKey,
    ) -> BoxFuture<'a, Result<Option<RestoreState>, Error>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Returns true if a version of the application can read data of another version. A version that is not one cannot be
    /// read.
    fn can_read(&self, _version: &str, _data_version: &str) -> bool {
        false
    }
}

/// The state of a cluster whose data a restore replaces.
#[derive(Clone, Debug, PartialEq)]
pub struct RestoreState {
    /// The ID of the cluster, once its bootstrap is finished.
    pub cluster_id: Option<String>,
    /// The version that is to read the restored data.
    pub version: String,
    /// The last restore that replaces, or has replaced, the data.
    pub progress: Option<RestoreProgress>,
    /// Whether `spec.paused` of the cluster is set: the operator changes nothing.
    pub is_paused: bool,
    /// Whether the members have no volumes.
    pub is_ephemeral: bool,
}

/// The backup that is restored in a drill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrillSource {
    /// The place of the backup in the store.
    pub location: String,
    /// The file that the backup is downloaded to.
    pub file: PathBuf,
    /// A directory for the restored data, on the volume `work`, which is mounted at [`crate::agent_pod::WORK_PATH`].
    pub directory: PathBuf,
    /// When the drill begins, in RFC 3339.
    pub started_at: String,
}

/// The parts of the pod of a drill that depend on the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrillParts {
    /// The version of the application that restores the backup: the cluster's current one.
    pub version: String,
    /// The init container that restores the downloaded file, named [`crate::schedule::drill_pod::RESTORE`].
    pub restore: Value,
    /// The container that serves the restored data on loopback, named [`crate::schedule::drill_pod::SERVE`].
    pub serve: Value,
    /// The directory for certificates of the application and of the task, if they need some.
    pub certificates: Option<PathBuf>,
    /// The task that compares the data.
    pub compare: Task,
    /// The nodes and pull Secrets of the cluster's own pods, from [`crate::agent_pod::placement`].
    pub placement: Value,
}

/// A cluster as a source of backups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSource {
    /// The random identifier of the cluster's history, if the cluster was created.
    pub lineage: Option<String>,
    /// The members that a snapshot can be read from, the most suitable first.
    pub members: Vec<SnapshotSource>,
    /// Why no snapshot can be read now, for people. Empty if there are members.
    pub problem: String,
    /// The nodes and pull Secrets of the cluster's own pods, from [`crate::agent_pod::placement`].
    pub placement: Value,
}

/// A member that a snapshot can be read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotSource {
    /// The URL of the member.
    pub endpoint: String,
    /// The name of the Secret with `ca.crt`, `tls.crt` and `tls.key`.
    pub tls_secret: String,
    /// The cluster and the member.
    pub cluster: ClusterInfo,
    /// The number of the bootstrap or restore.
    pub epoch: u32,
    /// The version that the member runs.
    pub version: String,
    /// The largest size of the data in bytes.
    pub quota: u64,
    /// The resource, without its status.
    pub resource: Value,
}

/// The registered engines. Clones share them.
#[derive(Clone)]
pub struct Engines(Arc<[Box<dyn BackupEngine>]>);

impl Engines {
    /// Returns these engines.
    pub fn new(engines: Vec<Box<dyn BackupEngine>>) -> Self {
        Self(engines.into())
    }

    /// Returns the engine of a kind of clusters; `None` if this program does not have it.
    pub fn get(&self, kind: ClusterKind) -> Option<&dyn BackupEngine> {
        let mut engines = self.0.iter();
        engines
            .find(|engine| engine.kind() == kind)
            .map(|engine| &**engine)
    }
}
