//! Keys of labels, annotations and conditions that every engine writes on its objects. They are part of the format of
//! users' objects, so a released key never changes its meaning.

/// The role of a pod within its cluster. The client Service and the PodDisruptionBudget select by it, so only a pod
/// that has it receives traffic.
pub const ROLE: &str = "evenkeel.dev/role";

/// The name of the application, such as `etcd`.
pub const APP_NAME: &str = "app.kubernetes.io/name";
/// The instance of the application: the cluster's name.
pub const APP_INSTANCE: &str = "app.kubernetes.io/instance";
/// The version of the application.
pub const APP_VERSION: &str = "app.kubernetes.io/version";
/// The component within the architecture.
pub const APP_COMPONENT: &str = "app.kubernetes.io/component";
/// The higher-level application that the object is part of.
pub const APP_PART_OF: &str = "app.kubernetes.io/part-of";
/// The tool that manages the object: [`MANAGER`].
pub const APP_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The value of [`APP_MANAGED_BY`], and the field manager of every server-side apply.
pub const MANAGER: &str = "evenkeel";

/// The readiness gate of members' pods. It is set after the member has joined and its start flags were switched to
/// its existing data. The kubelet reports the pod Ready only after it has seen the gate, and therefore the flags.
pub const GATE_JOINED: &str = "evenkeel.dev/joined";

/// On pods: the subpath of the volume that is mounted as the data directory. A value that cannot be mounted keeps the
/// container from starting.
pub const DATA_SUB_PATH: &str = "evenkeel.dev/data-sub-path";
/// On PersistentVolumeClaims and pods: the random identifier of the cluster's history.
pub const LINEAGE: &str = "evenkeel.dev/lineage";
/// On PersistentVolumeClaims and pods: the number of the bootstrap or restore that the object belongs to.
pub const EPOCH: &str = "evenkeel.dev/epoch";
/// On PersistentVolumeClaims and pods: the number of the member within its lineage.
pub const SERIAL: &str = "evenkeel.dev/serial";
/// On PersistentVolumeClaims: the claim's uid and volume name when its member joined. A claim with the same name and
/// other values does not hold the member's data.
pub const JOINED_VOLUME: &str = "evenkeel.dev/joined-volume";
/// A label of pods that fill the volume of a member from a backup, and of no other pod: the identifier of the restore.
pub const RESTORE: &str = "evenkeel.dev/restore";
/// On restore pods: the lineage, the epoch and the serial of the member.
pub const RESTORE_MEMBER: &str = "evenkeel.dev/restore-member";
/// On restore pods: the uid of the PersistentVolumeClaim that the pod was created for.
pub const RESTORE_CLAIM: &str = "evenkeel.dev/restore-claim";
/// On PersistentVolumeClaims: the identifier of the restore that has filled the volume, the claim's uid and its volume name.
/// A claim with the same name and other values does not hold the restored data.
pub const RESTORED_VOLUME: &str = "evenkeel.dev/restored-volume";
/// On pods: `true` if the member first started on restored data.
pub const RESTORED: &str = "evenkeel.dev/restored";
/// On PersistentVolumeClaims: the StorageClass that the operator requested. A webhook may have put another one into
/// the claim.
pub const STORAGE_CLASS: &str = "evenkeel.dev/storage-class";

/// On pods: the application's version. On PersistentVolumeClaims: the version that the member was last observed to run.
pub const VERSION: &str = "evenkeel.dev/version";
/// On pods: the hash of the user's inputs that the pod was built from.
pub const POD_TEMPLATE_HASH: &str = "evenkeel.dev/pod-template-hash";
/// On the client Service: the keys of the annotations that came from the spec, so that keys that leave the spec are
/// removed from the Service.
pub const SERVICE_ANNOTATIONS: &str = "evenkeel.dev/service-annotations";
/// On the cluster resource: any text; a change restarts the members one by one. On pods: the value when the pod was
/// built.
pub const RESTARTED_AT: &str = "evenkeel.dev/restarted-at";

/// On PersistentVolumeClaims: the time at which the operator observed that the member was removed. The claim is
/// deleted after the retention period.
pub const REMOVED_AT: &str = "evenkeel.dev/removed-at";
/// On PersistentVolumeClaims: until when the claim is kept although a restore has replaced its cluster. The restore can be
/// undone until then.
pub const REPLACED_UNTIL: &str = "evenkeel.dev/replaced-until";
/// A label of PersistentVolumeClaims: `true` if a restore has replaced the cluster. It is written together with
/// [`REPLACED_UNTIL`].
pub const REPLACED: &str = "evenkeel.dev/replaced";
/// A label of PersistentVolumeClaims: `true` if the member was removed and its volume is retained. It is written together
/// with [`REMOVED_AT`], so that `kubectl get pvc -l evenkeel.dev/removed=true` lists the retained volumes.
pub const REMOVED: &str = "evenkeel.dev/removed";
