//! Backups at rest: the stores that they are written to, the layout of objects, manifests and checksums, and retention.
//! The crate knows neither Kubernetes nor any engine: the position of a backup is an opaque text.
//!
//! A backup is complete if and only if its manifest is in the store. `docs/reference/backup-layout.md` describes the format.

mod addresses;
pub mod check;
pub mod error;
mod http;
pub mod layout;
pub mod list;
pub mod manifest;
pub mod prune;
pub mod reader;
pub mod retention;
mod s3;
pub mod store;
pub mod tasks;
pub mod writer;

#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod faults_tests;
#[cfg(test)]
mod testing;

pub use error::StoreError;
pub use layout::{BackupLocation, BackupPlace, LineagePath};
pub use store::ArchiveStore;
