//! The facts by member, as the rules of `decide` query them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evenkeel_runtime::{Observed, UnixTime};

use crate::facts::{
    ClaimFacts, EtcdFacts, ListedMember, MemberHealth, Membership, OwnedBy, PodFacts, StartMode,
    StorageKind, UnknownMember, VolumeTopology,
};
use crate::identity::{Identity, MemberId, RestoreOrigin, SeedStorage, Uid};
use crate::names::{Epoch, Serial};
use crate::plan::EtcdCreate;

/// The time within which a terminating pod is expected to be deleted.
const TERMINATION_GRACE: Duration = Duration::from_secs(60);

/// How long a voter may be unschedulable before a pod that may occupy its node is deleted, if the
/// node is not known: another node may be about to join.
const UNSCHEDULABLE_GRACE: Duration = Duration::from_secs(60);

/// Returns the number of voters that form a quorum.
pub fn quorum(voters: usize) -> usize {
    voters / 2 + 1
}

/// The facts of a cluster that has an identity, by member of the current epoch.
#[derive(Debug)]
pub struct ClusterView<'f> {
    /// The facts.
    pub facts: &'f EtcdFacts,
    /// The identity.
    pub identity: &'f Identity,
    /// The claims of abandoned epochs.
    pub old_claims: Vec<&'f ClaimFacts>,
    /// The pods of abandoned epochs.
    pub old_pods: Vec<&'f PodFacts>,
    /// The claims of epochs that a restore has replaced. They are kept for a while.
    pub replaced_claims: Vec<&'f ClaimFacts>,
    /// The claim of the seed of the next epoch.
    pub next_claim: Option<&'f ClaimFacts>,
    /// The retained claims of removed members, which no pod mounts.
    pub retained_claims: Vec<&'f ClaimFacts>,
    /// Every member of this epoch that etcd lists or that has a pod or a claim.
    pub members: BTreeMap<Serial, MemberView<'f>>,
    /// Whether etcd's member list is known.
    pub membership_known: bool,
    /// The listed members that the operator did not add.
    pub unknown_members: &'f [UnknownMember],
}

/// Everything known about one member.
#[derive(Clone, Debug)]
pub struct MemberView<'f> {
    /// The serial.
    pub serial: Serial,
    /// The entry in etcd's member list.
    pub listed: Option<&'f ListedMember>,
    /// The pod.
    pub pod: Option<&'f PodFacts>,
    /// The claim.
    pub claim: Option<&'f ClaimFacts>,
    /// The member's own report, if it reports this cluster ID and this member ID.
    pub health: Option<&'f MemberHealth>,
    /// The state of its data.
    pub data: DataState,
}

/// The state of a member's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataState {
    /// The member never had data: it may start on an empty directory.
    Empty,
    /// The data is on the volume that the member joined on.
    Intact,
    /// The data is gone or replaced by other data: this member must never start again.
    Lost,
}

impl<'f> ClusterView<'f> {
    /// Returns the view of the facts; `None` without an identity of this resource, or if claims or
    /// pods are unknown.
    pub fn from_facts(facts: &'f EtcdFacts) -> Option<Self> {
        let (Observed::Present(identity), Observed::Present(claims), Observed::Present(pods)) =
            (&facts.identity, &facts.claims, &facts.pods)
        else {
            return None;
        };
        if facts.identity_owner == OwnedBy::PreviousResource {
            return None;
        }
        Some(Self::new(facts, identity, claims, pods))
    }

