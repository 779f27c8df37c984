//! The facts arranged by member: what each rule asks about.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::facts::{Claim, Facts, Membership, Pod, Reach, Registered, Start, Storage, Stranger, Voice};
use crate::identity::{Identity, MemberId, SeedOn, Uid};
use crate::names::Serial;
use crate::plan::Create;

/// For how long a pod that goes is expected to be gone soon.
const LEAVING: Duration = Duration::from_secs(60);

/// For how long no node may take a voter before whoever might have its place has to go, where it is not known which place that
/// is: another node may be on its way.
const REFUSED: Duration = Duration::from_secs(60);

/// How many voters must agree.
pub fn quorum(voters: usize) -> usize {
    voters / 2 + 1
}

/// The facts of a cluster that has an identity, by member of the current epoch.
#[derive(Debug)]
pub struct View<'f> {
    /// The facts themselves.
    pub facts: &'f Facts,
    /// The identity.
    pub identity: &'f Identity,
    /// Claims of epochs that were given up.
    pub old_claims: Vec<&'f Claim>,
    /// Pods of epochs that were given up.
    pub old_pods: Vec<&'f Pod>,
    /// Claims of members that were removed: they are kept for a while, and nobody stands on them any more.
    pub kept: Vec<&'f Claim>,
    /// Everyone of this epoch who is registered, or has a pod or a claim.
    pub members: BTreeMap<Serial, Member<'f>>,
    /// Whether etcd's list of members is known.
    pub registry: bool,
    /// Those in that list that are none of ours.
    pub strangers: &'f [Stranger],
}

/// All that is known of one member.
#[derive(Clone, Debug)]
pub struct Member<'f> {
    /// Who.
    pub serial: Serial,
    /// Its entry in etcd's list.
    pub registered: Option<&'f Registered>,
    /// Its pod.
    pub pod: Option<&'f Pod>,
    /// Its claim.
    pub claim: Option<&'f Claim>,
    /// What it says of itself, if it takes itself to be this member of this cluster.
    pub voice: Option<&'f Voice>,
    /// What became of its data.
    pub data: Data,
}

/// What became of a member's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// It never had any: it may start on an empty directory.
    NotYet,
    /// It is where the member left it.
    Own,
    /// It is gone, or what is there is something else: this member must never start again.
    Gone,
}

impl<'f> View<'f> {
    /// Arranges the facts; `claims` and `pods` are complete.
    pub fn new(facts: &'f Facts, identity: &'f Identity, claims: &'f [Claim], pods: &'f [Pod]) -> Self {
        let (claims, old_claims): (Vec<_>, Vec<_>) =
            claims.iter().partition(|one| one.epoch == identity.epoch);
        let (pods, old_pods): (Vec<_>, Vec<_>) = pods.iter().partition(|one| one.epoch == identity.epoch);
        let membership = facts.membership.present().filter(|told| is_believed(identity, &pods, told));
        let registered = membership.map(|told| told.members.as_slice()).unwrap_or_default();
        let is_former = |claim: &&Claim| {
            claim.removed.is_some()
                && identity.sealed
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
            let voice = facts.voices.get(&serial).and_then(|voice| voice.present());
            // A pod that speaks for another cluster, or another member, is not this one.
            let voice = voice.filter(|voice| {
                identity.cluster.is_none_or(|cluster| cluster == voice.cluster)
                    && entry.is_none_or(|entry| entry.id == voice.id)
            });
            let data = data(facts.cluster.storage, identity, serial, entry, pod, claim);
            Member { serial, registered: entry, pod, claim, voice, data }
        };
        let members = serials.into_iter().map(|serial| (serial, member(serial))).collect();
        let strangers = membership.map(|told| told.strangers.as_slice()).unwrap_or_default();
        let registry = membership.is_some();
        Self { facts, identity, old_claims, old_pods, kept, members, registry, strangers }
    }

