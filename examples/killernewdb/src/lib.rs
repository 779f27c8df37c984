//! A complete operator on `evenkeel-runtime`, for a made-up replicated database. `docs/write-an-operator.md` explains it.
#![expect(
    unreachable_pub,
    reason = "KubeSchema copies each struct, with its pub, into a function"
)]

pub mod client;
pub mod decide;
pub mod facts;
pub mod member;
pub mod objects;
pub mod operator;
pub mod resource;

pub use resource::{KillerNewDb, KillerNewDbSpec};
