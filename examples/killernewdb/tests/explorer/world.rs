//! A small world around the real `decide` and the real members' code: claims, pods and kubelets, a client that writes, and an
//! operator whose every deed is a moment of its own, between which anything can happen.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_modelcheck::Model as Explored;
use evenkeel_runtime::{Observed, Plan, Presence, SimpleReconciler};
use killernewdb::decide::decide;
use killernewdb::facts::{Deed, Facts, Ledger, Member as Known};
use killernewdb::member::{Around, List, Member, Reply, Request, State, majority};
use killernewdb::operator::Operator;

use crate::bugs::Bug;
use crate::event::Event;

/// How often each sort of trouble may still come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    /// Pods and volumes that go.
    pub(crate) faults: u8,
    /// Deaths of the operator in the middle of a plan.
    pub(crate) crashes: u8,
    /// Operators that freeze in the middle of a plan, and go on whenever they like, beside another.
    pub(crate) freezes: u8,
    /// Edits of `members`.
    pub(crate) edits: u8,
    /// Writes of clients.
    pub(crate) writes: u8,
    /// Members that lose their network in the middle of a request.
    pub(crate) cuts: u8,
    /// Looks at which somebody who is well does not answer.
    pub(crate) blinks: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Claim {
    uid: u8,
    ending: bool,
    disk: Option<State>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Pod {
    uid: u8,
    up: bool,
}

/// A deed, and what it is pinned to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Pinned {
    deed: Deed,
    uid: Option<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    wanted: u8,
    budget: Budget,
    bug: Bug,
    service: bool,
    ledger: Option<Ledger>,
    claims: BTreeMap<String, Claim>,
    pods: BTreeMap<String, Pod>,
    pending: Vec<Pinned>,
    late: Vec<Pinned>,
    uids: u8,
    written: u8,
    acknowledged: BTreeSet<String>,
    /// So much data was lost that nobody can know what there was.
    ruined: bool,
}

/// A member's disk, and how it reaches the others.
struct Network<'w> {
    world: &'w mut World,
    me: String,
    /// After how many requests it is cut.
    left: Option<usize>,
}

impl Around for Network<'_> {
    fn store(&mut self, state: &State) -> Result<(), String> {
        let claim = self
            .world
            .claims
            .get_mut(&self.me)
            .ok_or("the disk is gone")?;
        claim.disk = Some(state.clone());
        Ok(())
    }

    fn ask(&mut self, member: &str, request: &Request) -> Option<Reply> {
        if self.left == Some(0) {
            return None;
        }
        self.left = self.left.map(|left| left - 1);
        self.world.request(member, request.clone(), None)
    }
}

impl World {
    /// Nothing at all, and so many members wanted.
    pub(crate) fn new(wanted: u8) -> Self {
        Self {
            wanted,
            budget: Budget::default(),
            bug: Bug::None,
            service: false,
            ledger: None,
            claims: BTreeMap::new(),
            pods: BTreeMap::new(),
            pending: Vec::new(),
            late: Vec::new(),
            uids: 0,
            written: 0,
            acknowledged: BTreeSet::new(),
            ruined: false,
        }
    }

    /// The same, with this much trouble ahead.
    pub(crate) fn with(self, budget: Budget) -> Self {
        Self { budget, ..self }
    }

    /// The same, with an operator that has this bug.
    pub(crate) fn with_bug(self, bug: Bug) -> Self {
        Self { bug, ..self }
    }

    /// The same after all that happens by itself, with this much trouble ahead.
    pub(crate) fn settled(mut self, budget: Budget) -> Self {
        while let Some(event) = self.enabled().first().cloned() {
            self.apply(&event).unwrap();
        }
        Self { budget, ..self }
    }

    /// Has a member that is up answer.
    fn request(&mut self, name: &str, request: Request, cut: Option<usize>) -> Option<Reply> {
        self.pods.get(name).filter(|pod| pod.up)?;
        let state = self.claims.get(name)?.disk.clone();
        let mut member = Member {
            name: name.to_owned(),
            state,
        };
        let reply = member.answer(
            request,
            &mut Network {
                world: self,
                me: name.to_owned(),
                left: cut,
            },
        );
        // One that is cut off cannot answer either.
        cut.is_none().then_some(reply)
    }

