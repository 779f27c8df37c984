//! The progress of a rollout, and a member that does not come back from its restart.

use std::time::Duration;

use evenkeel_api::conditions::Reason;
use evenkeel_runtime::UnixTime;

use crate::actions::{ActionContext, sentence};
use crate::view::{ClusterView, MemberView};

/// How long a restarted member may take before it counts as down.
const RESTART_GRACE: Duration = Duration::from_secs(60);

/// How many members of a rollout are up to date.
#[derive(Clone, Copy)]
pub(super) struct RolloutProgress {
    /// Whether the version changes, up or down.
    changes_version: bool,
    /// The number of members that are up to date and healthy, plus the one that is being restarted.
    done: usize,
    /// The number of voters.
    all: usize,
    /// Whether the leader is still to be restarted, after others.
    leader_last: bool,
}

impl RolloutProgress {
    /// Returns the progress; `None` if no member is outdated.
    pub(super) fn of(view: &ClusterView<'_>) -> Option<Self> {
        let is_outdated = |member: &&MemberView<'_>| view.is_outdated_or_misplaced(member);
        let outdated = view.voters().filter(is_outdated).count();
        if outdated == 0 || !view.identity.bootstrapped {
            return None;
        }
        let all = view.voters().count();
        let up_to_date = view
            .voters()
            .filter(|member| member.is_serving() && !is_outdated(member));
        let desired = view.facts.cluster.version;
        let changes_version = view.voters().any(|member| {
            let version = member.pod.and_then(|pod| pod.version);
            version.is_some_and(|version| version != desired)
        });
        let leader_is_outdated = view
            .voters()
            .any(|member| member.is_leader() && is_outdated(&member));
        Some(Self {
            changes_version,
            done: (up_to_date.count() + 1).min(all),
            all,
            leader_last: leader_is_outdated && outdated > 1,
        })
    }

    /// Returns the reason of the Progressing condition.
    pub(super) fn reason(self) -> Reason {
        if self.changes_version {
            Reason::Upgrading
        } else {
            Reason::Updating
        }
    }

    /// Summarizes that the rollout waits for a maintenance window.
    pub(super) fn summarize_window(self, opens: UnixTime) -> String {
        let kind = if self.changes_version {
            "Upgrade"
        } else {
            "Update"
        };
        let opens = jiff::Timestamp::from_second(opens.0).unwrap_or_default();
        format!("{kind} waits for maintenance window at {opens}")
    }

    /// Summarizes the progress.
    pub(super) fn summarize(self) -> String {
        let kind = if self.changes_version {
            "Upgrading"
        } else {
            "Updating"
        };
        let leader_last = if self.leader_last {
            ", leader last"
        } else {
            ""
        };
        format!("{kind} {} of {}{leader_last}", self.done, self.all)
    }
}

/// Returns true if a member that does not serve was restarted by the rollout within
/// [`RESTART_GRACE`] and its pod reports no problem.
pub(super) fn is_restarting(view: &ClusterView<'_>, member: &MemberView<'_>) -> bool {
    if view.facts.cluster.is_paused {
        // A paused cluster does not recreate the pod.
        return false;
    }
    let is_new = member.pod.is_none_or(|pod| {
        pod.is_terminating || view.facts.now.since(pod.created_at) < RESTART_GRACE
    });
    RolloutProgress::of(view).is_some() && is_new && pod_problem(view, member).is_none()
}

/// Describes a member that does not come back with the current template, and the remedy.
pub(super) fn stopped_message(
    context: &ActionContext<'_>,
    view: &ClusterView<'_>,
    member: &MemberView<'_>,
) -> Option<String> {
    RolloutProgress::of(view)?;
    let pod = member.pod?;
    if pod.is_terminating || view.is_outdated(member) || view.same_template_works_elsewhere(pod) {
        return None;
    }
    let problem = context.pod_problem_suffix(member.serial);
    let version = pod
        .version
        .map(|version| format!(" (etcd {version})"))
        .unwrap_or_default();
    let fact = sentence(&format!(
        "Member {} does not become healthy with the current spec{version}{problem}",
        context.member(member.serial)
    ));
    Some(format!(
        "{fact} The rollout is stopped, and the other members are not changed. Correct the spec, or revert its last change."
    ))
}

fn pod_problem<'v>(view: &'v ClusterView<'_>, member: &MemberView<'_>) -> Option<&'v str> {
    let details = view.facts.details.get(&member.serial)?;
    details.pod_problem.as_deref()
}
