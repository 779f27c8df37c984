//! Facts about restores: the pods that fill the volumes of seeds, and the backups that they read.

use evenkeel_runtime::UnixTime;
use serde::{Deserialize, Serialize};

use crate::identity::{ClusterId, RestoreOrigin, Uid};
use crate::names::{Epoch, Serial};

/// A `Restore` of this cluster that is to be carried out or undone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RestoreRequest {
    /// The restore.
    pub origin: RestoreOrigin,
    /// The ID of the cluster that is given up.
    pub replaces: ClusterId,
    /// How long the volumes of the replaced cluster are kept, in seconds.
    pub keep_seconds: u64,
    /// Whether the restore is to be undone.
    pub undo: bool,
}

/// A volume that a restore has filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RestoredVolume {
    /// The identifier of the restore.
    pub restore: Uid,
    /// The uid of the claim.
    pub claim: Uid,
    /// The volume that the claim was bound to.
    pub volume: Uid,
}

/// A pod that fills the volume of a seed with the data of a backup. It runs once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RestorePodFacts {
    /// The serial of the seed.
    pub serial: Serial,
    /// The epoch of the seed.
    pub epoch: Epoch,
    /// The uid of the object.
    pub uid: Uid,
    /// The uid of the claim that the pod was created for.
    pub claim: Uid,
    /// The identifier of the restore.
    pub restore: Uid,
    /// When the pod was created.
    pub created_at: UnixTime,
    /// Its progress.
    pub state: RestorePodState,
    /// The hash of the inputs that the pod was built from.
    pub template_hash: Option<Uid>,
    /// Whether no container has started.
    pub is_idle: bool,
    /// Whether the pod is terminating.
    pub is_terminating: bool,
    /// The problem of the pod, in Kubernetes' words. No decision depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl RestorePodFacts {
    /// Returns true if no container of the pod runs any more, or ever will.
    pub fn is_finished(&self) -> bool {
        match self.state {
            RestorePodState::Held | RestorePodState::Running(_) => false,
            RestorePodState::Succeeded | RestorePodState::Failed(_) => true,
        }
    }
}

/// The progress of a restore pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RestorePodState {
    /// The pod is scheduled and has its volume, and the operator does not let it start yet.
    Held,
    /// The pod may start, or runs this step.
    Running(RestoreStep),
    /// The data is in the directory that the seed reads.
    Succeeded,
    /// A step has failed.
    Failed(RestoreFailure),
}

/// A step of a restore pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RestoreStep {
    /// The agent downloads the backup and verifies it.
    Fetch,
    /// `etcdutl` writes a data directory beside the one that the seed reads.
    Restore,
    /// The agent renames that directory.
    Install,
}

/// The failure of a restore pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RestoreFailure {
    /// When the pod ended.
    pub at: UnixTime,
    /// The step that failed.
    pub step: RestoreStep,
    /// Whether another attempt may succeed without a change by a user.
    pub is_transient: bool,
    /// The problem and its remedy, for users. No decision depends on it.
    pub message: String,
}

/// The state of a `Backup` that a cluster is to start from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SourceState {
    /// The backup can be restored.
    Usable,
    /// The backup cannot be restored now.
    Unusable(SourceProblem),
}

/// Why a backup cannot be restored.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SourceProblem {
    /// The operator could not read the `Backup` or its `BackupStore`.
    Unreadable,
    /// The `Backup` does not exist.
    BackupMissing,
    /// The `Backup` is not complete yet.
    BackupIncomplete,
    /// The backup has failed.
    BackupFailed,
    /// A drill has found that the backup is damaged.
    BackupDamaged,
    /// The backup is of a newer minor version of etcd, or of a version that the operator does not know.
    NewerVersion(String),
    /// The `BackupStore` of this name does not exist.
    StoreMissing(String),
    /// The `BackupStore` of this name is not ready.
    StoreNotReady(String),
    /// The operator was started without the image of the agent.
    NoAgentImage,
    /// The members have no volumes.
    EphemeralStorage,
}

impl SourceProblem {
    /// Returns true if the problem may end without a change by a user.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreadable
            | Self::BackupMissing
            | Self::BackupIncomplete
            | Self::StoreMissing(_)
            | Self::StoreNotReady(_) => true,
            Self::BackupFailed
            | Self::BackupDamaged
            | Self::NewerVersion(_)
            | Self::NoAgentImage
            | Self::EphemeralStorage => false,
        }
    }
}
