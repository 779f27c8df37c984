//! A client workload against etcd that records its history, and the checkers of that history. For tests only.
//!
//! [`Workload`] runs clients against a cluster while faults happen: puts, compare-and-swaps and linearizable reads
//! with unique values. A watch collects every write in etcd's order. Both form a [`History`], which [`check()`]
//! checks twice: once by etcd's revisions, which is fast, and once without them. [`check_and_prove`] also forges
//! anomalies into copies of the history and fails unless both checkers detect each.
//!
//! ```no_run
//! use std::time::Duration;
//! use evenkeel_history::{Workload, WorkloadConfig, WorkloadTarget, check_and_prove};
//!
//! let target = WorkloadTarget { members: vec!["http://127.0.0.1:2379".into()], service: Vec::new(), tls: None };
//! let workload = Workload::start(WorkloadConfig::default(), target, Duration::from_secs(30))?;
//! // … inject faults …
//! let history = workload.finish(Duration::from_secs(30))?;
//! println!("{}", history.stats(..));
//! println!("{}", check_and_prove(&history)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod check;
mod client;
mod connections;
mod file;
pub mod forge;
mod history;
mod outcome;
mod random;
pub mod simulate;
mod stats;
mod target;
mod watcher;
mod workload;

pub use check::{CheckResult, check, check_and_prove};
pub use file::FileError;
pub use history::{
    ClientId, ClientKind, CompareBy, History, Key, KeyState, Lane, Operation, OperationOutcome,
    Request, Response, RunTime, Snapshot, Value, WatchedWrite,
};
pub use stats::WorkloadStats;
pub use target::{ClientTls, WorkloadTarget};
pub use workload::{RunClock, StartError, UnfinishedError, Workload, WorkloadConfig};
