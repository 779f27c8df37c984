//! Promotion: a learner gets its vote when it has caught up, is reachable, can start on existing
//! data only, and the quorum holds with one more voter. During bootstrap all learners are promoted
//! at the end: an add right after a promotion waits 5 s.

use super::{RuleResult, add, change_membership, finish_bootstrap};
use crate::identity::MembershipChange;
use crate::plan::EtcdWait;
use crate::view::ClusterView;

/// Promotes a learner that is ready.
pub(super) fn promote_learner(view: &ClusterView<'_>) -> RuleResult {
    if view.listed().count() > view.target_members() {
        // A surplus learner is removed without a promotion.
        return RuleResult::Pass;
    }
    let is_adding = !view.identity.bootstrapped
        && add::has_learner_slot(view)
        && !finish_bootstrap::timeout_expired(view);
    if is_adding {
        return RuleResult::Pass;
    }
    let Some(first) = view.learners().next() else {
        return RuleResult::Pass;
    };
    let mut learners = view.learners();
    match learners.find(|learner| view.promotion_is_safe(learner)) {
        Some(learner) => change_membership(view, MembershipChange::Promote(learner.serial)),
        None => RuleResult::Wait(EtcdWait::LearnerCatchUp(first.serial)),
    }
}
