//! Controllers for backups of all engines: stores are checked, and backups are taken, by pods of the agent. The operator
//! itself never opens a store. It reads whether a Secret has the required keys, and keeps nothing of their values.
//!
//! An engine implements [`BackupEngine`]: it names the members that a snapshot can be read from. It also carries out each
//! `Restore`; [`restores`] only reports its progress.

pub mod agent_pod;
pub mod backup;
mod conditions;
mod engine;
pub mod outcome;
mod pod_facts;
pub mod restore;
pub mod restores;
pub mod schedule;
pub mod store;
mod texts;

pub use engine::{
    BackupEngine, ClusterSource, DrillParts, DrillSource, Engines, RestoreState, SnapshotSource,
};
pub use pod_facts::{OwnPod, PodFacts};
