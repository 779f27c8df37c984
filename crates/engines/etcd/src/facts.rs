//! The facts that `decide` gets: everything that is known about a cluster, and everything that is
//! unknown. Plain data without key material.
//!
//! The decision log stores facts as JSON, and the plugin reads them back: fields that were added
//! later have a default.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evenkeel_api::{NodeProblem, Version};
use evenkeel_runtime::{Observed, UnixTime};
use serde::{Deserialize, Serialize};

use crate::availability::Alarm;
use crate::identity::{ClusterId, Identity, MemberId, RestoreOrigin, Uid};
use crate::names::{Epoch, Lineage, Serial};

pub use crate::restore_facts::{
    RestoreFailure, RestorePodFacts, RestorePodState, RestoreRequest, RestoreStep, RestoredVolume,
    SourceProblem, SourceState,
};
pub use evenkeel_kit::OwnedBy;
pub use evenkeel_kit::tls_secrets::Drift;
pub use evenkeel_kit::volumes::VolumeTopology;
pub use evenkeel_kit::windows::{DisruptionWindow, WindowWait};

/// The facts of one cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EtcdFacts {
    /// The time of the observation.
    pub now: UnixTime,
    /// A random lineage, for a cluster that has no identity yet.
    pub new_lineage: Lineage,
    /// The validated spec.
    pub cluster: ClusterFacts,
    /// The identity object.
    pub identity: Observed<Identity>,
    /// The claims labelled for this cluster, of every epoch.
    pub claims: Observed<Vec<ClaimFacts>>,
    /// The lineages on claims and pods labelled for this cluster; `None` for an annotation that
    /// cannot be parsed.
    pub lineages: BTreeSet<Option<Lineage>>,
    /// The pods labelled for this cluster, of every epoch.
    pub pods: Observed<Vec<PodFacts>>,
    /// The pods that fill the volumes of seeds, of every epoch. They are listed with the pods, and unknown with them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restore_pods: Vec<RestorePodFacts>,
    /// The `Restore` that replaces the data of the cluster, or whose undo is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_request: Option<RestoreRequest>,
    /// The state of the `Backup` that the next epoch, or the epoch in bootstrap, starts from; `None` if no backup is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceState>,
    /// etcd's member list, read linearizably in this reconcile. Unknown without a reachable quorum.
    pub membership: Observed<Membership>,
    /// The report of each member that was queried.
    pub health: BTreeMap<Serial, Observed<MemberHealth>>,
    /// Since when members are unreachable: the operator cannot query them, and the leader has no
    /// stream to them. Only members for which both are known. Tracked in memory: a restarted
    /// operator counts from zero. The time begins anew when a member's node is uncordoned.
    pub unreachable_since: BTreeMap<Serial, UnixTime>,
    /// A member that may wait for the next raft log entry. Only a probe finds it.
    #[serde(default)]
    pub stuck: Option<StuckMember>,
    /// When the operator last appended an entry for a stuck member. Tracked in memory: unknown to a
    /// restarted operator.
    #[serde(default)]
    pub last_nudge: Option<UnixTime>,
    /// Services and Secrets that differ from the desired state.
    pub drift: BTreeMap<OwnedObject, Drift>,
    /// When Secrets are read again. They are not watched.
    pub recheck_secrets_at: Option<UnixTime>,
    /// The `minAvailable` of the PodDisruptionBudget; `None` if it is not an integer or another
    /// field is set.
    pub pdb_min_available: Observed<Option<u8>>,
    /// The owner of the identity object.
    pub identity_owner: OwnedBy,
    /// Whether the effective spec is recorded beside the identity.
    pub spec_recorded: bool,
    /// Whether a read through the client Service was answered.
    pub client_read: Observed<()>,
    /// The alarms that etcd has raised, as far as a member answered.
    #[serde(default)]
    pub alarms: BTreeSet<Alarm>,
    /// Details of each member for the status. No decision depends on them.
    pub details: BTreeMap<Serial, MemberDetails>,
}

impl EtcdFacts {
    /// Returns the restore that is under way or asked for: into the next epoch, into the epoch in bootstrap, or into a cluster
    /// that does not exist yet.
    pub fn restore_origin(&self) -> Option<&RestoreOrigin> {
        let request = || self.restore_request.as_ref().map(|request| &request.origin);
        let Some(identity) = self.identity.present() else {
            return self.cluster.restore.as_ref();
        };
        let next = identity.next_epoch.as_ref().map(|next| &next.restore);
        if identity.bootstrapped {
            return next.or_else(request);
        }
        let current = identity.restore.as_ref();
        current.or(self.cluster.restore.as_ref())
    }
}

