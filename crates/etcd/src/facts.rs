//! Everything that is known of a cluster when a decision is made, and what is not known. Plain data; no key material.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evenkeel::{Seen, Time};
use evenkeel_api::Version;
use serde::{Deserialize, Serialize};

use crate::identity::{ClusterId, Identity, MemberId, Uid};
use crate::names::{Epoch, Lineage, Serial};

/// All facts of one cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// When they were gathered.
    pub now: Time,
    /// Randomness handed in, for a cluster that is yet to have an identity.
    pub fresh_lineage: Lineage,
    /// What the user wants, validated.
    pub cluster: Cluster,
    /// The identity object.
    pub identity: Seen<Identity>,
    /// The claims labelled for this cluster, of every epoch.
    pub claims: Seen<Vec<Claim>>,
    /// The lineages that are written on claims and pods labelled for this cluster; nothing for what cannot be read.
    pub written: BTreeSet<Option<Lineage>>,
    /// The pods labelled for this cluster, of every epoch.
    pub pods: Seen<Vec<Pod>>,
    /// etcd's own list of members, read linearizably in this reconcile. Unknown without a quorum that answers.
    pub membership: Seen<Membership>,
    /// What each member that was asked says of itself.
    pub voices: BTreeMap<Serial, Seen<Voice>>,
    /// Since when members were heard of by nobody: not by the operator, and the leader has no connection to them. Only where
    /// both is known. Counted anew by every operator, since nobody else can tell that it lasted.
    pub silent: BTreeMap<Serial, Time>,
    /// Services and secrets that are not as they should be.
    pub amiss: BTreeMap<Object, Amiss>,
    /// When secrets must be looked at again, which nobody watches.
    pub secrets_again: Option<Time>,
    /// The least number of voters that evictions must leave, as the disruption budget says; nothing if it says something
    /// else altogether.
    pub budget: Seen<Option<u8>>,
    /// What the identity object goes with.
    pub identity_goes: GoesWith,
    /// Whether the spec that is in force is noted beside the identity.
    pub accepted: bool,
    /// A read as clients make it, through the client Service: whether it was answered.
    pub served: Seen<()>,
    /// What people are told of a member, and what nothing rests on.
    pub about: BTreeMap<Serial, About>,
}

/// What an object goes with: Kubernetes deletes it soon after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum GoesWith {
    /// The resource.
    Resource,
    /// One of its name that was deleted before it was created: it is on its way out.
    Former,
    /// Nothing.
    Nothing,
}

/// What a cluster has beside its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Object {
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
    Budget,
}

impl Object {
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
            | Self::Budget => None,
        }
    }

    /// Whether it is an authority.
    pub fn is_authority(self) -> bool {
        matches!(self, Self::PeerCa | Self::ClientCa)
    }
}

/// How an object is not as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Amiss {
    /// It is not there, or holds nothing that can be used.
    Missing,
    /// It is there, and differs.
    Differs,
    /// There is one of its name that is not ours.
    NotOurs,
}

/// What people are told of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// The node its pod is on.
    pub node: Option<String>,
    /// The version its etcd says it has.
    pub version: Option<String>,
    /// Whether it leads.
    pub leads: bool,
    /// What holds its pod up, in Kubernetes' words.
    pub trouble: Option<String>,
}

/// What the user wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// The uid of the resource.
    pub resource: Uid,
    /// How many members.
    pub members: u8,
    /// Where their data is.
    pub storage: Storage,
    /// Whether it is being deleted.
    pub deleted: bool,
    /// When it was created.
    pub created: Time,
    /// Whether nothing is to be changed.
    pub paused: bool,
    /// Whether its status already names an etcd cluster: clients were let in, whatever else is found.
    pub known: Option<ClusterId>,
    /// How many learners its version of etcd takes at once.
    pub max_learners: u8,
    /// How long members that cannot start hold up the end of the bootstrap.
    pub patience: Duration,
    /// How long a member that may come back is waited for before it is replaced.
    pub replace_after: Duration,
    /// For how long the claim of a member that was removed is kept.
    pub keep_removed_for: Duration,
    /// Whether identity and claims go with the resource.
    pub owns_data: bool,
    /// When members that serve may be disturbed for a change that the user wants. Facts of before windows have none.
    #[serde(default)]
    pub disrupt: Disrupt,
    /// The version of etcd.
    pub version: Version,
    /// The version that is to follow, which cannot be entered before the members' logs are renewed.
    #[serde(default)]
    pub next: Option<Version>,
    /// What stands for all that pods are built from and that the user has a say in, the version included: pods that were built
    /// from something else are out of date.
    pub inputs: Uid,
    /// What stands for the last restart that was asked for: pods that were built before it are out of date, too.
    pub restart: Option<Uid>,
    /// How large a volume each member is to have, in bytes.
    #[serde(default)]
    pub size: u64,
}

/// When members that serve may be disturbed for a change that the user wants: by the maintenance windows, which healing
/// knows nothing of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Disrupt {
    /// Now: a window is open, or there are none.
    #[default]
    Now,
    /// Not before the next window opens.
    From(Time),
}

impl Disrupt {
    /// Until when is waited; nothing if there is nothing to wait for, as when facts were brought forward to that time.
    pub fn waits_until(self, now: Time) -> Option<Time> {
        match self {
            Self::Now => None,
            Self::From(opens) => Some(opens).filter(|opens| *opens > now),
        }
    }
}

