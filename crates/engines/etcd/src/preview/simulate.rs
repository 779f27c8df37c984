//! How things go when nothing else goes wrong: what a decision makes of the facts, and what follows by itself.

use std::collections::{BTreeSet, VecDeque};

use evenkeel_runtime::{Action, Observed, Plan};

use crate::decide::Etcd;
use crate::facts::{
    ClaimFacts, EtcdFacts, ListedMember, MemberHealth, Membership, OwnedBy, PodFacts, StartMode,
    StorageKind, VolumeTopology,
};
use crate::identity::{ClusterId, Identity, Intent, MemberId, MembershipChange, Uid};
use crate::names::Serial;
use crate::plan::{EtcdApply, EtcdCreate, EtcdDisruption, EtcdPatch, OwnerTarget};
use crate::view::quorum;

/// Facts, as they become.
pub(super) struct SimulatedCluster {
    pub(super) facts: EtcdFacts,
    /// Pods that do not come up.
    stuck: BTreeSet<Uid>,
    /// Who the members were when etcd last told.
    remembered: Option<Membership>,
    /// Pods on their way out, in the order in which they were sent away.
    leaving: VecDeque<Uid>,
    next: u64,
}

impl SimulatedCluster {
    pub(super) fn new(
        mut facts: EtcdFacts,
        stuck: BTreeSet<Uid>,
        remembered: Option<Membership>,
    ) -> Self {
        // That secrets are looked at again is no decision.
        facts.recheck_secrets_at = None;
        let remembered = facts
            .membership
            .present()
            .cloned()
            .or(remembered)
            .or_else(|| by_claims(&facts));
        let pods = facts.pods.present().into_iter().flatten();
        let leaving = pods
            .filter(|pod| pod.is_terminating && !stuck.contains(&pod.uid))
            .map(|pod| pod.uid)
            .collect();
        Self {
            facts,
            stuck,
            remembered,
            leaving,
            next: 1,
        }
    }

    /// A number that nothing has.
    fn next_id(&mut self) -> u64 {
        self.next += 1;
        u64::MAX - self.next
    }

    fn next_uid(&mut self) -> Uid {
        Uid(u128::from(self.next_id()))
    }

    /// Does all that a plan says.
    pub(super) fn execute(&mut self, plan: &Plan<Etcd>) {
        for action in plan.actions() {
            match action {
                Action::Create(create) => self.create(create),
                Action::Patch(mark) => self.patch(mark),
                Action::Apply(EtcdApply::Object(object)) => {
                    self.facts.drift.remove(object);
                }
                Action::Apply(EtcdApply::PodDisruptionBudget { min, .. }) => {
                    self.facts.pdb_min_available = Observed::Present(Some(*min))
                }
                Action::Disruption(EtcdDisruption::UpdateIdentity { to, .. }) => {
                    self.facts.identity = Observed::Present(to.clone())
                }
                Action::Disruption(EtcdDisruption::ChangeMembership {
                    from,
                    intent,
                    transfer_to,
                }) => self.change_membership(from, intent, *transfer_to),
                Action::Disruption(EtcdDisruption::RestartMember {
                    pod, transfer_to, ..
                }) => {
                    transfer_to
                        .iter()
                        .for_each(|transfer_to| self.set_leader(*transfer_to));
                    self.delete_pod(*pod);
                }
                Action::Disruption(EtcdDisruption::ForceSnapshot { to, .. }) => {
                    self.force_snapshot(to)
                }
                Action::Disruption(EtcdDisruption::DeletePod { pod, .. }) => self.delete_pod(*pod),
                Action::Disruption(EtcdDisruption::DeleteClaim { claim, .. }) => {
                    self.facts
                        .claims
                        .present_mut()
                        .into_iter()
                        .for_each(|all| all.retain(|one| one.uid != *claim));
                }
            }
        }
    }

    /// The version that was waited with is taken over.
    fn force_snapshot(&mut self, to: &Identity) {
        self.facts.identity = Observed::Present(to.clone());
        if let Some(next) = self.facts.cluster.next_version.take() {
            (
                self.facts.cluster.version,
                self.facts.cluster.pod_template_hash,
            ) = (next, self.next_uid());
        }
    }

    fn delete_pod(&mut self, pod: Uid) {
        self.on_pod(pod, |one| one.is_terminating = true);
        self.stuck.remove(&pod);
        self.leaving.push_back(pod);
    }

    fn pods(&self) -> &[PodFacts] {
        self.facts
            .pods
            .present()
            .map(Vec::as_slice)
            .unwrap_or_default()
    }

    fn claims(&self) -> &[ClaimFacts] {
        self.facts
            .claims
            .present()
            .map(Vec::as_slice)
            .unwrap_or_default()
    }

