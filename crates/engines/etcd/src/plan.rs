//! The actions and waits that a plan consists of, as plain data.
//!
//! Each action carries the uid or the earlier value that it was decided on; `execute` writes with
//! these as preconditions. The machine names derive from the variants here; descriptions, events
//! and classes are in [`crate::actions`].

use std::collections::BTreeSet;

use evenkeel_api::Version;
use evenkeel_runtime::{Observed, UnixTime};
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use crate::facts::{OwnedObject, SourceProblem, StartMode, UnknownMember};
use crate::identity::{ClusterId, Identity, Intent, RestoreOrigin, Uid};
use crate::names::{Epoch, Serial};

/// An object that must never exist twice.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, IntoStaticStr,
)]
pub enum EtcdCreate {
    /// The identity object.
    #[strum(serialize = "create-identity")]
    Identity(Identity),
    /// The claim of a member.
    #[strum(serialize = "create-claim")]
    Claim {
        /// The serial of the member.
        serial: Serial,
        /// The epoch of the member.
        epoch: Epoch,
        /// Whether the resource owns the claim, so that it is deleted with it.
        #[serde(default)]
        owned: bool,
    },
    /// The pod of a member.
    #[strum(serialize = "create-pod")]
    Pod {
        /// The serial of the member.
        serial: Serial,
        /// The epoch of the member.
        epoch: Epoch,
        /// The uid of the claim that the pod mounts. `execute` reads the claim once more right
        /// before it creates the pod: a pod names its claim and cannot carry a precondition on the
        /// uid.
        claim: Option<Uid>,
        /// How the pod's etcd starts on an empty directory.
        start_mode: StartMode,
        /// The hash of the inputs that the pod is built from.
        template_hash: Uid,
    },
    /// The pod that fills the volume of the seed. It is created held.
    #[strum(serialize = "create-restore-pod")]
    RestorePod {
        /// The serial of the seed.
        serial: Serial,
        /// The epoch of the seed.
        epoch: Epoch,
        /// The uid of the claim that the pod mounts.
        claim: Uid,
        /// The restore.
        restore: RestoreOrigin,
        /// The hash of the inputs that the pod is built from.
        template_hash: Uid,
    },
}

/// An object that should exist as described.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, IntoStaticStr,
)]
pub enum EtcdApply {
    /// A Service or a Secret.
    #[strum(serialize = "apply-object")]
    Object(OwnedObject),
    /// The PodDisruptionBudget.
    #[strum(serialize = "apply-pdb")]
    PodDisruptionBudget {
        /// The observed `minAvailable`; the write is skipped if it has changed since.
        from: Observed<Option<u8>>,
        /// The new `minAvailable`, in voters.
        min: u8,
    },
}

/// A change that disturbs no client. A change of an object has a precondition on the uid that it was
/// decided on.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, IntoStaticStr,
)]
#[strum(serialize_all = "kebab-case")]
pub enum EtcdPatch {
    /// Rewrites how a pod's etcd starts on an empty directory.
    SetStartMode {
        /// The pod.
        pod: Uid,
        /// The observed start mode; the write is skipped if it has changed since.
        from: StartMode,
        /// The new start mode.
        to: StartMode,
    },
    /// Records on a claim the claim uid and the volume that its member joined on.
    RecordJoinedVolume {
        /// The claim.
        claim: Uid,
        /// The volume that the claim is bound to.
        volume: Uid,
    },
    /// Lets a held restore pod start.
    ReleaseRestorePod {
        /// The restore pod.
        pod: Uid,
    },
    /// Records on a claim that a restore has filled its volume.
    RecordRestored {
        /// The claim.
        claim: Uid,
        /// The volume that the claim is bound to.
        volume: Uid,
        /// The identifier of the restore.
        restore: Uid,
    },
    /// Lets a pod start on existing data only and sets its readiness gate, in one write: a kubelet
    /// that reports the pod Ready has seen both.
    MarkJoined {
        /// The pod.
        pod: Uid,
        /// The observed start mode; the write is skipped if it has changed since.
        from: StartMode,
    },
    /// Adds a pod to the client Service.
    AttachClients {
        /// The pod.
        pod: Uid,
    },
    /// Removes a pod from the client Service.
    DetachClients {
        /// The pod.
        pod: Uid,
    },
    /// Records on a claim when its member was seen to be removed, or deletes that record.
    RecordRemoval {
        /// The claim.
        claim: Uid,
        /// The time of the removal; `None` deletes the record.
        at: Option<UnixTime>,
    },
    /// Records on a claim that its epoch was replaced and until when the claim is kept, or deletes that record.
    RecordReplaced {
        /// The claim.
        claim: Uid,
        /// The end of the retention; `None` deletes the record.
        until: Option<UnixTime>,
    },
    /// Records on a claim the etcd version that its member runs. That version may have rewritten
    /// the data, and an older one then fails to start on it.
    RecordVersion {
        /// The claim.
        claim: Uid,
        /// The version.
        version: Version,
    },
    /// Records the template hash and the version on a pod that an earlier operator created without
    /// them.
    RecordTemplateHash {
        /// The pod.
        pod: Uid,
        /// The hash of the inputs that the pod was built from.
        template_hash: Uid,
        /// The version.
        version: Version,
    },
    /// Requests a larger volume.
    ResizeVolume {
        /// The claim.
        claim: Uid,
        /// The requested size in bytes.
        to: u64,
    },
    /// Records the accepted spec beside the identity: it stays effective if the next spec is
    /// rejected.
    RecordSpec,
    /// Adds or removes the owner reference to the resource.
    SetOwner {
        /// The object that is changed.
        target: OwnerTarget,
        /// Whether the resource is to own the object.
        owned: bool,
    },
    /// Appends an entry to etcd's log that changes no key and no revision: a stuck member starts to
    /// serve with the next entry.
    NudgeMember {
        /// The serial of the stuck member.
        member: Serial,
    },
}

