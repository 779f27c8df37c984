//! Controllers for backups of all engines: stores are checked, and backups are taken, by pods of the agent. The operator
//! itself never opens a store and never sees credentials; it knows hashes of them.
//!
//! An engine implements [`BackupEngine`]: it names the members that a snapshot can be read from.

pub mod agent_pod;
mod conditions;
mod engine;
pub mod outcome;
pub mod restore;
mod texts;

pub use engine::{BackupEngine, ClusterSource, Engines, SnapshotSource};
