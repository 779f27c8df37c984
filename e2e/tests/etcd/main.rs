//! Stories of etcd clusters: a real operator, Kubernetes and etcd, and clients whose history is checked.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "stories fail by panicking"
)]

/// Stories that harm nodes or the control plane: `make test-all` runs each alone.
mod alone {
    mod drains;
    mod installed;
    pub(crate) mod previous;
}
mod bootstrap;
mod bootstrap_faults;
/// Topics of `make test-all` only.
mod full {
    mod charts;
    mod digest;
    mod edits;
    mod lost_nodes;
    mod new_user;
    mod paused;
    mod rollout_faults;
    mod scale_up_faults;
    mod unknown_members;
    mod warnings;
}
mod alarms;
mod assertions;
mod backup;
mod converged;
mod drift;
mod intents;
mod interrupts;
mod lost_members;
mod new_build;
mod obstacles;
mod on_call;
mod operator_crashes;
mod outages;
mod plan;
mod plugin;
mod rejected_edits;
mod restores;
mod rollouts;
mod scale;
mod status;
mod storage;
mod total_loss;
mod upgrade;
mod windows;
