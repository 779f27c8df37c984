//! The etcd engine: the operational knowledge about etcd. `decide` and `build` are pure: facts in, plan and objects out.
//! `observe` and `execute` are thin.

pub mod actions;
pub mod availability;
mod backup;
pub mod backup_drill;
pub mod build;
mod client;
pub mod desired;
pub mod effective_spec;
mod execute;
pub mod facts;
pub mod identity;
mod memory;
pub mod names;
pub mod observe;
pub mod plan;
pub mod preview;
mod reconciler;
mod restore_facts;
pub mod status;
pub mod versions;
pub mod view;
mod watches;

mod decide;
#[cfg(test)]
mod testing;

pub use backup::EtcdBackups;
pub use decide::Etcd;
pub use reconciler::EtcdReconciler;
pub use watches::watch;