    fn observe(&self, silent: Option<&String>) -> Facts {
        let mut facts = Facts {
            name: "d".to_owned(),
            wanted: self.wanted,
            service: self.service,
            ledger: self.ledger.clone(),
            members: BTreeMap::new(),
        };
        for (name, claim) in &self.claims {
            let thing = if claim.ending {
                Presence::Terminating
            } else {
                Presence::Present
            };
            facts.members.entry(name.clone()).or_default().claim = thing;
        }
        for (name, pod) in &self.pods {
            let disk = self
                .claims
                .get(name)
                .map(|claim| claim.disk.as_ref().map(|disk| disk.list.clone()));
            let says = disk.filter(|_| pod.up && silent != Some(name));
            let list = says.map_or(Observed::Unknown, Observed::from);
            let member = facts.members.entry(name.clone()).or_default();
            *member = Known {
                pod: Presence::Present,
                list,
                ..member.clone()
            };
        }
        facts
    }

    fn decide(&self, silent: Option<&String>) -> Plan<SimpleReconciler<Operator>> {
        self.bug.tamper(&self.observe(silent), decide)
    }

    /// The latest list on any disk.
    fn latest(&self) -> Option<&List> {
        let disks = self.claims.values().filter_map(|claim| claim.disk.as_ref());
        disks
            .map(|state| &state.list)
            .max_by_key(|list| list.version)
    }

    fn uid(&mut self) -> u8 {
        self.uids += 1;
        self.uids
    }

    fn pinned(&self, deed: Deed) -> Pinned {
        let uid = match &deed {
            Deed::DeletePod(name) | Deed::Found(name) => self.pods.get(name).map(|pod| pod.uid),
            Deed::Change { members, .. } => members
                .first()
                .and_then(|name| Some(self.pods.get(name)?.uid)),
            Deed::DeleteClaim(name) => self.claims.get(name).map(|claim| claim.uid),
            _ => None,
        };
        Pinned { deed, uid }
    }

    /// Does the next thing of a plan; what cannot be done any more ends the plan.
    fn act(&mut self, mut plan: Vec<Pinned>, cut: Option<usize>) -> Result<Vec<Pinned>, String> {
        let Pinned { deed, uid } = plan.remove(0);
        let done = match deed {
            Deed::Service => !std::mem::replace(&mut self.service, true),
            Deed::Ledger(ledger) => self.ledger.is_none() && self.ledger.replace(ledger).is_none(),
            Deed::Claim(name) => {
                let claim = Claim {
                    uid: self.uid(),
                    ending: false,
                    disk: None,
                };
                !self.claims.contains_key(&name) && self.claims.insert(name, claim).is_none()
            }
            Deed::Pod(name) => {
                let pod = Pod {
                    uid: self.uid(),
                    up: false,
                };
                !self.pods.contains_key(&name) && self.pods.insert(name, pod).is_none()
            }
            Deed::Swap { from, to } => {
                let same = self.ledger.as_ref() == Some(&from);
                self.ledger = if same { Some(to) } else { self.ledger.clone() };
                same
            }
            Deed::DeletePod(name) => self.has_pod(&name, uid) && self.drop_pod(&name),
            Deed::DeleteClaim(name) => self.delete_claim(&name, uid)?,
            Deed::Found(name) => {
                self.has_pod(&name, uid)
                    && self.request(&name, Request::Found, cut) == Some(Reply::Done)
            }
            Deed::Change {
                version,
                members,
                lost,
            } => {
                let primary = members.first().cloned().unwrap_or_default();
                let request = Request::Change {
                    version,
                    members,
                    lost,
                };
                self.has_pod(&primary, uid)
                    && self.request(&primary, request, cut) == Some(Reply::Done)
            }
        };
        Ok(if done { plan } else { Vec::new() })
    }

    fn has_pod(&self, name: &str, uid: Option<u8>) -> bool {
        self.pods.get(name).map(|pod| pod.uid) == uid && uid.is_some()
    }

    fn drop_pod(&mut self, name: &str) -> bool {
        if self.claims.get(name).is_some_and(|claim| claim.ending) {
            self.claims.remove(name);
        }
        self.pods.remove(name).is_some()
    }

