//! What an etcd SRE knows. Deciding and building are pure: facts in, plan out. `observe` and `act` are thin.

pub mod accept;
mod act;
pub mod build;
pub mod certificates;
pub mod facts;
pub mod foresee;
pub mod identity;
pub mod names;
pub mod observe;
mod operator;
pub mod plan;
pub mod tell;
pub mod versions;
pub mod view;
pub mod wanted;
mod watches;

mod decide;
#[cfg(test)]
mod fake;
#[cfg(test)]
mod testing;

pub use decide::{Etcd, Status};
pub use operator::Operator;
pub use watches::watch;
