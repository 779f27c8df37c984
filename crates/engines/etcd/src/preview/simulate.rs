//! A simulated cluster in which nothing else fails: the effect of each action on the facts. The
//! changes that follow by themselves are in [`super::advance`].

use std::collections::{BTreeSet, VecDeque};

use evenkeel_runtime::{Action, Observed, Plan};

use crate::decide::Etcd;
use crate::facts::{
    ClaimFacts, EtcdFacts, ListedMember, MemberHealth, Membership, OwnedBy, PodFacts,
    RestorePodFacts, RestorePodState, RestoreStep, RestoredVolume, StartMode, VolumeTopology,
};
use crate::identity::{Identity, Intent, MemberId, MembershipChange, Uid};
use crate::names::Serial;
use crate::plan::{EtcdApply, EtcdCreate, EtcdDisruption, EtcdPatch, OwnerTarget};
use crate::view::quorum;

use super::schedule::Scheduler;
use super::tolerance::Tolerance;

/// The facts of a simulated cluster.
pub(super) struct SimulatedCluster {
    pub(super) facts: EtcdFacts,
    /// The pods that do not become Ready.
    pub(super) failing: BTreeSet<Uid>,
    /// The last known member list.
    pub(super) remembered: Option<Membership>,
    /// The terminating pods in the order of their deletion.
    pub(super) terminating: VecDeque<Uid>,
    pub(super) scheduler: Scheduler,
    /// The number of IDs that were handed out.
    pub(super) ids: u64,
}

impl SimulatedCluster {
    pub(super) fn new(
        mut facts: EtcdFacts,
        failing: BTreeSet<Uid>,
        remembered: Option<Membership>,
        mut scheduler: Scheduler,
    ) -> Self {
        // Reading the Secrets again is not an action.
        facts.recheck_secrets_at = None;
        let remembered = facts
            .membership
            .present()
            .cloned()
            .or(remembered)
            .or_else(|| members_by_claims(&facts));
        let pods = || facts.pods.present().into_iter().flatten();
        pods().for_each(|pod| scheduler.remember(pod));
        let terminating = pods()
            .filter(|pod| pod.is_terminating && !failing.contains(&pod.uid))
            .map(|pod| pod.uid)
            .collect();
        Self {
            facts,
            failing,
            remembered,
            terminating,
            scheduler,
            ids: 1,
        }
    }

    /// Returns how many failures the cluster tolerates; `None` before bootstrap is finished.
    pub(super) fn tolerance(&self) -> Option<Tolerance> {
        Tolerance::of(&self.facts, |node| self.scheduler.is_known(node))
    }

    /// Returns an ID that is not in use.
    pub(super) fn next_id(&mut self) -> u64 {
        self.ids += 1;
        u64::MAX - self.ids
    }

    pub(super) fn next_uid(&mut self) -> Uid {
        Uid(u128::from(self.next_id()))
    }

    /// Executes the actions of a plan, up to the creation of an object that exists.
    pub(super) fn execute(&mut self, plan: &Plan<Etcd>) {
        for action in plan.actions() {
            match action {
                Action::Create(create) if self.exists(create) => return,
                Action::Create(create) => self.create(create),
                Action::Patch(patch) => self.patch(patch),
                Action::Apply(EtcdApply::Object(object)) => {
                    self.facts.drift.remove(object);
                }
                Action::Apply(EtcdApply::PodDisruptionBudget { min, .. }) => {
                    self.facts.pdb_min_available = Observed::Present(Some(*min))
                }
                Action::Disruption(EtcdDisruption::UpdateIdentity { to, .. }) => {
                    self.write_identity(to.clone())
                }
                Action::Disruption(EtcdDisruption::ChangeMembership {
                    from,
                    intent,
                    transfer_to,
                }) => self.change_membership(from, intent, *transfer_to),
                Action::Disruption(EtcdDisruption::RestartMember {
                    pod, transfer_to, ..
                }) => {
                    if let Some(leader) = transfer_to {
                        self.set_leader(*leader);
                    }
                    self.delete_pod(*pod);
                }
                Action::Disruption(EtcdDisruption::ForceSnapshot { to, .. }) => {
                    self.force_snapshot(to)
                }
                Action::Disruption(EtcdDisruption::DeletePod { pod, .. }) => self.delete_pod(*pod),
                Action::Disruption(EtcdDisruption::DeleteRestorePod { pod, .. }) => {
                    self.facts.restore_pods.retain(|other| other.uid != *pod);
                }
                Action::Disruption(EtcdDisruption::DeleteClaim { claim, .. }) => {
                    self.retain_claims(|other| other.uid != *claim);
                }
            }
        }
    }

