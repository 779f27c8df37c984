//! The lab itself: that it is a real Kubernetes, and that each of its faults is real. Observers never use the code
//! that injects.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    reason = "stories fail by panicking"
)]

mod commands;
mod control_faults;
mod host;
mod images;
mod kubectl;
mod lifecycle;
mod network;
mod node_faults;
mod pod_faults;
mod pods;
mod security;
mod stateless;
mod volumes;
mod volumes_lost;
