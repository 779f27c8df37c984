//! What an etcd SRE knows. Everything here is pure: facts in, plan out.

pub mod facts;
pub mod identity;
pub mod names;
pub mod plan;
pub mod view;

mod decide;

pub use decide::{Etcd, Status};