/// A member that has a leader and does not answer clients. It may wait for the next raft log entry,
/// receive a snapshot, or read its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StuckMember {
    /// The serial of the member.
    pub serial: Serial,
    /// Since when this operator process has observed it. It begins anew when the member changes.
    pub since: UnixTime,
}

/// An object that a cluster has besides its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum OwnedObject {
    /// The identity object.
    Identity,
    /// The headless Service that gives members their DNS names.
    PeerService,
    /// The Service for clients.
    ClientService,
    /// The CA that members trust among themselves.
    PeerCa,
    /// The CA that clients and members trust for client traffic.
    ClientCa,
    /// The members' certificate for peer traffic.
    PeerTls,
    /// The members' certificate for client traffic.
    ServerTls,
    /// The operator's certificate.
    OperatorTls,
    /// The certificate for the user's clients.
    ClientTls,
    /// The PodDisruptionBudget.
    PodDisruptionBudget,
    /// The BackupSchedule.
    BackupSchedule,
}

impl OwnedObject {
    /// Returns the CA that signs the object; `None` for objects that are not signed.
    pub fn signed_by(self) -> Option<Self> {
        match self {
            Self::PeerTls => Some(Self::PeerCa),
            Self::ServerTls | Self::OperatorTls | Self::ClientTls => Some(Self::ClientCa),
            Self::Identity
            | Self::PeerService
            | Self::ClientService
            | Self::PeerCa
            | Self::ClientCa
            | Self::PodDisruptionBudget
            | Self::BackupSchedule => None,
        }
    }

    /// Returns true if no member can start without the object.
    pub fn is_needed_by_members(self) -> bool {
        match self {
            Self::Identity
            | Self::PeerService
            | Self::ClientService
            | Self::PeerCa
            | Self::ClientCa
            | Self::PeerTls
            | Self::ServerTls
            | Self::OperatorTls
            | Self::ClientTls
            | Self::PodDisruptionBudget => true,
            Self::BackupSchedule => false,
        }
    }

    /// Returns true for a CA.
    pub fn is_ca(self) -> bool {
        matches!(self, Self::PeerCa | Self::ClientCa)
    }
}

/// Details of a member for the status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberDetails {
    /// The node of its pod.
    pub node: Option<String>,
    /// The node that its local volume is on, while its pod has none.
    #[serde(default)]
    pub volume_node: Option<String>,
    /// The zone of the node.
    #[serde(default)]
    pub zone: Option<String>,
    /// The problem of the node that the pod runs on or needs.
    #[serde(default)]
    pub node_problem: Option<NodeTrouble>,
    /// Since when its pod is terminating.
    #[serde(default)]
    pub terminating_since: Option<UnixTime>,
    /// When the scheduler found a node for its pod.
    #[serde(default)]
    pub scheduled_at: Option<UnixTime>,
    /// Whether its pod has been Ready since its container started last.
    #[serde(default)]
    pub has_been_ready: bool,
    /// Whether its pod waits for the end of a drain of the node that its volume is on.
    #[serde(default)]
    pub is_drained: bool,
    /// The version that its etcd reports.
    pub version: Option<String>,
    /// Whether the member leads.
    pub is_leader: bool,
    /// The problem of its pod, in Kubernetes' words.
    pub pod_problem: Option<String>,
    /// The kind of that problem.
    #[serde(default)]
    pub pod_problem_kind: PodProblemKind,
}

/// The problem of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeTrouble {
    /// The problem.
    pub problem: NodeProblem,
    /// Since when, if Kubernetes reports it.
    pub since: Option<UnixTime>,
}

/// The kind of a pod's problem. The reason of a condition and the advice for users depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PodProblemKind {
    /// The scheduler finds no node.
    Unschedulable,
    /// The StorageClass of its PVC does not exist, or there is no default one.
    StorageClassNotFound,
    /// The volume of its PVC is not provisioned.
    VolumeNotProvisioned,
    /// Its image cannot be pulled.
    ImagePull,
    /// Its container crashes at every start because the volume is full.
    VolumeFull,
    /// Its container crashes at every start.
    Crashing,
    /// Any other problem.
    #[default]
    Other,
}

