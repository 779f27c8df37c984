//! The abstract world: what Kubernetes, kubelets, disks and etcd hold, small enough to be explored and no kinder than
//! the real ones. Its etcd rules are replayed against real etcd.

use std::collections::BTreeMap;

use evenkeel_etcd::facts::{StartMode, StorageKind};
use evenkeel_etcd::identity::{Identity, MembershipChange, Uid};
use evenkeel_etcd::names::{Epoch, Serial};
use evenkeel_etcd::plan::EtcdCreate;
use evenkeel_etcd::view::quorum;

use crate::effect::{self, Effect};

/// Everything there is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct World {
    /// How many members the user wants.
    pub wanted: u8,
    /// Which incarnation of the resource this is.
    pub resource: u8,
    /// Where data is.
    pub storage: StorageKind,
    /// How many learners etcd takes before the seal.
    pub max_learners: u8,
    /// What pods are to be built from.
    pub inputs: Inputs,
    /// The identity object.
    pub identity: Option<Identity>,
    /// How many voters evictions must leave, as the disruption budget says.
    pub budget_min: Option<u8>,
    /// Claims by serial.
    pub claims: BTreeMap<Serial, Claim>,
    /// Pods by serial.
    pub pods: BTreeMap<Serial, Pod>,
    /// Every etcd cluster that was ever formed. Two of one epoch have the same cluster ID.
    pub clusters: Vec<Cluster>,
    /// What the operator is about to do, from its last decision.
    pub pending: Vec<Effect>,
    /// What an operator that lost its lease in mid-plan may still do.
    pub late: Vec<Effect>,
    /// The next uid.
    pub next_uid: u8,
    /// Whether somebody may delete the identity, too, or add members.
    pub meddles: bool,
    /// Whether edits change what pods are built from, instead of the resource.
    pub rolls: bool,
    /// Whether these change what volumes are of, too: their class, say, or where they are.
    pub moves: bool,
    /// Whether identity and claims go with the resource, as pods always do.
    pub owned: bool,
    /// Whether the identity went with a resource that is no more: it goes.
    pub former: bool,
    /// What may still go wrong.
    pub budget: Budget,
}

/// What pods are built from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Inputs {
    /// What they were built from first.
    First,
    /// Something else, with which etcd runs as well.
    Second,
    /// Something with which it does not start.
    Bad,
}

/// How much may go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Budget {
    /// Faults of pods, disks, nodes and reads.
    pub faults: u8,
    /// Crashes of the operator between two effects.
    pub crashes: u8,
    /// Edits of the resource.
    pub edits: u8,
    /// Times that patience runs out while things are merely slow.
    pub delays: u8,
}

impl Budget {
    /// Nothing goes wrong.
    pub const NOTHING: Self = Self {
        faults: 0,
        crashes: 0,
        edits: 0,
        delays: 0,
    };
}

/// A claim, with the disk behind it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claim {
    /// Its uid, and its volume's.
    pub uid: Uid,
    /// Of which epoch.
    pub epoch: Epoch,
    /// What was written on it when its member joined.
    pub joined_on: Option<(Uid, Uid)>,
    /// What is on its disk.
    pub disk: Disk,
    /// Whether its node is gone for good.
    pub lost: bool,
    /// The member on whose node it is, if it took its place; else on one of its own.
    pub took: Option<Serial>,
    /// Whether it went with a resource that is no more: it goes.
    pub former: bool,
    /// For what it was made: where volumes are part of that, it cannot become something else.
    pub made_for: Inputs,
}

impl Claim {
    /// Whether it has a volume: none is given of a kind that does not exist.
    pub fn is_bound(&self) -> bool {
        self.made_for != Inputs::Bad
    }

    /// As it is created.
    pub fn new(uid: Uid, epoch: Epoch, made_for: Inputs) -> Self {
        let (joined_on, disk, took) = (None, Disk::Empty, None);
        Self {
            uid,
            epoch,
            joined_on,
            disk,
            lost: false,
            took,
            former: false,
            made_for,
        }
    }
}

/// What is in a data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Disk {
    /// Nothing.
    Empty,
    /// What this member of this cluster has written.
    Data {
        /// Which cluster, as an index.
        cluster: u8,
        /// Who.
        serial: Serial,
        /// Whether it is an older copy: what was acknowledged since is not in it.
        stale: bool,
    },
}

impl Disk {
    /// What a member writes as long as it runs.
    pub(crate) fn written(cluster: usize, serial: Serial) -> Self {
        Self::Data {
            cluster: u8::try_from(cluster).unwrap_or(u8::MAX),
            serial,
            stale: false,
        }
    }
}

