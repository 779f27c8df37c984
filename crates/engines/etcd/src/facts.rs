//! Everything that is known of a cluster when a decision is made, and what is not known. Plain data; no key material.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evenkeel_api::Version;
use evenkeel_runtime::{Observed, UnixTime};
use serde::{Deserialize, Serialize};

use crate::identity::{ClusterId, Identity, MemberId, Uid};
use crate::names::{Epoch, Lineage, Serial};

/// All facts of one cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EtcdFacts {
    /// When they were gathered.
    pub now: UnixTime,
    /// Randomness handed in, for a cluster that is yet to have an identity.
    pub new_lineage: Lineage,
    /// What the user wants, validated.
    pub cluster: ClusterFacts,
    /// The identity object.
    pub identity: Observed<Identity>,
    /// The claims labelled for this cluster, of every epoch.
    pub claims: Observed<Vec<ClaimFacts>>,
    /// The lineages that are written on claims and pods labelled for this cluster; nothing for what cannot be read.
    pub lineages: BTreeSet<Option<Lineage>>,
    /// The pods labelled for this cluster, of every epoch.
    pub pods: Observed<Vec<PodFacts>>,
    /// etcd's own list of members, read linearizably in this reconcile. Unknown without a quorum that answers.
    pub membership: Observed<Membership>,
    /// What each member that was asked says of itself.
    pub health: BTreeMap<Serial, Observed<MemberHealth>>,
    /// Since when members were heard of by nobody: not by the operator, and the leader has no connection to them. Only where
    /// both is known. Counted anew by every operator, since nobody else can tell that it lasted.
    pub unreachable_since: BTreeMap<Serial, UnixTime>,
    /// Services and secrets that are not as they should be.
    pub drift: BTreeMap<OwnedObject, Drift>,
    /// When secrets must be looked at again, which nobody watches.
    pub recheck_secrets_at: Option<UnixTime>,
    /// The least number of voters that evictions must leave, as the disruption budget says; nothing if it says something
    /// else altogether.
    pub pdb_min_available: Observed<Option<u8>>,
    /// What the identity object goes with.
    pub identity_owner: OwnedBy,
    /// Whether the spec that is in force is noted beside the identity.
    pub spec_recorded: bool,
    /// A read as clients make it, through the client Service: whether it was answered.
    pub client_read: Observed<()>,
    /// What people are told of a member, and what nothing rests on.
    pub details: BTreeMap<Serial, MemberDetails>,
}

/// What an object goes with: Kubernetes deletes it soon after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum OwnedBy {
    /// The resource.
    Resource,
    /// One of its name that was deleted before it was created: it is on its way out.
    PreviousResource,
    /// Nothing.
    Nobody,
}

/// What a cluster has beside its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum OwnedObject {
    /// What a cluster is beyond its pods.
    Identity,
    /// The headless service that gives members their names.
    PeerService,
    /// The service for clients.
    ClientService,
    /// The authority that members trust.
    PeerCa,
    /// The authority that clients trust.
    ClientCa,
    /// The members' certificate among themselves.
    PeerTls,
    /// The members' certificate towards clients.
    ServerTls,
    /// The operator's certificate.
    OperatorTls,
    /// The certificate for the user's clients.
    ClientTls,
    /// The disruption budget.
    PodDisruptionBudget,
}

impl OwnedObject {
    /// The authority that signs it; none for what no authority signs.
    pub fn signed_by(self) -> Option<Self> {
        match self {
            Self::PeerTls => Some(Self::PeerCa),
            Self::ServerTls | Self::OperatorTls | Self::ClientTls => Some(Self::ClientCa),
            Self::Identity
            | Self::PeerService
            | Self::ClientService
            | Self::PeerCa
            | Self::ClientCa
            | Self::PodDisruptionBudget => None,
        }
    }

    /// Whether it is an authority.
    pub fn is_ca(self) -> bool {
        matches!(self, Self::PeerCa | Self::ClientCa)
    }
}

/// How an object is not as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Drift {
    /// It is not there, or holds nothing that can be used.
    Missing,
    /// It is there, and differs.
    Differs,
    /// There is one of its name that is not ours.
    NotOwned,
}

/// What people are told of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberDetails {
    /// The node its pod is on.
    pub node: Option<String>,
    /// The version its etcd says it has.
    pub version: Option<String>,
    /// Whether it leads.
    pub is_leader: bool,
    /// What holds its pod up, in Kubernetes' words.
    pub pod_problem: Option<String>,
}