    /// Members in etcd's list.
    pub fn registered(&self) -> impl Iterator<Item = &Member<'f>> {
        self.members.values().filter(|member| member.registered.is_some())
    }

    /// Members with a vote.
    pub fn voters(&self) -> impl Iterator<Item = &Member<'f>> {
        self.registered().filter(|member| member.is_voter())
    }

    /// Members without one.
    pub fn learners(&self) -> impl Iterator<Item = &Member<'f>> {
        self.registered().filter(|member| !member.is_voter())
    }

    /// Voters that serve, `but` apart.
    pub fn healthy_voters_but(&self, but: Serial) -> usize {
        self.voters().filter(|member| member.serial != but && member.serves()).count()
    }

    /// Whether the voters left after removing this one are enough, and would still agree. Removing one without a vote
    /// always leaves as many as there were.
    pub fn removal_is_safe(&self, serial: Serial) -> bool {
        let is_voter = self.voters().any(|member| member.serial == serial);
        let left = self.votes() - usize::from(is_voter);
        left > 0 && self.healthy_voters_but(serial) >= quorum(left)
    }

    /// The same for one that is none of ours.
    pub fn expulsion_is_safe(&self, stranger: &Stranger) -> bool {
        let left = self.votes() - usize::from(!stranger.learner);
        left > 0 && self.voters().filter(|member| member.serves()).count() >= quorum(left)
    }

    /// How many votes there are. A stranger's counts towards the quorum, and never as given: nobody here asks it.
    pub fn votes(&self) -> usize {
        self.voters().count() + self.strange_voters().len()
    }

    /// Voters that are none of ours.
    pub fn strange_voters(&self) -> BTreeSet<MemberId> {
        self.strangers.iter().filter(|stranger| !stranger.learner).map(|stranger| stranger.id).collect()
    }

    /// Whether one vote more leaves enough voters that are well. etcd itself looks at the learner's log only, and
    /// promotes a dead learner: a one-voter cluster then has no quorum (tried on 3.5.30).
    pub fn promotion_is_safe(&self, learner: &Member<'_>) -> bool {
        let voters = self.votes() + 1;
        let healthy = self.voters().filter(|member| member.serves()).count() + 1;
        learner.is_settled() && learner.serves() && learner.caught_up() && healthy >= quorum(voters)
    }

    /// Whether a voter has no node, or its pod is about to leave one and to come back: for as long as that can be expected. One
    /// that goes and answers may do so for ever, if its node's kubelet is dead; one that was not seen for long has no claim on a
    /// place any more. Before the seal all come at once.
    pub fn a_voter_needs_a_place(&self) -> bool {
        self.identity.sealed && self.voters().any(|voter| self.needs_a_place(voter))
    }

    fn needs_a_place(&self, member: &Member<'_>) -> bool {
        let Some(pod) = member.pod else { return true };
        let lately = |limit| pod.unready.is_none_or(|since| self.facts.now.since(since) < limit);
        let goes = pod.deleting && member.voice.is_none() && lately(LEAVING);
        goes || (pod.node.is_none() && lately(self.facts.cluster.replace_after))
    }

    /// Whether somebody who was a voter, as far as is known, waits for the place that this one has. Without a list from etcd
    /// whoever has joined counts as one; and nobody can be replaced then, so that no claim on a place ever lapses.
    pub fn keeps_a_voter_out(&self, one: &Member<'_>) -> bool {
        let waits = |other: &Member<'_>| !self.registry || (other.is_voter() && self.needs_a_place(other));
        let mut others = self.members.values().filter(|other| other.data == Data::Own && waits(other));
        self.identity.sealed && others.any(|other| self.has_the_place_of(one, other))
    }

    /// Whether a member's pod is where another one's, that no node takes, has to be: on the node of its volume; or anywhere, if
    /// that can be reached from everywhere and it has waited for a while.
    pub fn has_the_place_of(&self, one: &Member<'_>, other: &Member<'_>) -> bool {
        let pod = other.pod.filter(|pod| pod.node.is_none() && !pod.deleting);
        let Some(since) = pod.and_then(|pod| pod.refused) else { return false };
        let Some(node) = one.pod.and_then(|pod| pod.node) else { return false };
        match other.claim.map(|claim| claim.reach) {
            Some(Reach::Node(tied)) => tied == node,
            Some(Reach::Anywhere) => self.facts.now.since(since) >= REFUSED,
            Some(Reach::Unknown) | None => false,
        }
    }

    /// Who is to lead when this one goes and leads now: the oldest of the voters that are well.
    pub fn heir_of(&self, serial: Serial) -> Option<Serial> {
        let leads = |member: &Member<'_>| member.voice.is_some_and(|voice| voice.leads);
        let goes = self.members.get(&serial).is_some_and(leads);
        let mut heirs = self.voters().filter(|member| member.serial != serial && member.serves());
        heirs.next().filter(|_| goes).map(|heir| heir.serial)
    }

    /// A pod of a member, on this claim, as it is to be built now.
    pub fn pod(&self, serial: Serial, on: Option<Uid>, start: Start) -> Create {
        let (epoch, inputs) = (self.identity.epoch, self.facts.cluster.inputs);
        Create::Pod { serial, epoch, on, start, inputs }
    }

    /// Whether a member's pod was built from something else than what is wanted now.
    pub fn is_outdated(&self, member: &Member<'_>) -> bool {
        let wanted = &self.facts.cluster;
        member.pod.is_some_and(|pod| {
            // One that does not say from what it was built is not restarted for that: it is of an earlier operator.
            let differs = pod.inputs.is_some_and(|inputs| inputs != wanted.inputs);
            differs || (wanted.restart.is_some() && pod.restart != wanted.restart)
        })
    }

    /// Whether another one has to take its place: it is out of date and cannot be restarted, since its data would be gone; or its
    /// volume is not where it is to be, and data does not move but with a member.
    pub fn must_be_replaced(&self, member: &Member<'_>) -> bool {
        match self.facts.cluster.storage {
            Storage::Ephemeral => self.is_outdated(member),
            // Whoever is where it was told to be stays there, whatever becomes of its node's labels.
            Storage::Persistent => {
                let misplaced = |claim: &Claim| claim.misplaced && self.is_outdated(member);
                member.claim.is_some_and(|claim| claim.moves || misplaced(claim))
            }
        }
    }

    /// Whether a member is not as it is wanted now.
    pub fn is_behind(&self, member: &Member<'_>) -> bool {
        self.is_outdated(member) || self.must_be_replaced(member)
    }

    /// How many members there are to be for now: one more than wanted while some are to be replaced by others, who join before
    /// they go. What was begun is finished, whether or not it may be begun now.
    pub fn target(&self) -> usize {
        let wanted = usize::from(self.facts.cluster.members);
        let begun = self.registered().count() > wanted;
        let may = begun || self.facts.cluster.disrupt.waits_until(self.facts.now).is_none();
        let surge = may && self.identity.sealed && self.voters().any(|voter| self.must_be_replaced(voter));
        wanted + usize::from(surge)
    }

    /// Whether some other voter serves that was built from the very same: what ails this one's pod is then not what it was built
    /// from. For one that no node takes only that counts by which nodes are chosen.
    pub fn suits_others(&self, pod: &Pod) -> bool {
        let same = |other: &Pod| {
            other.serial != pod.serial
                && (other.inputs == pod.inputs || (pod.node.is_none() && other.placing == pod.placing))
        };
        self.voters().any(|other| other.serves() && other.pod.is_some_and(same))
    }

    /// The highest serial that anything was ever called by, as far as can be seen.
    pub fn highest(&self) -> Option<Serial> {
        let old = self
            .old_pods
            .iter()
            .map(|pod| pod.serial)
            .chain(self.old_claims.iter().chain(&self.kept).map(|claim| claim.serial));
        self.members.keys().copied().chain(old).max()
    }

    /// The serials in etcd's list.
    pub fn list(&self) -> BTreeSet<Serial> {
        self.registered().map(|member| member.serial).collect()
    }

    /// The serials of the voters.
    pub fn voter_list(&self) -> BTreeSet<Serial> {
        self.voters().map(|member| member.serial).collect()
    }
}

