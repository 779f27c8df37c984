//! Backups and the pods that restore them, in the model.

use evenkeel_api::{ClusterKind, ClusterReference, Restore, RestoreSource, RestoreSpec};
use evenkeel_etcd::facts::RestoreRequest;
use evenkeel_etcd::identity::{ClusterId, Identity, RestoreOrigin, Uid};
use evenkeel_etcd::names::Epoch;
use evenkeel_etcd::observe::restore_request;

use crate::model::TemplateVariant;

/// A backup; [`NO_BACKUP`] for none.
pub type BackupNumber = u8;

/// The number for an empty cluster.
pub const NO_BACKUP: BackupNumber = 0;

/// The backups that a spec can name.
pub const BACKUPS: [BackupNumber; 2] = [1, 2];

/// Returns the restore of a backup; `None` for an empty cluster.
pub fn restore_of(backup: BackupNumber) -> Option<RestoreOrigin> {
    (backup != NO_BACKUP).then(|| RestoreOrigin {
        id: Uid(4000 + u128::from(backup)),
        backup: backup.to_string(),
        in_place: None,
    })
}

/// The `Restore` of an explored cluster. There is at most one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelRestore {
    /// The backup.
    pub backup: BackupNumber,
    /// The epoch of the cluster that is given up. In the model the cluster ID is the epoch.
    pub replaces: Epoch,
    /// Whether it is to be undone.
    pub undo: bool,
}

impl ModelRestore {
    /// Returns the restore that the identity names.
    pub fn origin(self) -> RestoreOrigin {
        let replaces = ClusterId(u64::from(self.replaces.0));
        RestoreOrigin::in_place("restore", &self.backup.to_string(), replaces)
    }

    /// Returns the request as the real code selects it among the Restores of a cluster.
    pub fn request(self, identity: &Identity) -> Option<RestoreRequest> {
        let mut restore = Restore::new(
            "restore",
            RestoreSpec {
                cluster: ClusterReference {
                    kind: ClusterKind::EtcdCluster,
                    name: "orders".to_owned(),
                },
                from: RestoreSource {
                    backup: self.backup.to_string(),
                },
                replaces: format!("{:x}", self.replaces.0),
                keep_old_data_for: "1h".to_owned(),
                undo: self.undo,
            },
        );
        restore.metadata.namespace = Some("shop".to_owned());
        restore_request::select(&[restore], identity)
    }
}

/// Returns the backup of a restore.
pub fn backup_of(restore: Option<&RestoreOrigin>) -> BackupNumber {
    let backup = restore.and_then(|restore| restore.backup.parse().ok());
    backup.unwrap_or(NO_BACKUP)
}

/// A pod that fills the volume of a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelRestorePod {
    /// The uid.
    pub uid: Uid,
    /// The epoch.
    pub epoch: Epoch,
    /// The claim that the pod was created for. It mounts the claim of the same name.
    pub claim: Uid,
    /// The backup.
    pub backup: BackupNumber,
    /// The identifier of the restore.
    pub restore: Uid,
    /// The template that the pod was built from.
    pub template: TemplateVariant,
    /// Its progress.
    pub state: ModelRestoreState,
    /// Whether the pod is Terminating. Its containers may run until it is removed.
    pub is_terminating: bool,
    /// Whether the pod was created, and has failed, before every timeout.
    pub is_old: bool,
}

/// The progress of a restore pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ModelRestoreState {
    /// Not released.
    Held,
    /// Released and not finished.
    Running,
    /// The data is on the volume that was mounted.
    Succeeded,
    /// Failed before the data directory was touched.
    Failed,
    /// Failed because the data directory is not empty.
    FailedToInstall,
}
