//! The facts arranged by member: what each rule asks about.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::facts::{
    ClaimFacts, EtcdFacts, ListedMember, MemberHealth, Membership, PodFacts, StartMode,
    StorageKind, UnknownMember, VolumeTopology,
};
use crate::identity::{Identity, MemberId, SeedStorage, Uid};
use crate::names::Serial;
use crate::plan::EtcdCreate;

/// For how long a pod that goes is expected to be gone soon.
const TERMINATION_GRACE: Duration = Duration::from_secs(60);

/// For how long no node may take a voter before whoever might have its place has to go, where it is not known which place that
/// is: another node may be on its way.
const UNSCHEDULABLE_GRACE: Duration = Duration::from_secs(60);

/// How many voters must agree.
pub fn quorum(voters: usize) -> usize {
    voters / 2 + 1
}

/// The facts of a cluster that has an identity, by member of the current epoch.
#[derive(Debug)]
pub struct ClusterView<'f> {
    /// The facts themselves.
    pub facts: &'f EtcdFacts,
    /// The identity.
    pub identity: &'f Identity,
    /// Claims of epochs that were given up.
    pub old_claims: Vec<&'f ClaimFacts>,
    /// Pods of epochs that were given up.
    pub old_pods: Vec<&'f PodFacts>,
    /// Claims of members that were removed: they are kept for a while, and nobody stands on them any more.
    pub retained_claims: Vec<&'f ClaimFacts>,
    /// Everyone of this epoch who is registered, or has a pod or a claim.
    pub members: BTreeMap<Serial, MemberView<'f>>,
    /// Whether etcd's list of members is known.
    pub membership_known: bool,
    /// Those in that list that are none of ours.
    pub unknown_members: &'f [UnknownMember],
}

/// All that is known of one member.
#[derive(Clone, Debug)]
pub struct MemberView<'f> {
    /// Who.
    pub serial: Serial,
    /// Its entry in etcd's list.
    pub listed: Option<&'f ListedMember>,
    /// Its pod.
    pub pod: Option<&'f PodFacts>,
    /// Its claim.
    pub claim: Option<&'f ClaimFacts>,
    /// What it says of itself, if it takes itself to be this member of this cluster.
    pub health: Option<&'f MemberHealth>,
    /// What became of its data.
    pub data: DataState,
}

/// What became of a member's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataState {
    /// It never had any: it may start on an empty directory.
    Empty,
    /// It is where the member left it.
    Intact,
    /// It is gone, or what is there is something else: this member must never start again.
    Lost,
}

impl<'f> ClusterView<'f> {
    /// Arranges the facts; `claims` and `pods` are complete.
    pub fn new(
        facts: &'f EtcdFacts,
        identity: &'f Identity,
        claims: &'f [ClaimFacts],
        pods: &'f [PodFacts],
    ) -> Self {
        let (claims, old_claims): (Vec<_>, Vec<_>) =
            claims.iter().partition(|one| one.epoch == identity.epoch);
        let (pods, old_pods): (Vec<_>, Vec<_>) =
            pods.iter().partition(|one| one.epoch == identity.epoch);
        let membership = facts
            .membership
            .present()
            .filter(|told| is_trusted(identity, &pods, told));
        let registered = membership
            .map(|told| told.members.as_slice())
            .unwrap_or_default();
        let is_former = |claim: &&ClaimFacts| {
            claim.removed_at.is_some()
                && identity.bootstrapped
                && registered.iter().all(|one| one.serial != claim.serial)
                && pods.iter().all(|one| one.serial != claim.serial)
        };
        let (kept, claims): (Vec<_>, Vec<_>) = claims.into_iter().partition(is_former);
        let serials: BTreeSet<Serial> = registered
            .iter()
            .map(|one| one.serial)
            .chain(claims.iter().map(|one| one.serial))
            .chain(pods.iter().map(|one| one.serial))
            .collect();
        let member = |serial: Serial| {
            let entry = registered.iter().find(|one| one.serial == serial);
            let pod = pods.iter().find(|one| one.serial == serial).copied();
            let claim = claims.iter().find(|one| one.serial == serial).copied();
            let health = facts
                .health
                .get(&serial)
                .and_then(|health| health.present());
            // A pod that speaks for another cluster, or another member, is not this one.
            let health = health.filter(|health| {
                identity
                    .cluster_id
                    .is_none_or(|cluster| cluster == health.cluster_id)
                    && entry.is_none_or(|entry| entry.id == health.member_id)
            });
            let data = data(facts.cluster.storage, identity, serial, entry, pod, claim);
            MemberView {
                serial,
                listed: entry,
                pod,
                claim,
                health: health,
                data,
            }
        };
        let members = serials
            .into_iter()
            .map(|serial| (serial, member(serial)))
            .collect();
        let unknown_members = membership
            .map(|told| told.unknown.as_slice())
            .unwrap_or_default();
        let registry = membership.is_some();
        Self {
            facts,
            identity,
            old_claims,
            old_pods,
            retained_claims: kept,
            members,
            membership_known: registry,
            unknown_members: unknown_members,
        }
    }

