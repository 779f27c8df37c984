//! The loop that every engine shares: *observe* facts, *decide* with a pure function, *act* on the plan.
//!
//! An [`Engine`] is what one application's administrator knows, as a synchronous function from facts to a [`Plan`]. It
//! needs no cluster to be tested, can be explored exhaustively, and its plan says why.

mod engine;
mod plan;
mod seen;
mod time;

pub use engine::Engine;
pub use plan::{Plan, Wake};
pub use seen::Seen;
pub use time::Time;
