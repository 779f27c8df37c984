//! Tests of the lab: it is a real Kubernetes, and each fault is real. Observations never use the code that injects the faults.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    reason = "stories fail by panicking"
)]

/// Stories that harm nodes or the control plane: `make test-all` runs each alone.
mod alone {
    mod control_faults;
    pub(crate) mod node_faults;
    mod volumes_lost;
}
/// Topics of `make test-all` only.
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
