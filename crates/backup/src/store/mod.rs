//! The controller of BackupStores: a pod writes, reads and deletes a test object when the spec, the credentials or the CA
//! have changed, and regularly afterwards.

mod decide;
mod facts;
mod listing;
mod observe;
mod status;

pub(crate) use status::{READY, word};

pub use decide::{StoreCreate, StoreEngine, StorePatch, StoreStep, StoreWait, step};
pub use facts::{LastCheck, MissingInput, StoreFacts};
pub use listing::{ListingFacts, ListingStep};
pub use observe::{StoreCaches, StoreObjects, StoreReconciler, watch};
