//! Somebody meddles: at every state that is reached, the same facts are decided on once more with something changed behind
//! the operator's back. What is decided then is not carried out; it is judged by itself.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use evenkeel::{Engine, Plan, Seen, Time};
use evenkeel_etcd::Etcd;
use evenkeel_etcd::build::tls::SECRETS;
use evenkeel_etcd::facts::{Amiss, Disrupt, Facts, Object, Start, Stranger};
use evenkeel_etcd::identity::{Change, ClusterId, Identity, MemberId, Uid};
use evenkeel_etcd::names::Lineage;
use evenkeel_etcd::plan::{Apply, Create, Leaving, Mark, Step, Wait};

use crate::Decider;
use crate::kinds::kinds;

/// What can be in the way, or gone.
fn objects() -> impl Iterator<Item = Object> {
    [Object::PeerService, Object::ClientService].into_iter().chain(SECRETS)
}

/// The real thing, asked again and again with something changed.
#[derive(Debug, Default)]
pub struct Meddled {
    kinds: Mutex<BTreeSet<&'static str>>,
    wrong: Mutex<Option<String>>,
}

impl Meddled {
    /// What was decided on changed facts, by kind.
    pub fn kinds(&self) -> BTreeSet<&'static str> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The first thing that was decided wrongly, in words.
    pub fn wrong(&self) -> Option<String> {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn ask(&self, what: &str, facts: &Facts, is_right: impl Fn(&Plan<Etcd>) -> bool) {
        let plan = Etcd::decide(facts);
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner).extend(kinds(&plan));
        if !is_right(&plan) {
            let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
            wrong.get_or_insert_with(|| format!("{what}: it was decided on {plan:#?}, seeing {facts:#?}"));
        }
    }

    fn pauses(&self, facts: &Facts) {
        let mut meddled = facts.clone();
        meddled.cluster.paused = true;
        self.ask("paused", &meddled, |plan| plan.is_quiet() && plan.status.waits == [Wait::Paused]);
        meddled.cluster.deleted = true;
        self.ask("deleted", &meddled, Plan::is_quiet);
    }

    fn takes_the_identity(&self, facts: &Facts) {
        let mut meddled = Facts { identity: Seen::Absent, ..facts.clone() };
        meddled.cluster.known = Some(ClusterId(1));
        self.ask(
            "all is gone but the status",
            &Facts { written: BTreeSet::new(), ..blank(&meddled) },
            |plan| plan.is_quiet() && matches!(plan.status.waits[..], [Wait::NothingLeft(_)]),
        );
        // An identity that is made of what is left is of a sealed epoch, or of one that is later than all that is left.
        let later = |epoch| {
            let claims = facts.claims.present().into_iter().flatten().map(|claim| claim.epoch);
            let pods = facts.pods.present().into_iter().flatten().map(|pod| pod.epoch);
            claims.chain(pods).all(|other| other < epoch)
        };
        self.ask("the identity is gone", &meddled, |plan| match &plan.create[..] {
            [] => plan.is_quiet(),
            [Create::Identity(rebuilt)] => rebuilt.sealed || later(rebuilt.epoch),
            _ => false,
        });
        meddled.written.insert(Some(Lineage(1)));
        self.ask("claims are of two clusters", &meddled, Plan::is_quiet);
        if let Some(identity) = facts.identity.present().filter(|identity| !identity.sealed) {
            let late = Identity { lineage: Lineage(1), ..identity.clone() };
            let meddled = Facts { identity: Seen::Present(late), ..blank(facts) };
            let anything = !facts.written.is_empty();
            self.ask("an identity of another cluster was created late", &meddled, |plan| {
                plan.is_quiet() || !anything
            });
        }
        meddled.identity = Seen::Unknown;
        self.ask("the identity cannot be read", &meddled, Plan::is_quiet);
    }

