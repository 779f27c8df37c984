//! The abstract model of one cluster: the objects in Kubernetes, the state of kubelets and disks,
//! and the etcd membership. The model must allow at least the failures that real systems have;
//! `tests/replay` compares its etcd rules with real etcd processes.

use std::collections::BTreeMap;

use evenkeel_etcd::facts::{RestoredVolume, StartMode, StorageKind};
use evenkeel_etcd::identity::{Identity, MembershipChange, Uid};
use evenkeel_etcd::names::{Epoch, Serial};
use evenkeel_etcd::plan::EtcdCreate;
use evenkeel_etcd::view::quorum;

use crate::effect::{self, Effect};

pub use crate::restore_model::{
    BACKUPS, BackupNumber, ModelRestore, ModelRestorePod, ModelRestoreState, NO_BACKUP, backup_of,
    restore_of,
};

/// The state of the model.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterModel {
    /// The number of members in the spec.
    pub desired_members: u8,
    /// The incarnation of the resource; it increases when the resource is deleted and created again.
    pub incarnation: u8,
    /// Where members keep their data.
    pub storage: StorageKind,
    /// The number of learners that etcd accepts at once during the bootstrap.
    pub max_learners: u8,
    /// The pod template of the spec.
    pub template: TemplateVariant,
    /// The identity object, if it exists.
    pub identity: Option<Identity>,
    /// The `minAvailable` of the PodDisruptionBudget, if it exists.
    pub pdb_min_available: Option<u8>,
    /// The PersistentVolumeClaims by serial.
    pub claims: BTreeMap<Serial, ModelClaim>,
    /// The pods by serial.
    pub pods: BTreeMap<Serial, ModelPod>,
    /// The backup that `spec.bootstrap.from` names.
    pub source: BackupNumber,
    /// The `Restore` of the cluster.
    pub restore: Option<ModelRestore>,
    /// The restore pods by the serial of the seed.
    pub restore_pods: BTreeMap<Serial, ModelRestorePod>,
    /// Every etcd cluster that was ever bootstrapped. Two clusters of one epoch have the same cluster ID.
    pub clusters: Vec<ModelCluster>,
    /// The remaining writes of the operator's last plan.
    pub pending_writes: Vec<Effect>,
    /// The writes that an operator that lost its lease in the middle of a plan may still send.
    pub late_writes: Vec<Effect>,
    /// The next unused uid.
    pub next_uid: u8,
    /// Whether faults include deleting the identity and adding an unknown member.
    pub allows_tampering: bool,
    /// Whether edits change the pod template, instead of recreating the resource.
    pub edits_change_template: bool,
    /// Whether edits of the template also change the volumes, for example their StorageClass.
    pub edits_change_volumes: bool,
    /// Whether the spec may name a backup, and edits name another one.
    pub restores: bool,
    /// Whether edits create a `Restore`, ask for its undo and delete it, instead of naming another backup in the spec.
    pub restores_in_place: bool,
    /// Whether the resource owns the identity and the claims even once the bootstrap is finished. It always owns the
    /// pods.
    pub owns_data: bool,
    /// Whether the resource owns the identity.
    pub identity_owned: bool,
    /// Whether the identity belongs to a deleted resource and is about to be garbage collected.
    pub identity_terminating: bool,
    /// The faults that may still happen.
    pub budget: FaultBudget,
}

/// The variant of the pod template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TemplateVariant {
    /// The template of the first spec.
    Original,
    /// Another template with which etcd runs.
    Changed,
    /// A template with which etcd does not start.
    Broken,
}

/// How many faults of each class may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FaultBudget {
    /// Faults of pods, disks, nodes and reads.
    pub faults: u8,
    /// Crashes of the operator between two writes.
    pub crashes: u8,
    /// Edits of the resource.
    pub edits: u8,
    /// How often all timeouts expire although the members are only slow.
    pub delays: u8,
}

