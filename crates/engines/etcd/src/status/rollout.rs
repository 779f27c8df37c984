//! The progress of a rollout, members that restart, and a member that does not come back from its restart.

use evenkeel_api::conditions::Reason;
use evenkeel_api::{NodeProblem, OperationStatus, OperationType};
use evenkeel_kit::pods::PodRestart;
use evenkeel_runtime::UnixTime;

use super::{cause, restore};
use crate::actions::{ActionContext, sentence};
use crate::view::{ClusterView, DataState, MemberView};

/// The number of desired members up to which every restart costs the quorum.
const MAX_MEMBERS_WITHOUT_REDUNDANCY: u8 = 2;

/// How many members of a rollout are up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RolloutProgress {
    /// Upgrade, Restart or Update.
    pub(super) operation: OperationType,
    /// The number of members that are up to date and healthy.
    pub(super) completed: usize,
    /// The number of voters.
    pub(super) total: usize,
    /// Whether the leader is still to be restarted, after others.
    leader_last: bool,
}

impl RolloutProgress {
    /// Returns the progress; `None` if no member is outdated and none returns from the last restart of a rollout.
    pub(super) fn of(context: &ActionContext<'_>, view: &ClusterView<'_>) -> Option<Self> {
        if !view.identity.bootstrapped {
            return None;
        }
        Self::of_outdated(view).or_else(|| Self::of_last_member(context, view))
    }

    fn of_outdated(view: &ClusterView<'_>) -> Option<Self> {
        let is_outdated = |member: &&MemberView<'_>| view.is_outdated_or_misplaced(member);
        let outdated: Vec<_> = view.voters().filter(is_outdated).collect();
        if outdated.is_empty() {
            return None;
        }
        let up_to_date = view
            .voters()
            .filter(|member| member.is_serving() && !is_outdated(member));
        let desired = view.facts.cluster.version;
        let changes_version = view.voters().any(|member| {
            let version = member.pod.and_then(|pod| pod.version);
            version.is_some_and(|version| version != desired)
        });
        let changes_template = outdated.iter().any(|member| {
            let hash = member.pod.and_then(|pod| pod.template_hash);
            hash.is_some_and(|hash| hash != view.facts.cluster.pod_template_hash)
        });
        let operation = if changes_version {
            OperationType::Upgrade
        } else if changes_template || outdated.iter().any(|member| view.must_be_replaced(member)) {
            OperationType::Update
        } else {
            OperationType::Restart
        };
        Some(Self {
            operation,
            completed: up_to_date.count(),
            total: view.voters().count(),
            leader_last: outdated.len() > 1 && outdated.iter().any(|member| member.is_leader()),
        })
    }

    /// Returns the progress while the member that a rollout has restarted last is not back.
    fn of_last_member(context: &ActionContext<'_>, view: &ClusterView<'_>) -> Option<Self> {
        let last = last_rollout(context)?;
        // Without etcd's list every known member counts.
        let members: Vec<_> = if view.membership_known {
            view.voters().collect()
        } else {
            view.members.values().collect()
        };
        let down = || members.iter().filter(|member| !has_returned(member));
        if down().count() == 0 || !down().all(|member| is_restarting(view, member)) {
            return None;
        }
        Some(Self {
            operation: last.r#type,
            completed: members.len() - down().count(),
            total: members.len(),
            leader_last: false,
        })
    }

    /// Returns the reason of the Progressing condition.
    pub(super) fn reason(self) -> Reason {
        if self.operation == OperationType::Upgrade {
            Reason::Upgrading
        } else {
            Reason::Updating
        }
    }

    /// Summarizes that the rollout waits for a maintenance window.
    pub(super) fn summarize_window(self, opens: UnixTime) -> String {
        let opens = jiff::Timestamp::from_second(opens.0).unwrap_or_default();
        format!(
            "{:?} waits for maintenance window at {opens}",
            self.operation
        )
    }

    /// Summarizes the progress, with the member that is being restarted.
    pub(super) fn summarize(self) -> String {
        let kind = match self.operation {
            OperationType::Upgrade => "Upgrading",
            OperationType::Restart => "Restarting",
            _ => "Updating",
        };
        let leader_last = if self.leader_last {
            ", leader last"
        } else {
            ""
        };
        let current = (self.completed + 1).min(self.total);
        format!("{kind} {current} of {}{leader_last}", self.total)
    }
}

