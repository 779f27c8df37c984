//! The keys by which objects are marked and found again. They are written on users' objects, so none of them ever
//! changes its meaning.

/// Which cluster an object belongs to.
pub const CLUSTER: &str = "etcd.evenkeel.dev/cluster";
/// What part a pod has. The client Service and the disruption budget select by it, so only a pod that has it gets
/// traffic.
pub const ROLE: &str = "evenkeel.dev/role";
/// The [`ROLE`] of a member with a vote, once clients may reach it.
pub const ROLE_VOTER: &str = "voter";

/// What program it is: `etcd`.
pub const APP_NAME: &str = "app.kubernetes.io/name";
/// Which installation of it: the cluster's name.
pub const APP_INSTANCE: &str = "app.kubernetes.io/instance";
/// Of which version.
pub const APP_VERSION: &str = "app.kubernetes.io/version";
/// What it is within the whole.
pub const APP_COMPONENT: &str = "app.kubernetes.io/component";
/// What whole it is part of.
pub const APP_PART_OF: &str = "app.kubernetes.io/part-of";
/// Who looks after it: [`MANAGER`].
pub const APP_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The value of [`APP_MANAGED_BY`], and the field manager of everything that is applied.
pub const MANAGER: &str = "evenkeel";

/// The readiness gate of members' pods: set once etcd has joined and its flags no longer join anything. The kubelet
/// reports the pod Ready only after it has seen the gate, and therefore the flags.
pub const GATE_JOINED: &str = "evenkeel.dev/joined";

/// On pods: the members that etcd is to join, read by the container at every start.
pub const INITIAL_CLUSTER: &str = "evenkeel.dev/initial-cluster";
/// On pods: whether etcd starts a new cluster or joins an existing one.
pub const INITIAL_CLUSTER_STATE: &str = "evenkeel.dev/initial-cluster-state";
/// On pods: what etcd's data is mounted from, within its volume; something that cannot be mounted while it must not start.
pub const DATA_SUB_PATH: &str = "evenkeel.dev/data-sub-path";
/// On claims and pods: the random mark of the cluster's history.
pub const LINEAGE: &str = "evenkeel.dev/lineage";
/// On claims and pods: which bootstrap or restore of the cluster it belongs to.
pub const EPOCH: &str = "evenkeel.dev/epoch";
/// On claims and pods: the number of the member within its lineage.
pub const SERIAL: &str = "evenkeel.dev/serial";
/// On claims: the claim's uid and volume when its member joined. Anything else under the same name is not its data.
pub const JOINED_VOLUME: &str = "evenkeel.dev/joined-volume";
/// On claims: the StorageClass that was asked for. Something in between may have put another one into the claim.
pub const STORAGE_CLASS: &str = "evenkeel.dev/storage-class";

/// On pods: the version of etcd. On claims: the one that its member was last seen to run.
pub const VERSION: &str = "evenkeel.dev/version";
/// On pods: what stands for all that it was built from and that users have a say in.
pub const POD_TEMPLATE_HASH: &str = "evenkeel.dev/pod-template-hash";
/// On the client Service: which of its annotations are the spec's, so that those that it no longer has are taken off.
pub const SERVICE_ANNOTATIONS: &str = "evenkeel.dev/service-annotations";
/// On clusters, any text: when it changes, members are restarted one by one. On pods: what it was when they were built.
pub const RESTARTED_AT: &str = "evenkeel.dev/restarted-at";

/// On claims: when its member was found to be removed. It is kept for a while, and then deleted.
pub const REMOVED_AT: &str = "evenkeel.dev/removed-at";

/// The selector of a cluster's pods, as `kubectl -l` takes it.
pub fn selector(cluster: &str) -> String {
    format!("{CLUSTER}={cluster}")
}