/// An object that the resource can own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum OwnerTarget {
    /// The identity object.
    Identity,
    /// A claim.
    Claim(Uid),
    /// A pod.
    Pod(Uid),
}

/// A change that may disturb clients, or that no other change may overlap. A plan has at most one.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, IntoStaticStr,
)]
#[strum(serialize_all = "kebab-case")]
pub enum EtcdDisruption {
    /// Replaces the identity by compare-and-swap. The machine name is that of the
    /// [`IdentityChange`].
    UpdateIdentity {
        /// The observed identity.
        from: Identity,
        /// The new identity.
        to: Identity,
        /// The reason.
        why: IdentityChange,
    },
    /// Records an intent in the identity, then asks etcd for the change. The machine name is that
    /// of the membership change.
    ChangeMembership {
        /// The observed identity.
        from: Identity,
        /// The change.
        intent: Intent,
        /// The voter that leadership is transferred to first, if the removed member leads: an
        /// election costs clients a second or more.
        transfer_to: Option<Serial>,
    },
    /// Restarts a serving voter with the current template.
    RestartMember {
        /// The pod.
        pod: Uid,
        /// The serial of the member.
        serial: Serial,
        /// The voter that leadership is transferred to first, if this member leads.
        transfer_to: Option<Serial>,
        /// Whether the other voters keep the quorum. The pod is then evicted, within the
        /// PodDisruptionBudget. With one or two voters no quorum is left without it, and the pod is
        /// deleted.
        via_eviction: bool,
    },
    /// Writes so many entries to etcd's log that every member takes a snapshot of it, then records
    /// that in the identity.
    ForceSnapshot {
        /// The observed identity.
        from: Identity,
        /// The identity once every member has taken a snapshot.
        to: Identity,
    },
    /// Deletes a pod that does not serve.
    DeletePod {
        /// The pod.
        pod: Uid,
        /// The serial of the member.
        serial: Serial,
        /// The reason.
        why: DeleteReason,
    },
    /// Deletes a restore pod. No client is connected to it.
    DeleteRestorePod {
        /// The restore pod.
        pod: Uid,
        /// The serial of the seed.
        serial: Serial,
        /// The reason.
        why: RestorePodEnd,
    },
    /// Deletes the claim of a removed member.
    DeleteClaim {
        /// The claim.
        claim: Uid,
        /// The serial of the member.
        serial: Serial,
        /// The reason.
        why: DeleteReason,
    },
}

/// The reason for a change of the identity.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, IntoStaticStr,
)]
#[strum(serialize_all = "kebab-case")]
pub enum IdentityChange {
    /// The seed is about to start for the first time.
    StartSeed,
    /// The seed has formed this cluster.
    RecordCluster(ClusterId),
    /// Bootstrap is finished.
    FinishBootstrap,
    /// The open intent is done or no longer valid.
    SettleIntent,
    /// The seed was lost before bootstrap was finished: a new epoch begins.
    #[strum(serialize = "restart-bootstrap-seed-lost")]
    SeedLost,
    /// `spec.storage` was changed while the seed waited for its volume: a new epoch begins.
    #[strum(serialize = "restart-bootstrap-storage-changed")]
    SeedStorageChanged,
    /// A `Restore` replaces the data of the cluster: the volume of the next epoch's seed is about to be filled.
    PrepareRestore,
    /// The volume of the next epoch's seed cannot be filled any more: another one is.
    RestartPreparation,
    /// The `Restore` was deleted or changed before the cluster was replaced.
    CancelRestore,
    /// The volume of the next epoch's seed is filled: that epoch replaces the current one.
    ReplaceCluster,
    /// The `Restore` is undone: the epoch that was replaced becomes current again.
    UndoRestore,
    /// `spec.bootstrap.from` was changed before bootstrap was finished: a new epoch begins.
    #[strum(serialize = "restart-bootstrap-source-changed")]
    SourceChanged,
    /// The resource was deleted and created again before bootstrap was finished: a new epoch
    /// begins.
    #[strum(serialize = "restart-bootstrap-resource-replaced")]
    ResourceReplaced,
    /// The resource was deleted and created again over a bootstrapped cluster.
    #[strum(serialize = "adopt-cluster")]
    Adopt,
    /// Claims or pods exist that the identity does not know: a user or a backup tool restored an
    /// older identity.
    #[strum(serialize = "repair-identity")]
    Repair,
}