impl Member<'_> {
    /// Whether it has a vote.
    pub fn is_voter(&self) -> bool {
        self.registered.is_some_and(|entry| !entry.learner)
    }

    /// Whether it is the member it should be, up and in touch with its cluster.
    pub fn serves(&self) -> bool {
        self.voice.is_some_and(|voice| voice.serves)
            && self.pod.is_some_and(|pod| !pod.deleting && !pod.finished)
            && self.data == Data::Own
    }

    /// Whether a learner's log is near enough to the leader's.
    pub fn caught_up(&self) -> bool {
        self.voice.is_some_and(|voice| voice.caught_up)
    }

    /// Whether it was added, and never started.
    pub fn is_newcomer(&self) -> bool {
        self.registered.is_some_and(|entry| entry.learner && !entry.started)
    }

    /// Whether it was added, and no node has taken it yet: whoever asked for it may never get it, and nobody waits for it.
    pub fn is_unplaced(&self) -> bool {
        self.is_newcomer() && self.pod.is_some_and(|pod| pod.node.is_none())
    }

    /// Whether its etcd has joined: it lives in the cluster's list under its name, and says so.
    pub fn has_joined(&self) -> bool {
        self.registered.is_some_and(|entry| entry.started) && self.voice.is_some()
    }

    /// Whether it can no longer start on anything but its own data, as far as the kubelet knows, too. "Turned" in the
    /// API is not turned in the kubelet: a pod is Ready only once the kubelet has seen the gate (tried).
    pub fn is_settled(&self) -> bool {
        let turned = self.pod.is_some_and(|pod| pod.start == Start::OwnData && pod.gate && pod.ready);
        turned && self.claim.is_none_or(|claim| claim.is_own())
    }
}