/// What the user wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterFacts {
    /// The uid of the resource.
    pub resource_uid: Uid,
    /// How many members.
    pub members: u8,
    /// Where their data is.
    pub storage: StorageKind,
    /// Whether it is being deleted.
    pub is_deleted: bool,
    /// When it was created.
    pub created_at: UnixTime,
    /// Whether nothing is to be changed.
    pub is_paused: bool,
    /// Whether its status already names an etcd cluster: clients were let in, whatever else is found.
    pub status_cluster_id: Option<ClusterId>,
    /// How many learners its version of etcd takes at once.
    pub max_learners: u8,
    /// How long members that cannot start hold up the end of the bootstrap.
    pub bootstrap_timeout: Duration,
    /// How long a member that may come back is waited for before it is replaced.
    pub replace_after: Duration,
    /// For how long the claim of a member that was removed is kept.
    pub keep_removed_for: Duration,
    /// Whether identity and claims go with the resource.
    pub owns_data: bool,
    /// When members that serve may be disturbed for a change that the user wants. Facts of before windows have none.
    #[serde(default)]
    pub disruption: DisruptionWindow,
    /// The version of etcd.
    pub version: Version,
    /// The version that is to follow, which cannot be entered before the members' logs are renewed.
    #[serde(default)]
    pub next_version: Option<Version>,
    /// What stands for all that pods are built from and that the user has a say in, the version included: pods that were built
    /// from something else are out of date.
    pub pod_template_hash: Uid,
    /// What stands for the last restart that was asked for: pods that were built before it are out of date, too.
    pub restart_request: Option<Uid>,
    /// How large a volume each member is to have, in bytes.
    #[serde(default)]
    pub volume_size: u64,
}

/// When members that serve may be disturbed for a change that the user wants: by the maintenance windows, which healing
/// knows nothing of.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum DisruptionWindow {
    /// Now: a window is open, or there are none.
    #[default]
    Allowed,
    /// Not before the next window opens.
    NotBefore(UnixTime),
}

impl DisruptionWindow {
    /// Until when is waited; nothing if there is nothing to wait for, as when facts were brought forward to that time.
    pub fn waits_until(self, now: UnixTime) -> Option<UnixTime> {
        match self {
            Self::Allowed => None,
            Self::NotBefore(opens) => Some(opens).filter(|opens| *opens > now),
        }
    }
}

/// Where members' data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StorageKind {
    /// On a claim each: it outlives the pod.
    Persistent,
    /// In the pod: a pod that is gone takes it along.
    Ephemeral,
}

/// A claim of a member.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClaimFacts {
    /// Whose it is.
    pub serial: Serial,
    /// Of which epoch.
    pub epoch: Epoch,
    /// Its own uid.
    pub uid: Uid,
    /// The volume it is bound to.
    pub volume: Option<Uid>,
    /// The claim's uid and volume when the member joined, written on it then.
    pub joined_on: Option<(Uid, Uid)>,
    /// Whether it is on its way out, or will be, since it went with a resource that is no more.
    pub is_terminating: bool,
    /// From where its volume can be reached.
    pub topology: VolumeTopology,
    /// Whether its volume is on a node that no longer exists.
    pub is_lost: bool,
    /// When its member was found to be removed, written on it then.
    pub removed_at: Option<UnixTime>,
    /// The version of etcd that its member was last seen to run, written on it then.
    pub last_version: Option<Version>,
    /// Whether it goes with the resource.
    pub is_owned: bool,
    /// How large a volume it asks for, in bytes.
    #[serde(default)]
    pub requested_size: u64,
    /// Whether it asks for more than it has been given.
    #[serde(default)]
    pub resize_pending: bool,
    /// Whether its member has to move: its volume is of another class than is wanted.
    #[serde(default)]
    pub has_wrong_class: bool,
    /// Whether none of the nodes that are wanted reaches its volume. Whoever runs there may: labels of nodes come and go.
    #[serde(default)]
    pub is_misplaced: bool,
}

impl ClaimFacts {
    /// Whether this is the claim, and the volume, that the member joined on. Anything else under its name is other data:
    /// a member rolled back to older data cost 10 of 10 acknowledged writes after an election (tried).
    pub fn is_joined_volume(&self) -> bool {
        !self.is_lost
            && self
                .joined_on
                .is_some_and(|on| Some(on) == self.volume.map(|volume| (self.uid, volume)))
    }
}

