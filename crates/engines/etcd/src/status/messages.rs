//! The short texts of a status: the summary, the current action and the message of each member.

use evenkeel_api::NextActionStatus;
use evenkeel_runtime::{Action, Observed, Plan};

use super::restore;
use super::rollout::{self, RolloutProgress};
use super::{cause, to_time};
use crate::actions::{ActionContext, etcd_action, responding_voters};
use crate::availability::Alarm;
use crate::decide::{Etcd, replace};
use crate::facts::{OwnedObject, WindowWait};
use crate::plan::EtcdWait;
use crate::view::{ClusterView, DataState, MemberView};

/// The summary of a cluster without problems.
pub(super) const HEALTHY: &str = "Healthy";

/// The summary of a cluster whose objects cannot be read.
pub(super) const CANNOT_READ: &str = "Operator cannot read the objects of the cluster";

/// The length to which the summary cuts a message from Kubernetes, in characters.
const MAX_PROBLEM_CHARS: usize = 80;

/// Summarizes the current action or the state of the cluster in a few words.
pub(super) fn summary(context: &ActionContext<'_>, plan: &Plan<Etcd>) -> String {
    summarize(context, plan).unwrap_or_else(|| HEALTHY.to_owned())
}

/// Summarizes the current action or the state of the cluster; `None` if it is healthy.
pub(super) fn summarize(context: &ActionContext<'_>, plan: &Plan<Etcd>) -> Option<String> {
    let facts = context.facts;
    if facts.cluster.is_deleted {
        return Some("Deleting".to_owned());
    }
    let summary = match (context.view, plan.waits.first()) {
        (Some(view), Some(EtcdWait::Paused))
            if view.identity.bootstrapped && !view.membership_known =>
        {
            format!("Paused. {}", summarize_no_quorum(view))
        }
        (_, Some(EtcdWait::Paused)) => "Paused".to_owned(),
        (_, Some(EtcdWait::Unreadable(_))) => CANNOT_READ.to_owned(),
        (_, Some(EtcdWait::InconsistentObjects)) => {
            "PersistentVolumeClaims and pods are inconsistent".to_owned()
        }
        (_, Some(EtcdWait::DataLost(_))) => "All data is lost".to_owned(),
        (_, Some(EtcdWait::PreviousResourceDeletion(_))) => {
            "Waiting for the previous cluster to be deleted".to_owned()
        }
        // A lost quorum comes before every wait that a user has to end.
        (Some(view), _) if view.identity.bootstrapped && !view.membership_known => {
            let rollout = RolloutProgress::of(context, view);
            let rollout = rollout.filter(|_| rollout::is_planned_outage(context));
            rollout.map_or_else(|| summarize_no_quorum(view), RolloutProgress::summarize)
        }
        _ if facts.alarms.contains(&Alarm::Corrupt) => {
            "Data corrupt: requests are rejected".to_owned()
        }
        _ if facts.alarms.contains(&Alarm::NoSpace) => "No space: writes are rejected".to_owned(),
        (_, Some(EtcdWait::NameConflict(object))) => {
            format!("Name conflict: {}", context.object(*object))
        }
        (_, Some(EtcdWait::CaMissing(object))) => {
            format!("CA missing or invalid: {}", context.object(*object))
        }
        (_, Some(EtcdWait::UnknownMembers(unknown))) => {
            format!("Unknown members in etcd: {}", unknown.len())
        }
        (Some(view), _) if !view.identity.bootstrapped => summarize_bootstrap(context, view),
        (Some(view), _) => return summarize_running(context, view),
        (None, _) if !facts.lineages.is_empty() => {
            format!("Rebuilding {}", context.object(OwnedObject::Identity))
        }
        (None, _) => "Creating".to_owned(),
    };
    Some(summary)
}

fn summarize_bootstrap(context: &ActionContext<'_>, view: &ClusterView<'_>) -> String {
    let serving = view.listed().filter(|member| member.is_serving()).count();
    let desired = context.facts.cluster.members;
    let verb = if restore::is_replacing(context) {
        "Restoring"
    } else {
        "Bootstrapping"
    };
    format!(
        "{verb} {serving} of {desired}{}",
        pod_problem(context, view, view.members.values())
    )
}

fn summarize_no_quorum(view: &ClusterView<'_>) -> String {
    let members = view.members.values();
    let reachable = members.filter(|member| member.health.is_some()).count();
    match view.members.len() {
        0 => "All pods and PersistentVolumeClaims are gone".to_owned(),
        all if reachable == all => {
            format!(
                "Quorum lost: {}, but have no leader",
                responding_voters(view)
            )
        }
        _ => format!("Quorum lost: {}", responding_voters(view)),
    }
}

fn summarize_running(context: &ActionContext<'_>, view: &ClusterView<'_>) -> Option<String> {
    if let Some(member) = view.listed().find(|member| member.data == DataState::Lost) {
        return Some(format!(
            "Replacing {}: its data is lost",
            context.member(member.serial)
        ));
    }
    if let Some(rollout) = summarize_rollout(context, view) {
        return Some(rollout);
    }
    let all_serve = view.listed().all(MemberView::is_serving);
    if let Some(next) = context.facts.cluster.next_version
        && all_serve
    {
        return Some(format!("Preparing upgrade to {next}: snapshotting members"));
    }
    if let Some(learner) = view.learners().next() {
        let problem = cause_suffix(context, view, learner);
        return Some(format!(
            "Joining {}{problem}",
            context.member(learner.serial)
        ));
    }
    let listed = view.listed().count();
    let desired = usize::from(context.facts.cluster.members);
    if listed < desired {
        return Some(format!("Adding a member: {listed} of {desired}"));
    }
    if listed > desired {
        return Some(format!(
            "Removing a member: {listed} exist, {desired} desired"
        ));
    }
    if let Some(member) = view.listed().find(|member| !member.is_serving()) {
        let problem = cause_suffix(context, view, member);
        return Some(format!(
            "Recovering {}{problem}",
            context.member(member.serial)
        ));
    }
    match context.facts.client_read {
        Observed::Present(()) => None,
        Observed::Absent => Some("Not serving".to_owned()),
        Observed::Unknown => {
            Some("All members are healthy, client access is not checked yet".to_owned())
        }
    }
}