impl FaultBudget {
    /// No faults.
    pub const NONE: Self = Self {
        faults: 0,
        crashes: 0,
        edits: 0,
        delays: 0,
    };
}

/// A PersistentVolumeClaim and the disk of its volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelClaim {
    /// The uid of the claim and of its volume.
    pub uid: Uid,
    /// The epoch.
    pub epoch: Epoch,
    /// The claim uid and volume uid that the operator recorded when the member joined.
    pub joined_on: Option<(Uid, Uid)>,
    /// The restore that the operator recorded on the claim.
    pub restored: Option<RestoredVolume>,
    /// Whether the operator recorded that a restore has replaced the cluster. The time until which the claim is kept does not
    /// come.
    pub is_replaced: bool,
    /// The content of the data directory.
    pub disk: DiskState,
    /// Whether the node of the volume is lost for good.
    pub node_lost: bool,
    /// The member whose node this volume was placed on; `None` if no other member uses the volume's
    /// node.
    pub shares_node_of: Option<Serial>,
    /// Whether the resource owns the claim.
    pub is_owned: bool,
    /// Whether the claim belongs to a deleted resource and is about to be garbage collected.
    pub is_terminating: bool,
    /// The template for which the volume was created. Where edits change volumes, an existing volume cannot follow.
    pub volume_template: TemplateVariant,
}

impl ModelClaim {
    /// Returns true if the claim has a volume. A StorageClass that does not exist provisions none.
    pub fn is_bound(&self) -> bool {
        self.volume_template != TemplateVariant::Broken
    }

    /// Creates a claim with an empty disk.
    pub fn new(uid: Uid, epoch: Epoch, made_for: TemplateVariant, is_owned: bool) -> Self {
        let (joined_on, disk, took) = (None, DiskState::Empty, None);
        Self {
            uid,
            epoch,
            joined_on,
            restored: None,
            is_replaced: false,
            disk,
            node_lost: false,
            shares_node_of: took,
            is_owned,
            is_terminating: false,
            volume_template: made_for,
        }
    }
}

/// The content of a data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DiskState {
    /// No data.
    Empty,
    /// The data of a backup, on which no etcd has started.
    Restored(BackupNumber),
    /// The data of one member of one cluster.
    Data {
        /// The index of the cluster.
        cluster: u8,
        /// The member that wrote the data.
        serial: Serial,
        /// Whether the data is an older copy, which lacks writes acknowledged since.
        stale: bool,
    },
}

impl DiskState {
    /// Returns the current data of a running member.
    pub(crate) fn written(cluster: usize, serial: Serial) -> Self {
        Self::Data {
            cluster: u8::try_from(cluster).unwrap_or(u8::MAX),
            serial,
            stale: false,
        }
    }
}

/// A pod, its kubelet's view of it, and its etcd process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelPod {
    /// The uid.
    pub uid: Uid,
    /// The epoch.
    pub epoch: Epoch,
    /// The template that the pod was built from.
    pub template: TemplateVariant,
    /// The start mode in the API.
    pub start_mode: StartMode,
    /// Whether the readiness gate is set in the API.
    pub joined_gate: bool,
    /// Start mode and gate as the kubelet last read them; `None` if the kubelet has not seen the pod.
    pub kubelet_view: Option<(StartMode, bool)>,
    /// Whether the etcd process runs. Its cluster and member are those of the data on its disk.
    pub is_running: bool,
    /// Whether the etcd process has reached a quorum since its start. It answers no request before that, not even for
    /// its own ID.
    pub is_responsive: bool,
    /// Whether the etcd process received a snapshot and does not serve before the next log entry. Clients write none in
    /// the model.
    pub is_stuck: bool,
    /// Whether the pod is Terminating, or belongs to a deleted resource.
    pub is_terminating: bool,
    /// Whether the pod is in a terminal phase.
    pub is_finished: bool,
    /// Whether the client Service routes to the pod.
    pub is_routed: bool,
    /// The incarnation of the resource that owns the pod.
    pub owner_incarnation: u8,
    /// Whether the node is down.
    pub node_down: bool,
    /// Whether the operator cannot reach the member although other members can.
    pub is_unreachable: bool,
    /// Whether the pod was created before every timeout.
    pub is_old: bool,
    /// The data directory of an ephemeral member.
    pub disk: DiskState,
}

