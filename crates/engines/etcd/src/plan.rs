//! What can be decided: the words of a plan, each with what it is for, and the reasons for waiting.

use std::collections::BTreeSet;

use evenkeel_api::Version;
use evenkeel_runtime::{Observed, UnixTime};
use serde::{Deserialize, Serialize};

use crate::facts::{OwnedObject, StartMode, UnknownMember};
use crate::identity::{ClusterId, Identity, Intent, Uid};
use crate::names::{Epoch, Serial};

/// What must never exist twice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum EtcdCreate {
    /// The identity object.
    Identity(Identity),
    /// A member's claim.
    Claim {
        /// Whose.
        serial: Serial,
        /// Of which epoch.
        epoch: Epoch,
    },
    /// A member's pod.
    Pod {
        /// Whose.
        serial: Serial,
        /// Of which epoch.
        epoch: Epoch,
        /// The claim it must stand on; looked at once more right before the pod is created, since a pod names its claim
        /// and cannot be pinned to it.
        claim: Option<Uid>,
        /// How its etcd finds its cluster.
        start_mode: StartMode,
        /// What stands for all that it is built from.
        inputs: Uid,
    },
}

/// What should exist as described, pinned to what was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum EtcdApply {
    /// A service or a secret.
    Object(OwnedObject),
    /// The disruption budget.
    PodDisruptionBudget {
        /// What it was when this was decided: one that changed since is left alone.
        from: Observed<Option<u8>>,
        /// How many voters evictions must leave.
        min: u8,
    },
}

/// What disturbs nobody. Each is pinned to the uid it was decided on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum EtcdPatch {
    /// Rewrites how a pod's etcd finds its cluster.
    SetStartMode {
        /// Which pod.
        pod: Uid,
        /// What it was when this was decided: one that changed since is left alone.
        from: StartMode,
        /// The new way.
        to: StartMode,
    },
    /// Writes on a claim which claim and volume its member joined on.
    RecordJoinedVolume {
        /// Which claim.
        claim: Uid,
        /// Its volume now.
        volume: Uid,
    },
    /// Has a pod start on its own data only, and sets the gate that says so, in one write: a kubelet that reports the pod
    /// Ready has seen both.
    MarkJoined {
        /// Which pod.
        pod: Uid,
        /// How it started when this was decided: one that changed since is left alone.
        from: StartMode,
    },
    /// Routes clients to a pod.
    AttachClients {
        /// Which pod.
        pod: Uid,
    },
    /// Routes clients to a pod no more.
    DetachClients {
        /// Which pod.
        pod: Uid,
    },
    /// Writes on a claim that its member was removed, and when that was found; or that it was not.
    RecordRemoval {
        /// Which claim.
        claim: Uid,
        /// When.
        at: Option<UnixTime>,
    },
    /// Writes on a claim with which version of etcd its member runs: it may rewrite the data, and an older one would then not start
    /// on it.
    RecordVersion {
        /// Which claim.
        claim: Uid,
        /// The version.
        version: Version,
    },
    /// Writes on a pod of an earlier operator what it was built from, and which version it was built with.
    RecordTemplateHash {
        /// Which pod.
        pod: Uid,
        /// What it was built from.
        inputs: Uid,
        /// The version.
        version: Version,
    },
    /// Has a claim ask for a larger volume.
    ResizeVolume {
        /// Which claim.
        claim: Uid,
        /// How large, in bytes.
        to: u64,
    },
    /// Notes the spec as it is beside the identity: should the next one not be acceptable, this one stays in force.
    RecordSpec,
    /// Has something go with the resource, or stay without it.
    SetOwner {
        /// What.
        what: OwnerTarget,
        /// Whether it is to go with the resource.
        owned: bool,
    },
}

/// What can belong to the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum OwnerTarget {
    /// The identity object.
    Identity,
    /// A claim.
    Claim(Uid),
    /// A pod.
    Pod(Uid),
}

