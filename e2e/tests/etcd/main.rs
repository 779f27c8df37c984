//! Stories of etcd clusters: a real operator, real Kubernetes, real etcd, and clients whose history is checked throughout.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "stories fail by panicking"
)]

/// Stories that hurt nodes or the control plane: each runs alone, in `make test-all`.
mod alone {
    mod drains;
    mod installed;
    pub(crate) mod previous;
}
mod begin;
mod bootstrap;
/// Topics that only `make test-all` has.
mod full {
    mod charts;
    mod digest;
    mod edits;
    mod grow;
    mod interrupted;
    mod lost;
    mod newcomer;
    mod paused;
    mod strangers;
}
mod gone;
mod heal;
mod killed;
mod look;
mod meddled;
mod middle;
mod missing;
mod new_build;
mod noted;
mod obstacles;
mod plan;
mod plugin;
mod read;
mod refused;
mod rolls;
mod scale;
mod storage;
mod truth;
mod upgrade;
mod windows;
