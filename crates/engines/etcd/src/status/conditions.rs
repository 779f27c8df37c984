//! The conditions Ready and Progressing: the rows that decide status and reason of each.

use evenkeel_api::conditions::{ConditionStatus, ConditionType, ConditionUpdate, Reason};
use evenkeel_runtime::{Observed, Plan};

use super::restore;
use super::rollout::{self, RolloutProgress};
use crate::actions::ActionContext;
use crate::availability::{Alarm, Availability};
use crate::decide::Etcd;
use crate::facts::{EtcdFacts, OwnedBy};
use crate::view::{DataState, MemberView};

/// Returns the Ready condition: true only if a read through the client Service was answered and no alarm makes etcd reject
/// writes.
pub(super) fn ready(context: &ActionContext<'_>) -> ConditionUpdate {
    let (facts, view) = (context.facts, context.view);
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
    if restore::is_replacing(context) {
        return update(
            ConditionStatus::False,
            Reason::Restoring,
            "Clients are not served until the members with the other data have started.",
        );
    }
    if !identity.bootstrapped {
        return update(
            ConditionStatus::False,
            Reason::Bootstrapping,
            "Clients are not served until bootstrap is finished.",
        );
    }
    let answers_reads = match facts.client_read {
        Observed::Present(()) => Some(true),
        _ if view.is_some_and(|view| !view.membership_known) => Some(false),
        Observed::Absent => Some(false),
        Observed::Unknown => None,
    };
    match Availability::new(answers_reads, facts.alarms.iter().copied()) {
        Availability::ReadWrite => update(
            ConditionStatus::True,
            Reason::Serving,
            "A linearizable read through the client Service succeeded.",
        ),
        Availability::WritesRejected(Alarm::NoSpace) => update(
            ConditionStatus::False,
            Reason::NoSpace,
            "etcd rejects writes: the alarm NOSPACE is raised because a database has reached its quota.",
        ),
        Availability::WritesRejected(Alarm::Corrupt) => update(
            ConditionStatus::False,
            Reason::DataCorrupt,
            "etcd rejects requests: the alarm CORRUPT is raised because the data of members differs.",
        ),
        Availability::Unavailable if rollout::is_planned_outage(context) => update(
            ConditionStatus::False,
            Reason::Restarting,
            "A member restarts, and the cluster has no quorum without it. Clients cannot read or write until it is back.",
        ),
        Availability::Unavailable if view.is_some_and(|view| !view.membership_known) => update(
            ConditionStatus::False,
            Reason::QuorumLost,
            "The voters have no quorum or no leader. Clients cannot read or write.",
        ),
        Availability::Unavailable => update(
            ConditionStatus::False,
            Reason::NotServing,
            "A read through the client Service failed.",
        ),
        Availability::Unknown => update(
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
pub(super) fn progressing(context: &ActionContext<'_>, plan: &Plan<Etcd>) -> Progress {
    let (facts, view) = (context.facts, context.view);
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
    let rollout = view.and_then(|view| RolloutProgress::of(context, view));
    let all_returned = view.is_none_or(|view| view.listed().all(rollout::has_returned));
    let rolls_out =
        rollout.is_some() && !has_lost_data && (acts || !all_returned || known.is_none());
    // Kubernetes and the operator bring the member back within seconds.
    let restarts = view.is_some_and(|view| {
        let down = view.listed().filter(|member| !member.is_serving());
        let mut down = down.peekable();
        down.peek().is_some() && down.all(|member| rollout::is_restarting(view, member))
    });
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
            restore::is_replacing(context),
            ConditionStatus::True,
            Reason::Restoring,
        ),
        (
            is_bootstrapping && (has_identity || acts),
            ConditionStatus::True,
            Reason::Bootstrapping,
        ),
        // Without an identity and without an action the cluster waits for a user.
        (is_bootstrapping, ConditionStatus::False, Reason::Waiting),
        (rolls_out, ConditionStatus::True, rollout_reason),
        (
            voter_is_terminating || (restarts && !has_lost_data && !scales),
            ConditionStatus::True,
            Reason::Recovering,
        ),
        (
            all_serve && restore::is_preparing(context),
            ConditionStatus::True,
            Reason::Restoring,
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

#[cfg(test)]
#[path = "conditions_tests.rs"]
mod tests;