    /// Arranges the facts; `claims` and `pods` are complete.
    pub fn new(
        facts: &'f EtcdFacts,
        identity: &'f Identity,
        claims: &'f [ClaimFacts],
        pods: &'f [PodFacts],
    ) -> Self {
        let (claims, old_claims): (Vec<_>, Vec<_>) = claims
            .iter()
            .partition(|claim| claim.epoch == identity.epoch);
        let next_epoch = identity.next_epoch.as_ref();
        let is_next = |claim: &&ClaimFacts| {
            next_epoch.is_some_and(|next| claim.epoch == next.epoch && claim.serial == next.seed)
        };
        let (next_claims, old_claims): (Vec<_>, Vec<_>) = old_claims.into_iter().partition(is_next);
        let replaced_epochs = replaced_epochs(identity, &old_claims);
        let (replaced_claims, old_claims): (Vec<_>, Vec<_>) = old_claims
            .into_iter()
            .partition(|claim| claim.joined_on.is_some() && replaced_epochs.contains(&claim.epoch));
        let (pods, old_pods): (Vec<_>, Vec<_>) =
            pods.iter().partition(|pod| pod.epoch == identity.epoch);
        let membership = facts
            .membership
            .present()
            .filter(|membership| is_trusted(identity, &pods, membership));
        let listed = membership
            .map(|membership| membership.members.as_slice())
            .unwrap_or_default();
        let is_retained = |claim: &&ClaimFacts| {
            claim.removed_at.is_some()
                && identity.bootstrapped
                && listed.iter().all(|listed| listed.serial != claim.serial)
                && pods.iter().all(|pod| pod.serial != claim.serial)
        };
        let (retained_claims, claims): (Vec<_>, Vec<_>) = claims.into_iter().partition(is_retained);
        let serials: BTreeSet<Serial> = listed
            .iter()
            .map(|listed| listed.serial)
            .chain(claims.iter().map(|claim| claim.serial))
            .chain(pods.iter().map(|pod| pod.serial))
            .collect();
        let member = |serial: Serial| {
            let listed = listed.iter().find(|listed| listed.serial == serial);
            let pod = pods.iter().find(|pod| pod.serial == serial).copied();
            let claim = claims.iter().find(|claim| claim.serial == serial).copied();
            let health = facts
                .health
                .get(&serial)
                .and_then(|health| health.present());
            // A pod that reports another cluster ID or another member ID is not this member.
            let health = health.filter(|health| {
                identity
                    .cluster_id
                    .is_none_or(|cluster| cluster == health.cluster_id)
                    && listed.is_none_or(|listed| listed.id == health.member_id)
            });
            let data = DataInputs {
                storage: facts.cluster.storage,
                identity,
                serial,
                listed,
                pod,
                claim,
            };
            MemberView {
                serial,
                listed,
                pod,
                claim,
                health,
                data: data.state(),
            }
        };
        Self {
            facts,
            identity,
            old_claims,
            old_pods,
            replaced_claims,
            next_claim: next_claims.first().copied(),
            retained_claims,
            members: serials
                .into_iter()
                .map(|serial| (serial, member(serial)))
                .collect(),
            membership_known: membership.is_some(),
            unknown_members: membership
                .map(|membership| membership.unknown.as_slice())
                .unwrap_or_default(),
        }
    }