    /// Members in etcd's list.
    pub fn listed(&self) -> impl Iterator<Item = &MemberView<'f>> {
        self.members
            .values()
            .filter(|member| member.listed.is_some())
    }

    /// Members with a vote.
    pub fn voters(&self) -> impl Iterator<Item = &MemberView<'f>> {
        self.listed().filter(|member| member.is_voter())
    }

    /// Members without one.
    pub fn learners(&self) -> impl Iterator<Item = &MemberView<'f>> {
        self.listed().filter(|member| !member.is_voter())
    }

    /// Voters that serve, `but` apart.
    pub fn healthy_voters_except(&self, but: Serial) -> usize {
        self.voters()
            .filter(|member| member.serial != but && member.is_serving())
            .count()
    }

    /// Whether the voters left after removing this one are enough, and would still agree. Removing one without a vote
    /// always leaves as many as there were.
    pub fn removal_is_safe(&self, serial: Serial) -> bool {
        let is_voter = self.voters().any(|member| member.serial == serial);
        let left = self.votes() - usize::from(is_voter);
        left > 0 && self.healthy_voters_except(serial) >= quorum(left)
    }

    /// The same for one that is none of ours.
    pub fn unknown_removal_is_safe(&self, unknown: &UnknownMember) -> bool {
        let left = self.votes() - usize::from(!unknown.is_learner);
        left > 0 && self.voters().filter(|member| member.is_serving()).count() >= quorum(left)
    }

    /// How many votes there are. A stranger's counts towards the quorum, and never as given: nobody here asks it.
    pub fn votes(&self) -> usize {
        self.voters().count() + self.unknown_voters().len()
    }

    /// Voters that are none of ours.
    pub fn unknown_voters(&self) -> BTreeSet<MemberId> {
        self.unknown_members
            .iter()
            .filter(|unknown| !unknown.is_learner)
            .map(|unknown| unknown.id)
            .collect()
    }

    /// Whether one vote more leaves enough voters that are well. etcd itself looks at the learner's log only, and
    /// promotes a dead learner: a one-voter cluster then has no quorum (tried on 3.5.30).
    pub fn promotion_is_safe(&self, learner: &MemberView<'_>) -> bool {
        let voters = self.votes() + 1;
        let healthy = self.voters().filter(|member| member.is_serving()).count() + 1;
        learner.is_joined()
            && learner.is_serving()
            && learner.is_caught_up()
            && healthy >= quorum(voters)
    }

    /// Whether a voter has no node, or its pod is about to leave one and to come back: for as long as that can be expected. One
    /// that goes and answers may do so for ever, if its node's kubelet is dead; one that was not seen for long has no claim on a
    /// place any more. Before the seal all come at once.
    pub fn any_voter_needs_node(&self) -> bool {
        self.identity.bootstrapped && self.voters().any(|voter| self.needs_node(voter))
    }

    fn needs_node(&self, member: &MemberView<'_>) -> bool {
        let Some(pod) = member.pod else { return true };
        let lately = |limit| {
            pod.unready_since
                .is_none_or(|since| self.facts.now.since(since) < limit)
        };
        let goes = pod.is_terminating && member.health.is_none() && lately(TERMINATION_GRACE);
        goes || (pod.node.is_none() && lately(self.facts.cluster.replace_after))
    }

    /// Whether somebody who was a voter, as far as is known, waits for the place that this one has. Without a list from etcd
    /// whoever has joined counts as one; and nobody can be replaced then, so that no claim on a place ever lapses.
    pub fn blocks_a_voter(&self, one: &MemberView<'_>) -> bool {
        let waits = |other: &MemberView<'_>| {
            !self.membership_known || (other.is_voter() && self.needs_node(other))
        };
        let mut others = self
            .members
            .values()
            .filter(|other| other.data == DataState::Intact && waits(other));
        self.identity.bootstrapped && others.any(|other| self.occupies_node_of(one, other))
    }

    /// Whether a member's pod is where another one's, that no node takes, has to be: on the node of its volume; or anywhere, if
    /// that can be reached from everywhere and it has waited for a while.
    pub fn occupies_node_of(&self, one: &MemberView<'_>, other: &MemberView<'_>) -> bool {
        let pod = other
            .pod
            .filter(|pod| pod.node.is_none() && !pod.is_terminating);
        let Some(since) = pod.and_then(|pod| pod.unschedulable_since) else {
            return false;
        };
        let Some(node) = one.pod.and_then(|pod| pod.node) else {
            return false;
        };
        match other.claim.map(|claim| claim.topology) {
            Some(VolumeTopology::Node(tied)) => tied == node,
            Some(VolumeTopology::Anywhere) => self.facts.now.since(since) >= UNSCHEDULABLE_GRACE,
            Some(VolumeTopology::Unknown) | None => false,
        }
    }

    /// Who is to lead when this one goes and leads now: the oldest of the voters that are well.
    pub fn transfer_target(&self, serial: Serial) -> Option<Serial> {
        let leads = |member: &MemberView<'_>| member.health.is_some_and(|health| health.is_leader);
        let goes = self.members.get(&serial).is_some_and(leads);
        let mut heirs = self
            .voters()
            .filter(|member| member.serial != serial && member.is_serving());
        heirs
            .next()
            .filter(|_| goes)
            .map(|transfer_to| transfer_to.serial)
    }

    /// A pod of a member, on this claim, as it is to be built now.
    pub fn pod(&self, serial: Serial, on: Option<Uid>, start: StartMode) -> EtcdCreate {
        let (epoch, inputs) = (self.identity.epoch, self.facts.cluster.pod_template_hash);
        EtcdCreate::Pod {
            serial,
            epoch,
            claim: on,
            start_mode: start,
            inputs,
        }
    }

    /// Whether a member's pod was built from something else than what is wanted now.
    pub fn is_outdated(&self, member: &MemberView<'_>) -> bool {
        let desired = &self.facts.cluster;
        member.pod.is_some_and(|pod| {
            // One that does not say from what it was built is not restarted for that: it is of an earlier operator.
            let differs = pod
                .template_hash
                .is_some_and(|inputs| inputs != desired.pod_template_hash);
            differs
                || (desired.restart_request.is_some()
                    && pod.restart_request != desired.restart_request)
        })
    }

    /// Whether another one has to take its place: it is out of date and cannot be restarted, since its data would be gone; or its
    /// volume is not where it is to be, and data does not move but with a member.
    pub fn must_be_replaced(&self, member: &MemberView<'_>) -> bool {
        match self.facts.cluster.storage {
            StorageKind::Ephemeral => self.is_outdated(member),
            // Whoever is where it was told to be stays there, whatever becomes of its node's labels.
            StorageKind::Persistent => {
                let misplaced = |claim: &ClaimFacts| claim.is_misplaced && self.is_outdated(member);
                member
                    .claim
                    .is_some_and(|claim| claim.has_wrong_class || misplaced(claim))
            }
        }
    }

    /// Whether a member is not as it is wanted now.
    pub fn is_outdated_or_misplaced(&self, member: &MemberView<'_>) -> bool {
        self.is_outdated(member) || self.must_be_replaced(member)
    }

    /// How many members there are to be for now: one more than wanted while some are to be replaced by others, who join before
    /// they go. What was begun is finished, whether or not it may be begun now.
    pub fn target_members(&self) -> usize {
        let desired = usize::from(self.facts.cluster.members);
        let begun = self.listed().count() > desired;
        let may = begun
            || self
                .facts
                .cluster
                .disruption
                .waits_until(self.facts.now)
                .is_none();
        let surge = may
            && self.identity.bootstrapped
            && self.voters().any(|voter| self.must_be_replaced(voter));
        desired + usize::from(surge)
    }

    /// Whether some other voter serves that was built from the very same: what ails this one's pod is then not what it was built
    /// from. For one that no node takes only that counts by which nodes are chosen.
    pub fn same_template_works_elsewhere(&self, pod: &PodFacts) -> bool {
        let same = |other: &PodFacts| {
            other.serial != pod.serial
                && (other.template_hash == pod.template_hash
                    || (pod.node.is_none() && other.scheduling_hash == pod.scheduling_hash))
        };
        self.voters()
            .any(|other| other.is_serving() && other.pod.is_some_and(same))
    }

    /// The highest serial that anything was ever called by, as far as can be seen.
    pub fn highest_serial(&self) -> Option<Serial> {
        let old = self.old_pods.iter().map(|pod| pod.serial).chain(
            self.old_claims
                .iter()
                .chain(&self.retained_claims)
                .map(|claim| claim.serial),
        );
        self.members.keys().copied().chain(old).max()
    }

    /// The serials in etcd's list.
    pub fn listed_serials(&self) -> BTreeSet<Serial> {
        self.listed().map(|member| member.serial).collect()
    }

    /// The serials of the voters.
    pub fn voter_serials(&self) -> BTreeSet<Serial> {
        self.voters().map(|member| member.serial).collect()
    }
}

