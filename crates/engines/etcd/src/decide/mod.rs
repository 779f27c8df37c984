//! What an etcd SRE would do now. Rules are asked in a fixed order, each a function of the facts; the first that wants
//! something wins, and the others say what they wait for.

mod add;
mod bootstrap;
mod cleanup;
mod finish_bootstrap;
mod identity;
mod intent;
mod join;
mod objects;
mod placement;
mod promote;
mod quorum;
mod recreate;
pub(crate) mod replace;
mod resize;
mod rollout;
mod routing;
mod shrink;
mod snapshot;
mod unknown_members;

use std::time::Duration;

use evenkeel_runtime::{Engine, Plan, Requeue, UnixTime};
use serde::{Deserialize, Serialize};

use crate::facts::{EtcdFacts, OwnedBy};
use crate::identity::{Identity, Intent, MembershipChange};
use crate::names::Serial;
use crate::plan::{EtcdApply, EtcdCreate, EtcdDisruption, EtcdPatch, EtcdWait, IdentityChange};
use crate::view::ClusterView;

/// etcd, as an engine of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Etcd;

/// What a rule says.
#[derive(Debug)]
pub(crate) enum RuleResult {
    /// This is to be done now; no later rule is asked.
    Act(Box<Actions>),
    /// It would do something, but not yet. Later rules may act meanwhile.
    Wait(EtcdWait),
    /// Nothing is safe to be done until this ends.
    Block(EtcdWait),
    /// This is to be done now; later rules may create and mark beside it, and take no step.
    DisruptAndContinue(Box<EtcdDisruption>),
    /// This is to be created, and may be refused for ever (by a quota, say): later rules are asked as if it were there soon.
    CreateAndContinue(Vec<EtcdCreate>),
    /// It is content.
    Pass,
}

/// What a rule wants done.
#[derive(Debug, Default)]
pub(crate) struct Actions {
    create: Vec<EtcdCreate>,
    patch: Vec<EtcdPatch>,
    apply: Vec<EtcdApply>,
    disruption: Option<EtcdDisruption>,
}

impl RuleResult {
    fn disruption(step: EtcdDisruption) -> Self {
        Self::Act(Box::new(Actions {
            disruption: Some(step),
            ..Actions::default()
        }))
    }

    fn patch(mark: EtcdPatch) -> Self {
        Self::Act(Box::new(Actions {
            patch: vec![mark],
            ..Actions::default()
        }))
    }

    fn create(create: Vec<EtcdCreate>) -> Self {
        Self::Act(Box::new(Actions {
            create,
            ..Actions::default()
        }))
    }

    /// Swaps the identity for what `change` makes of it.
    fn update_identity(
        identity: &Identity,
        why: IdentityChange,
        change: impl FnOnce(&mut Identity),
    ) -> Self {
        let mut to = identity.clone();
        change(&mut to);
        Self::disruption(EtcdDisruption::UpdateIdentity {
            from: identity.clone(),
            to,
            why,
        })
    }

    /// Asks etcd for a change of the membership.
    fn change_membership(view: &ClusterView<'_>, change: MembershipChange) -> Self {
        Self::with_intent(view, new_intent(view, change))
    }

    /// Asks etcd to remove a member that might have come back.
    fn replace_member(view: &ClusterView<'_>, member: Serial) -> Self {
        Self::with_intent(
            view,
            Intent {
                is_replacement: true,
                ..new_intent(view, MembershipChange::Remove(member))
            },
        )
    }

    /// Asks etcd for what was intended.
    fn with_intent(view: &ClusterView<'_>, intent: Intent) -> Self {
        let transfer_to = match intent.change {
            MembershipChange::Remove(serial) => view.transfer_target(serial),
            MembershipChange::Add(_)
            | MembershipChange::Promote(_)
            | MembershipChange::RemoveUnknown(_) => None,
        };
        Self::disruption(EtcdDisruption::ChangeMembership {
            from: view.identity.clone(),
            intent,
            transfer_to,
        })
    }
}

fn new_intent(view: &ClusterView<'_>, change: MembershipChange) -> Intent {
    let intent = Intent::new(change, view.voter_serials(), view.facts.now);
    Intent {
        unknown_voters: view.unknown_voters(),
        ..intent
    }
}

