//! Events about problems that a user has to solve. The events of actions are in [`crate::actions`].

use evenkeel_api::conditions::Reason;
use evenkeel_runtime::{EventSpec, Plan};

use super::conditions::{Problem, member_problem};
use crate::actions::ActionContext;
use crate::decide::Etcd;
use crate::facts::EtcdFacts;
use crate::observe::ObservedCluster;
use crate::view::ClusterView;

/// Returns a warning for each wait that degrades the cluster, for a rejected spec and for a member
/// that is down.
pub fn warning_events(
    observed: &ObservedCluster,
    facts: &EtcdFacts,
    plan: &Plan<Etcd>,
) -> Vec<EventSpec> {
    let view = ClusterView::from_facts(facts);
    let context = ActionContext::new(observed, facts, view.as_ref());
    let waits = plan.waits.iter();
    let waits = waits.filter_map(|wait| Problem::of_wait(&context, wait));
    let rejection = observed.rejection.as_ref().map(|rejection| Problem {
        reason: Reason::InvalidSpec,
        message: super::rejection_message(rejection),
    });
    waits
        .chain(rejection)
        .chain(member_problem(&context))
        .map(|problem| EventSpec::warning(problem.reason.as_str(), "Reconcile", problem.message))
        .collect()
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