impl MemberView<'_> {
    /// Whether it has a vote.
    pub fn is_voter(&self) -> bool {
        self.listed.is_some_and(|entry| !entry.is_learner)
    }

    /// Whether it is the member it should be, up and in touch with its cluster.
    pub fn is_serving(&self) -> bool {
        self.health.is_some_and(|health| health.is_serving)
            && self
                .pod
                .is_some_and(|pod| !pod.is_terminating && !pod.is_finished)
            && self.data == DataState::Intact
    }

    /// Whether a learner's log is near enough to the leader's.
    pub fn is_caught_up(&self) -> bool {
        self.health.is_some_and(|health| health.is_caught_up)
    }

    /// Whether it was added, and never started.
    pub fn is_unstarted_learner(&self) -> bool {
        self.listed
            .is_some_and(|entry| entry.is_learner && !entry.has_started)
    }

    /// Whether it was added, and no node has taken it yet: whoever asked for it may never get it, and nobody waits for it.
    pub fn is_unscheduled_learner(&self) -> bool {
        self.is_unstarted_learner() && self.pod.is_some_and(|pod| pod.node.is_none())
    }

    /// Whether its etcd has joined: it lives in the cluster's list under its name, and says so.
    pub fn has_joined(&self) -> bool {
        self.listed.is_some_and(|entry| entry.has_started) && self.health.is_some()
    }

    /// Whether it can no longer start on anything but its own data, as far as the kubelet knows, too. "Turned" in the
    /// API is not turned in the kubelet: a pod is Ready only once the kubelet has seen the gate (tried).
    pub fn is_joined(&self) -> bool {
        let turned = self.pod.is_some_and(|pod| {
            pod.start_mode == StartMode::ExistingData && pod.joined_gate && pod.is_ready
        });
        turned && self.claim.is_none_or(|claim| claim.is_joined_volume())
    }
}

