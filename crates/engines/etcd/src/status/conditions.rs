//! The conditions Ready, Progressing and Degraded: the rows that decide status and reason of each.

use evenkeel_api::conditions::{ConditionStatus, ConditionType, ConditionUpdate, Reason};
use evenkeel_runtime::{Observed, Plan};

use super::rollout::{self, RolloutProgress};
use crate::actions::{ActionContext, sentence};
use crate::decide::Etcd;
use crate::facts::{EtcdFacts, OwnedBy};
use crate::plan::EtcdWait;
use crate::view::{ClusterView, DataState, MemberView};

/// Returns the Ready condition: true only if a read through the client Service was answered.
pub(super) fn ready(facts: &EtcdFacts, view: Option<&ClusterView<'_>>) -> ConditionUpdate {
    let update = |status, reason, message: &str| ConditionUpdate {
        condition: ConditionType::Ready,
        status,
        reason,
        message: message.to_owned(),
    };
    let Observed::Present(identity) = &facts.identity else {
        return ready_without_identity(facts);
    };
    if facts.identity_owner == OwnedBy::PreviousResource {
        return update(
            ConditionStatus::False,
            Reason::Bootstrapping,
            "Clients are not served until the previous cluster is deleted and the new one is bootstrapped.",
        );
    }
    if !identity.bootstrapped {
        return update(
            ConditionStatus::False,
            Reason::Bootstrapping,
            "Clients are not served until bootstrap is finished.",
        );
    }
    match facts.client_read {
        Observed::Present(()) => update(
            ConditionStatus::True,
            Reason::Serving,
            "A linearizable read through the client Service succeeded.",
        ),
        _ if view.is_some_and(|view| !view.membership_known) => update(
            ConditionStatus::False,
            Reason::QuorumLost,
            "The voters have no quorum or no leader. Clients cannot read or write.",
        ),
        Observed::Absent => update(
            ConditionStatus::False,
            Reason::NotServing,
            "A read through the client Service failed.",
        ),
        Observed::Unknown => update(
            ConditionStatus::Unknown,
            Reason::ProbePending,
            "etcd has not been queried yet.",
        ),
    }
}

/// Returns the Ready condition of a cluster without an identity: a new one, or one whose identity
/// was deleted.
fn ready_without_identity(facts: &EtcdFacts) -> ConditionUpdate {
    let has_no_objects = facts.identity.is_absent()
        && facts.pods.present().is_some_and(Vec::is_empty)
        && facts.claims.present().is_some_and(Vec::is_empty);
    let (status, reason, message) = if !has_no_objects {
        (
            ConditionStatus::Unknown,
            Reason::ProbePending,
            "Members cannot be queried without the identity ConfigMap.",
        )
    } else if facts.cluster.status_cluster_id.is_some() {
        (
            ConditionStatus::False,
            Reason::NotServing,
            "All pods and PersistentVolumeClaims of the cluster are gone.",
        )
    } else {
        (
            ConditionStatus::False,
            Reason::Bootstrapping,
            "Clients are not served until bootstrap is finished.",
        )
    };
    ConditionUpdate {
        condition: ConditionType::Ready,
        status,
        reason,
        message: message.to_owned(),
    }
}

/// Status and reason of the Progressing condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) status: ConditionStatus,
    pub(super) reason: Reason,
}