impl TemplateVariant {
    /// Returns the template hash that the facts report.
    pub fn uid(self) -> Uid {
        Uid(3000 + self as u128)
    }

    /// Returns the variant of a template hash.
    pub fn of(uid: Uid) -> Self {
        [Self::Original, Self::Changed]
            .into_iter()
            .find(|template| template.uid() == uid)
            .unwrap_or(Self::Broken)
    }
}

impl ModelPod {
    /// Creates a pod that no kubelet has seen.
    pub fn new(
        uid: Uid,
        epoch: Epoch,
        template: TemplateVariant,
        start: StartMode,
        owner: u8,
    ) -> Self {
        Self {
            uid,
            epoch,
            template,
            start_mode: start,
            joined_gate: false,
            kubelet_view: None,
            is_running: false,
            is_responsive: false,
            is_stuck: false,
            is_terminating: false,
            is_finished: false,
            is_routed: false,
            owner_incarnation: owner,
            node_down: false,
            is_unreachable: false,
            is_old: false,
            disk: DiskState::Empty,
        }
    }
}

/// An etcd cluster: the membership that its quorum committed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelCluster {
    /// The epoch of its cluster token.
    pub epoch: Epoch,
    /// The backup whose data the cluster began with.
    pub origin: BackupNumber,
    /// The listed members.
    pub members: BTreeMap<Serial, ModelMember>,
    /// A change that a leader appended to its log right after it lost its quorum. The caller got a timeout, and the
    /// change is committed when the quorum is back.
    pub logged_change: Option<MembershipChange>,
    /// Whether the identity was deleted since the cluster was formed.
    pub identity_deleted: bool,
    /// Whether clients were ever routed to it. Tracked only where it matters: with tampering and in-place restores.
    pub has_served_clients: bool,
    /// A voter that another client of etcd added and that never starts.
    pub unknown_voter: Option<UnknownVoter>,
}

/// How long the unknown voter has been listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UnknownVoter {
    /// Shorter than every timeout.
    Recent,
    /// Longer than every timeout.
    Old,
}

/// A member as the quorum lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelMember {
    /// Whether it is a learner.
    pub is_learner: bool,
    /// Whether it ever started.
    pub has_started: bool,
}

/// The description of a violated rule of the design.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleViolation(pub String);

impl ClusterModel {
    /// Creates the state right after a new resource was created.
    pub fn new(
        desired_members: u8,
        storage: StorageKind,
        max_learners: u8,
        budget: FaultBudget,
    ) -> Self {
        Self {
            desired_members,
            incarnation: 0,
            storage,
            max_learners,
            template: TemplateVariant::Original,
            identity: None,
            pdb_min_available: None,
            claims: BTreeMap::new(),
            pods: BTreeMap::new(),
            source: NO_BACKUP,
            restore: None,
            restore_pods: BTreeMap::new(),
            clusters: Vec::new(),
            pending_writes: Vec::new(),
            late_writes: Vec::new(),
            next_uid: 1,
            allows_tampering: false,
            edits_change_template: false,
            edits_change_volumes: false,
            restores: false,
            restores_in_place: false,
            owns_data: storage == StorageKind::Ephemeral,
            identity_owned: false,
            identity_terminating: false,
            budget,
        }
    }

    /// Lets faults delete the identity and add an unknown member.
    #[must_use]
    pub fn with_tampering(self) -> Self {
        Self {
            allows_tampering: true,
            ..self
        }
    }

    /// Lets edits change the pod template.
    #[must_use]
    pub fn with_template_edits(self) -> Self {
        Self {
            edits_change_template: true,
            ..self
        }
    }