    fn create(&mut self, create: &EtcdCreate) {
        let (uid, now, owns) = (
            self.next_uid(),
            self.facts.now,
            self.facts.cluster.owns_data,
        );
        match create {
            EtcdCreate::Identity(identity) => {
                self.facts.identity = Observed::Present(identity.clone());
                self.facts.identity_owner = if owns {
                    OwnedBy::Resource
                } else {
                    OwnedBy::Nobody
                };
                self.facts.spec_recorded = true;
            }
            EtcdCreate::Claim { serial, epoch } => {
                let claim = ClaimFacts {
                    serial: *serial,
                    epoch: *epoch,
                    uid,
                    volume: None,
                    joined_on: None,
                    is_terminating: false,
                    topology: VolumeTopology::Unknown,
                    is_lost: false,
                    removed_at: None,
                    last_version: None,
                    is_owned: owns,
                    requested_size: self.facts.cluster.volume_size,
                    resize_pending: false,
                    has_wrong_class: false,
                    is_misplaced: false,
                };
                self.facts
                    .claims
                    .present_mut()
                    .into_iter()
                    .for_each(|all| all.push(claim.clone()));
            }
            EtcdCreate::Pod {
                serial,
                epoch,
                start_mode: start,
                ..
            } => {
                let desired = &self.facts.cluster;
                let pod = PodFacts {
                    serial: *serial,
                    epoch: *epoch,
                    uid,
                    created_at: now,
                    start_mode: start.clone(),
                    joined_gate: false,
                    is_ready: false,
                    unready_since: Some(now),
                    node: None,
                    unschedulable_since: None,
                    template_hash: Some(desired.pod_template_hash),
                    scheduling_hash: Uid(0),
                    restart_request: desired.restart_request,
                    version: Some(desired.version),
                    is_idle: true,
                    crashing_since: None,
                    is_terminating: false,
                    is_finished: false,
                    is_routed: false,
                    is_owned: true,
                };
                self.facts
                    .pods
                    .present_mut()
                    .into_iter()
                    .for_each(|all| all.push(pod.clone()));
            }
        }
    }

    fn patch(&mut self, mark: &EtcdPatch) {
        match mark {
            EtcdPatch::SetStartMode { pod, to, .. } => {
                self.on_pod(*pod, |pod| pod.start_mode = to.clone())
            }
            EtcdPatch::MarkJoined { pod, .. } => self.on_pod(*pod, |pod| {
                (pod.start_mode, pod.joined_gate) = (StartMode::ExistingData, true)
            }),
            EtcdPatch::AttachClients { pod } => self.on_pod(*pod, |pod| pod.is_routed = true),
            EtcdPatch::DetachClients { pod } => self.on_pod(*pod, |pod| pod.is_routed = false),
            EtcdPatch::RecordJoinedVolume { claim, volume } => {
                self.on_claim(*claim, |one| one.joined_on = Some((one.uid, *volume)));
            }
            EtcdPatch::RecordRemoval { claim, at } => {
                self.on_claim(*claim, |claim| claim.removed_at = *at)
            }
            EtcdPatch::RecordVersion { claim, version } => {
                self.on_claim(*claim, |one| one.last_version = Some(*version))
            }
            EtcdPatch::RecordTemplateHash {
                pod,
                inputs,
                version,
            } => {
                self.on_pod(*pod, |one| {
                    (one.template_hash, one.version) = (Some(*inputs), Some(*version))
                });
            }
            EtcdPatch::ResizeVolume { claim, to } => {
                self.on_claim(*claim, |one| one.requested_size = *to)
            }
            EtcdPatch::RecordSpec => self.facts.spec_recorded = true,
            EtcdPatch::SetOwner {
                what: OwnerTarget::Identity,
                owned,
            } => {
                self.facts.identity_owner = if *owned {
                    OwnedBy::Resource
                } else {
                    OwnedBy::Nobody
                };
            }
            EtcdPatch::SetOwner {
                what: OwnerTarget::Claim(claim),
                owned,
            } => self.on_claim(*claim, |one| one.is_owned = *owned),
            EtcdPatch::SetOwner {
                what: OwnerTarget::Pod(pod),
                owned,
            } => self.on_pod(*pod, |one| one.is_owned = *owned),
        }
    }

    fn on_pod(&mut self, uid: Uid, change: impl FnMut(&mut PodFacts)) {
        let pods = self.facts.pods.present_mut().into_iter().flatten();
        pods.filter(|pod| pod.uid == uid).for_each(change);
    }

    fn on_claim(&mut self, uid: Uid, change: impl FnMut(&mut ClaimFacts)) {
        let claims = self.facts.claims.present_mut().into_iter().flatten();
        claims.filter(|claim| claim.uid == uid).for_each(change);
    }