type Rule = fn(&ClusterView<'_>) -> RuleResult;

/// The order in which rules are asked, once there is an identity.
const RULES: [Rule; 21] = [
    objects::create_missing,
    identity::delete_old_epochs,
    bootstrap::start_seed,
    placement::free_node_for_voter,
    recreate::recreate_pods,
    recreate::delete_finished_pods,
    rollout::replace_idle_pods,
    quorum::check_quorum,
    intent::settle_intent,
    bootstrap::record_cluster,
    unknown_members::remove_unknown_members,
    replace::remove_lost_member,
    placement::remove_blocking_learner,
    cleanup::delete_removed_members,
    join::resume_joins,
    promote::promote_learner,
    add::add_member,
    finish_bootstrap::finish_bootstrap,
    shrink::remove_member,
    rollout::restart_outdated,
    snapshot::force_snapshot,
];

impl Engine for Etcd {
    type Facts = EtcdFacts;
    type Create = EtcdCreate;
    type Apply = EtcdApply;
    type Patch = EtcdPatch;
    type Disruption = EtcdDisruption;
    type Wait = EtcdWait;

    fn decide(facts: &EtcdFacts) -> Plan<Self> {
        let mut draft = PlanBuilder::default();
        draft.apply_rules(facts);
        draft.finish(facts)
    }
}

/// A plan in the making.
#[derive(Debug, Default)]
struct PlanBuilder {
    actions: Actions,
    waits: Vec<EtcdWait>,
    disruption: Option<EtcdDisruption>,
    creates: Vec<EtcdCreate>,
    /// When something is due that nobody waits for.
    next_due: Option<UnixTime>,
    /// Whether somebody is up by Kubernetes' word, and is yet to be heard.
    probe_pending: bool,
}

impl PlanBuilder {
    fn apply_rules(&mut self, facts: &EtcdFacts) {
        let view = match identity::identify(facts) {
            Ok(view) => view,
            Err(verdict) => {
                self.add(verdict);
                return;
            }
        };
        for rule in RULES {
            if self.add(rule(&view)) {
                break;
            }
        }
        if let Some(step) = self.disruption.take() {
            self.actions.disruption = Some(step);
        }
        self.actions
            .create
            .splice(..0, std::mem::take(&mut self.creates));
        // What disturbs nobody waits for nobody.
        bootstrap::prepare_members(&view, &mut self.actions);
        self.actions.patch.extend(join::set_joined_gates(&view));
        self.actions.patch.extend(join::record_versions(&view));
        self.actions
            .patch
            .extend(join::record_template_hashes(&view));
        self.actions.patch.extend(resize::resize_volumes(&view));
        self.actions.patch.extend(routing::route_clients(&view));
        self.actions.patch.extend(cleanup::record_removals(&view));
        self.probe_pending = view.listed().any(|member| {
            member
                .pod
                .is_some_and(|pod| pod.is_ready && !pod.is_terminating)
                && !member.is_serving()
        });
        self.next_due = next_due(&view);
        objects::correct_drift(&view, &mut self.actions);
    }

    /// Notes a verdict; says whether it was the last.
    fn add(&mut self, verdict: RuleResult) -> bool {
        match verdict {
            RuleResult::Act(want) => {
                self.actions = *want;
                true
            }
            RuleResult::Block(wait) => {
                self.waits.push(wait);
                true
            }
            RuleResult::Wait(wait) => {
                if !self.waits.contains(&wait) {
                    self.waits.push(wait);
                }
                false
            }
            RuleResult::DisruptAndContinue(step) => {
                self.disruption = Some(*step);
                false
            }
            RuleResult::CreateAndContinue(create) => {
                self.creates.extend(create);
                false
            }
            RuleResult::Pass => false,
        }
    }

    fn finish(self, facts: &EtcdFacts) -> Plan<Etcd> {
        let stays = facts.identity_owner != OwnedBy::PreviousResource;
        let sealed = stays
            && facts
                .identity
                .present()
                .is_some_and(|identity| identity.bootstrapped);
        // Whether clients are served is seen by asking only.
        let unasked = self.probe_pending || (sealed && !facts.client_read.is_present());
        let asked = if unasked {
            Requeue::Poll
        } else {
            Requeue::OnChange
        };
        // Nobody tells when a secret changes.
        let looked = facts
            .recheck_secrets_at
            .map_or(Requeue::OnChange, Requeue::At);
        let due = self.next_due.map_or(Requeue::OnChange, Requeue::At);
        let wake = self
            .waits
            .iter()
            .fold(asked.or(looked).or(due), |wake, wait| {
                wake.or(wait.requeue(facts))
            });
        let Actions {
            create,
            patch: mark,
            apply,
            disruption: step,
        } = self.actions;
        Plan {
            create,
            patch: mark,
            apply,
            disruption: step,
            waits: self.waits,
            requeue: wake,
        }
    }
}

/// When something is due of which only the clock tells.
pub(crate) fn next_deadline(facts: &EtcdFacts, plan: &Plan<Etcd>) -> Option<UnixTime> {
    let next = identity::identify(facts).ok().as_ref().and_then(next_due);
    // What people must put right is only looked at again.
    let by_hand = |wait: &EtcdWait| {
        matches!(
            wait,
            EtcdWait::Unreadable(_)
                | EtcdWait::NameConflict(_)
                | EtcdWait::CaMissing(_)
                | EtcdWait::PreviousResourceDeletion(_)
        )
    };
    let waits = plan.waits.iter().filter(|wait| !by_hand(wait));
    let waits = waits.filter_map(|wait| match wait.requeue(facts) {
        Requeue::At(time) => Some(time),
        Requeue::OnChange | Requeue::Poll => None,
    });
    waits.chain(next).filter(|time| *time > facts.now).min()
}

/// When the next thing is due that nobody waits for.
fn next_due(view: &ClusterView<'_>) -> Option<UnixTime> {
    let waited_for = replace::next_replacement(view).map(|(_, at)| at);
    let silent = bootstrap::seed_grace_ends(view).filter(|until| *until > view.facts.now);
    cleanup::next_deletion(view)
        .into_iter()
        .chain(waited_for)
        .chain(silent)
        .min()
}

impl EtcdWait {
    /// When to look again, beside on any change.
    fn requeue(&self, facts: &EtcdFacts) -> Requeue {
        match self {
            Self::BootstrapTimeout(until) => Requeue::At(*until),
            // Nobody tells that it takes too long.
            Self::PreviousResourceDeletion(until) if *until > facts.now => Requeue::At(*until),
            Self::PreviousResourceDeletion(_) => Requeue::OnChange,
            Self::OpenIntent(intent) => {
                Requeue::At(intent.recorded_at.after(intent::EXPIRES_AFTER))
            }
            // Secrets are not watched: whether one that is in the way has gone is seen by looking.
            Self::Unreadable(_) | Self::NameConflict(_) | Self::CaMissing(_) => {
                Requeue::At(facts.now.after(Duration::from_secs(10)))
            }
            Self::UnknownMembers(unknown_members) => {
                let unstarted = unknown_members
                    .iter()
                    .filter(|unknown| !unknown.has_started);
                let first = unstarted
                    .map(|unknown| unknown.first_seen.after(facts.cluster.replace_after))
                    .min();
                first.map_or(Requeue::OnChange, Requeue::At)
            }
            Self::ReplacementLimit(_, until) | Self::MaintenanceWindow(until) => {
                Requeue::At(*until)
            }
            // etcd's own state changes without an event in Kubernetes.
            Self::SeedStart(_)
            | Self::MemberJoin(_)
            | Self::LearnerCatchUp(_)
            | Self::UnsafeToAdd
            | Self::ReplacementJoin(_)
            | Self::UnhealthyMember(_)
            | Self::SnapshotBlocked(_) => Requeue::Poll,
            // The prober asks from time to time, and tells when an answer changes.
            Self::Paused
            | Self::InconsistentObjects
            | Self::DataLost(_)
            | Self::OldEpochDeletion
            | Self::NoQuorum
            | Self::TooFewVoters
            | Self::VolumeResize(_)
            | Self::VersionMismatch(..) => Requeue::OnChange,
        }
    }
}

#[cfg(test)]
#[path = "bootstrap_tests.rs"]
mod bootstrap_tests;

#[cfg(test)]
#[path = "replace_tests.rs"]
mod replace_tests;

#[cfg(test)]
#[path = "placement_tests.rs"]
mod placement_tests;

#[cfg(test)]
#[path = "rollout_tests.rs"]
mod rollout_tests;