    /// Returns the members in etcd's list.
    pub fn listed(&self) -> impl Iterator<Item = &MemberView<'f>> {
        self.members
            .values()
            .filter(|member| member.listed.is_some())
    }

    /// Returns the listed members with a vote.
    pub fn voters(&self) -> impl Iterator<Item = &MemberView<'f>> {
        self.listed().filter(|member| member.is_voter())
    }

    /// Returns the listed members without a vote.
    pub fn learners(&self) -> impl Iterator<Item = &MemberView<'f>> {
        self.listed().filter(|member| !member.is_voter())
    }

    /// Returns the number of serving voters other than `excluded`.
    pub fn healthy_voters_except(&self, excluded: Serial) -> usize {
        self.voters()
            .filter(|member| member.serial != excluded && member.is_serving())
            .count()
    }

    /// Returns true if the voters left after the removal of this member have a quorum. The removal
    /// of a learner does not change the number of voters.
    pub fn removal_is_safe(&self, serial: Serial) -> bool {
        let is_voter = self.voters().any(|member| member.serial == serial);
        let left = self.votes() - usize::from(is_voter);
        left > 0 && self.healthy_voters_except(serial) >= quorum(left)
    }

    /// Returns true if the voters left after the removal of this unknown member have a quorum.
    pub fn unknown_removal_is_safe(&self, unknown: &UnknownMember) -> bool {
        let left = self.votes() - usize::from(!unknown.is_learner);
        left > 0 && self.voters().filter(|member| member.is_serving()).count() >= quorum(left)
    }

    /// Returns true if the voters other than this member have a quorum of all votes.
    pub fn has_quorum_without(&self, serial: Serial) -> bool {
        self.healthy_voters_except(serial) >= quorum(self.votes())
    }

    /// Returns the number of votes. Unknown voters count towards the quorum and never as healthy:
    /// the operator does not query them.
    pub fn votes(&self) -> usize {
        self.voters().count() + self.unknown_voters().len()
    }

    /// Returns the voters that the operator did not add.
    pub fn unknown_voters(&self) -> BTreeSet<MemberId> {
        self.unknown_members
            .iter()
            .filter(|unknown| !unknown.is_learner)
            .map(|unknown| unknown.id)
            .collect()
    }

    /// Returns true if the healthy voters have a quorum after the promotion of this learner. etcd
    /// itself checks the learner's log only and promotes a dead learner: a one-voter cluster then
    /// has no quorum (tried on 3.5.30).
    pub fn promotion_is_safe(&self, learner: &MemberView<'_>) -> bool {
        let voters = self.votes() + 1;
        let healthy = self.voters().filter(|member| member.is_serving()).count() + 1;
        learner.is_joined()
            && learner.is_serving()
            && learner.is_caught_up()
            && healthy >= quorum(voters)
    }

    /// Returns true if a voter is about to be scheduled. Before bootstrap is finished all members
    /// are scheduled at once.
    pub fn any_voter_needs_node(&self) -> bool {
        self.identity.bootstrapped && self.voters().any(|voter| self.needs_node(voter))
    }

    /// Returns true if the member's pod is missing, unscheduled, or terminating and about to be
    /// recreated. A terminating pod that answers may do so for ever if its kubelet is dead; a pod
    /// that was not Ready for long no longer reserves a node.
    fn needs_node(&self, member: &MemberView<'_>) -> bool {
        let Some(pod) = member.pod else { return true };
        let is_within = |since: Option<UnixTime>, limit| {
            since.is_none_or(|since| self.facts.now.since(since) < limit)
        };
        let is_leaving = pod.is_terminating
            && member.health.is_none()
            && is_within(pod.unready_since, TERMINATION_GRACE);
        // A node that was uncordoned a moment ago is reserved again: its member comes back now.
        let unreachable_since = self.facts.unreachable_since.get(&member.serial);
        let waits_since = pod.unready_since.max(unreachable_since.copied());
        let is_unscheduled =
            pod.node.is_none() && is_within(waits_since, self.facts.cluster.replace_after);
        is_leaving || is_unscheduled
    }

    /// Returns how long a member may be unreachable before it is replaced. A cordoned node is being
    /// maintained and expected to come back: a replacement would copy all data to another disk.
    pub fn replace_after(&self, member: &MemberView<'_>) -> Duration {
        let cluster = &self.facts.cluster;
        if member.is_on_cordoned_node() {
            cluster.replace_drained_after.max(cluster.replace_after)
        } else {
            cluster.replace_after
        }
    }

    /// Returns true if a voter waits for the node that this member occupies. While etcd's list is
    /// unknown every joined member counts as a voter; members cannot be replaced then, so that no
    /// voter loses its reservation.
    pub fn blocks_a_voter(&self, member: &MemberView<'_>) -> bool {
        if !self.identity.bootstrapped {
            return false;
        }
        let is_waiting = |other: &MemberView<'_>| {
            !self.membership_known || (other.is_voter() && self.needs_node(other))
        };
        self.members
            .values()
            .filter(|other| other.data == DataState::Intact && is_waiting(other))
            .any(|other| self.occupies_node_of(member, other))
    }

    /// Returns true if `member` runs on the node that the unschedulable pod of `other` needs: the
    /// node of its volume, or any node if every node can mount the volume and the pod has waited
    /// for [`UNSCHEDULABLE_GRACE`].
    pub fn occupies_node_of(&self, member: &MemberView<'_>, other: &MemberView<'_>) -> bool {
        let unscheduled = other
            .pod
            .filter(|pod| pod.node.is_none() && !pod.is_terminating);
        let Some(since) = unscheduled.and_then(|pod| pod.unschedulable_since) else {
            return false;
        };
        let Some(node) = member.pod.and_then(|pod| pod.node) else {
            return false;
        };
        match other.claim.map(|claim| claim.topology) {
            Some(VolumeTopology::Node(volume_node)) => volume_node == node,
            Some(VolumeTopology::Anywhere) => self.facts.now.since(since) >= UNSCHEDULABLE_GRACE,
            Some(VolumeTopology::Unknown) | None => false,
        }
    }

    /// Returns the oldest healthy voter that takes over leadership when this member leaves; `None`
    /// if it does not lead.
    pub fn transfer_target(&self, serial: Serial) -> Option<Serial> {
        if !self.members.get(&serial)?.is_leader() {
            return None;
        }
        self.voters()
            .find(|member| member.serial != serial && member.is_serving())
            .map(|member| member.serial)
    }

    /// Returns the creation of a member's claim. Until bootstrap is finished no client has written, and
    /// the resource owns the claim: a cluster that is deleted before it held data leaves none behind.
    pub fn claim(&self, serial: Serial) -> EtcdCreate {
        let origin = self.identity.restore.as_ref();
        // The identity of a cluster that a restore replaces is kept, and so are the claims.
        let is_new = !self.identity.bootstrapped && !origin.is_some_and(RestoreOrigin::is_in_place);
        EtcdCreate::Claim {
            serial,
            epoch: self.identity.epoch,
            owned: self.facts.cluster.owns_data || is_new,
        }
    }

    /// Returns true if the resource owns the identity or a member's claim, although the spec asks to
    /// keep them when the resource is deleted.
    pub fn owns_kept_data(&self) -> bool {
        // A claim that is terminating is deleted in any case.
        let owns_claim = |member: &MemberView<'_>| {
            let claim = member.claim;
            claim.is_some_and(|claim| claim.is_owned && !claim.is_terminating)
        };
        !self.facts.cluster.owns_data
            && (self.facts.identity_owner == OwnedBy::Resource
                || self.members.values().any(owns_claim))
    }

    /// Returns the creation of a member's pod from the current template.
    pub fn pod(&self, serial: Serial, claim: Option<Uid>, start_mode: StartMode) -> EtcdCreate {
        EtcdCreate::Pod {
            serial,
            epoch: self.identity.epoch,
            claim,
            start_mode,
            template_hash: self.facts.cluster.pod_template_hash,
        }
    }

    /// Returns true if a member's pod was built from another template than the current one, or
    /// before the requested restart.
    pub fn is_outdated(&self, member: &MemberView<'_>) -> bool {
        let Some(pod) = member.pod else { return false };
        let desired = &self.facts.cluster;
        // A pod without a hash was built by an earlier operator, and is not restarted for that.
        let template_changed = pod
            .template_hash
            .is_some_and(|hash| hash != desired.pod_template_hash);
        let restart_requested =
            desired.restart_request.is_some() && pod.restart_request != desired.restart_request;
        template_changed || restart_requested
    }

    /// Returns true if a new member has to replace this one: a restart would lose its data, or its
    /// volume has the wrong class or the wrong node. Data moves only with a member.
    pub fn must_be_replaced(&self, member: &MemberView<'_>) -> bool {
        match self.facts.cluster.storage {
            StorageKind::Ephemeral => self.is_outdated(member),
            // A running member is not moved when its node's labels change later.
            StorageKind::Persistent => member.claim.is_some_and(|claim| {
                claim.has_wrong_class || (claim.is_misplaced && self.is_outdated(member))
            }),
        }
    }

    /// Returns true if a member has to be restarted or replaced.
    pub fn is_outdated_or_misplaced(&self, member: &MemberView<'_>) -> bool {
        self.is_outdated(member) || self.must_be_replaced(member)
    }

    /// Returns the number of members to have for now: one more than desired while members are
    /// replaced by others, which join first. A replacement that has begun is finished outside of a
    /// maintenance window, too.
    pub fn target_members(&self) -> usize {
        let desired = usize::from(self.facts.cluster.members);
        let has_begun = self.listed().count() > desired;
        let window = self.facts.cluster.disruption;
        let may_surge = has_begun || window.wait(self.facts.now).is_none();
        let surges = may_surge
            && self.identity.bootstrapped
            && self.voters().any(|voter| self.must_be_replaced(voter));
        desired + usize::from(surges)
    }

    /// Returns true if another voter serves with the same template: the template is then not the
    /// cause of this pod's problem. For an unscheduled pod only the scheduling inputs have to be
    /// the same.
    pub fn same_template_works_elsewhere(&self, pod: &PodFacts) -> bool {
        let is_same = |other: &PodFacts| {
            other.serial != pod.serial
                && (other.template_hash == pod.template_hash
                    || (pod.node.is_none() && other.scheduling_hash == pod.scheduling_hash))
        };
        self.voters()
            .any(|other| other.is_serving() && other.pod.is_some_and(is_same))
    }

    /// Returns the highest serial of any member, pod or claim, of every epoch.
    pub fn highest_serial(&self) -> Option<Serial> {
        let old_pods = self.old_pods.iter().map(|pod| pod.serial);
        let claims = self.old_claims.iter().chain(&self.retained_claims);
        let claims = claims.chain(&self.replaced_claims).chain(&self.next_claim);
        let members = self.members.keys().copied();
        let restore_pods = self.facts.restore_pods.iter().map(|pod| pod.serial);
        members
            .chain(old_pods)
            .chain(restore_pods)
            .chain(claims.map(|claim| claim.serial))
            .max()
    }

    /// Returns the serials in etcd's list.
    pub fn listed_serials(&self) -> BTreeSet<Serial> {
        self.listed().map(|member| member.serial).collect()
    }

    /// Returns the serials of the voters.
    pub fn voter_serials(&self) -> BTreeSet<Serial> {
        self.voters().map(|member| member.serial).collect()
    }
}