    /// Replaces the identity. The write records the effective spec as well.
    fn write_identity(&mut self, to: Identity) {
        self.facts.spec_recorded |= self.facts.identity.present() != Some(&to);
        self.facts.identity = Observed::Present(to);
    }

    /// The next version becomes effective, which is another spec to record.
    fn force_snapshot(&mut self, to: &Identity) {
        self.write_identity(to.clone());
        if let Some(next) = self.facts.cluster.next_version.take() {
            self.facts.cluster.version = next;
            self.facts.cluster.pod_template_hash = self.next_uid();
            self.facts.spec_recorded = false;
        }
    }

    fn delete_pod(&mut self, uid: Uid) {
        self.on_pod(uid, |pod| pod.is_terminating = true);
        self.failing.remove(&uid);
        self.terminating.push_back(uid);
        self.stop_etcd(uid);
    }

    /// Stops the etcd of a pod. Without a quorum etcd reports no members.
    pub(super) fn stop_etcd(&mut self, uid: Uid) {
        let Some(pod) = self.pods().iter().find(|pod| pod.uid == uid) else {
            return;
        };
        let (serial, before) = (pod.serial, self.serving_voters());
        self.stop_answering(serial);
        let Observed::Present(membership) = &self.facts.membership else {
            return;
        };
        let has_quorum = self.serving_voters().len() >= quorum(votes(membership));
        if has_quorum || !before.contains(&serial) {
            return;
        }
        self.remembered = Some(membership.clone());
        self.facts.membership = Observed::Unknown;
        for health in self.facts.health.values_mut() {
            if let Observed::Present(health) = health {
                health.is_serving = false;
            }
        }
    }

    pub(super) fn retain_pods(&mut self, keep: impl FnMut(&PodFacts) -> bool) {
        if let Observed::Present(pods) = &mut self.facts.pods {
            pods.retain(keep);
        }
    }

    pub(super) fn retain_claims(&mut self, keep: impl FnMut(&ClaimFacts) -> bool) {
        if let Observed::Present(claims) = &mut self.facts.claims {
            claims.retain(keep);
        }
    }

    pub(super) fn pods(&self) -> &[PodFacts] {
        self.facts
            .pods
            .present()
            .map(Vec::as_slice)
            .unwrap_or_default()
    }

    pub(super) fn claims(&self) -> &[ClaimFacts] {
        self.facts
            .claims
            .present()
            .map(Vec::as_slice)
            .unwrap_or_default()
    }

    fn exists(&self, create: &EtcdCreate) -> bool {
        match create {
            EtcdCreate::Identity(_) => self.facts.identity.is_present(),
            EtcdCreate::Claim { serial, .. } => {
                self.claims().iter().any(|claim| claim.serial == *serial)
            }
            EtcdCreate::Pod { serial, .. } => self.pods().iter().any(|pod| pod.serial == *serial),
            EtcdCreate::RestorePod { serial, .. } => {
                let mut pods = self.facts.restore_pods.iter();
                pods.any(|pod| pod.serial == *serial)
            }
        }
    }

