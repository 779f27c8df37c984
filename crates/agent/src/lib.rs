//! The agent: the program that runs inside pods and moves data between an application and a store of backups. It executes one
//! task of [`evenkeel_archive::tasks`] and ends.

mod certificates;
pub mod etcd;
mod failure;
pub mod fetch;
pub mod install;
pub mod list;
pub mod run;
mod space;
mod spool;
mod stop;

pub use failure::AgentFailure;
pub use stop::{StopCause, StopSignal};