impl MemberView<'_> {
    /// Returns true if the member has a vote.
    pub fn is_voter(&self) -> bool {
        self.listed.is_some_and(|listed| !listed.is_learner)
    }

    /// Returns true if the member reports that it leads.
    pub fn is_leader(&self) -> bool {
        self.health.is_some_and(|health| health.is_leader)
    }

    /// Returns true if the member serves, on its own data and from a pod that stays.
    pub fn is_serving(&self) -> bool {
        self.health.is_some_and(|health| health.is_serving)
            && self
                .pod
                .is_some_and(|pod| !pod.is_terminating && !pod.is_finished)
            && self.data == DataState::Intact
    }

    /// Returns true if the node of its pod, or of its local volume while the pod has no node, is
    /// cordoned.
    pub fn is_on_cordoned_node(&self) -> bool {
        match self.pod.filter(|pod| pod.node.is_some()) {
            Some(pod) => pod.on_cordoned_node,
            None => self.claim.is_some_and(|claim| claim.on_cordoned_node),
        }
    }

    /// Returns true if a learner's log is close enough to the leader's.
    pub fn is_caught_up(&self) -> bool {
        self.health.is_some_and(|health| health.is_caught_up)
    }

    /// Returns true if the member was added and has never started.
    pub fn is_unstarted_learner(&self) -> bool {
        self.listed
            .is_some_and(|listed| listed.is_learner && !listed.has_started)
    }

    /// Returns true if the member was added and its pod has no node. It may never get one, and no
    /// rule waits for it.
    pub fn is_unscheduled_learner(&self) -> bool {
        self.is_unstarted_learner() && self.pod.is_some_and(|pod| pod.node.is_none())
    }

    /// Returns true if the member's etcd has joined: etcd lists it under its name, and it answers.
    pub fn has_joined(&self) -> bool {
        self.listed.is_some_and(|listed| listed.has_started) && self.health.is_some()
    }

    /// Returns true if the member can start on its existing data only, as seen by the kubelet. A
    /// start mode in the API has not reached the kubelet yet: a pod is Ready only once the kubelet
    /// has seen the gate (tried).
    pub fn is_joined(&self) -> bool {
        let has_gate = self.pod.is_some_and(|pod| {
            pod.start_mode == StartMode::ExistingData && pod.joined_gate && pod.is_ready
        });
        has_gate && self.claim.is_none_or(|claim| claim.is_joined_volume())
    }
}