/// Summarizes the progress of a rollout, and the problem of the member that blocks it.
fn summarize_rollout(context: &ActionContext<'_>, view: &ClusterView<'_>) -> Option<String> {
    let rollout = RolloutProgress::of(context, view)?;
    let wait = view.facts.cluster.disruption.wait(view.facts.now);
    if let Some(WindowWait::Opens(opens)) = wait
        && view.listed().all(MemberView::is_serving)
    {
        return Some(rollout.summarize_window(opens));
    }
    let down = view.listed().filter(|member| !member.is_serving());
    Some(format!(
        "{}{}",
        rollout.summarize(),
        pod_problem(context, view, down)
    ))
}

/// Returns name and cause of the first of these members whose node or pod reports a problem, after a colon; empty if none
/// does.
fn pod_problem<'v>(
    context: &ActionContext<'_>,
    view: &ClusterView<'_>,
    mut members: impl Iterator<Item = &'v MemberView<'v>>,
) -> String {
    let problem = members.find_map(|member| {
        let cause = reported_cause(context, view, member)?;
        Some(format!(": {}: {cause}", context.member(member.serial)))
    });
    problem.unwrap_or_default()
}

/// Returns the cause for which a member does not serve, if its node or its pod reports one, cut to the first sentence and
/// to [`MAX_PROBLEM_CHARS`].
fn reported_cause(
    context: &ActionContext<'_>,
    view: &ClusterView<'_>,
    member: &MemberView<'_>,
) -> Option<String> {
    let details = view.facts.details.get(&member.serial)?;
    if details.pod_problem.is_none() && details.node_problem.is_none() {
        return None;
    }
    let cause = cause::of(context, view, member).text;
    let first_line = cause.lines().next();
    // Dots within words, as in the name of an image, do not end a sentence.
    let sentence = first_line.unwrap_or_default().split(". ").next();
    let sentence = sentence.unwrap_or_default().trim_end_matches('.');
    if sentence.chars().count() <= MAX_PROBLEM_CHARS {
        return Some(sentence.to_owned());
    }
    let cut = sentence.chars().take(MAX_PROBLEM_CHARS - 1);
    Some(cut.chain(['…']).collect())
}

fn cause_suffix(
    context: &ActionContext<'_>,
    view: &ClusterView<'_>,
    member: &MemberView<'_>,
) -> String {
    match reported_cause(context, view, member) {
        Some(problem) => format!(": {problem}"),
        None => String::new(),
    }
}

/// Returns the message of a member in the member list; empty for a member that serves from a pod that stays.
pub(super) fn member_message(
    context: &ActionContext<'_>,
    view: &ClusterView<'_>,
    member: &MemberView<'_>,
) -> String {
    if member.is_serving() {
        return String::new();
    }
    cause::of(context, view, member).text
}

/// Describes the main action of a plan; empty if the plan is a no-op.
pub(super) fn current_action(context: &ActionContext<'_>, plan: &Plan<Etcd>) -> String {
    match main_action(plan) {
        Some(action) => etcd_action(&action).describe(context),
        None => String::new(),
    }
}

/// Returns the reason for the main action of a plan; empty if the plan is a no-op.
pub(super) fn current_reason(context: &ActionContext<'_>, plan: &Plan<Etcd>) -> String {
    main_action(plan)
        .map(|action| etcd_action(&action).reason(context))
        .unwrap_or_default()
}

/// Returns the action that the status reports: the most disruptive one.
fn main_action(plan: &Plan<Etcd>) -> Option<Action<'_, Etcd>> {
    let disruption = plan.disruption.as_ref().map(Action::Disruption);
    let create = plan.create.first().map(Action::Create);
    let apply = plan.apply.first().map(Action::Apply);
    let patch = plan.patch.first().map(Action::Patch);
    disruption.or(create).or(apply).or(patch)
}

/// Returns the action that follows the waits of a plan, or the replacement of a member that may still recover.
pub(super) fn next_action(
    context: &ActionContext<'_>,
    plan: &Plan<Etcd>,
) -> Option<NextActionStatus> {
    let of_wait = plan.waits.iter().find_map(|wait| {
        let deadline = wait.deadline(context.facts);
        Some(NextActionStatus {
            message: wait.next_step(context)?,
            time: deadline.map(to_time),
        })
    });
    pending_replacement(context).or(of_wait)
}

/// Describes the replacement of an unreachable or crashing member that may still recover.
fn pending_replacement(context: &ActionContext<'_>) -> Option<NextActionStatus> {
    let view = context.view?;
    let next = replace::next_replacement(view)?;
    let member = view.members.get(&next.serial)?;
    let details = view.facts.details.get(&next.serial);
    if rollout::is_harmless_restart(context, view, member)
        && !details.is_some_and(|details| details.is_drained)
    {
        return None;
    }
    Some(NextActionStatus {
        message: format!(
            "operator replaces member {} unless it recovers",
            context.member(next.serial)
        ),
        time: Some(to_time(next.deadline)),
    })
}

#[cfg(test)]
#[path = "messages_tests.rs"]
mod tests;