    fn delete_claim(&mut self, name: &str, uid: Option<u8>) -> Result<bool, String> {
        let Some(claim) = self.claims.get(name).filter(|claim| Some(claim.uid) == uid) else {
            return Ok(false);
        };
        let listed = self
            .latest()
            .is_some_and(|list| list.members.iter().any(|member| member == name));
        if claim.disk.is_some() && listed {
            return Err(format!(
                "the operator deletes the volume of {name}, which is a member"
            ));
        }
        self.end_claim(name);
        Ok(true)
    }

    fn end_claim(&mut self, name: &str) {
        if self.pods.contains_key(name) {
            self.claims
                .entry(name.to_owned())
                .and_modify(|claim| claim.ending = true);
        } else {
            self.claims.remove(name);
        }
    }

    fn write(&mut self, name: &str, cut: Option<usize>) {
        self.written += 1;
        let key = self.written.to_string();
        let put = Request::Put(key.clone(), String::new());
        if self.request(name, put, cut) == Some(Reply::Done) {
            self.acknowledged.insert(key);
        }
    }

    /// Somebody has taken data away. Once nobody is left of some majority of the latest list that is left, nobody can know
    /// what there was.
    fn lost(&mut self) {
        let has = |name: &&String| {
            self.claims
                .get(*name)
                .is_some_and(|claim| claim.disk.is_some())
        };
        let enough = self.latest().is_some_and(|list| {
            let (of, left) = (list.members.len(), list.members.iter().filter(has).count());
            left + majority(of) > of
        });
        let is_noted =
            |pinned: &Pinned| matches!(&pinned.deed, Deed::Swap { to, .. } if to.founded);
        // Or is about to be noted: that nothing was written yet is then for nobody to know.
        let founded = self.ledger.as_ref().is_some_and(|ledger| ledger.founded)
            || self.pending.iter().chain(&self.late).any(is_noted);
        self.ruined |= !enough && founded;
    }

    /// What must be so at any time.
    fn check(&self) -> Result<(), String> {
        let up = self
            .pods
            .iter()
            .filter(|(_, pod)| pod.up)
            .filter_map(|(name, _)| Some((name, self.claims.get(name)?.disk.as_ref()?)));
        let serve = up.filter(|(name, state)| {
            state.list.members.first() == Some(name) && state.list.settled && state.list.version > 1
        });
        let serve: Vec<_> = serve.collect();
        if let [(one, _), (other, _), ..] = serve[..] {
            return Err(format!("both {one} and {other} take writes"));
        }
        let lost = |state: &State| {
            self.acknowledged
                .iter()
                .find(|key| !state.data.contains_key(*key))
        };
        match serve
            .first()
            .and_then(|(name, state)| Some((name, lost(state)?)))
        {
            Some((name, write)) => Err(format!(
                "{name} serves without write {write}, which was acknowledged"
            )),
            None => Ok(()),
        }
    }
}

impl Explored for World {
    type Event = Event;

    fn enabled(&self) -> Vec<Event> {
        let asleep = self
            .pods
            .iter()
            .filter(|(name, pod)| !pod.up && self.claims.contains_key(*name));
        let starts = asleep.map(|(name, _)| Event::Start(name.clone()));
        let operator = if !self.pending.is_empty() {
            Some(Event::Act(None))
        } else if !self.decide(None).is_noop() {
            Some(Event::Decide(None))
        } else {
            None
        };
        starts.chain(operator).collect()
    }

    fn faults(&self) -> Vec<Event> {
        let (budget, pods) = (&self.budget, || self.pods.keys().cloned());
        let mut events = Vec::new();
        if !self.late.is_empty() {
            events.push(Event::Late);
        }
        if budget.faults > 0 {
            events.extend(pods().map(Event::DeletePod));
            let claims = || {
                self.claims
                    .iter()
                    .filter(|(_, claim)| !claim.ending)
                    .map(|(name, _)| name.clone())
            };
            events.extend(claims().map(Event::DeleteClaim));
            events.extend(claims().map(Event::LoseVolume));
            events.extend(claims().map(Event::Wipe));
        }
        if budget.edits > 0 {
            events.extend(
                (1..=3)
                    .filter(|members| *members != self.wanted)
                    .map(Event::Edit),
            );
        }
        let primary = |name: &String| {
            let disk = self.claims.get(name).and_then(|claim| claim.disk.as_ref());
            disk.is_some_and(|state| state.list.members.first() == Some(name))
        };
        let primaries = || pods().filter(primary);
        if budget.writes > 0 {
            events.extend(primaries().map(|name| Event::Write(name, None)));
        }
        let calls = |pinned: &Pinned| matches!(pinned.deed, Deed::Found(_) | Deed::Change { .. });
        if budget.cuts > 0 {
            let asks = if self.pending.first().is_some_and(calls) {
                0..4
            } else {
                0..0
            };
            events.extend(asks.map(|asks| Event::Act(Some(asks))));
            if budget.writes > 0 {
                let cut =
                    |name: String| (0..2).map(move |asks| Event::Write(name.clone(), Some(asks)));
                events.extend(primaries().flat_map(cut));
            }
        }
        if !self.pending.is_empty() {
            events.extend((budget.crashes > 0).then_some(Event::Crash));
            events.extend((budget.freezes > 0).then_some(Event::Freeze));
        } else if budget.blinks > 0 {
            events.extend(pods().map(|name| Event::Decide(Some(name))));
        }
        events
    }

