//! Somebody meddles: at every state that is reached, the same facts are decided on once more with something changed behind
//! the operator's back. What is decided then is not carried out; it is judged by itself.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use evenkeel_etcd::Etcd;
use evenkeel_etcd::build::tls::SECRETS;
use evenkeel_etcd::facts::{
    DisruptionWindow, Drift, EtcdFacts, OwnedObject, StartMode, UnknownMember,
};
use evenkeel_etcd::identity::{ClusterId, Identity, MemberId, MembershipChange, Uid};
use evenkeel_etcd::names::Lineage;
use evenkeel_etcd::plan::{
    DeleteReason, EtcdApply, EtcdCreate, EtcdDisruption, EtcdPatch, EtcdWait,
};
use evenkeel_runtime::{Engine, Observed, Plan, UnixTime};

use crate::Decider;
use crate::kinds::kinds;

/// What can be in the way, or gone.
fn objects() -> impl Iterator<Item = OwnedObject> {
    [OwnedObject::PeerService, OwnedObject::ClientService]
        .into_iter()
        .chain(SECRETS)
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
        self.kinds
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The first thing that was decided wrongly, in words.
    pub fn wrong(&self) -> Option<String> {
        self.wrong
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn ask(&self, what: &str, facts: &EtcdFacts, is_right: impl Fn(&Plan<Etcd>) -> bool) {
        let plan = Etcd::decide(facts);
        self.kinds
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(kinds(&plan));
        if !is_right(&plan) {
            let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
            wrong.get_or_insert_with(|| {
                format!("{what}: it was decided on {plan:#?}, seeing {facts:#?}")
            });
        }
    }

    fn pauses(&self, facts: &EtcdFacts) {
        let mut meddled = facts.clone();
        meddled.cluster.is_paused = true;
        self.ask("paused", &meddled, |plan| {
            plan.is_noop() && plan.waits == [EtcdWait::Paused]
        });
        meddled.cluster.is_deleted = true;
        self.ask("deleted", &meddled, Plan::is_noop);
    }

    fn takes_the_identity(&self, facts: &EtcdFacts) {
        let mut meddled = EtcdFacts {
            identity: Observed::Absent,
            ..facts.clone()
        };
        meddled.cluster.status_cluster_id = Some(ClusterId(1));
        self.ask(
            "all is gone but the status",
            &EtcdFacts {
                lineages: BTreeSet::new(),
                ..blank(&meddled)
            },
            |plan| plan.is_noop() && matches!(plan.waits[..], [EtcdWait::DataLost(_)]),
        );
        // An identity that is made of what is left is of a sealed epoch, or of one that is later than all that is left.
        let later = |epoch| {
            let claims = facts
                .claims
                .present()
                .into_iter()
                .flatten()
                .map(|claim| claim.epoch);
            let pods = facts
                .pods
                .present()
                .into_iter()
                .flatten()
                .map(|pod| pod.epoch);
            claims.chain(pods).all(|other| other < epoch)
        };
        self.ask("the identity is gone", &meddled, |plan| {
            match &plan.create[..] {
                [] => plan.is_noop(),
                [EtcdCreate::Identity(rebuilt)] => rebuilt.bootstrapped || later(rebuilt.epoch),
                _ => false,
            }
        });
        meddled.lineages.insert(Some(Lineage(1)));
        self.ask("claims are of two clusters", &meddled, Plan::is_noop);
        if let Some(identity) = facts
            .identity
            .present()
            .filter(|identity| !identity.bootstrapped)
        {
            let late = Identity {
                lineage: Lineage(1),
                ..identity.clone()
            };
            let meddled = EtcdFacts {
                identity: Observed::Present(late),
                ..blank(facts)
            };
            let anything = !facts.lineages.is_empty();
            self.ask(
                "an identity of another cluster was created late",
                &meddled,
                |plan| plan.is_noop() || !anything,
            );
        }
        meddled.identity = Observed::Unknown;
        self.ask("the identity cannot be read", &meddled, Plan::is_noop);
    }

    fn puts_an_older_identity_back(&self, facts: &EtcdFacts) {
        let Some(identity) = facts
            .identity
            .present()
            .filter(|identity| identity.bootstrapped)
        else {
            return;
        };
        let older = Identity {
            bootstrapped: false,
            intent: None,
            ..identity.clone()
        };
        let mut meddled = EtcdFacts {
            identity: Observed::Present(older),
            ..facts.clone()
        };
        meddled.cluster.status_cluster_id = Some(ClusterId(1));
        self.ask(
            "an identity of before the seal was put back",
            &meddled,
            |plan| match &plan.disruption {
                Some(EtcdDisruption::UpdateIdentity { to, .. }) => to.bootstrapped,
                Some(_) => false,
                None => plan.is_noop(),
            },
        );
    }

    fn adds_a_stranger(&self, facts: &EtcdFacts) {
        let mut meddled = facts.clone();
        let Observed::Present(membership) = &mut meddled.membership else {
            return;
        };
        let since = UnixTime(0);
        membership.unknown = vec![UnknownMember {
            id: MemberId(99),
            is_learner: false,
            has_started: true,
            first_seen: since,
        }];
        // It may hold somebody's data; and whoever is added could not name it, and would be refused.
        self.ask(
            "a stranger that has started is a member",
            &meddled,
            |plan| {
                let change = plan.disruption.as_ref().and_then(|step| match step {
                    EtcdDisruption::ChangeMembership { intent, .. } => Some(intent.change),
                    _ => None,
                });
                !matches!(
                    change,
                    Some(MembershipChange::RemoveUnknown(_) | MembershipChange::Add(_))
                )
            },
        );
    }

    fn keeps_what_is_removed(&self, facts: &EtcdFacts) {
        let mut meddled = facts.clone();
        meddled.cluster.keep_removed_for = Duration::from_secs(3600);
        let joined = |uid: Uid| {
            let mut claims = facts.claims.present().into_iter().flatten();
            claims.any(|claim| claim.uid == uid && claim.joined_on.is_some())
        };
        let sealed = facts
            .identity
            .present()
            .is_some_and(|identity| identity.bootstrapped);
        self.ask(
            "volumes of former members are kept",
            &meddled,
            |plan| match plan.disruption {
                Some(EtcdDisruption::DeleteClaim { claim, .. }) => !(sealed && joined(claim)),
                _ => true,
            },
        );
    }

    /// A newcomer finds no node, and a voter is about to leave its own for a moment.
    fn lacks_room(&self, facts: &EtcdFacts) {
        let mut meddled = facts.clone();
        let Some(told) = facts.membership.present() else {
            return;
        };
        let Observed::Present(pods) = &mut meddled.pods else {
            return;
        };
        let is_learner = |serial| {
            told.members
                .iter()
                .any(|one| one.serial == serial && one.is_learner)
        };
        for pod in pods.iter_mut().filter(|pod| is_learner(pod.serial)) {
            pod.node = None;
        }
        if let Some(voter) = pods.iter_mut().find(|pod| !is_learner(pod.serial)) {
            voter.is_terminating = true;
            meddled.health.insert(voter.serial, Observed::Unknown);
        }
        self.ask(
            "a newcomer and a voter want the same place",
            &meddled,
            |plan| match plan.disruption {
                Some(EtcdDisruption::DeletePod {
                    serial,
                    why: DeleteReason::FreesNode,
                    ..
                }) => is_learner(serial),
                _ => true,
            },
        );
    }

    fn replaced_many(&self, facts: &EtcdFacts) {
        let mut meddled = facts.clone();
        let Observed::Present(identity) = &mut meddled.identity else {
            return;
        };
        identity.replacements = (1..=3).map(|ago| UnixTime(facts.now.0 - ago)).collect();
        self.ask(
            "three were replaced within the hour",
            &meddled,
            |plan| match &plan.disruption {
                // What was begun is finished.
                Some(EtcdDisruption::ChangeMembership { intent, .. }) => {
                    !intent.is_replacement
                        || facts
                            .identity
                            .present()
                            .is_some_and(|one| one.intent.is_some())
                }
                _ => true,
            },
        );
    }

    /// The spec is not noted yet: nothing waits for that.
    fn edits_the_spec(&self, facts: &EtcdFacts) {
        let untouched = Etcd::decide(facts);
        self.ask(
            "the spec is new",
            &EtcdFacts {
                spec_recorded: false,
                ..facts.clone()
            },
            |plan| {
                plan.create == untouched.create
                    && plan.apply == untouched.apply
                    && plan.disruption == untouched.disruption
            },
        );
    }

    /// Members are out of date, and it is not the time for that; or a stranger has a vote.
    fn wants_something_else(&self, facts: &EtcdFacts) {
        let mut meddled = facts.clone();
        meddled.cluster.restart_request = Some(Uid(1));
        meddled.cluster.disruption = DisruptionWindow::NotBefore(UnixTime(facts.now.0 + 60));
        for claim in meddled.claims.present_mut().into_iter().flatten() {
            claim.last_version = None;
        }
        let restarts = |plan: &Plan<Etcd>| {
            matches!(plan.disruption, Some(EtcdDisruption::RestartMember { .. }))
        };
        self.ask("it is not the time to restart anybody", &meddled, |plan| {
            !restarts(plan)
        });
        meddled.cluster.disruption = DisruptionWindow::Allowed;
        if let Observed::Present(membership) = &mut meddled.membership {
            let since = UnixTime(0);
            membership.unknown = vec![UnknownMember {
                id: MemberId(99),
                is_learner: false,
                has_started: true,
                first_seen: since,
            }];
        }
        let serve = meddled
            .health
            .values()
            .filter(|voice| voice.present().is_some_and(|voice| voice.is_serving));
        let voters = meddled.membership.present().map_or(0, |told| {
            told.members.iter().filter(|one| !one.is_learner).count() + told.unknown.len()
        });
        let enough = serve.count() > evenkeel_etcd::view::quorum(voters);
        self.ask(
            "a stranger has a vote, and members are out of date",
            &meddled,
            |plan| !restarts(plan) || enough || voters <= 2,
        );
    }

    fn takes_a_name(&self, facts: &EtcdFacts) {
        let sealed = facts
            .identity
            .present()
            .is_some_and(|identity| identity.bootstrapped);
        for object in objects() {
            let mut meddled = facts.clone();
            meddled.drift.insert(object, Drift::NotOwned);
            self.ask("a name is taken", &meddled, |plan| {
                !applies(plan, object) && (sealed || !starts_somebody(plan))
            });
        }
    }

    fn deletes_an_object(&self, facts: &EtcdFacts) {
        let (Some(identity), Some(pods)) = (facts.identity.present(), facts.pods.present()) else {
            return;
        };
        if identity.resource_uid != facts.cluster.resource_uid {
            return;
        }
        let runs = pods.iter().any(|pod| {
            pod.epoch == identity.epoch
                && !pod.is_terminating
                && !pod.is_finished
                && pod.start_mode != StartMode::Held
        });
        let untouched = Etcd::decide(facts);
        for object in objects() {
            let mut meddled = facts.clone();
            meddled.drift.insert(object, Drift::Missing);
            if object.is_ca() && identity.cluster_id.is_some() && runs {
                // With another authority those who run and those who start would not know each other.
                let signed = SECRETS
                    .into_iter()
                    .filter(|other| other.signed_by() == Some(object));
                meddled
                    .drift
                    .extend(signed.map(|signed| (signed, Drift::Missing)));
                self.ask("an authority is gone", &meddled, |plan| {
                    let lost = plan.waits.contains(&EtcdWait::CaMissing(object));
                    lost && plan.apply == untouched.apply && plan.create == untouched.create
                });
            } else {
                self.ask("an object is gone", &meddled, |plan| applies(plan, object));
            }
        }
    }
}

/// The same, with nothing of it left, or nothing that is ours.
fn blank(facts: &EtcdFacts) -> EtcdFacts {
    EtcdFacts {
        claims: Observed::Present(Vec::new()),
        pods: Observed::Present(Vec::new()),
        ..facts.clone()
    }
}

fn applies(plan: &Plan<Etcd>, object: OwnedObject) -> bool {
    plan.apply.contains(&EtcdApply::Object(object))
}

/// Whether somebody is told to found or to join.
fn starts_somebody(plan: &Plan<Etcd>) -> bool {
    plan.patch.iter().any(|mark| {
        matches!(
            mark,
            EtcdPatch::SetStartMode {
                to: StartMode::Bootstrap | StartMode::Join(_),
                ..
            }
        )
    }) || plan.create.iter().any(|create| {
        matches!(
            create,
            EtcdCreate::Pod {
                start_mode: StartMode::Bootstrap | StartMode::Join(_),
                ..
            }
        )
    })
}

impl Decider for Meddled {
    fn decide(&self, facts: &EtcdFacts) -> Plan<Etcd> {
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
