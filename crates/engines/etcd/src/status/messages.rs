//! The short texts of a status: the summary, the current action and the message of each member.

use evenkeel_runtime::{Action, Observed, Plan};

use super::rollout::RolloutProgress;
use crate::actions::{ActionContext, etcd_action, format_duration, responding_voters};
use crate::decide::{Etcd, replace};
use crate::facts::{OwnedObject, StartMode, WindowWait};
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
            summarize_no_quorum(view)
        }
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
    let problem = view.members.values().find_map(|member| {
        let problem = short_problem(view, member)?;
        Some(format!(": {}: {problem}", context.member(member.serial)))
    });
    format!(
        "Bootstrapping {serving} of {desired}{}",
        problem.unwrap_or_default()
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
        let problem = short_problem_suffix(view, learner);
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
        let problem = short_problem_suffix(view, member);
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
    let rollout = RolloutProgress::of(view)?;
    let wait = view.facts.cluster.disruption.wait(view.facts.now);
    if let Some(WindowWait::Opens(opens)) = wait
        && view.listed().all(MemberView::is_serving)
    {
        return Some(rollout.summarize_window(opens));
    }
    let mut down = view.listed().filter(|member| !member.is_serving());
    let problem = down.find_map(|member| {
        let problem = short_problem(view, member)?;
        Some(format!(": {}: {problem}", context.member(member.serial)))
    });
    Some(format!(
        "{}{}",
        rollout.summarize(),
        problem.unwrap_or_default()
    ))
}

/// Returns the problem of a member's pod, cut to the first sentence and to [`MAX_PROBLEM_CHARS`].
fn short_problem(view: &ClusterView<'_>, member: &MemberView<'_>) -> Option<String> {
    let details = view.facts.details.get(&member.serial)?;
    let first_line = details.pod_problem.as_ref()?.lines().next();
    // Dots within words, as in the name of an image, do not end a sentence.
    let sentence = first_line.unwrap_or_default().split(". ").next();
    let sentence = sentence.unwrap_or_default().trim_end_matches('.');
    if sentence.chars().count() <= MAX_PROBLEM_CHARS {
        return Some(sentence.to_owned());
    }
    let cut = sentence.chars().take(MAX_PROBLEM_CHARS - 1);
    Some(cut.chain(['…']).collect())
}

fn short_problem_suffix(view: &ClusterView<'_>, member: &MemberView<'_>) -> String {
    match short_problem(view, member) {
        Some(problem) => format!(": {problem}"),
        None => String::new(),
    }
}

/// Returns the message of a member in the member list.
pub(super) fn member_message(member: &MemberView<'_>, pod_problem: Option<String>) -> String {
    if member.data == DataState::Lost {
        return "data is lost; the member is being replaced".to_owned();
    }
    if let Some(problem) = pod_problem {
        return problem;
    }
    let message = match member.pod {
        None => "pod does not exist",
        Some(pod) if pod.is_terminating => "pod is Terminating",
        Some(pod) if pod.is_finished => "pod has terminated",
        Some(pod) if pod.start_mode == StartMode::Held => "etcd is not started yet",
        Some(_) if member.health.is_none() => "etcd does not respond",
        Some(_) => "",
    };
    message.to_owned()
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

/// Describes the replacement of an unreachable member that may still come back.
pub(super) fn pending_replacement(context: &ActionContext<'_>) -> Option<String> {
    let view = context.view?;
    let next = replace::next_replacement(view)?;
    let after = format_duration(view.replace_after(view.members.get(&next.serial)?));
    Some(format!(
        "operator replaces member {} unless it responds within {after}",
        context.member(next.serial)
    ))
}

#[cfg(test)]
#[path = "messages_tests.rs"]
mod tests;
