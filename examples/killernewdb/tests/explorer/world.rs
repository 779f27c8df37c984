//! A small model around the real `decide` and the real member code: volumes, Pods, kubelets, a client that writes, and an
//! operator whose actions are separate events.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_modelcheck::Model;
use evenkeel_runtime::{Observed, Plan, Presence, SimpleReconciler};
use killernewdb::decide::decide;
use killernewdb::facts::{DbAction, DbFacts, DbLedger, MemberFacts};
use killernewdb::member::{DbMember, DbState, Environment, MemberList, Reply, Request, majority};
use killernewdb::operator::KillerNewDbEngine;

use crate::bugs::Bug;
use crate::event::Event;

/// The remaining number of each fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct FaultLimits {
    /// Losses of Pods and volumes.
    pub(crate) faults: u8,
    /// Crashes of the operator during a plan.
    pub(crate) crashes: u8,
    /// Operators that freeze during a plan and continue later, at the same time as another operator.
    pub(crate) freezes: u8,
    /// Edits of `members`.
    pub(crate) edits: u8,
    /// Writes of clients.
    pub(crate) writes: u8,
    /// Members that lose their network during a request.
    pub(crate) cuts: u8,
    /// Observations in which a running member does not answer.
    pub(crate) missed_probes: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Claim {
    uid: u8,
    is_terminating: bool,
    disk: Option<DbState>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Pod {
    uid: u8,
    is_running: bool,
}

/// An action and its precondition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PreparedAction {
    action: DbAction,
    uid: Option<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DbModel {
    desired: u8,
    limits: FaultLimits,
    bug: Bug,
    service: bool,
    ledger: Option<DbLedger>,
    claims: BTreeMap<String, Claim>,
    pods: BTreeMap<String, Pod>,
    pending: Vec<PreparedAction>,
    late: Vec<PreparedAction>,
    uids: u8,
    written: u8,
    acknowledged: BTreeSet<String>,
    /// Whether so much data was lost that acknowledged writes cannot be recovered.
    is_unrecoverable: bool,
}

/// The disk and the network of a member.
struct Network<'w> {
    world: &'w mut DbModel,
    me: String,
    /// The number of requests before the network is cut.
    left: Option<usize>,
}

impl Environment for Network<'_> {
    fn store(&mut self, state: &DbState) -> Result<(), String> {
        let claim = self
            .world
            .claims
            .get_mut(&self.me)
            .ok_or("the disk is gone")?;
        claim.disk = Some(state.clone());
        Ok(())
    }

    fn request(&mut self, member: &str, request: &Request) -> Option<Reply> {
        if self.left == Some(0) {
            return None;
        }
        self.left = self.left.map(|left| left - 1);
        self.world.request(member, request.clone(), None)
    }
}

impl DbModel {
    /// Returns a model without objects and with this desired number of members.
    pub(crate) fn new(desired: u8) -> Self {
        Self {
            desired,
            limits: FaultLimits::default(),
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
            is_unrecoverable: false,
        }
    }

    /// Sets the limits of faults.
    pub(crate) fn with(self, limits: FaultLimits) -> Self {
        Self { limits, ..self }
    }

    /// Sets the bug of the operator.
    pub(crate) fn with_bug(self, bug: Bug) -> Self {
        Self { bug, ..self }
    }

    /// Runs the model until it is quiescent, and sets the limits of faults.
    pub(crate) fn settled(mut self, limits: FaultLimits) -> Self {
        while let Some(event) = self.enabled().first().cloned() {
            self.apply(&event).unwrap();
        }
        Self { limits, ..self }
    }

