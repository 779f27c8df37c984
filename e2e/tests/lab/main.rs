//! The lab itself: that it is a real Kubernetes, and that each of its faults is real. Observers never use the code
//! that injects.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    reason = "stories fail by panicking"
)]

/// Stories that hurt nodes or the control plane: each runs alone, in `make test-all`.
mod alone {
    mod control_faults;
    pub(crate) mod node_faults;
    mod volumes_lost;
}
/// Topics that only `make test-all` has.
mod full {
    mod commands;
    mod images;
    mod kubectl;
    mod security;
}
mod host;
mod lifecycle;
mod network;
mod pod_faults;
mod pods;
mod stateless;
mod volumes;
