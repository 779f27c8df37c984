//! A client workload against etcd that records its history, and the checkers of that history. For tests only.
//!
//! [`Workload`] drives some clients against a cluster while things break: puts, compare-and-swaps and linearizable
//! reads with unique values. Beside it a watch collects every write in etcd's own order. Both together are a
//! [`History`], which [`check()`] judges twice: once by etcd's revisions, quickly, and once as if
//! etcd had none. [`check_and_prove`] also forges violations into copies and insists that each is found.
//!
//! ```no_run
//! use std::time::Duration;
//! use evenkeel_history::{Config, Target, Workload, check_and_prove};
//!
//! let target = Target { members: vec!["http://127.0.0.1:2379".into()], service: Vec::new(), tls: None };
//! let workload = Workload::start(Config::default(), target, Duration::from_secs(30))?;
//! // … break things …
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

pub use check::{Verdict, check, check_and_prove};
pub use file::FileError;
pub use history::{
    Answer, By, Call, Client, History, Key, Kind, Lane, Op, Outcome, Snapshot, Time, Value,
    Versioned, Write,
};
pub use stats::Stats;
pub use target::{Target, Tls};
pub use workload::{Clock, Config, StartError, Unfinished, Workload};
