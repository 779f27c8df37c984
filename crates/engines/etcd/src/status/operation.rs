//! The operation in progress: its type, how far it is, and the current step.

use evenkeel_api::conditions::Reason;
use evenkeel_api::{OperationStatus, OperationType};
use evenkeel_runtime::Plan;

use super::conditions::Progress;
use super::restore;
use super::rollout::RolloutProgress;
use super::{messages, to_time};
use crate::actions::ActionContext;
use crate::decide::Etcd;
use crate::view::{ClusterView, DataState, MemberView};

/// The progress of an operation in members.
struct Count {
    completed: usize,
    total: usize,
}

/// Returns the operation in progress; `None` if the operator neither changes nor recovers the cluster.
pub(super) fn operation(
    context: &ActionContext<'_>,
    plan: &Plan<Etcd>,
    progress: Progress,
    waiting_for: &[String],
) -> Option<OperationStatus> {
    let (r#type, count) = kind(context, plan, progress)?;
    let last = context.observed.resource.status.as_ref();
    let last = last.and_then(|status| status.operation.as_ref());
    let same = last.filter(|last| last.r#type == r#type);
    let action = messages::current_action(context, plan);
    let (message, reason) = if context.facts.cluster.is_deleted {
        (
            "waiting for Kubernetes to delete the owned objects".to_owned(),
            "the EtcdCluster was deleted".to_owned(),
        )
    } else if !action.is_empty() {
        (action, messages::current_reason(context, plan))
    } else if let Some(wait) = waiting_for.first() {
        (format!("waiting for {wait}"), String::new())
    } else {
        (waiting_for_member(context), String::new())
    };
    let to_i32 = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    Some(OperationStatus {
        r#type,
        message,
        reason,
        completed: count.as_ref().map(|count| to_i32(count.completed)),
        total: count.as_ref().map(|count| to_i32(count.total)),
        start_time: same.map_or_else(
            || to_time(context.facts.now),
            |last| last.start_time.clone(),
        ),
    })
}

/// Describes the wait for a member for which the plan has none, such as a Ready pod whose etcd does not respond.
fn waiting_for_member(context: &ActionContext<'_>) -> String {
    let mut members = context.view.into_iter().flat_map(ClusterView::listed);
    match members.find(|member| !member.is_serving()) {
        Some(member) => format!(
            "waiting for member {} to become healthy",
            context.member(member.serial)
        ),
        None => "waiting for all members to become healthy".to_owned(),
    }
}

fn kind(
    context: &ActionContext<'_>,
    plan: &Plan<Etcd>,
    progress: Progress,
) -> Option<(OperationType, Option<Count>)> {
    let facts = context.facts;
    if facts.cluster.is_deleted {
        return Some((OperationType::Delete, None));
    }
    if facts.cluster.is_paused {
        return None;
    }
    let Some(view) = context.view else {
        return match progress.reason {
            Reason::Bootstrapping => Some((OperationType::Bootstrap, None)),
            Reason::Recovering => Some((OperationType::Recover, None)),
            _ => None,
        };
    };
    let desired = usize::from(facts.cluster.members);
    let serving = view.listed().filter(|member| member.is_serving()).count();
    if !view.identity.bootstrapped {
        let count = Count {
            completed: serving.min(desired),
            total: desired,
        };
        let operation = if restore::is_replacing(context) {
            OperationType::Restore
        } else {
            OperationType::Bootstrap
        };
        return Some((operation, Some(count)));
    }
    if restore::is_replacing(context) {
        return Some((OperationType::Restore, None));
    }
    if let Some(rollout) = RolloutProgress::of(context, view) {
        let count = Count {
            completed: rollout.completed,
            total: rollout.total,
        };
        return Some((rollout.operation, Some(count)));
    }
    if facts.cluster.next_version.is_some() {
        let count = Count {
            completed: 0,
            total: desired,
        };
        return Some((OperationType::Upgrade, Some(count)));
    }
    if !view.membership_known {
        return Some((OperationType::Recover, None));
    }
    if view.listed().any(|member| member.data == DataState::Lost) {
        return Some((OperationType::Replace, None));
    }
    if restore::is_preparing(context) {
        return Some((OperationType::Restore, None));
    }
    let listed = view.listed().count();
    if listed != desired || view.learners().next().is_some() {
        // A learner in the desired number of members is the last one of a scale-out, or a replacement.
        let last = context.observed.resource.status.as_ref();
        let last = last.and_then(|status| status.operation.as_ref());
        let is_replacing = last.is_some_and(|last| last.r#type == OperationType::Replace);
        if is_replacing && listed <= desired {
            return Some((OperationType::Replace, None));
        }
        let voters = view.voters().count();
        let count = Count {
            completed: voters.min(desired),
            total: desired,
        };
        return Some((OperationType::Scale, (voters <= desired).then_some(count)));
    }
    if view.voters().any(|member| !member.is_serving())
        || view.voters().any(|member| is_leaving(member))
    {
        return Some((OperationType::Recover, None));
    }
    (!plan.is_noop()).then_some((OperationType::Reconcile, None))
}

fn is_leaving(member: &MemberView<'_>) -> bool {
    member.pod.is_none_or(|pod| pod.is_terminating)
}