    fn puts_an_older_identity_back(&self, facts: &Facts) {
        let Some(identity) = facts.identity.present().filter(|identity| identity.sealed) else { return };
        let older = Identity { sealed: false, intent: None, ..identity.clone() };
        let mut meddled = Facts { identity: Seen::Present(older), ..facts.clone() };
        meddled.cluster.known = Some(ClusterId(1));
        self.ask("an identity of before the seal was put back", &meddled, |plan| match &plan.step {
            Some(Step::Identity { to, .. }) => to.sealed,
            Some(_) => false,
            None => plan.is_quiet(),
        });
    }

    fn adds_a_stranger(&self, facts: &Facts) {
        let mut meddled = facts.clone();
        let Seen::Present(membership) = &mut meddled.membership else { return };
        let since = Time(0);
        membership.strangers = vec![Stranger { id: MemberId(99), learner: false, started: true, since }];
        // It may hold somebody's data; and whoever is added could not name it, and would be refused.
        self.ask("a stranger that has started is a member", &meddled, |plan| {
            let change = plan.step.as_ref().and_then(|step| match step {
                Step::Call { intent, .. } => Some(intent.change),
                _ => None,
            });
            !matches!(change, Some(Change::Expel(_) | Change::Add(_)))
        });
    }

    fn keeps_what_is_removed(&self, facts: &Facts) {
        let mut meddled = facts.clone();
        meddled.cluster.keep_removed_for = Duration::from_secs(3600);
        let joined = |uid: Uid| {
            let mut claims = facts.claims.present().into_iter().flatten();
            claims.any(|claim| claim.uid == uid && claim.joined_on.is_some())
        };
        let sealed = facts.identity.present().is_some_and(|identity| identity.sealed);
        self.ask("volumes of former members are kept", &meddled, |plan| match plan.step {
            Some(Step::DeleteClaim { claim, .. }) => !(sealed && joined(claim)),
            _ => true,
        });
    }

    /// A newcomer finds no node, and a voter is about to leave its own for a moment.
    fn lacks_room(&self, facts: &Facts) {
        let mut meddled = facts.clone();
        let Some(told) = facts.membership.present() else { return };
        let Seen::Present(pods) = &mut meddled.pods else { return };
        let is_learner = |serial| told.members.iter().any(|one| one.serial == serial && one.learner);
        for pod in pods.iter_mut().filter(|pod| is_learner(pod.serial)) {
            pod.node = None;
        }
        if let Some(voter) = pods.iter_mut().find(|pod| !is_learner(pod.serial)) {
            voter.deleting = true;
            meddled.voices.insert(voter.serial, Seen::Unknown);
        }
        self.ask("a newcomer and a voter want the same place", &meddled, |plan| match plan.step {
            Some(Step::DeletePod { serial, why: Leaving::MakesWay, .. }) => is_learner(serial),
            _ => true,
        });
    }

    fn replaced_many(&self, facts: &Facts) {
        let mut meddled = facts.clone();
        let Seen::Present(identity) = &mut meddled.identity else { return };
        identity.replaced = (1..=3).map(|ago| Time(facts.now.0 - ago)).collect();
        self.ask("three were replaced within the hour", &meddled, |plan| match &plan.step {
            // What was begun is finished.
            Some(Step::Call { intent, .. }) => {
                !intent.replaces || facts.identity.present().is_some_and(|one| one.intent.is_some())
            }
            _ => true,
        });
    }

    /// The spec is not noted yet: nothing waits for that.
    fn edits_the_spec(&self, facts: &Facts) {
        let untouched = Etcd::decide(facts);
        self.ask("the spec is new", &Facts { accepted: false, ..facts.clone() }, |plan| {
            plan.create == untouched.create && plan.apply == untouched.apply && plan.step == untouched.step
        });
    }

