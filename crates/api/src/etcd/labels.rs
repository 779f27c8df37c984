//! Keys and values of labels and annotations on etcd's objects, with those that all engines share.

pub use crate::common::labels::*;

/// The name of the `EtcdCluster` that an object belongs to. The key is qualified by the engine, so that clusters of
/// different engines can have the same name in one namespace.
pub const CLUSTER: &str = "etcd.evenkeel.dev/cluster";
/// The value of [`ROLE`] for a voter that clients may reach.
pub const ROLE_VOTER: &str = "voter";

/// On pods: the value of `--initial-cluster`, read by the container at every start.
pub const INITIAL_CLUSTER: &str = "evenkeel.dev/initial-cluster";
/// On pods: the value of `--initial-cluster-state`, read by the container at every start.
pub const INITIAL_CLUSTER_STATE: &str = "evenkeel.dev/initial-cluster-state";

/// Returns the label selector of a cluster's pods, as `kubectl -l` takes it.
pub fn selector(cluster: &str) -> String {
    format!("{CLUSTER}={cluster}")
}
