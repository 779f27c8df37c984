//! How things go when nothing else goes wrong: what a decision makes of the facts, and what follows by itself.

use std::collections::{BTreeSet, VecDeque};

use evenkeel::{Action, Plan, Seen};

use crate::decide::Etcd;
use crate::facts::{Claim, Facts, GoesWith, Membership, Pod, Reach, Registered, Start, Storage, Voice};
use crate::identity::{Change, ClusterId, Identity, Intent, MemberId, Uid};
use crate::names::Serial;
use crate::plan::{Apply, Create, Mark, Owned, Step};
use crate::view::quorum;

/// Facts, as they become.
pub(super) struct Course {
    pub(super) facts: Facts,
    /// Pods that do not come up.
    stuck: BTreeSet<Uid>,
    /// Who the members were when etcd last told.
    remembered: Option<Membership>,
    /// Pods on their way out, in the order in which they were sent away.
    leaving: VecDeque<Uid>,
    next: u64,
}

impl Course {
    pub(super) fn new(mut facts: Facts, stuck: BTreeSet<Uid>, remembered: Option<Membership>) -> Self {
        // That secrets are looked at again is no decision.
        facts.secrets_again = None;
        let remembered = facts.membership.present().cloned().or(remembered).or_else(|| by_claims(&facts));
        let pods = facts.pods.present().into_iter().flatten();
        let leaving =
            pods.filter(|pod| pod.deleting && !stuck.contains(&pod.uid)).map(|pod| pod.uid).collect();
        Self { facts, stuck, remembered, leaving, next: 1 }
    }

    /// A number that nothing has.
    fn fresh(&mut self) -> u64 {
        self.next += 1;
        u64::MAX - self.next
    }

    fn fresh_uid(&mut self) -> Uid {
        Uid(u128::from(self.fresh()))
    }