/// A pod, and what its kubelet makes of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pod {
    /// Its uid.
    pub uid: Uid,
    /// Of which epoch.
    pub epoch: Epoch,
    /// What it was built from.
    pub inputs: Inputs,
    /// How its etcd would find its cluster, as the API says.
    pub start: StartMode,
    /// Whether the gate is set, as the API says.
    pub gate: bool,
    /// Both, as the kubelet last saw them; nothing if it has not seen the pod.
    pub seen: Option<(StartMode, bool)>,
    /// Whether its etcd runs: it then is what its disk says.
    pub runs: bool,
    /// Whether its etcd has found a quorum since it started. Until then it answers nobody, not even who it is.
    pub speaks: bool,
    /// Whether it is on its way out, or went with a resource that is no more.
    pub deleting: bool,
    /// Whether it has ended for good.
    pub finished: bool,
    /// Whether clients are routed to it.
    pub routed: bool,
    /// Which incarnation of the resource it belongs to.
    pub owner: u8,
    /// Whether its node is down.
    pub down: bool,
    /// Whether the operator cannot reach it; others do.
    pub unheard: bool,
    /// Whether it was created longer ago than anybody's patience.
    pub old: bool,
    /// The data directory, where there is no claim.
    pub disk: Disk,
}

impl Inputs {
    /// As facts have it.
    pub fn uid(self) -> Uid {
        Uid(3000 + self as u128)
    }

    /// From what facts have.
    pub fn of(uid: Uid) -> Self {
        [Self::First, Self::Second]
            .into_iter()
            .find(|inputs| inputs.uid() == uid)
            .unwrap_or(Self::Bad)
    }
}

impl Pod {
    /// As it is created: its kubelet has not seen it.
    pub fn new(uid: Uid, epoch: Epoch, inputs: Inputs, start: StartMode, owner: u8) -> Self {
        Self {
            uid,
            epoch,
            inputs,
            start,
            gate: false,
            seen: None,
            runs: false,
            speaks: false,
            deleting: false,
            finished: false,
            routed: false,
            owner,
            down: false,
            unheard: false,
            old: false,
            disk: Disk::Empty,
        }
    }
}

/// An etcd cluster: the membership that a quorum has agreed on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cluster {
    /// The epoch whose token it has.
    pub epoch: Epoch,
    /// Its members.
    pub members: BTreeMap<Serial, Member>,
    /// A change that a leader took into its log when it had just lost its quorum. Whoever asked was told of a timeout, and
    /// yet it is made as soon as there is a quorum again.
    pub in_log: Option<MembershipChange>,
    /// Whether its identity was deleted since it was formed.
    pub orphaned: bool,
    /// Whether clients were ever led to it; noted only where somebody meddles.
    pub served: bool,
    /// A voter that somebody else added, and that never starts.
    pub stranger: Option<Stranger>,
}

/// For how long somebody else's voter has been there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stranger {
    /// Since a moment ago.
    New,
    /// For longer than anybody's patience.
    Old,
}

/// A member as the quorum knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// Whether it has no vote.
    pub learner: bool,
    /// Whether it ever started.
    pub started: bool,
}

/// A rule of the design that was broken, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

impl World {
    /// Before anything was done for a new resource.
    pub fn new(wanted: u8, storage: StorageKind, max_learners: u8, budget: Budget) -> Self {
        Self {
            wanted,
            resource: 0,
            storage,
            max_learners,
            inputs: Inputs::First,
            identity: None,
            budget_min: None,
            claims: BTreeMap::new(),
            pods: BTreeMap::new(),
            clusters: Vec::new(),
            pending: Vec::new(),
            late: Vec::new(),
            next_uid: 1,
            meddles: false,
            rolls: false,
            moves: false,
            owned: storage == StorageKind::Ephemeral,
            former: false,
            budget,
        }
    }

    /// The same, where somebody may delete the identity.
    #[must_use]
    pub fn meddled(self) -> Self {
        Self {
            meddles: true,
            ..self
        }
    }

    /// The same, where edits change what pods are built from.
    #[must_use]
    pub fn rolling(self) -> Self {
        Self {
            rolls: true,
            ..self
        }
    }

    /// The same, where edits change what pods are built from, and volumes.
    #[must_use]
    pub fn moving(self) -> Self {
        Self {
            rolls: true,
            moves: true,
            ..self
        }
    }

