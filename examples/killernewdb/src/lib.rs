//! A complete operator on Evenkeel's loop, for a made-up database of members that keep data on disk. How it is put together, and
//! why, is told in `docs/write-an-operator.md`.
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