    fn change_membership(&mut self, from: &Identity, intent: &Intent, transfer_to: Option<Serial>) {
        self.facts.identity = Observed::Present(from.with_intent(intent));
        let id = MemberId(self.next_id());
        let Observed::Present(told) = &mut self.facts.membership else {
            return;
        };
        match intent.change {
            MembershipChange::Add(serial) => {
                told.members.push(ListedMember {
                    serial,
                    id,
                    is_learner: true,
                    has_started: false,
                });
            }
            MembershipChange::Promote(serial) => {
                told.members
                    .iter_mut()
                    .filter(|one| one.serial == serial)
                    .for_each(|one| one.is_learner = false);
            }
            MembershipChange::Remove(serial) => {
                told.members.retain(|one| one.serial != serial);
                self.facts.unreachable_since.remove(&serial);
                self.stop_answering(serial);
            }
            MembershipChange::RemoveUnknown(id) => told.unknown.retain(|one| one.id != id),
        }
        if let Some(transfer_to) = transfer_to {
            self.set_leader(transfer_to);
        }
        self.elect();
    }

    fn stop_answering(&mut self, serial: Serial) {
        self.facts.health.insert(serial, Observed::Unknown);
    }

    fn set_leader(&mut self, leader: Serial) {
        for (serial, health) in &mut self.facts.health {
            if let Observed::Present(health) = health {
                health.is_leader = *serial == leader;
            }
        }
    }

    /// Who votes and serves.
    fn serving(&self) -> Vec<Serial> {
        let told = self
            .facts
            .membership
            .present()
            .map(|told| told.members.as_slice())
            .unwrap_or_default();
        let voters = told
            .iter()
            .filter(|one| !one.is_learner)
            .map(|one| one.serial);
        voters
            .filter(|serial| {
                self.health_of(*serial)
                    .is_some_and(|health| health.is_serving)
            })
            .collect()
    }

    fn health_of(&self, serial: Serial) -> Option<&MemberHealth> {
        self.facts
            .health
            .get(&serial)
            .and_then(|health| health.present())
    }

    /// Somebody leads, and somebody tells who the members are, as long as anybody serves who votes.
    fn elect(&mut self) {
        let serving = self.serving();
        let Some(first) = serving.first().copied() else {
            return;
        };
        if !serving.iter().any(|serial| {
            self.health_of(*serial)
                .is_some_and(|health| health.is_leader)
        }) {
            self.set_leader(first);
        }
        if let Observed::Present(told) = &mut self.facts.membership
            && !serving.contains(&told.reported_by)
        {
            told.reported_by = first;
        }
    }

    /// Lets happen what happens by itself; says whether anything did.
    pub(super) fn advance(&mut self) -> bool {
        let before = self.facts.clone();
        // Whoever was sent away first is gone first.
        if let Some(first) = self.leaving.pop_front() {
            let gone = self
                .pods()
                .iter()
                .find(|pod| pod.uid == first)
                .map(|pod| pod.serial);
            self.facts
                .pods
                .present_mut()
                .into_iter()
                .for_each(|pods| pods.retain(|pod| pod.uid != first));
            gone.into_iter()
                .for_each(|serial| self.stop_answering(serial));
        }
        self.delete_previous_resource();
        let well = |pod: &&PodFacts| !pod.is_finished && !self.stuck.contains(&pod.uid);
        let well: Vec<PodFacts> = self.pods().iter().filter(well).cloned().collect();
        for pod in well {
            self.schedule(&pod);
            if pod.start_mode != StartMode::Held && self.health_of(pod.serial).is_none() {
                self.start(&pod);
            }
        }
        self.form_quorum();
        self.update_health();
        self.facts != before
    }

    /// What went with a former resource is gone.
    fn delete_previous_resource(&mut self) {
        if self.facts.identity_owner == OwnedBy::PreviousResource {
            (self.facts.identity, self.facts.identity_owner) = (Observed::Absent, OwnedBy::Nobody);
        }
        self.facts
            .claims
            .present_mut()
            .into_iter()
            .for_each(|claims| claims.retain(|claim| !claim.is_terminating));
        if self.pods().is_empty() && self.claims().is_empty() {
            self.facts.lineages.clear();
        }
    }

    /// A pod gets its node, and its claim a volume there.
    fn schedule(&mut self, pod: &PodFacts) {
        let (volume, node) = (self.next_uid(), self.next_uid());
        let claims = self.facts.claims.present_mut().into_iter().flatten();
        let its = claims.filter(|one| one.serial == pod.serial && one.epoch == pod.epoch);
        its.filter(|claim| claim.volume.is_none())
            .for_each(|claim| {
                (claim.volume, claim.topology) = (Some(volume), VolumeTopology::Node(node))
            });
        self.on_pod(pod.uid, |pod| pod.node = pod.node.or(Some(node)));
    }

