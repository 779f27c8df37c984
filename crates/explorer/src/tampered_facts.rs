//! A decider that checks each decision against tampered facts: in every reached state it also
//! decides on the same facts with one change that the operator did not make. The resulting plans
//! are not executed; each is checked by itself.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use evenkeel_etcd::Etcd;
use evenkeel_etcd::build::tls::SECRETS;
use evenkeel_etcd::facts::{
    DisruptionWindow, Drift, EtcdFacts, OwnedObject, SourceProblem, SourceState, StartMode,
    UnknownMember,
};
use evenkeel_etcd::identity::{ClusterId, Identity, MemberId, MembershipChange, Uid};
use evenkeel_etcd::names::Lineage;
use evenkeel_etcd::plan::{
    DeleteReason, EtcdApply, EtcdCreate, EtcdDisruption, EtcdPatch, EtcdWait,
};
use evenkeel_runtime::{Engine, Observed, Plan, UnixTime};

use crate::Decider;
use crate::action_kinds::action_kinds;

/// Returns the objects that may be missing or owned by another controller.
fn objects() -> impl Iterator<Item = OwnedObject> {
    [OwnedObject::PeerService, OwnedObject::ClientService]
        .into_iter()
        .chain(SECRETS)
}

/// The real decision function, which also checks the decisions on tampered facts.
#[derive(Debug, Default)]
pub struct TamperingDecider {
    kinds: Mutex<BTreeSet<&'static str>>,
    first_mistake: Mutex<Option<String>>,
}

