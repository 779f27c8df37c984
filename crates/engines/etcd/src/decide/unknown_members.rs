//! Members that somebody else added. One that never started is a slip, or was given up: it takes a vote that nobody gives,
//! and goes when it had its time. One that has started may hold somebody's data, and is never touched.

use super::RuleResult;
use crate::identity::MembershipChange;
use crate::plan::EtcdWait;
use crate::view::ClusterView;

/// Removes a stranger that never started; says that there are others.
pub(super) fn remove_unknown_members(view: &ClusterView<'_>) -> RuleResult {
    if view.unknown_members.is_empty() {
        return RuleResult::Pass;
    }
    let overdue = view.unknown_members.iter().find(|unknown| {
        !unknown.has_started
            && view.facts.now.since(unknown.first_seen) >= view.facts.cluster.replace_after
    });
    match overdue {
        Some(unknown) if view.unknown_removal_is_safe(unknown) => {
            RuleResult::change_membership(view, MembershipChange::RemoveUnknown(unknown.id))
        }
        // Before the seal nobody has written yet, and nothing is lost by waiting until the cluster is ours alone.
        _ if !view.identity.bootstrapped => {
            RuleResult::Block(EtcdWait::UnknownMembers(view.unknown_members.to_vec()))
        }
        _ => RuleResult::Wait(EtcdWait::UnknownMembers(view.unknown_members.to_vec())),
    }
}