/// Returns true if a member has returned from a restart: it serves, its pod is Ready, and clients are routed to it.
pub(super) fn has_returned(member: &MemberView<'_>) -> bool {
    member.is_serving() && member.pod.is_some_and(|pod| pod.is_ready && pod.is_routed)
}

/// Returns the operation in the last status, if it was a rollout.
fn last_rollout<'c>(context: &ActionContext<'c>) -> Option<&'c OperationStatus> {
    let status = context.observed.resource.status.as_ref()?;
    status.operation.as_ref().filter(|operation| {
        matches!(
            operation.r#type,
            OperationType::Upgrade | OperationType::Restart | OperationType::Update
        )
    })
}

/// Returns true if a rollout restarts a cluster of one or two members, or the undo of a restore starts all members, so that
/// clients are not served meanwhile. An event announced it.
pub(super) fn is_planned_outage(context: &ActionContext<'_>) -> bool {
    let Some(view) = context.view else {
        return false;
    };
    let is_rollout = view.facts.cluster.members <= MAX_MEMBERS_WITHOUT_REDUNDANCY
        && last_rollout(context).is_some();
    view.identity.bootstrapped
        && !view.members.is_empty()
        && (is_rollout || restore::is_replacing(context))
        && view
            .members
            .values()
            .all(|member| member.health.is_some() || is_restarting(view, member))
}

/// Returns true if a member that does not serve was restarted within the last minute, by a rollout, a drain or a deleted
/// pod, has not been Ready since, and neither its pod nor its node reports a problem: Kubernetes and the operator bring it
/// back within seconds. A member that waits for the end of a drain is restarting until it is replaced.
pub(super) fn is_restarting(view: &ClusterView<'_>, member: &MemberView<'_>) -> bool {
    // A paused operator does not recreate the pod, and a member without data is replaced.
    if view.facts.cluster.is_paused || member.data == DataState::Lost {
        return false;
    }
    let details = view.facts.details.get(&member.serial);
    if details.is_some_and(|details| details.is_drained) {
        return true;
    }
    let has_problem = details.is_some_and(|details| {
        let node = details.node_problem.map(|trouble| trouble.problem);
        let is_node_down = node.is_some_and(|problem| problem != NodeProblem::Cordoned);
        details.pod_problem.is_some() || is_node_down
    });
    let Some(pod) = member.pod else {
        // The operator recreates the pod in this pass.
        return !has_problem;
    };
    let now = view.facts.now;
    let restart = PodRestart {
        created_at: pod.created_at,
        scheduled_at: details.and_then(|details| details.scheduled_at),
        terminating_since: pod.is_terminating.then(|| {
            let since = details.and_then(|details| details.terminating_since);
            since.unwrap_or(now)
        }),
        has_been_ready: details.is_some_and(|details| details.has_been_ready),
    };
    !has_problem && restart.is_in_progress(now)
}

/// Returns true if a member that does not serve is no problem because it is restarting. A member that had a problem before
/// its restart has it until it serves.
pub(super) fn is_harmless_restart(
    context: &ActionContext<'_>,
    view: &ClusterView<'_>,
    member: &MemberView<'_>,
) -> bool {
    is_restarting(view, member) && !had_problem(context, member)
}

/// Returns true if the last status reports a problem of a member.
pub(super) fn had_problem(context: &ActionContext<'_>, member: &MemberView<'_>) -> bool {
    let name = context.member(member.serial);
    let last = context.observed.resource.status.iter();
    let mut problems = last.flat_map(|status| &status.problems);
    problems.any(|problem| problem.member == name)
}

/// Describes a member that does not come back with the current template.
pub(super) fn stopped_message(
    context: &ActionContext<'_>,
    view: &ClusterView<'_>,
    member: &MemberView<'_>,
) -> Option<String> {
    RolloutProgress::of_outdated(view)?;
    let pod = member.pod?;
    if pod.is_terminating || view.is_outdated(member) || view.same_template_works_elsewhere(pod) {
        return None;
    }
    let cause = cause::of(context, view, member).text;
    let version = pod
        .version
        .map(|version| format!(" (etcd {version})"))
        .unwrap_or_default();
    let fact = sentence(&format!(
        "Member {} does not become healthy with the current spec{version}: {cause}",
        context.member(member.serial)
    ));
    Some(format!(
        "{fact} The rollout is stopped, and the other members are not changed."
    ))
}