    fn apply(&mut self, event: &Event) -> Result<(), String> {
        match event {
            Event::Start(name) => {
                self.pods
                    .entry(name.clone())
                    .and_modify(|pod| pod.up = true);
            }
            Event::Decide(silent) => {
                self.budget.blinks -= u8::from(silent.is_some());
                let plan = self.decide(silent.as_ref());
                let deeds = plan
                    .create
                    .iter()
                    .chain(&plan.patch)
                    .chain(&plan.apply)
                    .chain(&plan.disruption);
                self.pending = deeds.map(|deed| self.pinned(deed.clone())).collect();
            }
            Event::Act(cut) => {
                self.budget.cuts -= u8::from(cut.is_some());
                let pending = std::mem::take(&mut self.pending);
                self.pending = self.act(pending, *cut)?;
            }
            Event::Late => {
                let late = std::mem::take(&mut self.late);
                self.late = self.act(late, None)?;
            }
            Event::Crash => {
                self.budget.crashes -= 1;
                self.pending.clear();
            }
            Event::Freeze => {
                self.budget.freezes -= 1;
                self.late = std::mem::take(&mut self.pending);
            }
            Event::Edit(members) => {
                self.budget.edits -= 1;
                self.wanted = *members;
            }
            Event::Write(name, cut) => {
                self.budget.writes -= 1;
                self.budget.cuts -= u8::from(cut.is_some());
                self.write(name, *cut);
            }
            Event::DeletePod(name) => {
                self.budget.faults -= 1;
                self.drop_pod(name);
                self.lost();
            }
            Event::DeleteClaim(name) => {
                self.budget.faults -= 1;
                self.end_claim(name);
                self.lost();
            }
            Event::LoseVolume(name) => {
                self.budget.faults -= 1;
                self.pods.remove(name);
                self.claims.remove(name);
                self.lost();
            }
            Event::Wipe(name) => {
                self.budget.faults -= 1;
                self.claims
                    .entry(name.clone())
                    .and_modify(|claim| claim.disk = None);
                self.pods
                    .entry(name.clone())
                    .and_modify(|pod| pod.up = false);
                self.lost();
            }
        }
        self.check()
    }

    fn check_quiescent(&self) -> Result<(), String> {
        if self.ruined {
            return Ok(());
        }
        let bad = |what: &str| Err(format!("{what}; waits: {:?}", self.decide(None).waits));
        let Some(list) = self.latest() else {
            return bad("there is no database");
        };
        if list.members.len() != usize::from(self.wanted) {
            return bad("there are more or fewer members than wanted");
        }
        let well = |name: &String| {
            let disk = self.claims.get(name).and_then(|claim| claim.disk.as_ref());
            self.pods.get(name).is_some_and(|pod| pod.up)
                && disk.is_some_and(|state| state.list.version == list.version)
        };
        if !list.members.iter().all(well) {
            return bad("not every member has the list, and answers");
        }
        let primary = list
            .members
            .first()
            .and_then(|name| self.claims.get(name)?.disk.as_ref());
        if !primary.is_some_and(|state| state.list.settled && state.list.version > 1) {
            return bad("no write would be taken");
        }
        if self.pods.len() != list.members.len() || self.claims.len() != list.members.len() {
            return bad("something is left over");
        }
        if self
            .ledger
            .as_ref()
            .is_none_or(|ledger| ledger.joining.is_some())
        {
            return bad("somebody is said to be joining");
        }
        Ok(())
    }
}