/// Returns the epochs that a restore has replaced, as far as their claims exist. The identity may have been rebuilt and name
/// none: the records on claims then show them.
fn replaced_epochs(identity: &Identity, old_claims: &[&ClaimFacts]) -> BTreeSet<Epoch> {
    let recorded = old_claims
        .iter()
        .filter(|claim| claim.replaced_until.is_some());
    recorded
        .map(|claim| claim.epoch)
        .chain(identity.replaced.as_ref().map(|replaced| replaced.epoch))
        .collect()
}

/// Returns true if a member list is trusted. Once the epoch's cluster is known, the list of a pod
/// that may have formed another cluster is ignored: alone in its cluster it has a quorum, even
/// under the same cluster ID.
fn is_trusted(identity: &Identity, pods: &[&PodFacts], membership: &Membership) -> bool {
    let reporter = pods.iter().find(|pod| pod.serial == membership.reported_by);
    let may_have_formed_another = reporter.is_none_or(|pod| pod.start_mode == StartMode::Bootstrap);
    let is_seed = membership.reported_by == identity.seed && !identity.bootstrapped;
    !may_have_formed_another || is_seed
}

/// The facts that decide the state of a member's data.
struct DataInputs<'f> {
    storage: StorageKind,
    identity: &'f Identity,
    serial: Serial,
    listed: Option<&'f ListedMember>,
    pod: Option<&'f PodFacts>,
    claim: Option<&'f ClaimFacts>,
}

