//! Explanations of whole plans, for the decision log and the preview.

use evenkeel_runtime::{Explanation, Plan};

use super::messages;
use crate::actions::{ActionContext, etcd_action};
use crate::decide::Etcd;
use crate::facts::EtcdFacts;
use crate::observe::ObservedCluster;
use crate::view::ClusterView;

/// Explains a plan for the decision log.
pub fn explain(observed: &ObservedCluster, facts: &EtcdFacts, plan: &Plan<Etcd>) -> Explanation {
    let view = ClusterView::from_facts(facts);
    let context = ActionContext::new(observed, facts, view.as_ref());
    let mut reasons: Vec<String> = Vec::new();
    for action in plan.actions() {
        let reason = etcd_action(&action).reason(&context);
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    let actions = plan.actions();
    Explanation {
        actions: actions
            .map(|action| etcd_action(&action).describe(&context))
            .collect(),
        reasons,
        waits: describe_waits(&context, plan),
    }
}

/// The description of one action of a plan.
pub(crate) struct ActionSummary {
    pub(crate) name: &'static str,
    pub(crate) description: String,
    pub(crate) reason: String,
    pub(crate) is_bookkeeping: bool,
}

/// Describes each action of a plan.
pub(crate) fn describe_actions(
    observed: &ObservedCluster,
    facts: &EtcdFacts,
    plan: &Plan<Etcd>,
) -> Vec<ActionSummary> {
    let view = ClusterView::from_facts(facts);
    let context = ActionContext::new(observed, facts, view.as_ref());
    plan.actions()
        .map(|action| {
            let action = etcd_action(&action);
            ActionSummary {
                name: action.name(),
                description: action.describe(&context),
                reason: action.reason(&context),
                is_bookkeeping: action.is_bookkeeping(),
            }
        })
        .collect()
}

/// The state of a cluster whose plan is a no-op.
pub(crate) struct IdleState {
    pub(crate) summary: String,
    pub(crate) waits: Vec<String>,
}

/// Describes the state in which a plan is a no-op.
pub(crate) fn describe_idle(
    observed: &ObservedCluster,
    facts: &EtcdFacts,
    plan: &Plan<Etcd>,
) -> IdleState {
    let view = ClusterView::from_facts(facts);
    let context = ActionContext::new(observed, facts, view.as_ref());
    IdleState {
        summary: messages::summary(&context, plan),
        waits: describe_waits(&context, plan),
    }
}

fn describe_waits(context: &ActionContext<'_>, plan: &Plan<Etcd>) -> Vec<String> {
    let waits = plan.waits.iter();
    waits.map(|wait| wait.describe(context)).collect()
}

#[cfg(test)]
#[path = "reasons_tests.rs"]
mod tests;
