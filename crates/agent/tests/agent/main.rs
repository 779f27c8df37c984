//! Tests of the agent's program on real etcd processes on loopback, with a directory as the store.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests end a test at the first error"
)]

mod authentication;
mod crc;
mod faults;
mod full;
mod proxy;
mod round_trip;
mod scene;
mod secrets;
