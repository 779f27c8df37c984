//! A learner gets its vote when it has caught up *and is alive*, can start on nothing but its own data, and one vote more
//! leaves enough that are well. Before the seal all are promoted at the end: an add right after a promotion waits 5 s.

use super::{RuleResult, add, finish_bootstrap};
use crate::identity::MembershipChange;
use crate::plan::EtcdWait;
use crate::view::ClusterView;

/// Promotes a learner that is ready.
pub(super) fn promote_learner(view: &ClusterView<'_>) -> RuleResult {
    if view.listed().count() > view.target_members() {
        // One too many: it is not given a vote only to be removed.
        return RuleResult::Pass;
    }
    let still_adding = !view.identity.bootstrapped
        && add::has_learner_slot(view)
        && !finish_bootstrap::timeout_expired(view);
    if still_adding {
        return RuleResult::Pass;
    }
    let Some(first) = view.learners().next() else {
        return RuleResult::Pass;
    };
    match view
        .learners()
        .find(|learner| view.promotion_is_safe(learner))
    {
        Some(learner) => {
            RuleResult::change_membership(view, MembershipChange::Promote(learner.serial))
        }
        None => RuleResult::Wait(EtcdWait::LearnerCatchUp(first.serial)),
    }
}
