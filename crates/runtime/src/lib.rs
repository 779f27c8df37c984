//! The loop that every engine shares: *observe* facts, *decide* with a pure function, *act* on the plan.
//!
//! An [`Engine`] is what one application's administrator knows, as a synchronous function from facts to a [`Plan`]. It
//! needs no cluster to be tested, can be explored exhaustively, and its plan says why.

mod backoff;
mod carry;
mod clock;
mod declined;
mod engine;
mod events;
pub mod explore;
#[cfg(test)]
mod fake;
mod hand;
mod journal;
mod keeper;
mod lease;
mod metrics;
mod operate;
mod plan;
mod prober;
pub mod program;
mod random;
mod requests;
mod run;
mod seen;
mod serve;
pub mod shelf;
mod shutdown;
mod streams;
mod thing;
mod time;
mod written;

pub use backoff::Backoff;
pub use clock::{Clock, SharedClock, SystemClock, TestClock, within};
pub use engine::Engine;
pub use events::{Events, Notice, NoticeKind};
pub use hand::{Hand, Object};
pub use journal::{Decision, Explained, journal_of};
pub use keeper::{Application, Keeper, Objects};
pub use lease::{Candidate, Judgement, Leadership, LeaseSettings, Record, judge};
pub use metrics::Metrics;
pub use operate::{Action, Error, Key, Look, Managed, Operate, Outcome, Sight};
pub use plan::{Plan, Wake};
pub use prober::{Probe, Prober, ProberParts, Rhythm};
pub use random::{Random, SharedRandom, SystemRandom, TestRandom, jitter};
pub use requests::{Counted, Requests, client};
pub use run::{Parts, Wakers, run};
pub use seen::Seen;
pub use serve::{Health, Stage, serve};
pub use shelf::Shelf;
pub use shutdown::shutdown;
pub use streams::{Listed, Scope, Streams, Touched};
pub use thing::Thing;
pub use time::Time;
pub use written::{Change, InStore, Ref, Written};