impl TamperingDecider {
    /// Returns the kinds of actions that were decided on tampered facts.
    pub fn kinds(&self) -> BTreeSet<&'static str> {
        self.kinds
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns the description of the first wrong decision.
    pub fn first_mistake(&self) -> Option<String> {
        self.first_mistake
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn check(&self, what: &str, facts: &EtcdFacts, is_right: impl Fn(&Plan<Etcd>) -> bool) {
        let plan = Etcd::decide(facts);
        self.kinds
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(action_kinds(&plan));
        if !is_right(&plan) {
            let mut wrong = self
                .first_mistake
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            wrong.get_or_insert_with(|| {
                format!("{what}: the plan is {plan:#?}, the facts are {facts:#?}")
            });
        }
    }

    fn pause(&self, facts: &EtcdFacts) {
        let mut tampered = facts.clone();
        tampered.cluster.is_paused = true;
        self.check("paused", &tampered, |plan| {
            plan.is_noop() && plan.waits == [EtcdWait::Paused]
        });
        tampered.cluster.is_deleted = true;
        self.check("deleted", &tampered, Plan::is_noop);
    }

    fn delete_identity(&self, facts: &EtcdFacts) {
        let mut tampered = EtcdFacts {
            identity: Observed::Absent,
            ..facts.clone()
        };
        tampered.cluster.status_cluster_id = Some(ClusterId(1));
        self.check(
            "all objects but the status are gone",
            &EtcdFacts {
                lineages: BTreeSet::new(),
                ..without_objects(&tampered)
            },
            |plan| plan.is_noop() && matches!(plan.waits[..], [EtcdWait::DataLost(_)]),
        );
        // A rebuilt identity is bootstrapped, or its epoch is later than that of every remaining object.
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
        self.check("the identity is gone", &tampered, |plan| {
            match &plan.create[..] {
                [] => plan.is_noop(),
                [EtcdCreate::Identity(rebuilt)] => rebuilt.bootstrapped || later(rebuilt.epoch),
                _ => false,
            }
        });
        tampered.lineages.insert(Some(Lineage(1)));
        self.check("claims are of two clusters", &tampered, Plan::is_noop);
        if let Some(identity) = facts
            .identity
            .present()
            .filter(|identity| !identity.bootstrapped)
        {
            let late = Identity {
                lineage: Lineage(1),
                ..identity.clone()
            };
            let tampered = EtcdFacts {
                identity: Observed::Present(late),
                ..without_objects(facts)
            };
            let anything = !facts.lineages.is_empty();
            self.check(
                "an identity of another cluster was created late",
                &tampered,
                |plan| plan.is_noop() || !anything,
            );
        }
        tampered.identity = Observed::Unknown;
        self.check("the identity cannot be read", &tampered, Plan::is_noop);
    }

    fn restore_older_identity(&self, facts: &EtcdFacts) {
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
        let mut tampered = EtcdFacts {
            identity: Observed::Present(older),
            ..facts.clone()
        };
        tampered.cluster.status_cluster_id = Some(ClusterId(1));
        self.check(
            "an identity from before the end of the bootstrap was restored",
            &tampered,
            |plan| match &plan.disruption {
                Some(EtcdDisruption::UpdateIdentity { to, .. }) => to.bootstrapped,
                Some(_) => false,
                None => plan.is_noop(),
            },
        );
    }

    fn add_unknown_member(&self, facts: &EtcdFacts) {
        let mut tampered = facts.clone();
        let Observed::Present(membership) = &mut tampered.membership else {
            return;
        };
        let since = UnixTime(0);
        membership.unknown = vec![UnknownMember {
            id: MemberId(99),
            is_learner: false,
            has_started: true,
            first_seen: since,
        }];
        // The unknown member may hold data, so it is not removed. A new member's list could not name it, so none is
        // added.
        self.check(
            "an unknown member that has started is listed",
            &tampered,
            |plan| {
                let change = plan
                    .disruption
                    .as_ref()
                    .and_then(|disruption| match disruption {
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

    fn retain_removed_claims(&self, facts: &EtcdFacts) {
        let mut tampered = facts.clone();
        tampered.cluster.keep_removed_for = Duration::from_secs(3600);
        let joined = |uid: Uid| {
            let mut claims = facts.claims.present().into_iter().flatten();
            claims.any(|claim| claim.uid == uid && claim.joined_on.is_some())
        };
        let bootstrapped = facts
            .identity
            .present()
            .is_some_and(|identity| identity.bootstrapped);
        self.check(
            "volumes of removed members are retained",
            &tampered,
            |plan| match plan.disruption {
                Some(EtcdDisruption::DeleteClaim { claim, .. }) => !(bootstrapped && joined(claim)),
                _ => true,
            },
        );
    }

    /// A learner has no node while the pod of a voter is terminating.
    fn occupy_node(&self, facts: &EtcdFacts) {
        let mut tampered = facts.clone();
        let Some(membership) = facts.membership.present() else {
            return;
        };
        let Observed::Present(pods) = &mut tampered.pods else {
            return;
        };
        let is_learner = |serial| {
            membership
                .members
                .iter()
                .any(|one| one.serial == serial && one.is_learner)
        };
        for pod in pods.iter_mut().filter(|pod| is_learner(pod.serial)) {
            pod.node = None;
        }
        if let Some(voter) = pods.iter_mut().find(|pod| !is_learner(pod.serial)) {
            voter.is_terminating = true;
            tampered.health.insert(voter.serial, Observed::Unknown);
        }
        self.check(
            "a learner and a voter need the same node",
            &tampered,
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

    fn reach_replacement_limit(&self, facts: &EtcdFacts) {
        let mut tampered = facts.clone();
        let Observed::Present(identity) = &mut tampered.identity else {
            return;
        };
        identity.replacements = (1..=3).map(|ago| UnixTime(facts.now.0 - ago)).collect();
        self.check(
            "three members were replaced within the hour",
            &tampered,
            |plan| match &plan.disruption {
                // A recorded intent is finished.
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

    /// The spec is not recorded yet; no other action waits for that.
    fn edit_spec(&self, facts: &EtcdFacts) {
        let untouched = Etcd::decide(facts);
        self.check(
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

    /// Members are outdated outside the maintenance window, or while an unknown member is a voter.
    fn outdate_members(&self, facts: &EtcdFacts) {
        let mut tampered = facts.clone();
        tampered.cluster.restart_request = Some(Uid(1));
        tampered.cluster.disruption = DisruptionWindow::NotBefore(UnixTime(facts.now.0 + 60));
        for claim in tampered.claims.present_mut().into_iter().flatten() {
            claim.last_version = None;
        }
        let restarts = |plan: &Plan<Etcd>| {
            matches!(plan.disruption, Some(EtcdDisruption::RestartMember { .. }))
        };
        self.check("the maintenance window is closed", &tampered, |plan| {
            !restarts(plan)
        });
        tampered.cluster.disruption = DisruptionWindow::Allowed;
        if let Observed::Present(membership) = &mut tampered.membership {
            let since = UnixTime(0);
            membership.unknown = vec![UnknownMember {
                id: MemberId(99),
                is_learner: false,
                has_started: true,
                first_seen: since,
            }];
        }
        let serving = tampered
            .health
            .values()
            .filter(|health| health.present().is_some_and(|health| health.is_serving));
        let voters = tampered.membership.present().map_or(0, |membership| {
            membership
                .members
                .iter()
                .filter(|one| !one.is_learner)
                .count()
                + membership.unknown.len()
        });
        let enough = serving.count() > evenkeel_etcd::view::quorum(voters);
        self.check(
            "an unknown member is a voter and members are outdated",
            &tampered,
            |plan| !restarts(plan) || enough || voters <= 2,
        );
    }

    fn take_name(&self, facts: &EtcdFacts) {
        let bootstrapped = facts
            .identity
            .present()
            .is_some_and(|identity| identity.bootstrapped);
        for object in objects() {
            let mut tampered = facts.clone();
            tampered.drift.insert(object, Drift::NotOwned);
            self.check("an object has another owner", &tampered, |plan| {
                !applies(plan, object) && (bootstrapped || !starts_member(plan))
            });
        }
    }

    fn delete_object(&self, facts: &EtcdFacts) {
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
            let mut tampered = facts.clone();
            tampered.drift.insert(object, Drift::Missing);
            if object.is_ca() && identity.cluster_id.is_some() && runs {
                // Members that run and members that start would not trust each other's certificates under a new CA.
                let signed = SECRETS
                    .into_iter()
                    .filter(|other| other.signed_by() == Some(object));
                tampered
                    .drift
                    .extend(signed.map(|signed| (signed, Drift::Missing)));
                self.check("a CA Secret is gone", &tampered, |plan| {
                    let lost = plan.waits.contains(&EtcdWait::CaMissing(object));
                    lost && plan.apply == untouched.apply && plan.create == untouched.create
                });
            } else {
                self.check("an object is gone", &tampered, |plan| applies(plan, object));
            }
        }
    }
}

/// Returns the facts without pods and claims.
fn without_objects(facts: &EtcdFacts) -> EtcdFacts {
    EtcdFacts {
        claims: Observed::Present(Vec::new()),
        pods: Observed::Present(Vec::new()),
        restore_pods: Vec::new(),
        ..facts.clone()
    }
}

fn applies(plan: &Plan<Etcd>, object: OwnedObject) -> bool {
    plan.apply.contains(&EtcdApply::Object(object))
}

/// Returns true if the plan starts a member by bootstrap or join.
fn starts_member(plan: &Plan<Etcd>) -> bool {
    plan.patch.iter().any(|patch| {
        matches!(
            patch,
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

impl TamperingDecider {
    /// Deletes the backup that a new cluster begins with.
    fn delete_backup(&self, facts: &EtcdFacts) {
        if facts.source.is_none() {
            return;
        }
        let tampered = EtcdFacts {
            source: Some(SourceState::Unusable(SourceProblem::BackupMissing)),
            ..facts.clone()
        };
        self.check("the backup is gone", &tampered, |plan| {
            let creates = |create: &EtcdCreate| matches!(create, EtcdCreate::RestorePod { .. });
            let releases = |patch: &EtcdPatch| matches!(patch, EtcdPatch::ReleaseRestorePod { .. });
            !plan.create.iter().any(creates) && !plan.patch.iter().any(releases)
        });
    }
}

impl Decider for TamperingDecider {
    fn decide(&self, facts: &EtcdFacts) -> Plan<Etcd> {
        self.pause(facts);
        self.delete_identity(facts);
        self.restore_older_identity(facts);
        self.add_unknown_member(facts);
        self.retain_removed_claims(facts);
        self.reach_replacement_limit(facts);
        self.occupy_node(facts);
        self.edit_spec(facts);
        self.outdate_members(facts);
        self.take_name(facts);
        self.delete_object(facts);
        self.delete_backup(facts);
        Etcd::decide(facts)
    }
}
