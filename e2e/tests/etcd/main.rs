//! Stories of etcd clusters: a real operator, real Kubernetes, real etcd, and clients whose history is checked throughout.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "stories fail by panicking"
)]

mod alone;
mod begin;
mod bootstrap;
mod charts;
mod digest;
mod drains;
mod edits;
mod gone;
mod grow;
mod heal;
mod interrupted;
mod killed;
mod look;
mod lost;
mod meddled;
mod middle;
mod missing;
mod new_build;
mod newcomer;
mod noted;
mod obstacles;
mod paused;
mod plan;
mod plugin;
mod previous;
mod refused;
mod rolls;
mod scale;
mod storage;
mod strangers;
mod truth;
mod upgrade;
mod windows;
