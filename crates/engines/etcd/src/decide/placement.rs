//! Placement: voters come before new members where the nodes cannot run all pods.
//!
//! The scheduler assigns a node to the first pod that fits on it. An evicted voter may then find a
//! new member on its node, and cannot run elsewhere if its volume is there (observed twice: once
//! the new member was deleted too late and kept the node).

use super::{RuleResult, change_membership};
use crate::facts::{PodFacts, StartMode};
use crate::identity::MembershipChange;
use crate::plan::{DeleteReason, EtcdDisruption};
use crate::view::ClusterView;

/// Deletes the pod of a new member that competes with a voter for a node.
pub(super) fn free_node_for_voter(view: &ClusterView<'_>) -> RuleResult {
    match unscheduled_competitor(view).or_else(|| unlisted_competitor(view)) {
        Some(pod) => RuleResult::DisruptAndContinue(Box::new(EtcdDisruption::DeletePod {
            pod: pod.uid,
            serial: pod.serial,
            why: DeleteReason::FreesNode,
        })),
        None => RuleResult::Pass,
    }
}

/// Returns the unscheduled pod of a learner that never started, while a voter needs a node.
fn unscheduled_competitor<'f>(view: &ClusterView<'f>) -> Option<&'f PodFacts> {
    if !view.any_voter_needs_node() {
        return None;
    }
    view.learners()
        .filter(|learner| learner.is_unstarted_learner())
        .filter_map(|learner| learner.pod)
        .find(|pod| pod.node.is_none() && !pod.is_terminating)
}

/// Returns the pod of a joining member that occupies the node of a voter and so costs the quorum.
/// Without a quorum etcd cannot remove the member; its start mode proves that it has no vote.
fn unlisted_competitor<'f>(view: &ClusterView<'f>) -> Option<&'f PodFacts> {
    if view.membership_known {
        return None;
    }
    view.members
        .values()
        .filter(|member| view.blocks_a_voter(member))
        .filter_map(|member| member.pod)
        .find(|pod| matches!(pod.start_mode, StartMode::Join(_)) && !pod.is_terminating)
}

/// Removes a learner that occupies the node of a voter. The deletion of its pod is not enough: its
/// volume may be on that node, and the pod would return. Another learner is added once all voters
/// are healthy.
pub(super) fn remove_blocking_learner(view: &ClusterView<'_>) -> RuleResult {
    match view.learners().find(|learner| view.blocks_a_voter(learner)) {
        Some(learner) if view.removal_is_safe(learner.serial) => {
            change_membership(view, MembershipChange::Remove(learner.serial))
        }
        _ => RuleResult::Pass,
    }
}