    /// Members are out of date, and it is not the time for that; or a stranger has a vote.
    fn wants_something_else(&self, facts: &Facts) {
        let mut meddled = facts.clone();
        meddled.cluster.restart = Some(Uid(1));
        meddled.cluster.disrupt = Disrupt::From(Time(facts.now.0 + 60));
        for claim in meddled.claims.present_mut().into_iter().flatten() {
            claim.version = None;
        }
        let restarts = |plan: &Plan<Etcd>| matches!(plan.step, Some(Step::Restart { .. }));
        self.ask("it is not the time to restart anybody", &meddled, |plan| !restarts(plan));
        meddled.cluster.disrupt = Disrupt::Now;
        if let Seen::Present(membership) = &mut meddled.membership {
            let since = Time(0);
            membership.strangers = vec![Stranger { id: MemberId(99), learner: false, started: true, since }];
        }
        let serve = meddled.voices.values().filter(|voice| voice.present().is_some_and(|voice| voice.serves));
        let voters = meddled
            .membership
            .present()
            .map_or(0, |told| told.members.iter().filter(|one| !one.learner).count() + told.strangers.len());
        let enough = serve.count() > evenkeel_etcd::view::quorum(voters);
        self.ask("a stranger has a vote, and members are out of date", &meddled, |plan| {
            !restarts(plan) || enough || voters <= 2
        });
    }

    fn takes_a_name(&self, facts: &Facts) {
        let sealed = facts.identity.present().is_some_and(|identity| identity.sealed);
        for object in objects() {
            let mut meddled = facts.clone();
            meddled.amiss.insert(object, Amiss::NotOurs);
            self.ask("a name is taken", &meddled, |plan| {
                !applies(plan, object) && (sealed || !starts_somebody(plan))
            });
        }
    }

    fn deletes_an_object(&self, facts: &Facts) {
        let (Some(identity), Some(pods)) = (facts.identity.present(), facts.pods.present()) else { return };
        if identity.resource != facts.cluster.resource {
            return;
        }
        let runs = pods.iter().any(|pod| {
            pod.epoch == identity.epoch && !pod.deleting && !pod.finished && pod.start != Start::Held
        });
        let untouched = Etcd::decide(facts);
        for object in objects() {
            let mut meddled = facts.clone();
            meddled.amiss.insert(object, Amiss::Missing);
            if object.is_authority() && identity.cluster.is_some() && runs {
                // With another authority those who run and those who start would not know each other.
                let signed = SECRETS.into_iter().filter(|other| other.signed_by() == Some(object));
                meddled.amiss.extend(signed.map(|signed| (signed, Amiss::Missing)));
                self.ask("an authority is gone", &meddled, |plan| {
                    let lost = plan.status.waits.contains(&Wait::AuthorityLost(object));
                    lost && plan.apply == untouched.apply && plan.create == untouched.create
                });
            } else {
                self.ask("an object is gone", &meddled, |plan| applies(plan, object));
            }
        }
    }
}

/// The same, with nothing of it left, or nothing that is ours.
fn blank(facts: &Facts) -> Facts {
    Facts { claims: Seen::Present(Vec::new()), pods: Seen::Present(Vec::new()), ..facts.clone() }
}

fn applies(plan: &Plan<Etcd>, object: Object) -> bool {
    plan.apply.contains(&Apply::Object(object))
}

/// Whether somebody is told to found or to join.
fn starts_somebody(plan: &Plan<Etcd>) -> bool {
    plan.mark.iter().any(|mark| matches!(mark, Mark::Start { to: Start::Found | Start::Join(_), .. }))
        || plan
            .create
            .iter()
            .any(|create| matches!(create, Create::Pod { start: Start::Found | Start::Join(_), .. }))
}

impl Decider for Meddled {
    fn decide(&self, facts: &Facts) -> Plan<Etcd> {
        self.pauses(facts);
        self.takes_the_identity(facts);
        self.puts_an_older_identity_back(facts);
        self.adds_a_stranger(facts);
        self.keeps_what_is_removed(facts);
        self.replaced_many(facts);
        self.lacks_room(facts);
        self.edits_the_spec(facts);
        self.wants_something_else(facts);
        self.takes_a_name(facts);
        self.deletes_an_object(facts);
        Etcd::decide(facts)
    }
}