/// From where a volume can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum VolumeTopology {
    /// From one node only: it is on that node's own disk.
    Node(Uid),
    /// From every node.
    Anywhere,
    /// From some, or nobody knows: there is no volume yet, or it cannot be read.
    Unknown,
}

/// How a pod's etcd finds its cluster if its directory is empty; written in the pod's annotations.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StartMode {
    /// Not before it is told how: the pod waits behind a scheduling gate.
    Held,
    /// As a new cluster of itself.
    Bootstrap,
    /// By joining these, itself among them.
    Join(BTreeSet<Serial>),
    /// Not at all: with itself alone in the list it starts on its own data only, and refuses an empty directory (tried).
    ExistingData,
}

/// A pod of a member.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodFacts {
    /// Whose it is.
    pub serial: Serial,
    /// Of which epoch.
    pub epoch: Epoch,
    /// Its own uid.
    pub uid: Uid,
    /// When it was created.
    pub created_at: UnixTime,
    /// How its etcd would find its cluster.
    pub start_mode: StartMode,
    /// Whether the gate `evenkeel.dev/joined` was set.
    pub joined_gate: bool,
    /// Whether the kubelet reports it Ready: it has then seen the gate, and so what was written before it.
    pub is_ready: bool,
    /// Since when it is not Ready, as Kubernetes says: whoever can no longer be asked is not Ready either.
    pub unready_since: Option<UnixTime>,
    /// The node that it was given.
    pub node: Option<Uid>,
    /// Since when Kubernetes has found no node that takes it, if it has looked for one.
    pub unschedulable_since: Option<UnixTime>,
    /// What stands for all that it was built from, as it is written on it: the same for all members of one spec. Pods of before
    /// that was written have none.
    pub template_hash: Option<Uid>,
    /// What stands for all by which Kubernetes chooses a node for it.
    pub scheduling_hash: Uid,
    /// What stands for the last restart that was asked for when it was built.
    pub restart_request: Option<Uid>,
    /// The version of etcd that it was built with.
    pub version: Option<Version>,
    /// Whether its kubelet says that its container does not run, or no node has it yet: nobody misses it.
    pub is_idle: bool,
    /// Since when its container keeps ending as soon as it is started, if it does.
    pub crashing_since: Option<UnixTime>,
    /// Whether it is on its way out.
    pub is_terminating: bool,
    /// Whether it has ended for good.
    pub is_finished: bool,
    /// Whether clients are routed to it.
    pub is_routed: bool,
    /// Whether the resource controls it: otherwise `kubectl drain` refuses it.
    pub is_owned: bool,
}

/// etcd's list of members, and who told it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Membership {
    /// The member that was asked. A stray one, alone in a cluster of its own, would answer readily.
    pub reported_by: Serial,
    /// The list.
    pub members: Vec<ListedMember>,
    /// The others: their peer URLs are none of ours.
    pub unknown: Vec<UnknownMember>,
}

/// A member that somebody else added.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UnknownMember {
    /// What etcd calls it.
    pub id: MemberId,
    /// Whether it has no vote.
    pub is_learner: bool,
    /// Whether it ever started.
    pub has_started: bool,
    /// When this operator first saw it.
    pub first_seen: UnixTime,
}

/// A member as etcd lists it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ListedMember {
    /// Which of ours it is, by its peer URL.
    pub serial: Serial,
    /// What etcd calls it.
    pub id: MemberId,
    /// Whether it has no vote.
    pub is_learner: bool,
    /// Whether it ever started: only then has it a name.
    pub has_started: bool,
}

/// What a member says of itself when asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemberHealth {
    /// The cluster it takes itself to be in.
    pub cluster_id: ClusterId,
    /// Who it takes itself to be.
    pub member_id: MemberId,
    /// Whether it has answered a read as clients make it; a learner, that it follows a leader.
    pub is_serving: bool,
    /// For a learner: whether its log is near enough to the leader's.
    pub is_caught_up: bool,
    /// Whether it leads.
    pub is_leader: bool,
    /// The version that it says it is.
    #[serde(default)]
    pub version: Option<Version>,
    /// How large its data is, in bytes: rounded up, so that it does not change with every write.
    #[serde(default)]
    pub db_size: u64,
}