/// Whether to believe a list of members. Once the epoch's cluster is known, a pod that could have founded another one is
/// not asked: alone in its cluster it has a quorum of its own, under the same cluster ID even.
fn is_believed(identity: &Identity, pods: &[&Pod], told: &Membership) -> bool {
    let teller = pods.iter().find(|pod| pod.serial == told.told_by);
    let may_have_founded = teller.is_none_or(|pod| pod.start == Start::Found);
    !may_have_founded || (told.told_by == identity.seed && !identity.sealed)
}

/// What became of a member's data, by where it should be.
fn data(
    storage: Storage,
    identity: &Identity,
    serial: Serial,
    entry: Option<&Registered>,
    pod: Option<&Pod>,
    claim: Option<&Claim>,
) -> Data {
    // What may hold data already: a member that etcd saw start, or a seed that was allowed to.
    let seed = serial == identity.seed && identity.seed_on.is_some();
    let began = seed || entry.is_some_and(|entry| entry.started);
    let gone = if began { Data::Gone } else { Data::NotYet };
    match (storage, pod, claim) {
        (Storage::Ephemeral, None, _) => gone,
        (Storage::Ephemeral, Some(pod), _) if pod.finished => gone,
        // It never ran, so what the member had is not in it.
        (Storage::Ephemeral, Some(pod), _) if pod.start == Start::Held && !seed => gone,
        (Storage::Ephemeral, Some(pod), _) if seed && identity.seed_on != Some(SeedOn::Pod(pod.uid)) => {
            Data::Gone
        }
        (Storage::Ephemeral, Some(_), _) => Data::Own,
        (Storage::Persistent, _, None) => gone,
        (Storage::Persistent, _, Some(claim)) if claim.lost => Data::Gone,
        (Storage::Persistent, _, Some(claim)) if claim.joined_on.is_some() => {
            if claim.is_own() {
                Data::Own
            } else {
                Data::Gone
            }
        }
        (Storage::Persistent, _, Some(claim)) if seed => {
            if identity.seed_on == Some(SeedOn::Claim(claim.uid)) { Data::Own } else { Data::Gone }
        }
        // It has started, and nobody wrote down on what yet: it is what its running pod stands on, or nobody knows.
        (Storage::Persistent, Some(pod), Some(_)) if began && !pod.deleting => Data::Own,
        (Storage::Persistent, _, Some(_)) => gone,
    }
}
