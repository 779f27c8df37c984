//! The controller of Backups: a pod of the agent reads a snapshot and writes it to the store. Every Backup ends: it is
//! complete, or it has failed at its deadline at the latest.

mod decide;
mod facts;
mod observe;
mod status;

pub use decide::{
    BackupControl, BackupCreate, BackupPatch, BackupStep, BackupWait, MAX_ATTEMPTS, step,
};
pub use facts::{BackupFacts, FailedFacts, SourceFacts, StoreState};
pub use observe::{BackupCaches, BackupObjects, BackupReconciler, pod_name, watch};