    fn create(&mut self, create: &EtcdCreate) {
        let uid = self.next_uid();
        let now = self.facts.now;
        match create {
            EtcdCreate::Identity(identity) => {
                self.facts.identity = Observed::Present(identity.clone());
                self.set_identity_owner(self.facts.cluster.owns_data || !identity.bootstrapped);
                self.facts.spec_recorded = true;
            }
            EtcdCreate::Claim {
                serial,
                epoch,
                owned,
            } => {
                let claim = ClaimFacts {
                    serial: *serial,
                    epoch: *epoch,
                    uid,
                    volume: None,
                    created_at: now,
                    joined_on: None,
                    restored: None,
                    replaced_until: None,
                    is_terminating: false,
                    topology: VolumeTopology::Unknown,
                    on_cordoned_node: false,
                    is_lost: false,
                    removed_at: None,
                    last_version: None,
                    is_owned: *owned,
                    requested_size: self.facts.cluster.volume_size,
                    resize_pending: false,
                    has_wrong_class: false,
                    is_misplaced: false,
                };
                if let Observed::Present(claims) = &mut self.facts.claims {
                    claims.push(claim);
                }
            }
            EtcdCreate::Pod {
                serial,
                epoch,
                start_mode,
                ..
            } => {
                let desired = &self.facts.cluster;
                let pod = PodFacts {
                    serial: *serial,
                    epoch: *epoch,
                    uid,
                    created_at: now,
                    start_mode: start_mode.clone(),
                    joined_gate: false,
                    is_ready: false,
                    unready_since: Some(now),
                    node: None,
                    on_cordoned_node: false,
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
                if let Observed::Present(pods) = &mut self.facts.pods {
                    pods.push(pod);
                }
            }
            EtcdCreate::RestorePod {
                serial,
                epoch,
                claim,
                restore,
                template_hash,
            } => self.facts.restore_pods.push(RestorePodFacts {
                serial: *serial,
                epoch: *epoch,
                uid,
                claim: *claim,
                restore: restore.id,
                created_at: now,
                state: RestorePodState::Held,
                template_hash: Some(*template_hash),
                is_idle: true,
                is_terminating: false,
                problem: None,
            }),
        }
    }

    fn set_identity_owner(&mut self, owned: bool) {
        self.facts.identity_owner = if owned {
            OwnedBy::Resource
        } else {
            OwnedBy::Unowned
        };
    }

    fn patch(&mut self, patch: &EtcdPatch) {
        match patch {
            EtcdPatch::SetStartMode { pod, to, .. } => {
                self.on_pod(*pod, |pod| pod.start_mode = to.clone())
            }
            EtcdPatch::MarkJoined { pod, .. } => self.on_pod(*pod, |pod| {
                pod.start_mode = StartMode::ExistingData;
                pod.joined_gate = true;
            }),
            EtcdPatch::AttachClients { pod } => self.on_pod(*pod, |pod| pod.is_routed = true),
            EtcdPatch::DetachClients { pod } => self.on_pod(*pod, |pod| pod.is_routed = false),
            EtcdPatch::RecordJoinedVolume { claim, volume } => {
                self.on_claim(*claim, |claim| claim.joined_on = Some((claim.uid, *volume)));
            }
            EtcdPatch::ReleaseRestorePod { pod } => {
                let pods = self.facts.restore_pods.iter_mut();
                pods.filter(|other| other.uid == *pod)
                    .for_each(|pod| pod.state = RestorePodState::Running(RestoreStep::Fetch));
            }
            EtcdPatch::RecordRestored {
                claim,
                volume,
                restore,
            } => {
                let version = self.facts.cluster.version;
                self.on_claim(*claim, |claim| {
                    claim.restored = Some(RestoredVolume {
                        restore: *restore,
                        claim: claim.uid,
                        volume: *volume,
                    });
                    claim.last_version = Some(version);
                });
            }
            EtcdPatch::RecordRemoval { claim, at } => {
                self.on_claim(*claim, |claim| claim.removed_at = *at)
            }
            EtcdPatch::RecordReplaced { claim, until } => {
                self.on_claim(*claim, |claim| claim.replaced_until = *until)
            }
            EtcdPatch::RecordVersion { claim, version } => {
                self.on_claim(*claim, |claim| claim.last_version = Some(*version))
            }
            EtcdPatch::RecordTemplateHash {
                pod,
                template_hash,
                version,
            } => self.on_pod(*pod, |pod| {
                pod.template_hash = Some(*template_hash);
                pod.version = Some(*version);
            }),
            EtcdPatch::ResizeVolume { claim, to } => {
                self.on_claim(*claim, |claim| claim.requested_size = *to)
            }
            EtcdPatch::RecordSpec => self.facts.spec_recorded = true,
            EtcdPatch::SetOwner { target, owned } => match target {
                OwnerTarget::Identity => self.set_identity_owner(*owned),
                OwnerTarget::Claim(claim) => self.on_claim(*claim, |claim| claim.is_owned = *owned),
                OwnerTarget::Pod(pod) => self.on_pod(*pod, |pod| pod.is_owned = *owned),
            },
            EtcdPatch::NudgeMember { .. } => {
                self.facts.stuck = None;
                self.facts.last_nudge = Some(self.facts.now);
            }
        }
    }

    pub(super) fn on_pod(&mut self, uid: Uid, change: impl FnMut(&mut PodFacts)) {
        let pods = self.facts.pods.present_mut().into_iter().flatten();
        pods.filter(|pod| pod.uid == uid).for_each(change);
    }

    fn on_claim(&mut self, uid: Uid, change: impl FnMut(&mut ClaimFacts)) {
        let claims = self.facts.claims.present_mut().into_iter().flatten();
        claims.filter(|claim| claim.uid == uid).for_each(change);
    }

    fn change_membership(&mut self, from: &Identity, intent: &Intent, transfer_to: Option<Serial>) {
        self.write_identity(from.with_intent(intent));
        let id = MemberId(self.next_id());
        let Observed::Present(membership) = &mut self.facts.membership else {
            return;
        };
        match intent.change {
            MembershipChange::Add(serial) => membership.members.push(ListedMember {
                serial,
                id,
                is_learner: true,
                has_started: false,
            }),
            MembershipChange::Promote(serial) => {
                if let Some(listed) = listed_mut(membership, serial) {
                    listed.is_learner = false;
                }
            }
            MembershipChange::Remove(serial) => {
                membership.members.retain(|listed| listed.serial != serial);
                self.facts.unreachable_since.remove(&serial);
                self.stop_answering(serial);
            }
            MembershipChange::RemoveUnknown(id) => {
                membership.unknown.retain(|unknown| unknown.id != id);
            }
        }
        if let Some(leader) = transfer_to {
            self.set_leader(leader);
        }
        self.elect();
    }

    fn stop_answering(&mut self, serial: Serial) {
        self.facts.health.insert(serial, Observed::Unknown);
        if self.is_stuck(serial) {
            self.facts.stuck = None;
        }
    }

    pub(super) fn is_stuck(&self, serial: Serial) -> bool {
        let stuck = self.facts.stuck;
        stuck.is_some_and(|stuck| stuck.serial == serial)
    }

    fn set_leader(&mut self, leader: Serial) {
        for (serial, health) in &mut self.facts.health {
            if let Observed::Present(health) = health {
                health.is_leader = *serial == leader;
            }
        }
    }

    fn serving_voters(&self) -> Vec<Serial> {
        let membership = self.facts.membership.present();
        let serving = membership.map(voters).unwrap_or_default();
        serving
            .into_iter()
            .filter(|serial| {
                self.health_of(*serial)
                    .is_some_and(|health| health.is_serving)
            })
            .collect()
    }

    pub(super) fn health_of(&self, serial: Serial) -> Option<&MemberHealth> {
        self.facts.health.get(&serial)?.present()
    }

    /// Keeps a leader and a reporter of the member list while any voter serves.
    pub(super) fn elect(&mut self) {
        let serving = self.serving_voters();
        let Some(first) = serving.first().copied() else {
            return;
        };
        let is_leader = |serial: &Serial| {
            self.health_of(*serial)
                .is_some_and(|health| health.is_leader)
        };
        if !serving.iter().any(is_leader) {
            self.set_leader(first);
        }
        if let Observed::Present(membership) = &mut self.facts.membership
            && !serving.contains(&membership.reported_by)
        {
            membership.reported_by = first;
        }
    }
}

pub(super) fn listed_mut(membership: &mut Membership, serial: Serial) -> Option<&mut ListedMember> {
    let mut listed = membership.members.iter_mut();
    listed.find(|listed| listed.serial == serial)
}

pub(super) fn voters(membership: &Membership) -> Vec<Serial> {
    let voters = membership
        .members
        .iter()
        .filter(|listed| !listed.is_learner);
    voters.map(|listed| listed.serial).collect()
}

/// Returns the number of votes, those of unknown members included.
pub(super) fn votes(membership: &Membership) -> usize {
    let unknown = membership.unknown.iter();
    voters(membership).len() + unknown.filter(|unknown| !unknown.is_learner).count()
}

/// Returns the members by the claims that were joined on and not recorded as removed, for a cluster
/// whose etcd is gone.
fn members_by_claims(facts: &EtcdFacts) -> Option<Membership> {
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
    let reported_by = members.first()?.serial;
    Some(Membership {
        reported_by,
        members,
        unknown: Vec::new(),
    })
}