    /// What claims are made for that are created now: where volumes stay what they are, it does not matter.
    pub(crate) fn volumes_for(&self) -> Inputs {
        if self.moves {
            self.inputs
        } else {
            Inputs::First
        }
    }

    /// The same, where identity and claims go with the resource.
    #[must_use]
    pub fn owned(self) -> Self {
        Self {
            owned: true,
            ..self
        }
    }

    /// The resource is gone, and all that goes with it is on its way out: pods always, identity and claims where they are owned.
    /// So is what somebody is about to create then who has not seen that: it would name the former resource as its owner, and be
    /// gone in a moment.
    pub(crate) fn goes(&mut self) {
        self.pods.values_mut().for_each(|pod| pod.deleting = true);
        if !self.owned {
            return;
        }
        self.former = self.identity.is_some();
        self.claims
            .values_mut()
            .for_each(|claim| claim.former = true);
        for effects in [&mut self.pending, &mut self.late] {
            effects.retain(|effect| !matches!(effect, Effect::Create(_)));
        }
    }

    /// Of what went with a former resource nobody knows when nothing is left of it.
    pub(crate) fn forget_former(&mut self) {
        if self.owned && self.identity.is_none() && self.claims.is_empty() && self.pods.is_empty() {
            self.budget_min = None;
            self.clusters.clear();
            self.pending
                .retain(|effect| matches!(effect, Effect::Create(EtcdCreate::Identity(_))));
            self.late.clear();
        }
    }

    /// On whose node a member's volume is: its own one's, or that of whom it took the place.
    pub fn place(&self, serial: Serial) -> Serial {
        self.claims
            .get(&serial)
            .and_then(|claim| claim.took)
            .unwrap_or(serial)
    }

    /// Whether a member's node is taken by another one, so that no kubelet will see its pod.
    pub fn is_kept_out(&self, serial: Serial) -> bool {
        let waits = self.pods.get(&serial).is_some_and(|pod| pod.seen.is_none());
        let mut others = self
            .pods
            .iter()
            .filter(|(other, pod)| **other != serial && pod.seen.is_some());
        waits && others.any(|(other, _)| self.place(*other) == self.place(serial))
    }

    /// A uid that was never used.
    pub fn fresh_uid(&mut self) -> Uid {
        let uid = Uid(u128::from(self.next_uid));
        self.next_uid = self.next_uid.saturating_add(1);
        uid
    }

    /// The data directory that a pod's etcd sees; none while its claim is missing or on a node that is gone.
    pub fn disk(&self, serial: Serial) -> Option<Disk> {
        match self.storage {
            // What a pod alone holds is gone when it has ended.
            StorageKind::Ephemeral => self
                .pods
                .get(&serial)
                .filter(|pod| !pod.finished)
                .map(|pod| pod.disk),
            StorageKind::Persistent => self
                .claims
                .get(&serial)
                .filter(|claim| !claim.lost && claim.is_bound())
                .map(|claim| claim.disk),
        }
    }

    /// Puts something else into a member's data directory.
    pub fn set_disk(&mut self, serial: Serial, disk: Disk) {
        match self.storage {
            StorageKind::Ephemeral => {
                if let Some(pod) = self.pods.get_mut(&serial) {
                    pod.disk = disk;
                }
            }
            StorageKind::Persistent => {
                if let Some(claim) = self.claims.get_mut(&serial) {
                    claim.disk = disk;
                }
            }
        }
    }

    /// The cluster in which a pod's etcd runs now.
    pub fn running_in(&self, serial: Serial) -> Option<usize> {
        let pod = self.pods.get(&serial).filter(|pod| pod.runs)?;
        debug_assert!(
            !pod.down && !pod.finished,
            "a pod that is down or finished runs nothing"
        );
        match self.disk(serial)? {
            Disk::Data { cluster, .. } => Some(usize::from(cluster)),
            Disk::Empty => None,
        }
    }

    /// Whether any member of a cluster runs.
    pub fn anyone_runs_in(&self, cluster: usize) -> bool {
        self.clusters[cluster]
            .members
            .keys()
            .any(|serial| self.running_in(*serial) == Some(cluster))
    }

    /// Whom one asks about the membership, or for a change of it: a voter, for learners do not answer that. Any may be the
    /// one; the last is the least kind, being the latest founder.
    pub fn spokesman(&self) -> Option<(Serial, usize)> {
        self.serving_voters()
            .find(|(serial, _)| self.pods.get(serial).is_some_and(|pod| !pod.unheard))
    }