impl DataInputs<'_> {
    fn state(&self) -> DataState {
        match self.storage {
            StorageKind::Ephemeral => self.state_in_pod(),
            StorageKind::Persistent => self.state_on_claim(),
        }
    }

    /// Returns true if this is the seed and it was allowed to start.
    fn is_started_seed(&self) -> bool {
        self.serial == self.identity.seed && self.identity.seed_storage.is_some()
    }

    /// Returns true if the member may have written data: etcd lists it as started, or it is a seed
    /// that was allowed to start.
    fn has_started(&self) -> bool {
        self.is_started_seed() || self.listed.is_some_and(|listed| listed.has_started)
    }

    /// The state of a member without data.
    fn state_without_data(&self) -> DataState {
        if self.has_started() {
            DataState::Lost
        } else {
            DataState::Empty
        }
    }

    fn state_in_pod(&self) -> DataState {
        let Some(pod) = self.pod else {
            return self.state_without_data();
        };
        if pod.is_finished {
            return self.state_without_data();
        }
        if self.is_started_seed() {
            let is_seed_pod = self.identity.seed_storage == Some(SeedStorage::Pod(pod.uid));
            return intact_if(is_seed_pod);
        }
        // A held pod has never run, and does not have the member's data.
        if pod.start_mode == StartMode::Held {
            return self.state_without_data();
        }
        DataState::Intact
    }

    fn state_on_claim(&self) -> DataState {
        let Some(claim) = self.claim else {
            return self.state_without_data();
        };
        if claim.is_lost {
            return DataState::Lost;
        }
        if claim.joined_on.is_some() {
            return intact_if(claim.is_joined_volume());
        }
        if self.is_started_seed() {
            let is_seed_claim = self.identity.seed_storage == Some(SeedStorage::Claim(claim.uid));
            return intact_if(is_seed_claim);
        }
        // The member has started and its volume is not recorded yet: only its running pod proves
        // which volume that is.
        if self.has_started() && self.pod.is_some_and(|pod| !pod.is_terminating) {
            return DataState::Intact;
        }
        self.state_without_data()
    }
}

fn intact_if(is_intact: bool) -> DataState {
    if is_intact {
        DataState::Intact
    } else {
        DataState::Lost
    }
}