    /// Lets edits change the pod template and the volumes.
    #[must_use]
    pub fn with_volume_edits(self) -> Self {
        Self {
            edits_change_template: true,
            edits_change_volumes: true,
            ..self
        }
    }

    /// Returns the template for which volumes are created now. It is constant where edits do not change volumes.
    pub(crate) fn volume_template(&self) -> TemplateVariant {
        if self.edits_change_volumes {
            self.template
        } else {
            TemplateVariant::Original
        }
    }

    /// Begins with a spec that names a backup, and lets edits name another one or none.
    #[must_use]
    pub fn with_restore(self) -> Self {
        Self {
            source: BACKUPS[0],
            restores: true,
            ..self
        }
    }

    /// Lets edits create a `Restore`, ask for its undo, and delete it.
    #[must_use]
    pub fn with_in_place_restore(self) -> Self {
        Self {
            restores: true,
            restores_in_place: true,
            ..self
        }
    }

    /// Lets the resource own the identity and the claims even once the bootstrap is finished.
    #[must_use]
    pub fn with_owned_data(self) -> Self {
        Self {
            owns_data: true,
            ..self
        }
    }

    /// Deletes the resource. Kubernetes then deletes the pods, and the identity and claims where the resource owns
    /// them. A create that is still pending and would name the deleted resource as its owner is dropped, since its
    /// object would be collected at once.
    pub(crate) fn delete_resource(&mut self) {
        self.pods
            .values_mut()
            .for_each(|pod| pod.is_terminating = true);
        self.restore_pods
            .values_mut()
            .for_each(|pod| pod.is_terminating = true);
        self.identity_terminating |= self.identity_owned;
        self.claims
            .values_mut()
            .for_each(|claim| claim.is_terminating |= claim.is_owned);
        let is_bootstrapped = self
            .identity
            .as_ref()
            .is_some_and(|identity| identity.bootstrapped);
        if is_bootstrapped && !self.owns_data {
            return;
        }
        for effects in [&mut self.pending_writes, &mut self.late_writes] {
            effects.retain(|effect| !matches!(effect, Effect::Create(_)));
        }
    }

    /// Returns whether the resource owns an identity that is created now.
    pub(crate) fn owns_new_identity(&self, identity: &Identity) -> bool {
        self.owns_data || !identity.bootstrapped
    }

    /// Removes the owner references, as Kubernetes does if a resource is deleted with orphan propagation.
    pub(crate) fn orphan_objects(&mut self) {
        self.identity_owned = false;
        self.claims
            .values_mut()
            .for_each(|claim| claim.is_owned = false);
    }

    /// Forgets the previous resource's cluster when none of its objects is left. Where users delete objects as well,
    /// data that is kept may be gone for another reason.
    pub(crate) fn forget_previous_cluster(&mut self) {
        if (self.owns_data || !self.allows_tampering)
            && self.identity.is_none()
            && self.claims.is_empty()
            && self.pods.is_empty()
            && self.restore_pods.is_empty()
        {
            self.pdb_min_available = None;
            self.clusters.clear();
            self.pending_writes
                .retain(|effect| matches!(effect, Effect::Create(EtcdCreate::Identity(_))));
            self.late_writes.clear();
        }
    }

    /// Returns the member whose node holds the volume of `serial`.
    pub fn node_of(&self, serial: Serial) -> Serial {
        self.claims
            .get(&serial)
            .and_then(|claim| claim.shares_node_of)
            .unwrap_or(serial)
    }

    /// Returns true if another member's pod runs on the node of this member's volume, so that the pod cannot be
    /// scheduled.
    pub fn is_unschedulable(&self, serial: Serial) -> bool {
        let waits = self
            .pods
            .get(&serial)
            .is_some_and(|pod| pod.kubelet_view.is_none());
        let mut others = self
            .pods
            .iter()
            .filter(|(other, pod)| **other != serial && pod.kubelet_view.is_some());
        waits && others.any(|(other, _)| self.node_of(*other) == self.node_of(serial))
    }

