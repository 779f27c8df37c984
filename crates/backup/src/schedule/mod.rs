//! Schedules: when a cluster is backed up, which backups are deleted, and when one is restored as a drill.

pub mod build;
pub mod cron;
pub mod decide;
pub mod drill_pod;
pub mod facts;
pub mod observe;
pub mod plan;
mod policy;
mod reconciler;
pub mod status;
#[cfg(test)]
mod testing;
mod watches;

pub use reconciler::{CONTROLLER, ScheduleReconciler};
pub use watches::{ScheduleCaches, watch};
