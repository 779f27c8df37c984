//! Events about the state of a cluster: a warning for each problem, and the end of problems. The events of actions are in
//! [`crate::actions`].

use std::time::Duration;

use evenkeel_api::conditions::{ConditionStatus, ConditionType};
use evenkeel_api::{EtcdClusterStatus, ProblemStatus};
use evenkeel_runtime::{EventSpec, Observed, Plan, UnixTime};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::problem::problems;
use super::{invalid_spec, progressing, ready};
use crate::actions::{ActionContext, format_duration};
use crate::decide::Etcd;
use crate::facts::EtcdFacts;
use crate::observe::ObservedCluster;
use crate::view::ClusterView;

/// The `action` field of these events.
const EVENT_ACTION: &str = "Reconcile";

/// Returns a warning for each problem and for a rejected spec, and an event for each member and for the cluster when they
/// have recovered from a problem that the last status reports.
pub fn state_events(
    observed: &ObservedCluster,
    facts: &EtcdFacts,
    plan: &Plan<Etcd>,
) -> Vec<EventSpec> {
    let view = ClusterView::from_facts(facts);
    let context = ActionContext::new(observed, facts, view.as_ref());
    let rejection = observed.rejection.as_ref().map(invalid_spec);
    let progress = progressing(&context, plan);
    let warnings = problems(&context, plan, progress)
        .into_iter()
        .chain(rejection)
        .map(|problem| EventSpec::warning(problem.reason.as_str(), EVENT_ACTION, problem.text()));
    let mut events: Vec<_> = warnings.collect();
    if let Some(last) = &observed.resource.status {
        events.extend(recovered_members(&context, last));
        events.extend(recovered_cluster(&context, last));
    }
    events
}

/// Returns an event for each member that serves again and had a problem in the last status.
fn recovered_members(context: &ActionContext<'_>, last: &EtcdClusterStatus) -> Vec<EventSpec> {
    let serving = context
        .view
        .into_iter()
        .flat_map(ClusterView::listed)
        .filter(|member| member.is_serving())
        .map(|member| context.member(member.serial));
    let recovered = serving.filter_map(|name| {
        let had_problem = |problem: &&ProblemStatus| problem.member == name;
        let problem = last.problems.iter().find(had_problem)?;
        let duration = elapsed(context, &problem.since);
        Some(EventSpec::normal(
            "MemberRecovered",
            EVENT_ACTION,
            format!("Member {name} is healthy again after {duration}"),
        ))
    });
    recovered.collect()
}

/// Returns an event if clients are served again. A cluster that has never been ready does not recover.
fn recovered_cluster(context: &ActionContext<'_>, last: &EtcdClusterStatus) -> Option<EventSpec> {
    let mut conditions = last.conditions.iter();
    let last_ready = conditions.find(|condition| {
        condition.type_ == ConditionType::Ready.to_string()
            && condition.status == ConditionStatus::False.to_string()
    })?;
    let was_bootstrapped = !last.cluster_id.is_empty();
    let is_ready = matches!(context.facts.client_read, Observed::Present(()))
        && ready(context).status == ConditionStatus::True;
    if !was_bootstrapped || !is_ready {
        return None;
    }
    let duration = elapsed(context, &last_ready.last_transition_time);
    Some(EventSpec::normal(
        "ClusterRecovered",
        EVENT_ACTION,
        format!("Clients can read and write again after {duration}"),
    ))
}

/// Returns the time since a time in the last status, such as 52s.
fn elapsed(context: &ActionContext<'_>, since: &Time) -> String {
    let elapsed: Duration = context.facts.now.since(UnixTime(since.0.as_second()));
    format_duration(elapsed)
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