/// What may disturb: at most one at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum EtcdDisruption {
    /// Swaps the identity for a new one.
    UpdateIdentity {
        /// What it was when this was decided.
        from: Identity,
        /// What it becomes.
        to: Identity,
        /// Why.
        why: IdentityChange,
    },
    /// Writes an intent into the identity and asks etcd for its change.
    ChangeMembership {
        /// What the identity was when this was decided.
        from: Identity,
        /// What is asked for.
        intent: Intent,
        /// To whom the lead is handed first, if the one who goes has it: an election costs clients a second or more.
        transfer_to: Option<Serial>,
    },
    /// Has a voter that serves come back with what is wanted now.
    RestartMember {
        /// Which pod.
        pod: Uid,
        /// Whose.
        serial: Serial,
        /// To whom the lead is handed first, if this one has it.
        transfer_to: Option<Serial>,
        /// Whether others have a majority meanwhile: the pod is then evicted, within what the disruption budget allows. With one
        /// or two voters there is none without it, and it is deleted.
        spared: bool,
    },
    /// Has etcd write so much to its log that every member takes a snapshot of it, and notes that.
    ForceSnapshot {
        /// What the identity was when this was decided.
        from: Identity,
        /// What it becomes when all have done so.
        to: Identity,
    },
    /// Deletes a pod that does not serve.
    DeletePod {
        /// Which.
        pod: Uid,
        /// Whose.
        serial: Serial,
        /// Why.
        why: DeleteReason,
    },
    /// Deletes a claim whose member is no more.
    DeleteClaim {
        /// Which.
        claim: Uid,
        /// Whose.
        serial: Serial,
        /// Why.
        why: DeleteReason,
    },
}

/// Why an identity is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum IdentityChange {
    /// The seed is about to be started for the first time.
    StartSeed,
    /// The seed has formed this cluster.
    RecordCluster(ClusterId),
    /// The bootstrap is over.
    FinishBootstrap,
    /// What was begun is done, or has become void.
    SettleIntent,
    /// The seed is lost before the seal: begin again.
    SeedLost,
    /// The seed's claim asks for what is no longer wanted, before there is a cluster: begin again.
    SeedStorageChanged,
    /// The resource was deleted and created again before the seal: begin again.
    ResourceReplaced,
    /// The resource was deleted and created again over a cluster that lives on.
    Adopt,
    /// There are objects of members that the identity does not know: it is an older one, put back by somebody.
    Repair,
}

/// Why a pod or a claim goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum DeleteReason {
    /// It is of an epoch that was given up.
    OldEpoch,
    /// Its member was removed.
    MemberRemoved,
    /// It has ended, and is to be created again on its volume.
    Finished,
    /// No node takes it yet, and a voter needs the place; it is created again when that has one.
    FreesNode,
    /// It does not run, and was built from what is no longer wanted; it is created again from what is.
    Outdated,
}

/// What is waited for. Each names what ends it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum EtcdWait {
    /// Something could not be read.
    Unreadable(UnreadableObjects),
    /// The resource says so.
    Paused,
    /// Claims and pods are there that do not say the same about which cluster they are of, or not what the identity says.
    InconsistentObjects,
    /// The status names a cluster of which nothing is left.
    DataLost(ClusterId),
    /// What an epoch that was given up left behind is going.
    OldEpochDeletion,
    /// What went with a resource of this name that was deleted is going. By then it should be gone.
    PreviousResourceDeletion(UnixTime),
    /// The seed does not serve yet.
    SeedStart(Serial),
    /// Too few voters answer.
    NoQuorum,
    /// A change of the membership that was begun is neither done nor safe to repeat.
    OpenIntent(Intent),
    /// A new member is on its way.
    MemberJoin(BTreeSet<Serial>),
    /// A learner is not ready for a vote.
    LearnerCatchUp(Serial),
    /// Members must be there before one more is added.
    UnsafeToAdd,
    /// Before the seal, until then, for members that do not start.
    BootstrapTimeout(UnixTime),
    /// There is an object of a name that is needed, and it is not ours.
    NameConflict(OwnedObject),
    /// An authority is gone while members run on its certificates.
    CaMissing(OwnedObject),
    /// etcd lists members that are none of ours.
    UnknownMembers(Vec<UnknownMember>),
    /// A member would be replaced, once another that is on its way is a voter.
    ReplacementJoin(Serial),
    /// A member would be replaced, but so many were of late that this one waits until then.
    ReplacementLimit(Serial, UnixTime),
    /// Members that are out of date would be restarted, in the next window for that.
    MaintenanceWindow(UnixTime),
    /// Members that are out of date would be restarted, once this one is well.
    UnhealthyMember(Serial),
    /// Members that are out of date would be restarted, but others could not agree meanwhile.
    TooFewVoters,
    /// Members that are out of date would be restarted, but the image of this one, which is up to date, has another etcd in it
    /// than is wanted.
    VersionMismatch(Serial, Version),
    /// Members that are out of date would be restarted, once the volume of this one has grown.
    VolumeResize(Serial),
    /// The logs would be renewed, once this member is well.
    SnapshotBlocked(Serial),
}

/// What could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum UnreadableObjects {
    /// The identity object.
    Identity,
    /// Claims or pods.
    Objects,
}