    /// Who leads, as far as that matters to anybody: whether or not the operator reaches it.
    pub fn leader(&self) -> Option<Serial> {
        self.serving_voters().next().map(|(serial, _)| serial)
    }

    /// Voters that serve, the last one first, each with its cluster.
    fn serving_voters(&self) -> impl Iterator<Item = (Serial, usize)> {
        self.pods
            .keys()
            .rev()
            .filter(|serial| self.serves(**serial))
            .filter_map(|serial| {
                let cluster = self.running_in(*serial)?;
                Some((*serial, cluster)).filter(|_| self.is_voter(cluster, *serial))
            })
    }

    /// Whether a member of a cluster has a vote.
    pub fn is_voter(&self, cluster: usize, serial: Serial) -> bool {
        self.clusters[cluster]
            .members
            .get(&serial)
            .is_some_and(|member| !member.learner)
    }

    /// The voters of a cluster that run.
    pub fn alive_voters(&self, cluster: usize) -> usize {
        let members = self.clusters[cluster]
            .members
            .iter()
            .filter(|(_, member)| !member.learner);
        members
            .filter(|(serial, _)| self.running_in(**serial) == Some(cluster))
            .count()
    }

    /// How many votes there are in a cluster.
    pub fn votes(&self, cluster: usize) -> usize {
        let Cluster {
            members, stranger, ..
        } = &self.clusters[cluster];
        members.values().filter(|member| !member.learner).count() + usize::from(stranger.is_some())
    }

    /// Whether enough voters of a cluster run.
    pub fn has_quorum(&self, cluster: usize) -> bool {
        let votes = self.votes(cluster);
        votes > 0 && self.alive_voters(cluster) >= quorum(votes)
    }

    /// Whether a member serves clients: it runs, in a cluster that can agree, of which it is a member.
    pub fn serves(&self, serial: Serial) -> bool {
        self.running_in(serial).is_some_and(|cluster| {
            self.clusters[cluster].members.contains_key(&serial) && self.has_quorum(cluster)
        })
    }

    /// The cluster that counts: the one which the identity's epoch formed first.
    pub fn true_cluster(&self) -> Option<usize> {
        let epoch = self.identity.as_ref()?.epoch;
        self.clusters
            .iter()
            .position(|cluster| cluster.epoch == epoch)
    }

    /// What follows at once: a quorum makes what is in its log, members that find one speak, are known by name and catch
    /// up, and those that were removed are told by whoever is up, and exit.
    pub fn settle(&mut self) {
        for index in 0..self.clusters.len() {
            if self.clusters[index].in_log.is_some() && self.has_quorum(index) {
                let change = self.clusters[index].in_log.take();
                change
                    .into_iter()
                    .for_each(|change| effect::make(self, index, change));
            }
            let (told, quorum) = (self.anyone_runs_in(index), self.has_quorum(index));
            let here: Vec<Serial> = self
                .pods
                .keys()
                .copied()
                .filter(|serial| self.running_in(*serial) == Some(index))
                .collect();
            for serial in here {
                match self.clusters[index].members.get_mut(&serial) {
                    None if told => self.set_runs(serial, false),
                    Some(member) if quorum => {
                        member.started = true;
                        self.set_disk(serial, Disk::written(index, serial));
                        self.pods
                            .get_mut(&serial)
                            .into_iter()
                            .for_each(|pod| pod.speaks = true);
                    }
                    _ => {}
                }
            }
        }
        self.pods
            .values_mut()
            .for_each(|pod| pod.speaks &= pod.runs);
        let routed = self
            .pods
            .iter()
            .filter(|(_, pod)| self.meddles && pod.routed);
        let led: Vec<usize> = routed
            .filter_map(|(serial, _)| self.running_in(*serial))
            .collect();
        led.into_iter()
            .for_each(|cluster| self.clusters[cluster].served = true);
    }

    /// A pod's etcd comes up, or ends.
    pub fn set_runs(&mut self, serial: Serial, runs: bool) {
        if let Some(pod) = self.pods.get_mut(&serial) {
            pod.runs = runs;
        }
    }

    /// A pod goes at once, with what it alone held.
    pub fn remove_pod(&mut self, serial: Serial) {
        self.pods.remove(&serial);
    }
}

/// A serial as stories name it: `a` is the first.
pub fn shown(serial: Serial) -> String {
    char::from_u32(u32::from(b'a') + u32::from(serial.0))
        .map_or_else(|| format!("member {}", serial.0), String::from)
}