    /// Returns an unused uid.
    pub fn fresh_uid(&mut self) -> Uid {
        let uid = Uid(u128::from(self.next_uid));
        self.next_uid = self.next_uid.saturating_add(1);
        uid
    }

    /// Returns the data directory that a pod's etcd sees; `None` while the claim is missing, unbound or on a lost
    /// node.
    pub fn disk(&self, serial: Serial) -> Option<DiskState> {
        match self.storage {
            // The data of an ephemeral pod is gone when the pod has finished.
            StorageKind::Ephemeral => self
                .pods
                .get(&serial)
                .filter(|pod| !pod.is_finished)
                .map(|pod| pod.disk),
            StorageKind::Persistent => self
                .claims
                .get(&serial)
                .filter(|claim| !claim.node_lost && claim.is_bound())
                .map(|claim| claim.disk),
        }
    }

    /// Replaces the content of a member's data directory.
    pub fn set_disk(&mut self, serial: Serial, disk: DiskState) {
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

    /// Returns the cluster in which a pod's etcd runs.
    pub fn running_cluster(&self, serial: Serial) -> Option<usize> {
        let pod = self.pods.get(&serial).filter(|pod| pod.is_running)?;
        debug_assert!(
            !pod.node_down && !pod.is_finished,
            "a pod that is down or finished runs nothing"
        );
        match self.disk(serial)? {
            DiskState::Data { cluster, .. } => Some(usize::from(cluster)),
            DiskState::Restored(_) | DiskState::Empty => None,
        }
    }

    /// Returns true if any member of a cluster runs.
    pub fn has_running_member(&self, cluster: usize) -> bool {
        self.clusters[cluster]
            .members
            .keys()
            .any(|serial| self.running_cluster(*serial) == Some(cluster))
    }

    /// Returns the voter that the operator queries and sends changes to. Learners do not answer such requests. Any
    /// voter would do; the last one is the worst case, because it belongs to the newest cluster.
    pub fn reachable_voter(&self) -> Option<(Serial, usize)> {
        self.serving_voters()
            .find(|(serial, _)| self.pods.get(serial).is_some_and(|pod| !pod.is_unreachable))
    }

    /// Returns the leader, whether or not the operator can reach it.
    pub fn leader(&self) -> Option<Serial> {
        self.serving_voters().next().map(|(serial, _)| serial)
    }

    /// Returns the serving voters with their clusters, the highest serial first.
    fn serving_voters(&self) -> impl Iterator<Item = (Serial, usize)> {
        self.pods
            .keys()
            .rev()
            .filter(|serial| self.is_serving(**serial))
            .filter_map(|serial| {
                let cluster = self.running_cluster(*serial)?;
                Some((*serial, cluster)).filter(|_| self.is_voter(cluster, *serial))
            })
    }

    /// Returns true if `serial` is a voter of the cluster.
    pub fn is_voter(&self, cluster: usize, serial: Serial) -> bool {
        self.clusters[cluster]
            .members
            .get(&serial)
            .is_some_and(|member| !member.is_learner)
    }

    /// Returns the number of voters that run.
    pub fn running_voters(&self, cluster: usize) -> usize {
        let members = self.clusters[cluster]
            .members
            .iter()
            .filter(|(_, member)| !member.is_learner);
        members
            .filter(|(serial, _)| self.running_cluster(**serial) == Some(cluster))
            .count()
    }

    /// Returns the number of voters, the unknown voter included.
    pub fn voter_count(&self, cluster: usize) -> usize {
        let ModelCluster {
            members,
            unknown_voter,
            ..
        } = &self.clusters[cluster];
        members.values().filter(|member| !member.is_learner).count()
            + usize::from(unknown_voter.is_some())
    }

    /// Returns true if a majority of the voters runs.
    pub fn has_quorum(&self, cluster: usize) -> bool {
        let voters = self.voter_count(cluster);
        voters > 0 && self.running_voters(cluster) >= quorum(voters)
    }

    /// Returns true if a member serves clients: it runs, is not stuck and is listed in a cluster that has a quorum.
    pub fn is_serving(&self, serial: Serial) -> bool {
        self.running_cluster(serial).is_some_and(|cluster| {
            self.clusters[cluster].members.contains_key(&serial)
                && self.has_quorum(cluster)
                && !self.is_stuck(serial)
        })
    }

    /// Returns true if a member does not serve before the next log entry.
    pub fn is_stuck(&self, serial: Serial) -> bool {
        self.pods.get(&serial).is_some_and(|pod| pod.is_stuck)
    }

    /// Lets the members of a cluster apply a new log entry: none is stuck afterwards.
    pub(crate) fn append_entry(&mut self, cluster: usize) {
        for serial in self.running_members(cluster) {
            self.pods
                .get_mut(&serial)
                .into_iter()
                .for_each(|pod| pod.is_stuck = false);
        }
    }

    /// Returns the members whose etcd runs in a cluster, removed ones included.
    fn running_members(&self, cluster: usize) -> Vec<Serial> {
        self.pods
            .keys()
            .copied()
            .filter(|serial| self.running_cluster(*serial) == Some(cluster))
            .collect()
    }

    /// Returns the cluster of the identity's epoch.
    pub fn current_cluster(&self) -> Option<usize> {
        let epoch = self.identity.as_ref()?.epoch;
        self.clusters
            .iter()
            .position(|cluster| cluster.epoch == epoch)
    }

    /// Applies everything that follows at once: a quorum commits the change in its log, its members answer, are
    /// listed as started and catch up, and removed members are notified by any running member and exit.
    pub fn settle(&mut self) {
        for index in 0..self.clusters.len() {
            if self.clusters[index].logged_change.is_some() && self.has_quorum(index) {
                let change = self.clusters[index].logged_change.take();
                change
                    .into_iter()
                    .for_each(|change| effect::commit_change(self, index, change));
            }
            let (has_running, quorum) = (self.has_running_member(index), self.has_quorum(index));
            if !quorum {
                // The leader that is elected when the quorum is back appends an entry.
                self.append_entry(index);
            }
            for serial in self.running_members(index) {
                let is_stuck = self.is_stuck(serial);
                match self.clusters[index].members.get_mut(&serial) {
                    None if has_running => self.set_running(serial, false),
                    Some(_) if is_stuck => {}
                    Some(member) if quorum => {
                        member.has_started = true;
                        self.set_disk(serial, DiskState::written(index, serial));
                        self.pods
                            .get_mut(&serial)
                            .into_iter()
                            .for_each(|pod| pod.is_responsive = true);
                    }
                    _ => {}
                }
            }
        }
        self.pods.values_mut().for_each(|pod| {
            pod.is_responsive &= pod.is_running;
            pod.is_stuck &= pod.is_running;
        });
        let routed = self
            .pods
            .iter()
            .filter(|(_, pod)| (self.allows_tampering || self.restores_in_place) && pod.is_routed);
        let serving: Vec<usize> = routed
            .filter_map(|(serial, _)| self.running_cluster(*serial))
            .collect();
        serving
            .into_iter()
            .for_each(|cluster| self.clusters[cluster].has_served_clients = true);
    }

    /// Sets whether a pod's etcd runs.
    pub fn set_running(&mut self, serial: Serial, is_running: bool) {
        if let Some(pod) = self.pods.get_mut(&serial) {
            pod.is_running = is_running;
        }
    }

    /// Removes a pod together with its ephemeral data.
    pub fn remove_pod(&mut self, serial: Serial) {
        self.pods.remove(&serial);
    }
}

/// Returns the label of a member in traces: `a` is the first.
pub fn member_label(serial: Serial) -> String {
    char::from_u32(u32::from(b'a') + u32::from(serial.0))
        .map_or_else(|| format!("member {}", serial.0), String::from)
}