/// Whether to believe a list of members. Once the epoch's cluster is known, a pod that could have founded another one is
/// not asked: alone in its cluster it has a quorum of its own, under the same cluster ID even.
fn is_trusted(identity: &Identity, pods: &[&PodFacts], told: &Membership) -> bool {
    let teller = pods.iter().find(|pod| pod.serial == told.reported_by);
    let may_have_founded = teller.is_none_or(|pod| pod.start_mode == StartMode::Bootstrap);
    !may_have_founded || (told.reported_by == identity.seed && !identity.bootstrapped)
}

/// What became of a member's data, by where it should be.
fn data(
    storage: StorageKind,
    identity: &Identity,
    serial: Serial,
    entry: Option<&ListedMember>,
    pod: Option<&PodFacts>,
    claim: Option<&ClaimFacts>,
) -> DataState {
    // What may hold data already: a member that etcd saw start, or a seed that was allowed to.
    let seed = serial == identity.seed && identity.seed_storage.is_some();
    let began = seed || entry.is_some_and(|entry| entry.has_started);
    let gone = if began {
        DataState::Lost
    } else {
        DataState::Empty
    };
    match (storage, pod, claim) {
        (StorageKind::Ephemeral, None, _) => gone,
        (StorageKind::Ephemeral, Some(pod), _) if pod.is_finished => gone,
        // It never ran, so what the member had is not in it.
        (StorageKind::Ephemeral, Some(pod), _) if pod.start_mode == StartMode::Held && !seed => {
            gone
        }
        (StorageKind::Ephemeral, Some(pod), _)
            if seed && identity.seed_storage != Some(SeedStorage::Pod(pod.uid)) =>
        {
            DataState::Lost
        }
        (StorageKind::Ephemeral, Some(_), _) => DataState::Intact,
        (StorageKind::Persistent, _, None) => gone,
        (StorageKind::Persistent, _, Some(claim)) if claim.is_lost => DataState::Lost,
        (StorageKind::Persistent, _, Some(claim)) if claim.joined_on.is_some() => {
            if claim.is_joined_volume() {
                DataState::Intact
            } else {
                DataState::Lost
            }
        }
        (StorageKind::Persistent, _, Some(claim)) if seed => {
            if identity.seed_storage == Some(SeedStorage::Claim(claim.uid)) {
                DataState::Intact
            } else {
                DataState::Lost
            }
        }
        // It has started, and nobody wrote down on what yet: it is what its running pod stands on, or nobody knows.
        (StorageKind::Persistent, Some(pod), Some(_)) if began && !pod.is_terminating => {
            DataState::Intact
        }
        (StorageKind::Persistent, _, Some(_)) => gone,
    }
}