    /// Its etcd comes up, as far as it can.
    fn start(&mut self, pod: &PodFacts) {
        let serial = pod.serial;
        let known = self
            .facts
            .identity
            .present()
            .and_then(|identity| identity.cluster_id);
        let founds = pod.start_mode == StartMode::Bootstrap && known.is_none();
        let (fresh_id, fresh_cluster) = (MemberId(self.next_id()), ClusterId(self.next_id()));
        if founds {
            let one = ListedMember {
                serial,
                id: fresh_id,
                is_learner: false,
                has_started: true,
            };
            let told = Membership {
                reported_by: serial,
                members: vec![one],
                unknown: Vec::new(),
            };
            self.facts.membership = Observed::Present(told);
        }
        let all = self.facts.membership.present().or(self.remembered.as_ref());
        let Some(one) = all.and_then(|told| told.members.iter().find(|one| one.serial == serial))
        else {
            return;
        };
        let (id, agrees) = (one.id, self.facts.membership.is_present());
        // One that starts on its own data has that; one that joins gets it.
        if pod.start_mode == StartMode::ExistingData && !self.has_data(serial) {
            return;
        }
        let cluster = known.unwrap_or(fresh_cluster);
        let (version, size) = (pod.version, 0);
        let health = MemberHealth {
            cluster_id: cluster,
            member_id: id,
            is_serving: agrees,
            is_caught_up: true,
            is_leader: founds,
            version,
            db_size: size,
        };
        self.facts.health.insert(serial, Observed::Present(health));
        self.facts.unreachable_since.remove(&serial);
        if let Observed::Present(told) = &mut self.facts.membership {
            told.members
                .iter_mut()
                .filter(|one| one.serial == serial)
                .for_each(|one| one.has_started = true);
        }
    }

    fn has_data(&self, serial: Serial) -> bool {
        self.facts.cluster.storage == StorageKind::Ephemeral
            || self
                .claims()
                .iter()
                .any(|claim| claim.serial == serial && claim.is_joined_volume())
    }

    /// A majority that is back agrees again.
    fn form_quorum(&mut self) {
        let (false, Some(all)) = (self.facts.membership.is_present(), self.remembered.clone())
        else {
            self.elect();
            return;
        };
        let voters: Vec<Serial> = all
            .members
            .iter()
            .filter(|one| !one.is_learner)
            .map(|one| one.serial)
            .collect();
        let back: Vec<Serial> = voters
            .iter()
            .copied()
            .filter(|serial| self.health_of(*serial).is_some())
            .collect();
        if voters.is_empty() || back.len() < quorum(voters.len()) {
            return;
        }
        for health in self.facts.health.values_mut() {
            if let Observed::Present(health) = health {
                health.is_serving = true;
            }
        }
        self.facts.membership = Observed::Present(Membership {
            reported_by: back[0],
            ..all
        });
        self.elect();
    }

    /// Kubelets call Ready whoever serves and has joined, and clients find whoever is routed.
    fn update_health(&mut self) {
        let sealed = self
            .facts
            .identity
            .present()
            .is_some_and(|identity| identity.bootstrapped);
        let voices = self.facts.health.clone();
        let mut served = false;
        for pod in self.facts.pods.present_mut().into_iter().flatten() {
            let health = voices.get(&pod.serial).and_then(|health| health.present());
            let serves = health.is_some_and(|health| health.is_serving);
            pod.is_idle &= health.is_none();
            if serves && pod.joined_gate {
                (pod.is_ready, pod.unready_since) = (true, None);
            }
            served |= serves && pod.is_routed && pod.is_ready;
        }
        if sealed && served {
            self.facts.client_read = Observed::Present(());
        }
    }
}

/// Who the members were, by the volumes of those who joined and were not removed: where etcd is no more that could tell.
fn by_claims(facts: &EtcdFacts) -> Option<Membership> {
    let epoch = facts.identity.present()?.epoch;
    let claims = facts.claims.present()?.iter();
    let joined = claims.filter(|claim| {
        claim.epoch == epoch && claim.is_joined_volume() && claim.removed_at.is_none()
    });
    let members: Vec<ListedMember> = joined
        .map(|claim| ListedMember {
            serial: claim.serial,
            id: MemberId(u64::from(claim.serial.0)),
            is_learner: false,
            has_started: true,
        })
        .collect();
    let told_by = members.first()?.serial;
    Some(Membership {
        reported_by: told_by,
        members,
        unknown: Vec::new(),
    })
}