/// The reason for deleting a restore pod.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, IntoStaticStr,
)]
#[strum(serialize_all = "kebab-case")]
pub enum RestorePodEnd {
    /// The volume is filled, or is not to be filled any more.
    NotNeeded,
    /// The pod has failed, and another one is created.
    Failed,
    /// The pod was created for another claim or another restore.
    OtherVolume,
    /// The pod has not started and was built from an outdated template.
    Outdated,
}

/// The reason for deleting a pod or a claim.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, IntoStaticStr,
)]
#[strum(serialize_all = "kebab-case")]
pub enum DeleteReason {
    /// The object belongs to an abandoned epoch.
    OldEpoch,
    /// A restore has replaced the epoch of the object.
    Replaced,
    /// The member was removed.
    MemberRemoved,
    /// The pod has terminated; it is recreated on its volume.
    Finished,
    /// The pod waits for a node that a voter needs; it is recreated once the voter has a node.
    FreesNode,
    /// The pod does not run and was built from an outdated template; it is recreated from the
    /// current one.
    Outdated,
}

/// A reason why a plan does less than the spec asks for. Each names the event that ends the wait.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, IntoStaticStr,
)]
#[strum(serialize_all = "kebab-case")]
pub enum EtcdWait {
    /// Objects could not be read.
    Unreadable(UnreadableObjects),
    /// `spec.paused` is set.
    Paused,
    /// Claims and pods carry different lineages, or another lineage than the identity.
    InconsistentObjects,
    /// The status names a cluster ID, and all objects of that cluster are gone.
    DataLost(ClusterId),
    /// Pods and claims of an abandoned epoch are terminating.
    OldEpochDeletion,
    /// Objects of a deleted resource of the same name are terminating. They should be gone by this
    /// time.
    PreviousResourceDeletion(UnixTime),
    /// The backup that the cluster is to start from cannot be restored now.
    RestoreSource(SourceProblem),
    /// A restore pod fills the volume of the seed.
    Restore(Serial),
    /// A restore pod has failed, and another one is created at this time.
    RestoreRetry(Serial, UnixTime),
    /// A restore pod is terminating.
    RestorePodDeletion(Serial),
    /// The seed does not serve yet.
    SeedStart(Serial),
    /// Too few voters are reachable.
    NoQuorum,
    /// A membership change is neither done nor safe to repeat.
    OpenIntent(Intent),
    /// New members have not joined yet.
    MemberJoin(BTreeSet<Serial>),
    /// A learner has not caught up with the leader's log.
    LearnerCatchUp(Serial),
    /// Not every member is in place, and another is to be added.
    UnsafeToAdd,
    /// Bootstrap waits until this time for members that do not start.
    BootstrapTimeout(UnixTime),
    /// An object with a required name exists and is not owned by this cluster.
    NameConflict(OwnedObject),
    /// A CA is missing while members run with certificates that it signed.
    CaMissing(OwnedObject),
    /// etcd lists members that the operator did not add.
    UnknownMembers(Vec<UnknownMember>),
    /// A member is to be replaced once this learner has become a voter.
    ReplacementJoin(Serial),
    /// A member is to be replaced, and the limit of replacements per hour allows that at this time.
    ReplacementLimit(Serial, UnixTime),
    /// Outdated members are restarted when the next maintenance window opens at this time.
    MaintenanceWindow(UnixTime),
    /// Outdated members are restarted when the maintenance windows in the spec are valid, and one is open.
    InvalidWindows,
    /// Outdated members are restarted once this member is healthy.
    UnhealthyMember(Serial),
    /// Outdated members are not restarted: the other voters would not have a quorum.
    TooFewVoters,
    /// Outdated members are not restarted: this member is up to date and reports another etcd
    /// version than the desired one.
    VersionMismatch(Serial, Version),
    /// Outdated members are restarted once the volume of this member has been resized.
    VolumeResize(Serial),
    /// A snapshot is forced once this member is healthy.
    SnapshotBlocked(Serial),
}

/// The objects that could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum UnreadableObjects {
    /// The identity object.
    Identity,
    /// Claims or pods.
    Objects,
}
