//! The controller of Restores: it reports the progress of a restore in the status of the Restore. The engine of the cluster
//! carries the restore out.

mod decide;
mod facts;
mod observe;
mod status;
#[cfg(test)]
mod testing;

pub use decide::{NotNeededReason, RestoreControl, RestoreStep, RestoreWait, UndoObstacle, step};
pub use facts::{RestoreBackup, RestoreCluster, RestoreFacts, RestoreProgressFacts};
pub use observe::{
    CONTROLLER, ChangedClusters, RestoreCaches, RestoreInputs, RestoreObjects, RestoreReconciler,
    watch,
};
