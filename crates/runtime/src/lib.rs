//! The loop that every engine shares: *observe* facts, *decide* with a pure function, *act* on the plan.
//!
//! An [`Engine`] is what one application's administrator knows, as a synchronous function from facts to a [`Plan`]. It
//! needs no cluster to be tested, can be explored exhaustively, and its plan says why.

mod backoff;
pub mod cache;
mod client;
mod clock;
mod controller;
mod decision_log;
mod engine;
mod events;
mod execute;
mod expectations;
pub mod explore;
#[cfg(test)]
mod fake;
mod lease;
mod metrics;
mod observed;
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

pub use backoff::Backoff;
pub use cache::OwnedCache;
pub use client::{ClientLayer, InstrumentedService, client};
pub use clock::{Clock, SharedClock, SystemClock, TestClock, with_timeout};
pub use controller::{ControllerParts, Triggers, run_controller};
pub use decision_log::{Decision, Explanation, decision_log_meta};
pub use engine::Engine;
pub use events::{EventRecorder, EventSpec, EventType};
pub use expectations::{CachedVersion, Expectations, Expected, ObjectKey};
pub use lease::{LeaderElector, Leadership, LeaseEvaluation, LeaseRecord, LeaseSettings, evaluate};
pub use metrics::Metrics;
pub use observed::Observed;
pub use plan::{Plan, Requeue};
pub use presence::Presence;
pub use prober::{Probe, ProbeIntervals, Prober, ProberParts};
pub use random::{Random, SharedRandom, SystemRandom, TestRandom, jitter};
pub use reconciler::{
    Action, Error, ManagedResource, Observation, ObserveFrom, Outcome, Reconciler, ResourceKey,
};
pub use serve::{Health, Stage, serve};
pub use shutdown::shutdown;
pub use simple::{OwnedObjects, SimpleEngine, SimpleReconciler};
pub use time::UnixTime;
pub use watches::{CacheSync, Scope, WatchedStore, Watches};
pub use writer::{KubeObject, ObjectWriter};