    /// Sends a request to a running member.
    fn request(&mut self, name: &str, request: Request, cut: Option<usize>) -> Option<Reply> {
        self.pods.get(name).filter(|pod| pod.is_running)?;
        let state = self.claims.get(name)?.disk.clone();
        let mut member = DbMember {
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
        // A member without network cannot reply.
        cut.is_none().then_some(reply)
    }

    fn observe(&self, unreachable: Option<&String>) -> DbFacts {
        let mut facts = DbFacts {
            name: "d".to_owned(),
            desired: self.desired,
            has_service: self.service,
            ledger: self.ledger.clone(),
            members: BTreeMap::new(),
        };
        for (name, claim) in &self.claims {
            let presence = if claim.is_terminating {
                Presence::Terminating
            } else {
                Presence::Present
            };
            facts.members.entry(name.clone()).or_default().claim = presence;
        }
        for (name, pod) in &self.pods {
            let disk = self
                .claims
                .get(name)
                .map(|claim| claim.disk.as_ref().map(|disk| disk.list.clone()));
            let reported = disk.filter(|_| pod.is_running && unreachable != Some(name));
            let list = reported.map_or(Observed::Unknown, Observed::from);
            let member = facts.members.entry(name.clone()).or_default();
            *member = MemberFacts {
                pod: Presence::Present,
                list,
                ..member.clone()
            };
        }
        facts
    }

    fn decide(&self, unreachable: Option<&String>) -> Plan<SimpleReconciler<KillerNewDbEngine>> {
        self.bug.tamper(&self.observe(unreachable), decide)
    }

    /// Returns the latest list on any disk.
    fn latest(&self) -> Option<&MemberList> {
        let disks = self.claims.values().filter_map(|claim| claim.disk.as_ref());
        disks
            .map(|state| &state.list)
            .max_by_key(|list| list.version)
    }

    fn uid(&mut self) -> u8 {
        self.uids += 1;
        self.uids
    }

    fn prepared(&self, action: DbAction) -> PreparedAction {
        let uid = match &action {
            DbAction::DeletePod(name) | DbAction::Bootstrap(name) => {
                self.pods.get(name).map(|pod| pod.uid)
            }
            DbAction::ChangeMembers { members, .. } => members
                .first()
                .and_then(|name| Some(self.pods.get(name)?.uid)),
            DbAction::DeleteClaim(name) => self.claims.get(name).map(|claim| claim.uid),
            _ => None,
        };
        PreparedAction { action, uid }
    }

    /// Executes the next action of a plan. A failed precondition ends the plan.
    fn execute(
        &mut self,
        mut plan: Vec<PreparedAction>,
        cut: Option<usize>,
    ) -> Result<Vec<PreparedAction>, String> {
        let PreparedAction { action, uid } = plan.remove(0);
        let done = match action {
            DbAction::CreateService => !std::mem::replace(&mut self.service, true),
            DbAction::CreateLedger(ledger) => {
                self.ledger.is_none() && self.ledger.replace(ledger).is_none()
            }
            DbAction::CreateClaim(name) => {
                let claim = Claim {
                    uid: self.uid(),
                    is_terminating: false,
                    disk: None,
                };
                !self.claims.contains_key(&name) && self.claims.insert(name, claim).is_none()
            }
            DbAction::CreatePod(name) => {
                let pod = Pod {
                    uid: self.uid(),
                    is_running: false,
                };
                !self.pods.contains_key(&name) && self.pods.insert(name, pod).is_none()
            }
            DbAction::UpdateLedger { from, to } => {
                let same = self.ledger.as_ref() == Some(&from);
                self.ledger = if same { Some(to) } else { self.ledger.clone() };
                same
            }
            DbAction::DeletePod(name) => self.has_pod(&name, uid) && self.drop_pod(&name),
            DbAction::DeleteClaim(name) => self.delete_claim(&name, uid)?,
            DbAction::Bootstrap(name) => {
                self.has_pod(&name, uid)
                    && self.request(&name, Request::Bootstrap, cut) == Some(Reply::Done)
            }
            DbAction::ChangeMembers {
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
        if self
            .claims
            .get(name)
            .is_some_and(|claim| claim.is_terminating)
        {
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
                .and_modify(|claim| claim.is_terminating = true);
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

    /// Records a loss of data. If a majority of the latest list is lost, acknowledged writes cannot be recovered.
    fn record_loss(&mut self) {
        let has = |name: &&String| {
            self.claims
                .get(*name)
                .is_some_and(|claim| claim.disk.is_some())
        };
        let enough = self.latest().is_some_and(|list| {
            let (of, left) = (list.members.len(), list.members.iter().filter(has).count());
            left + majority(of) > of
        });
        let is_recorded = |prepared: &PreparedAction| matches!(&prepared.action, DbAction::UpdateLedger { to, .. } if to.bootstrapped);
        // Or the bootstrap is about to be recorded, after which an empty member counts as lost.
        let bootstrapped = self
            .ledger
            .as_ref()
            .is_some_and(|ledger| ledger.bootstrapped)
            || self.pending.iter().chain(&self.late).any(is_recorded);
        self.is_unrecoverable |= !enough && bootstrapped;
    }

    /// Checks the invariants.
    fn check(&self) -> Result<(), String> {
        let is_running = self
            .pods
            .iter()
            .filter(|(_, pod)| pod.is_running)
            .filter_map(|(name, _)| Some((name, self.claims.get(name)?.disk.as_ref()?)));
        let serve = is_running.filter(|(name, state)| {
            state.list.members.first() == Some(name) && state.list.settled && state.list.version > 1
        });
        let serve: Vec<_> = serve.collect();
        if let [(one, _), (other, _), ..] = serve[..] {
            return Err(format!("both {one} and {other} accept writes"));
        }
        let lost = |state: &DbState| {
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

impl Model for DbModel {
    type Event = Event;

    fn enabled(&self) -> Vec<Event> {
        let stopped = self
            .pods
            .iter()
            .filter(|(name, pod)| !pod.is_running && self.claims.contains_key(*name));
        let starts = stopped.map(|(name, _)| Event::Start(name.clone()));
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
        let (limits, pods) = (&self.limits, || self.pods.keys().cloned());
        let mut events = Vec::new();
        if !self.late.is_empty() {
            events.push(Event::Late);
        }
        if limits.faults > 0 {
            events.extend(pods().map(Event::DeletePod));
            let claims = || {
                self.claims
                    .iter()
                    .filter(|(_, claim)| !claim.is_terminating)
                    .map(|(name, _)| name.clone())
            };
            events.extend(claims().map(Event::DeleteClaim));
            events.extend(claims().map(Event::LoseVolume));
            events.extend(claims().map(Event::Wipe));
        }
        if limits.edits > 0 {
            events.extend(
                (1..=3)
                    .filter(|members| *members != self.desired)
                    .map(Event::Edit),
            );
        }
        let primary = |name: &String| {
            let disk = self.claims.get(name).and_then(|claim| claim.disk.as_ref());
            disk.is_some_and(|state| state.list.members.first() == Some(name))
        };
        let primaries = || pods().filter(primary);
        if limits.writes > 0 {
            events.extend(primaries().map(|name| Event::Write(name, None)));
        }
        let calls = |prepared: &PreparedAction| {
            matches!(
                prepared.action,
                DbAction::Bootstrap(_) | DbAction::ChangeMembers { .. }
            )
        };
        if limits.cuts > 0 {
            let asks = if self.pending.first().is_some_and(calls) {
                0..4
            } else {
                0..0
            };
            events.extend(asks.map(|asks| Event::Act(Some(asks))));
            if limits.writes > 0 {
                let cut =
                    |name: String| (0..2).map(move |asks| Event::Write(name.clone(), Some(asks)));
                events.extend(primaries().flat_map(cut));
            }
        }
        if !self.pending.is_empty() {
            events.extend((limits.crashes > 0).then_some(Event::Crash));
            events.extend((limits.freezes > 0).then_some(Event::Freeze));
        } else if limits.missed_probes > 0 {
            events.extend(pods().map(|name| Event::Decide(Some(name))));
        }
        events
    }

    fn apply(&mut self, event: &Event) -> Result<(), String> {
        match event {
            Event::Start(name) => {
                self.pods
                    .entry(name.clone())
                    .and_modify(|pod| pod.is_running = true);
            }
            Event::Decide(unreachable) => {
                self.limits.missed_probes -= u8::from(unreachable.is_some());
                let plan = self.decide(unreachable.as_ref());
                let actions = plan
                    .create
                    .iter()
                    .chain(&plan.patch)
                    .chain(&plan.apply)
                    .chain(&plan.disruption);
                self.pending = actions
                    .map(|action| self.prepared(action.clone()))
                    .collect();
            }
            Event::Act(cut) => {
                self.limits.cuts -= u8::from(cut.is_some());
                let pending = std::mem::take(&mut self.pending);
                self.pending = self.execute(pending, *cut)?;
            }
            Event::Late => {
                let late = std::mem::take(&mut self.late);
                self.late = self.execute(late, None)?;
            }
            Event::Crash => {
                self.limits.crashes -= 1;
                self.pending.clear();
            }
            Event::Freeze => {
                self.limits.freezes -= 1;
                self.late = std::mem::take(&mut self.pending);
            }
            Event::Edit(members) => {
                self.limits.edits -= 1;
                self.desired = *members;
            }
            Event::Write(name, cut) => {
                self.limits.writes -= 1;
                self.limits.cuts -= u8::from(cut.is_some());
                self.write(name, *cut);
            }
            Event::DeletePod(name) => {
                self.limits.faults -= 1;
                self.drop_pod(name);
                self.record_loss();
            }
            Event::DeleteClaim(name) => {
                self.limits.faults -= 1;
                self.end_claim(name);
                self.record_loss();
            }
            Event::LoseVolume(name) => {
                self.limits.faults -= 1;
                self.pods.remove(name);
                self.claims.remove(name);
                self.record_loss();
            }
            Event::Wipe(name) => {
                self.limits.faults -= 1;
                self.claims
                    .entry(name.clone())
                    .and_modify(|claim| claim.disk = None);
                self.pods
                    .entry(name.clone())
                    .and_modify(|pod| pod.is_running = false);
                self.record_loss();
            }
        }
        self.check()
    }

    fn check_quiescent(&self) -> Result<(), String> {
        if self.is_unrecoverable {
            return Ok(());
        }
        let bad = |what: &str| Err(format!("{what}; waits: {:?}", self.decide(None).waits));
        let Some(list) = self.latest() else {
            return bad("there is no database");
        };
        if list.members.len() != usize::from(self.desired) {
            return bad("the number of members differs from the spec");
        }
        let is_healthy = |name: &String| {
            let disk = self.claims.get(name).and_then(|claim| claim.disk.as_ref());
            self.pods.get(name).is_some_and(|pod| pod.is_running)
                && disk.is_some_and(|state| state.list.version == list.version)
        };
        if !list.members.iter().all(is_healthy) {
            return bad("a member is not running or does not have the list");
        }
        let primary = list
            .members
            .first()
            .and_then(|name| self.claims.get(name)?.disk.as_ref());
        if !primary.is_some_and(|state| state.list.settled && state.list.version > 1) {
            return bad("no member accepts writes");
        }
        if self.pods.len() != list.members.len() || self.claims.len() != list.members.len() {
            return bad("objects of former members are left");
        }
        if self
            .ledger
            .as_ref()
            .is_none_or(|ledger| ledger.joining.is_some())
        {
            return bad("the ledger has a joining member");
        }
        Ok(())
    }
}