/// Where members' data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Storage {
    /// On a claim each: it outlives the pod.
    Persistent,
    /// In the pod: a pod that is gone takes it along.
    Ephemeral,
}

/// A claim of a member.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Claim {
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
    pub deleting: bool,
    /// From where its volume can be reached.
    pub reach: Reach,
    /// Whether its volume is on a node that no longer exists.
    pub lost: bool,
    /// When its member was found to be removed, written on it then.
    pub removed: Option<Time>,
    /// The version of etcd that its member was last seen to run, written on it then.
    pub version: Option<Version>,
    /// Whether it goes with the resource.
    pub owned: bool,
    /// How large a volume it asks for, in bytes.
    #[serde(default)]
    pub size: u64,
    /// Whether it asks for more than it has been given.
    #[serde(default)]
    pub grows: bool,
    /// Whether its member has to move: its volume is of another class than is wanted.
    #[serde(default)]
    pub moves: bool,
    /// Whether none of the nodes that are wanted reaches its volume. Whoever runs there may: labels of nodes come and go.
    #[serde(default)]
    pub misplaced: bool,
}

impl Claim {
    /// Whether this is the claim, and the volume, that the member joined on. Anything else under its name is other data:
    /// a member rolled back to older data cost 10 of 10 acknowledged writes after an election (tried).
    pub fn is_own(&self) -> bool {
        !self.lost
            && self.joined_on.is_some_and(|on| Some(on) == self.volume.map(|volume| (self.uid, volume)))
    }
}

/// From where a volume can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Reach {
    /// From one node only: it is on that node's own disk.
    Node(Uid),
    /// From every node.
    Anywhere,
    /// From some, or nobody knows: there is no volume yet, or it cannot be read.
    Unknown,
}

/// How a pod's etcd finds its cluster if its directory is empty; written in the pod's annotations.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Start {
    /// Not before it is told how: the pod waits behind a scheduling gate.
    Held,
    /// As a new cluster of itself.
    Found,
    /// By joining these, itself among them.
    Join(BTreeSet<Serial>),
    /// Not at all: with itself alone in the list it starts on its own data only, and refuses an empty directory (tried).
    OwnData,
}

/// A pod of a member.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Pod {
    /// Whose it is.
    pub serial: Serial,
    /// Of which epoch.
    pub epoch: Epoch,
    /// Its own uid.
    pub uid: Uid,
    /// When it was created.
    pub created: Time,
    /// How its etcd would find its cluster.
    pub start: Start,
    /// Whether the gate `evenkeel.dev/joined` was set.
    pub gate: bool,
    /// Whether the kubelet reports it Ready: it has then seen the gate, and so what was written before it.
    pub ready: bool,
    /// Since when it is not Ready, as Kubernetes says: whoever can no longer be asked is not Ready either.
    pub unready: Option<Time>,
    /// The node that it was given.
    pub node: Option<Uid>,
    /// Since when Kubernetes has found no node that takes it, if it has looked for one.
    pub refused: Option<Time>,
    /// What stands for all that it was built from, as it is written on it: the same for all members of one spec. Pods of before
    /// that was written have none.
    pub inputs: Option<Uid>,
    /// What stands for all by which Kubernetes chooses a node for it.
    pub placing: Uid,
    /// What stands for the last restart that was asked for when it was built.
    pub restart: Option<Uid>,
    /// The version of etcd that it was built with.
    pub version: Option<Version>,
    /// Whether its kubelet says that its container does not run, or no node has it yet: nobody misses it.
    pub idle: bool,
    /// Since when its container keeps ending as soon as it is started, if it does.
    pub crashing: Option<Time>,
    /// Whether it is on its way out.
    pub deleting: bool,
    /// Whether it has ended for good.
    pub finished: bool,
    /// Whether clients are routed to it.
    pub routed: bool,
    /// Whether the resource controls it: otherwise `kubectl drain` refuses it.
    pub owned: bool,
}

/// etcd's list of members, and who told it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Membership {
    /// The member that was asked. A stray one, alone in a cluster of its own, would answer readily.
    pub told_by: Serial,
    /// The list.
    pub members: Vec<Registered>,
    /// The others: their peer URLs are none of ours.
    pub strangers: Vec<Stranger>,
}

/// A member that somebody else added.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Stranger {
    /// What etcd calls it.
    pub id: MemberId,
    /// Whether it has no vote.
    pub learner: bool,
    /// Whether it ever started.
    pub started: bool,
    /// When this operator first saw it.
    pub since: Time,
}

/// A member as etcd lists it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Registered {
    /// Which of ours it is, by its peer URL.
    pub serial: Serial,
    /// What etcd calls it.
    pub id: MemberId,
    /// Whether it has no vote.
    pub learner: bool,
    /// Whether it ever started: only then has it a name.
    pub started: bool,
}

/// What a member says of itself when asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Voice {
    /// The cluster it takes itself to be in.
    pub cluster: ClusterId,
    /// Who it takes itself to be.
    pub id: MemberId,
    /// Whether it has answered a read as clients make it; a learner, that it follows a leader.
    pub serves: bool,
    /// For a learner: whether its log is near enough to the leader's.
    pub caught_up: bool,
    /// Whether it leads.
    pub leads: bool,
    /// The version that it says it is.
    #[serde(default)]
    pub version: Option<Version>,
    /// How large its data is, in bytes: rounded up, so that it does not change with every write.
    #[serde(default)]
    pub size: u64,
}