/// The validated spec, and the facts about the resource itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterFacts {
    /// The uid of the resource.
    pub resource_uid: Uid,
    /// The desired number of members.
    pub members: u8,
    /// The kind of their storage.
    pub storage: StorageKind,
    /// Whether the resource is being deleted.
    pub is_deleted: bool,
    /// When the resource was created.
    pub created_at: UnixTime,
    /// Whether `spec.paused` is set.
    pub is_paused: bool,
    /// The cluster ID in the status. Clients have been routed to that cluster.
    pub status_cluster_id: Option<ClusterId>,
    /// How many learners its etcd version accepts at once.
    pub max_learners: u8,
    /// How long bootstrap waits for members that do not start.
    pub bootstrap_timeout: Duration,
    /// How long a member may be unreachable before it is replaced.
    pub replace_after: Duration,
    /// How long a member may be unreachable while its node is cordoned before it is replaced.
    #[serde(default)]
    pub replace_drained_after: Duration,
    /// How long the claim of a removed member is retained.
    pub keep_removed_for: Duration,
    /// Whether the resource owns identity and claims, so that they are deleted with it, even once
    /// bootstrap is finished. Before, it owns them always.
    pub owns_data: bool,
    /// When serving members may be disturbed for a change of the spec.
    #[serde(default)]
    pub disruption: DisruptionWindow,
    /// The etcd version.
    pub version: Version,
    /// The version that follows once every member has taken a snapshot of its log.
    #[serde(default)]
    pub next_version: Option<Version>,
    /// The hash of all inputs of a pod that the user controls, the version included. Pods with
    /// another hash are outdated.
    pub pod_template_hash: Uid,
    /// The hash of the last restart request. Pods that were built before it are outdated.
    pub restart_request: Option<Uid>,
    /// The desired size of each member's volume in bytes.
    #[serde(default)]
    pub volume_size: u64,
    /// The restore that `spec.bootstrap.from` asks for. It is read only until bootstrap is finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<RestoreOrigin>,
}

/// The kind of storage that members' data is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StorageKind {
    /// A claim for each member, which outlives the pod.
    Persistent,
    /// The pod: its data is lost with it.
    Ephemeral,
}

/// The claim of a member.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClaimFacts {
    /// The serial of the member.
    pub serial: Serial,
    /// The epoch of the member.
    pub epoch: Epoch,
    /// The uid of the object.
    pub uid: Uid,
    /// The volume that the claim is bound to.
    pub volume: Option<Uid>,
    /// When the claim was created.
    #[serde(default)]
    pub created_at: UnixTime,
    /// The uid and the volume of the claim at the time when the member joined, as recorded on it.
    pub joined_on: Option<(Uid, Uid)>,
    /// The restore that has filled the volume, as recorded on the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored: Option<RestoredVolume>,
    /// Until when the claim is kept although its epoch was replaced, as recorded on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced_until: Option<UnixTime>,
    /// Whether the claim is terminating, or will be because its owner was deleted.
    pub is_terminating: bool,
    /// The nodes that can mount its volume.
    pub topology: VolumeTopology,
    /// Whether its volume is on the disk of a node that is cordoned.
    #[serde(default)]
    pub on_cordoned_node: bool,
    /// Whether its volume is on a node that no longer exists.
    pub is_lost: bool,
    /// When its member was seen to be removed, as recorded on it.
    pub removed_at: Option<UnixTime>,
    /// The last etcd version that its member ran, as recorded on it.
    pub last_version: Option<Version>,
    /// Whether the resource owns the claim.
    pub is_owned: bool,
    /// The requested size in bytes.
    #[serde(default)]
    pub requested_size: u64,
    /// Whether the requested size exceeds the size of the volume.
    #[serde(default)]
    pub resize_pending: bool,
    /// Whether its StorageClass differs from the desired one. The member has to be replaced.
    #[serde(default)]
    pub has_wrong_class: bool,
    /// Whether no node that the spec selects can mount its volume. A running member stays: labels
    /// of nodes change.
    #[serde(default)]
    pub is_misplaced: bool,
}

impl ClaimFacts {
    /// Returns true if this is the claim and the volume that the member joined on. Another volume
    /// has other data: a member rolled back to older data lost 10 of 10 acknowledged writes after
    /// an election (tried).
    pub fn is_joined_volume(&self) -> bool {
        !self.is_lost
            && self
                .joined_on
                .is_some_and(|joined| Some(joined) == self.volume.map(|volume| (self.uid, volume)))
    }