    /// Does all that a plan says.
    pub(super) fn carry_out(&mut self, plan: &Plan<Etcd>) {
        for action in plan.actions() {
            match action {
                Action::Create(create) => self.create(create),
                Action::Mark(mark) => self.mark(mark),
                Action::Apply(Apply::Object(object)) => {
                    self.facts.amiss.remove(object);
                }
                Action::Apply(Apply::Budget { min, .. }) => self.facts.budget = Seen::Present(Some(*min)),
                Action::Step(Step::Identity { to, .. }) => self.facts.identity = Seen::Present(to.clone()),
                Action::Step(Step::Call { from, intent, heir }) => self.call(from, intent, *heir),
                Action::Step(Step::Restart { pod, heir, .. }) => {
                    heir.iter().for_each(|heir| self.leads(*heir));
                    self.sends_away(*pod);
                }
                Action::Step(Step::Renew { to, .. }) => self.is_renewed(to),
                Action::Step(Step::DeletePod { pod, .. }) => self.sends_away(*pod),
                Action::Step(Step::DeleteClaim { claim, .. }) => {
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
    fn is_renewed(&mut self, to: &Identity) {
        self.facts.identity = Seen::Present(to.clone());
        if let Some(next) = self.facts.cluster.next.take() {
            (self.facts.cluster.version, self.facts.cluster.inputs) = (next, self.fresh_uid());
        }
    }

    fn sends_away(&mut self, pod: Uid) {
        self.on_pod(pod, |one| one.deleting = true);
        self.stuck.remove(&pod);
        self.leaving.push_back(pod);
    }

    fn pods(&self) -> &[Pod] {
        self.facts.pods.present().map(Vec::as_slice).unwrap_or_default()
    }

    fn claims(&self) -> &[Claim] {
        self.facts.claims.present().map(Vec::as_slice).unwrap_or_default()
    }

    fn create(&mut self, create: &Create) {
        let (uid, now, owns) = (self.fresh_uid(), self.facts.now, self.facts.cluster.owns_data);
        match create {
            Create::Identity(identity) => {
                self.facts.identity = Seen::Present(identity.clone());
                self.facts.identity_goes = if owns { GoesWith::Resource } else { GoesWith::Nothing };
                self.facts.accepted = true;
            }
            Create::Claim { serial, epoch } => {
                let claim = Claim {
                    serial: *serial,
                    epoch: *epoch,
                    uid,
                    volume: None,
                    joined_on: None,
                    deleting: false,
                    reach: Reach::Unknown,
                    lost: false,
                    removed: None,
                    version: None,
                    owned: owns,
                    size: self.facts.cluster.size,
                    grows: false,
                    moves: false,
                    misplaced: false,
                };
                self.facts.claims.present_mut().into_iter().for_each(|all| all.push(claim.clone()));
            }
            Create::Pod { serial, epoch, start, .. } => {
                let wanted = &self.facts.cluster;
                let pod = Pod {
                    serial: *serial,
                    epoch: *epoch,
                    uid,
                    created: now,
                    start: start.clone(),
                    gate: false,
                    ready: false,
                    unready: Some(now),
                    node: None,
                    refused: None,
                    inputs: Some(wanted.inputs),
                    placing: Uid(0),
                    restart: wanted.restart,
                    version: Some(wanted.version),
                    idle: true,
                    crashing: None,
                    deleting: false,
                    finished: false,
                    routed: false,
                    owned: true,
                };
                self.facts.pods.present_mut().into_iter().for_each(|all| all.push(pod.clone()));
            }
        }
    }

    fn mark(&mut self, mark: &Mark) {
        match mark {
            Mark::Start { pod, to, .. } => self.on_pod(*pod, |pod| pod.start = to.clone()),
            Mark::Turn { pod, .. } => self.on_pod(*pod, |pod| (pod.start, pod.gate) = (Start::OwnData, true)),
            Mark::Route { pod } => self.on_pod(*pod, |pod| pod.routed = true),
            Mark::Unroute { pod } => self.on_pod(*pod, |pod| pod.routed = false),
            Mark::JoinedOn { claim, volume } => {
                self.on_claim(*claim, |one| one.joined_on = Some((one.uid, *volume)));
            }
            Mark::Removed { claim, at } => self.on_claim(*claim, |claim| claim.removed = *at),
            Mark::Version { claim, version } => self.on_claim(*claim, |one| one.version = Some(*version)),
            Mark::Inputs { pod, inputs, version } => {
                self.on_pod(*pod, |one| (one.inputs, one.version) = (Some(*inputs), Some(*version)));
            }
            Mark::Grow { claim, to } => self.on_claim(*claim, |one| one.size = *to),
            Mark::Accept => self.facts.accepted = true,
            Mark::Own { what: Owned::Identity, owned } => {
                self.facts.identity_goes = if *owned { GoesWith::Resource } else { GoesWith::Nothing };
            }
            Mark::Own { what: Owned::Claim(claim), owned } => self.on_claim(*claim, |one| one.owned = *owned),
            Mark::Own { what: Owned::Pod(pod), owned } => self.on_pod(*pod, |one| one.owned = *owned),
        }
    }

    fn on_pod(&mut self, uid: Uid, change: impl FnMut(&mut Pod)) {
        let pods = self.facts.pods.present_mut().into_iter().flatten();
        pods.filter(|pod| pod.uid == uid).for_each(change);
    }

    fn on_claim(&mut self, uid: Uid, change: impl FnMut(&mut Claim)) {
        let claims = self.facts.claims.present_mut().into_iter().flatten();
        claims.filter(|claim| claim.uid == uid).for_each(change);
    }

    fn call(&mut self, from: &Identity, intent: &Intent, heir: Option<Serial>) {
        self.facts.identity = Seen::Present(from.noting(intent));
        let id = MemberId(self.fresh());
        let Seen::Present(told) = &mut self.facts.membership else { return };
        match intent.change {
            Change::Add(serial) => {
                told.members.push(Registered { serial, id, learner: true, started: false });
            }
            Change::Promote(serial) => {
                told.members
                    .iter_mut()
                    .filter(|one| one.serial == serial)
                    .for_each(|one| one.learner = false);
            }
            Change::Remove(serial) => {
                told.members.retain(|one| one.serial != serial);
                self.facts.silent.remove(&serial);
                self.falls_silent(serial);
            }
            Change::Expel(id) => told.strangers.retain(|one| one.id != id),
        }
        if let Some(heir) = heir {
            self.leads(heir);
        }
        self.elect();
    }

    fn falls_silent(&mut self, serial: Serial) {
        self.facts.voices.insert(serial, Seen::Unknown);
    }

    fn leads(&mut self, leader: Serial) {
        for (serial, voice) in &mut self.facts.voices {
            if let Seen::Present(voice) = voice {
                voice.leads = *serial == leader;
            }
        }
    }

    /// Who votes and serves.
    fn serving(&self) -> Vec<Serial> {
        let told = self.facts.membership.present().map(|told| told.members.as_slice()).unwrap_or_default();
        let voters = told.iter().filter(|one| !one.learner).map(|one| one.serial);
        voters.filter(|serial| self.voice(*serial).is_some_and(|voice| voice.serves)).collect()
    }

    fn voice(&self, serial: Serial) -> Option<&Voice> {
        self.facts.voices.get(&serial).and_then(|voice| voice.present())
    }

    /// Somebody leads, and somebody tells who the members are, as long as anybody serves who votes.
    fn elect(&mut self) {
        let serving = self.serving();
        let Some(first) = serving.first().copied() else { return };
        if !serving.iter().any(|serial| self.voice(*serial).is_some_and(|voice| voice.leads)) {
            self.leads(first);
        }
        if let Seen::Present(told) = &mut self.facts.membership
            && !serving.contains(&told.told_by)
        {
            told.told_by = first;
        }
    }

    /// Lets happen what happens by itself; says whether anything did.
    pub(super) fn goes_on(&mut self) -> bool {
        let before = self.facts.clone();
        // Whoever was sent away first is gone first.
        if let Some(first) = self.leaving.pop_front() {
            let gone = self.pods().iter().find(|pod| pod.uid == first).map(|pod| pod.serial);
            self.facts.pods.present_mut().into_iter().for_each(|pods| pods.retain(|pod| pod.uid != first));
            gone.into_iter().for_each(|serial| self.falls_silent(serial));
        }
        self.former_goes();
        let well = |pod: &&Pod| !pod.finished && !self.stuck.contains(&pod.uid);
        let well: Vec<Pod> = self.pods().iter().filter(well).cloned().collect();
        for pod in well {
            self.is_placed(&pod);
            if pod.start != Start::Held && self.voice(pod.serial).is_none() {
                self.starts(&pod);
            }
        }
        self.agrees();
        self.is_seen();
        self.facts != before
    }

    /// What went with a former resource is gone.
    fn former_goes(&mut self) {
        if self.facts.identity_goes == GoesWith::Former {
            (self.facts.identity, self.facts.identity_goes) = (Seen::Absent, GoesWith::Nothing);
        }
        self.facts.claims.present_mut().into_iter().for_each(|claims| claims.retain(|claim| !claim.deleting));
        if self.pods().is_empty() && self.claims().is_empty() {
            self.facts.written.clear();
        }
    }

    /// A pod gets its node, and its claim a volume there.
    fn is_placed(&mut self, pod: &Pod) {
        let (volume, node) = (self.fresh_uid(), self.fresh_uid());
        let claims = self.facts.claims.present_mut().into_iter().flatten();
        let its = claims.filter(|one| one.serial == pod.serial && one.epoch == pod.epoch);
        its.filter(|claim| claim.volume.is_none())
            .for_each(|claim| (claim.volume, claim.reach) = (Some(volume), Reach::Node(node)));
        self.on_pod(pod.uid, |pod| pod.node = pod.node.or(Some(node)));
    }

    /// Its etcd comes up, as far as it can.
    fn starts(&mut self, pod: &Pod) {
        let serial = pod.serial;
        let known = self.facts.identity.present().and_then(|identity| identity.cluster);
        let founds = pod.start == Start::Found && known.is_none();
        let (fresh_id, fresh_cluster) = (MemberId(self.fresh()), ClusterId(self.fresh()));
        if founds {
            let one = Registered { serial, id: fresh_id, learner: false, started: true };
            let told = Membership { told_by: serial, members: vec![one], strangers: Vec::new() };
            self.facts.membership = Seen::Present(told);
        }
        let all = self.facts.membership.present().or(self.remembered.as_ref());
        let Some(one) = all.and_then(|told| told.members.iter().find(|one| one.serial == serial)) else {
            return;
        };
        let (id, agrees) = (one.id, self.facts.membership.is_present());
        // One that starts on its own data has that; one that joins gets it.
        if pod.start == Start::OwnData && !self.has_data(serial) {
            return;
        }
        let cluster = known.unwrap_or(fresh_cluster);
        let (version, size) = (pod.version, 0);
        let voice = Voice { cluster, id, serves: agrees, caught_up: true, leads: founds, version, size };
        self.facts.voices.insert(serial, Seen::Present(voice));
        self.facts.silent.remove(&serial);
        if let Seen::Present(told) = &mut self.facts.membership {
            told.members.iter_mut().filter(|one| one.serial == serial).for_each(|one| one.started = true);
        }
    }

    fn has_data(&self, serial: Serial) -> bool {
        self.facts.cluster.storage == Storage::Ephemeral
            || self.claims().iter().any(|claim| claim.serial == serial && claim.is_own())
    }

    /// A majority that is back agrees again.
    fn agrees(&mut self) {
        let (false, Some(all)) = (self.facts.membership.is_present(), self.remembered.clone()) else {
            self.elect();
            return;
        };
        let voters: Vec<Serial> =
            all.members.iter().filter(|one| !one.learner).map(|one| one.serial).collect();
        let back: Vec<Serial> =
            voters.iter().copied().filter(|serial| self.voice(*serial).is_some()).collect();
        if voters.is_empty() || back.len() < quorum(voters.len()) {
            return;
        }
        for voice in self.facts.voices.values_mut() {
            if let Seen::Present(voice) = voice {
                voice.serves = true;
            }
        }
        self.facts.membership = Seen::Present(Membership { told_by: back[0], ..all });
        self.elect();
    }

    /// Kubelets call Ready whoever serves and has joined, and clients find whoever is routed.
    fn is_seen(&mut self) {
        let sealed = self.facts.identity.present().is_some_and(|identity| identity.sealed);
        let voices = self.facts.voices.clone();
        let mut served = false;
        for pod in self.facts.pods.present_mut().into_iter().flatten() {
            let voice = voices.get(&pod.serial).and_then(|voice| voice.present());
            let serves = voice.is_some_and(|voice| voice.serves);
            pod.idle &= voice.is_none();
            if serves && pod.gate {
                (pod.ready, pod.unready) = (true, None);
            }
            served |= serves && pod.routed && pod.ready;
        }
        if sealed && served {
            self.facts.served = Seen::Present(());
        }
    }
}

/// Who the members were, by the volumes of those who joined and were not removed: where etcd is no more that could tell.
fn by_claims(facts: &Facts) -> Option<Membership> {
    let epoch = facts.identity.present()?.epoch;
    let claims = facts.claims.present()?.iter();
    let joined = claims.filter(|claim| claim.epoch == epoch && claim.is_own() && claim.removed.is_none());
    let members: Vec<Registered> = joined
        .map(|claim| Registered {
            serial: claim.serial,
            id: MemberId(u64::from(claim.serial.0)),
            learner: false,
            started: true,
        })
        .collect();
    let told_by = members.first()?.serial;
    Some(Membership { told_by, members, strangers: Vec::new() })
}