/// Returns status and reason of the Progressing condition: the first row that applies decides.
pub(super) fn progressing(
    facts: &EtcdFacts,
    view: Option<&ClusterView<'_>>,
    plan: &Plan<Etcd>,
) -> Progress {
    let acts = !plan.is_noop();
    let is_idle = !acts && plan.waits.is_empty();
    let has_identity = facts.identity.is_present();
    let is_bootstrapping = facts
        .identity
        .present()
        .is_none_or(|identity| !identity.bootstrapped);
    let rebuilds_identity = !has_identity && acts && !facts.lineages.is_empty();

    let all_serve = view.is_none_or(|view| view.listed().all(MemberView::is_serving));
    let voter_is_terminating = view.is_some_and(|view| view.voters().any(is_terminating));
    let recovers = view.is_some_and(|view| {
        view.listed()
            .any(|member| !member.is_serving() || !member.is_voter())
    });
    // The rows below compare the members with etcd's list, and apply only if the list is known.
    let known = view.filter(|view| view.membership_known);
    let has_lost_data = known.is_some_and(|view| {
        view.members
            .values()
            .any(|member| member.data != DataState::Intact)
    });
    let scales =
        known.is_some_and(|view| view.listed().count() != usize::from(facts.cluster.members));
    let rollout = known.and_then(RolloutProgress::of);
    let rolls_out = rollout.is_some() && !has_lost_data && (acts || !all_serve);
    let rollout_reason = rollout.map_or(Reason::Updating, |rollout| rollout.reason());

    let rows = [
        (
            facts.cluster.is_deleted,
            ConditionStatus::True,
            Reason::Deleting,
        ),
        (
            facts.cluster.is_paused,
            ConditionStatus::False,
            Reason::Paused,
        ),
        (rebuilds_identity, ConditionStatus::True, Reason::Recovering),
        (
            is_bootstrapping && (has_identity || acts),
            ConditionStatus::True,
            Reason::Bootstrapping,
        ),
        // Without an identity and without an action the cluster waits for a user.
        (is_bootstrapping, ConditionStatus::False, Reason::Waiting),
        (rolls_out, ConditionStatus::True, rollout_reason),
        (
            voter_is_terminating,
            ConditionStatus::True,
            Reason::Recovering,
        ),
        // An unreachable member is replaced only after `replace_after`.
        (
            is_idle && !all_serve,
            ConditionStatus::False,
            Reason::Waiting,
        ),
        (is_idle, ConditionStatus::False, Reason::Converged),
        (has_lost_data, ConditionStatus::True, Reason::Recovering),
        (scales, ConditionStatus::True, Reason::Scaling),
        (recovers, ConditionStatus::True, Reason::Recovering),
        (!acts, ConditionStatus::False, Reason::Waiting),
        (acts, ConditionStatus::True, Reason::Updating),
    ];
    let first = rows.into_iter().find(|(applies, ..)| *applies);
    let (_, status, reason) = first.unwrap_or((true, ConditionStatus::True, Reason::Updating));
    Progress { status, reason }
}

/// Returns true if the member's pod is terminating. Its successor is created once it is gone.
pub(super) fn is_terminating(member: &MemberView<'_>) -> bool {
    member.pod.is_some_and(|pod| pod.is_terminating)
}

/// A problem that the Degraded condition and a warning event report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) reason: Reason,
    pub(super) message: String,
}

impl Problem {
    /// Returns the problem of a wait that a user has to end.
    pub(super) fn of_wait(context: &ActionContext<'_>, wait: &EtcdWait) -> Option<Self> {
        Some(Self {
            reason: wait.degraded_reason(context)?,
            message: wait.problem(context),
        })
    }

    /// Returns true if clients are not served because of the problem. No other problem replaces it.
    pub(super) fn is_outage(&self) -> bool {
        matches!(self.reason, Reason::QuorumLost | Reason::DataLost)
    }
}

/// Returns the problem of a member: an unschedulable pod before a voter that is down before a
/// learner that cannot start.
pub(super) fn member_problem(context: &ActionContext<'_>) -> Option<Problem> {
    // The members of a deleted resource are expected to terminate.
    let view = context.view.filter(|view| !view.facts.cluster.is_deleted)?;
    unschedulable_pod(context, view)
        .or_else(|| voter_down(context, view))
        .or_else(|| learner_cannot_start(context, view))
}

fn unschedulable_pod(context: &ActionContext<'_>, view: &ClusterView<'_>) -> Option<Problem> {
    view.members.values().find_map(|member| {
        let details = view.facts.details.get(&member.serial)?;
        if details.node.is_some() {
            return None;
        }
        let problem = details.pod_problem.as_ref()?;
        Some(Problem {
            reason: Reason::Unschedulable,
            message: sentence(&format!(
                "Pod {} cannot be scheduled: {problem}",
                context.member(member.serial)
            )),
        })
    })
}

/// A voter that a rollout has restarted a moment ago is not down yet.
fn voter_down(context: &ActionContext<'_>, view: &ClusterView<'_>) -> Option<Problem> {
    if !view.identity.bootstrapped {
        return None;
    }
    let mut down = view.voters().filter(|member| !member.is_serving());
    let member = down.find(|member| !rollout::is_restarting(view, member))?;
    if let Some(message) = rollout::stopped_message(context, view, member) {
        return Some(Problem {
            reason: Reason::RolloutStopped,
            message,
        });
    }
    let problem = context.pod_problem_suffix(member.serial);
    Some(Problem {
        reason: Reason::MemberDown,
        message: sentence(&format!(
            "Member {} is not healthy{problem}",
            context.member(member.serial)
        )),
    })
}

fn learner_cannot_start(context: &ActionContext<'_>, view: &ClusterView<'_>) -> Option<Problem> {
    let mut starting = view
        .members
        .values()
        .filter(|member| !member.is_serving() && !member.is_voter());
    starting.find_map(|member| {
        let details = view.facts.details.get(&member.serial)?;
        let problem = details.pod_problem.as_ref()?;
        Some(Problem {
            reason: Reason::MemberDown,
            message: sentence(&format!(
                "Member {} cannot start: {problem}",
                context.member(member.serial)
            )),
        })
    })
}

#[cfg(test)]
#[path = "conditions_tests.rs"]
mod tests;