    /// Returns true if this claim and this volume were filled by the restore.
    pub fn is_restored(&self, restore: &RestoreOrigin) -> bool {
        let filled = self.volume.map(|volume| RestoredVolume {
            restore: restore.id,
            claim: self.uid,
            volume,
        });
        !self.is_lost && filled.is_some() && self.restored == filled
    }
}

/// How a pod's etcd starts on an empty directory; recorded in the pod's annotations.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StartMode {
    /// It does not start: the pod waits until its start mode is set.
    Held,
    /// It forms a new cluster of itself.
    Bootstrap,
    /// It joins these members, itself included.
    Join(BTreeSet<Serial>),
    /// It starts on existing data only: with itself alone in the list etcd rejects an empty
    /// directory (tried).
    ExistingData,
    /// As [`Self::ExistingData`], in a seed that has not joined: its data is that of a backup. The
    /// first start forms the cluster of the epoch.
    Restored,
}

/// The pod of a member.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodFacts {
    /// The serial of the member.
    pub serial: Serial,
    /// The epoch of the member.
    pub epoch: Epoch,
    /// The uid of the object.
    pub uid: Uid,
    /// When the pod was created.
    pub created_at: UnixTime,
    /// How its etcd starts on an empty directory.
    pub start_mode: StartMode,
    /// Whether the readiness gate `evenkeel.dev/joined` is set.
    pub joined_gate: bool,
    /// Whether the kubelet reports the pod Ready. It has then seen the gate and the start mode that
    /// was written with it.
    pub is_ready: bool,
    /// Since when the pod is not Ready. Kubernetes reports the pods of an unreachable node as not
    /// Ready.
    pub unready_since: Option<UnixTime>,
    /// The node that the pod is scheduled to.
    pub node: Option<Uid>,
    /// Whether that node is cordoned.
    #[serde(default)]
    pub on_cordoned_node: bool,
    /// Since when the scheduler reports the pod as unschedulable.
    pub unschedulable_since: Option<UnixTime>,
    /// The hash of the inputs that the pod was built from, as recorded on it: the same for all
    /// members of one spec. Pods of earlier operators have none.
    pub template_hash: Option<Uid>,
    /// The hash of the inputs of scheduling.
    pub scheduling_hash: Uid,
    /// The hash of the last restart request when the pod was built.
    pub restart_request: Option<Uid>,
    /// The etcd version that the pod was built with.
    pub version: Option<Version>,
    /// Whether the container does not run: the kubelet reports so, or the pod has no node yet.
    pub is_idle: bool,
    /// Since when the container crashes at every start.
    pub crashing_since: Option<UnixTime>,
    /// Whether the pod is terminating.
    pub is_terminating: bool,
    /// Whether the pod is in a terminal phase.
    pub is_finished: bool,
    /// Whether the client Service selects the pod.
    pub is_routed: bool,
    /// Whether the resource controls the pod. `kubectl drain` rejects a pod without a controller.
    pub is_owned: bool,
}

/// etcd's member list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Membership {
    /// The member that reported the list. A member that has formed a separate cluster of itself
    /// also reports a list.
    pub reported_by: Serial,
    /// The members of this cluster.
    pub members: Vec<ListedMember>,
    /// The members whose peer URLs the operator did not assign.
    pub unknown: Vec<UnknownMember>,
}

/// A listed member that the operator did not add.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UnknownMember {
    /// The member ID.
    pub id: MemberId,
    /// Whether the member is a learner.
    pub is_learner: bool,
    /// Whether the member has ever started.
    pub has_started: bool,
    /// When this operator process first observed it.
    pub first_seen: UnixTime,
}

/// A member as etcd lists it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ListedMember {
    /// The serial, parsed from the peer URL.
    pub serial: Serial,
    /// The member ID.
    pub id: MemberId,
    /// Whether the member is a learner.
    pub is_learner: bool,
    /// Whether the member has ever started: etcd lists a name only then.
    pub has_started: bool,
}

/// The report of a member about itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemberHealth {
    /// The cluster ID that it reports.
    pub cluster_id: ClusterId,
    /// The member ID that it reports.
    pub member_id: MemberId,
    /// Whether the member has answered a linearizable read; for a learner, whether it follows a
    /// leader.
    pub is_serving: bool,
    /// For a learner: whether its log is close enough to the leader's.
    pub is_caught_up: bool,
    /// Whether the member leads.
    pub is_leader: bool,
    /// The etcd version that it reports.
    #[serde(default)]
    pub version: Option<Version>,
    /// The size of its data in bytes, rounded up so that it does not change with every write.
    #[serde(default)]
    pub db_size: u64,
}
