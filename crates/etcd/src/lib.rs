//! What an etcd SRE knows. Deciding and building are pure: facts in, plan out. `observe` and `act` are thin.

pub mod build;
pub mod certificates;
pub mod facts;
pub mod identity;
mod act;
pub mod names;
pub mod observe;
mod operator;
pub mod plan;
pub mod tell;
pub mod versions;
pub mod view;
mod watches;
pub mod wanted;

mod decide;

pub use decide::{Etcd, Status};
pub use operator::Operator;
pub use watches::watch;
