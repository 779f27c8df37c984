//! Members that the operator did not add. A member that never started is a mistake or was
//! abandoned: it counts towards the quorum without voting, and is removed after `replace_after`. A
//! member that has started may hold data, and is never removed.

use super::{RuleResult, change_membership};
use crate::identity::MembershipChange;
use crate::plan::EtcdWait;
use crate::view::ClusterView;

/// Removes an unknown member that never started, and reports the others.
pub(super) fn remove_unknown_members(view: &ClusterView<'_>) -> RuleResult {
    if view.unknown_members.is_empty() {
        return RuleResult::Pass;
    }
    let overdue = view.unknown_members.iter().find(|unknown| {
        !unknown.has_started
            && view.facts.now.since(unknown.first_seen) >= view.facts.cluster.replace_after
    });
    if let Some(unknown) = overdue
        && view.unknown_removal_is_safe(unknown)
    {
        return change_membership(view, MembershipChange::RemoveUnknown(unknown.id));
    }
    let wait = EtcdWait::UnknownMembers(view.unknown_members.to_vec());
    if view.identity.bootstrapped {
        RuleResult::Wait(wait)
    } else {
        // No client has written yet: waiting loses nothing.
        RuleResult::Block(wait)
    }
}
