//! Engine-neutral controller for stateful applications on Kubernetes: *observe* facts, *decide* with a pure function,
//! *execute* the plan.
//!
//! An [`Engine`] is the knowledge of how to run one application, as a synchronous function from facts to a [`Plan`]. It
//! needs no cluster to be tested, and all states of a small model can be explored exhaustively ([`explore`]). A
//! [`Reconciler`] observes and executes for an engine; [`SimpleEngine`] is the short way. [`program`] runs them.

mod backoff;
pub mod cache;
mod client;
mod clock;
mod controller;
mod decision_log;
mod engine;
mod error;
mod events;
mod execute;
mod expectations;
#[cfg(test)]
mod fake;
mod lease;
mod metrics;
mod observed;
mod pass;
mod plan;
mod presence;
mod prober;
pub mod program;
mod random;
mod reconciler;
mod retries;
mod serve;
mod shutdown;
mod simple;
mod time;
mod watches;
mod writer;

pub use cache::OwnedCache;
pub use clock::{Clock, SharedClock, SystemClock, TestClock, with_timeout};
pub use controller::Triggers;
pub use decision_log::{
    ActionRecord, Decision, DecisionResult, Explanation, PlanRecord, decision_log_meta,
};
pub use engine::{Engine, PlainData};
pub use error::Error;
pub use events::{EventSpec, EventType};
pub use expectations::{CachedVersion, Expectations, Expected, ObjectKey};
pub use lease::{ALL_NAMESPACES, LEASE_NAMESPACES, LEASE_PROGRAM, Leadership};
pub use metrics::Metrics;
pub use observed::Observed;
pub use plan::{Action, Plan, Requeue};
pub use presence::Presence;
pub use random::{Random, SharedRandom, SystemRandom, TestRandom, jitter};
pub use reconciler::{ManagedResource, Observation, ObserveFrom, Outcome, Reconciler, ResourceKey};
pub use shutdown::shutdown;
pub use simple::{OwnedObjects, SimpleEngine, SimpleReconciler};
pub use time::UnixTime;
pub use watches::{CacheSync, Scope, WatchedStore, Watches};
pub use writer::{KubeObject, ObjectWriter};
