//! Decisions: a plan from the facts alone. The rules are asked in a fixed order; the first that
//! acts wins, and the others state the waits that block them.

mod add;
mod bootstrap;
mod cleanup;
mod finish_bootstrap;
mod identity;
mod in_place;
pub(crate) mod intent;
mod join;
mod nudge;
mod objects;
mod placement;
mod promote;
mod quorum;
mod recreate;
pub(crate) mod replace;
mod resize;
mod restore;
mod rollout;
mod routing;
mod shrink;
mod snapshot;
mod unknown_members;

use evenkeel_kit::rules::{self, PlanBuilder};
use evenkeel_runtime::{Engine, Plan, Requeue, UnixTime};
use serde::{Deserialize, Serialize};

use crate::facts::{EtcdFacts, OwnedBy};
use crate::identity::{Identity, Intent, MembershipChange};
use crate::names::Serial;
use crate::plan::{EtcdApply, EtcdCreate, EtcdDisruption, EtcdPatch, EtcdWait, IdentityChange};
use crate::view::{ClusterView, MemberView};

/// The etcd engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Etcd;

/// The result of a rule.
type RuleResult = rules::RuleResult<Etcd>;
/// The actions of a plan.
type Actions = rules::Actions<Etcd>;

/// Replaces the identity by the result of `change`.
fn update_identity(
    identity: &Identity,
    why: IdentityChange,
    change: impl FnOnce(&mut Identity),
) -> RuleResult {
    let mut to = identity.clone();
    change(&mut to);
    RuleResult::disruption(EtcdDisruption::UpdateIdentity {
        from: identity.clone(),
        to,
        why,
    })
}

/// Asks etcd for a membership change.
fn change_membership(view: &ClusterView<'_>, change: MembershipChange) -> RuleResult {
    with_intent(view, new_intent(view, change))
}

/// Asks etcd to remove a member that might have come back. The removal counts towards the limit
/// of replacements.
fn replace_member(view: &ClusterView<'_>, member: Serial) -> RuleResult {
    with_intent(
        view,
        Intent {
            is_replacement: true,
            ..new_intent(view, MembershipChange::Remove(member))
        },
    )
}

/// Asks etcd for the change of an intent.
fn with_intent(view: &ClusterView<'_>, intent: Intent) -> RuleResult {
    let transfer_to = match intent.change {
        MembershipChange::Remove(serial) => view.transfer_target(serial),
        MembershipChange::Add(_)
        | MembershipChange::Promote(_)
        | MembershipChange::RemoveUnknown(_) => None,
    };
    RuleResult::disruption(EtcdDisruption::ChangeMembership {
        from: view.identity.clone(),
        intent,
        transfer_to,
    })
}

fn new_intent(view: &ClusterView<'_>, change: MembershipChange) -> Intent {
    let intent = Intent::new(change, view.voter_serials(), view.facts.now);
    Intent {
        unknown_voters: view.unknown_voters(),
        ..intent
    }
}

type Rule = fn(&ClusterView<'_>) -> RuleResult;

/// The rules in the order in which they are asked, once there is an identity.
const RULES: [Rule; 25] = [
    objects::create_missing,
    restore::delete_unneeded_pods,
    identity::delete_old_epochs,
    in_place::record_replaced,
    bootstrap::start_seed,
    placement::free_node_for_voter,
    recreate::recreate_pods,
    recreate::release_pods,
    recreate::delete_finished_pods,
    rollout::replace_idle_pods,
    in_place::replace_cluster,
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
        let mut builder = PlanBuilder::default();
        match identity::identify(facts) {
            Ok(view) => apply_rules(&view, &mut builder),
            Err(result) => {
                builder.add(result);
            }
        }
        if !client_read_is_known(facts) {
            builder.requeue(Requeue::Poll);
        }
        // Secrets are not watched.
        if let Some(time) = facts.recheck_secrets_at {
            builder.requeue(Requeue::At(time));
        }
        builder.finish(|wait| wait.requeue(facts))
    }
}

fn apply_rules(view: &ClusterView<'_>, builder: &mut PlanBuilder<Etcd>) {
    builder.ask(view, &RULES);
    // Changes that disturb no client are added to every plan, whichever rule has won.
    let actions = builder.actions();
    bootstrap::prepare_members(view, actions);
    actions.patch.extend(join::set_joined_gates(view));
    actions.patch.extend(join::record_versions(view));
    actions.patch.extend(join::record_template_hashes(view));
    actions.patch.extend(resize::resize_volumes(view));
    actions.patch.extend(routing::route_clients(view));
    actions.patch.extend(cleanup::record_removals(view));
    actions.patch.extend(nudge::nudge_stuck_member(view));
    objects::correct_drift(view, actions);
    // Only a probe shows whether a member serves.
    let is_starting = |member: &MemberView<'_>| {
        member
            .pod
            .is_some_and(|pod| pod.is_ready && !pod.is_terminating)
            && !member.is_serving()
    };
    if view.listed().any(is_starting) {
        builder.requeue(Requeue::Poll);
    }
    if let Some(time) = next_due(view) {
        builder.requeue(Requeue::At(time));
    }
}

/// Returns false if only a probe shows whether clients are served.
fn client_read_is_known(facts: &EtcdFacts) -> bool {
    let is_bootstrapped = facts.identity_owner != OwnedBy::PreviousResource
        && facts
            .identity
            .present()
            .is_some_and(|identity| identity.bootstrapped);
    !is_bootstrapped || facts.client_read.is_present()
}

/// Returns the next time at which the clock alone changes the decision.
pub(crate) fn next_deadline(facts: &EtcdFacts, plan: &Plan<Etcd>) -> Option<UnixTime> {
    let due = identity::identify(facts).ok().as_ref().and_then(next_due);
    let waits = plan.waits.iter().filter_map(|wait| wait.deadline(facts));
    waits.chain(due).filter(|time| *time > facts.now).min()
}

/// Returns the next deadline that no wait contains.
fn next_due(view: &ClusterView<'_>) -> Option<UnixTime> {
    let deletion = cleanup::next_deletion(view);
    let replacement = replace::next_replacement(view).map(|pending| pending.deadline);
    let seed_grace = bootstrap::seed_grace_ends(view).filter(|until| *until > view.facts.now);
    let nudge = nudge::next_nudge(view);
    let seed_failure = bootstrap::restored_seed_fails_at(view).filter(|at| *at > view.facts.now);
    [deletion, replacement, seed_grace, nudge, seed_failure]
        .into_iter()
        .flatten()
        .min()
}

#[cfg(test)]
#[path = "bootstrap_tests.rs"]
mod bootstrap_tests;

#[cfg(test)]
#[path = "restore_tests.rs"]
mod restore_tests;

#[cfg(test)]
#[path = "replace_tests.rs"]
mod replace_tests;

#[cfg(test)]
#[path = "ownership_tests.rs"]
mod ownership_tests;

#[cfg(test)]
#[path = "drained_tests.rs"]
mod drained_tests;

#[cfg(test)]
#[path = "placement_tests.rs"]
mod placement_tests;

#[cfg(test)]
#[path = "rollout_tests.rs"]
mod rollout_tests;
