//! Removal of surplus members, without risk for the quorum.

use super::{RuleResult, change_membership};
use crate::identity::MembershipChange;
use crate::plan::{EtcdPatch, EtcdWait};
use crate::view::{ClusterView, MemberView};

/// Removes a member while there are more than desired. Clients are detached from it first.
pub(super) fn remove_member(view: &ClusterView<'_>) -> RuleResult {
    let Some(member) = surplus_member(view) else {
        return RuleResult::Pass;
    };
    if !view.removal_is_safe(member.serial) {
        return RuleResult::Wait(EtcdWait::NoQuorum);
    }
    if let Some(unhealthy) = unhealthy_during_move(view, member) {
        return RuleResult::Wait(EtcdWait::UnhealthyMember(unhealthy.serial));
    }
    match member.pod.filter(|pod| pod.is_routed) {
        Some(pod) => RuleResult::patch(EtcdPatch::DetachClients { pod: pod.uid }),
        None => change_membership(view, MembershipChange::Remove(member.serial)),
    }
}

/// Returns the member that is removed next, if no other member has to become healthy first.
pub(super) fn next_to_remove<'v, 'f>(view: &'v ClusterView<'f>) -> Option<&'v MemberView<'f>> {
    let member = surplus_member(view)?;
    if unhealthy_during_move(view, member).is_some() {
        return None;
    }
    Some(member)
}

/// Returns true if the surplus member exists only because another member is being replaced by it.
fn is_moving(view: &ClusterView<'_>) -> bool {
    view.listed().count() <= view.target_members()
}

/// Returns the voter that must become healthy before a healthy member is removed because of a
/// replacement. An unhealthy voter is replaced after `replace_after` like any other (see
/// `replace`): otherwise the cause of its failure could take down one successor after the other.
fn unhealthy_during_move<'v, 'f>(
    view: &'v ClusterView<'f>,
    leaving: &MemberView<'_>,
) -> Option<&'v MemberView<'f>> {
    if !is_moving(view) || !leaving.is_serving() {
        return None;
    }
    view.voters()
        .find(|other| other.serial != leaving.serial && !other.is_serving())
}

/// Returns the member to remove while there are more than desired.
///
/// During a replacement only members that must be replaced are candidates. Order of preference:
/// learners before voters, unhealthy before healthy, members to be replaced before others, members
/// that share a node before others, followers before the leader, the newest before the oldest. The
/// seed is never removed during bootstrap.
fn surplus_member<'v, 'f>(view: &'v ClusterView<'f>) -> Option<&'v MemberView<'f>> {
    if view.listed().count() <= usize::from(view.facts.cluster.members) {
        return None;
    }
    // A learner that joins as a replacement is not removed.
    if is_moving(view) && view.learners().next().is_some() {
        return None;
    }
    let is_candidate = |member: &&MemberView<'_>| {
        let is_needed_seed = !view.identity.bootstrapped && member.serial == view.identity.seed;
        !is_needed_seed && (!is_moving(view) || view.must_be_replaced(member))
    };
    view.listed().filter(is_candidate).max_by_key(|member| {
        (
            !member.is_voter(),
            !member.is_serving(),
            view.must_be_replaced(member),
            shares_node(view, member),
            !member.is_leader(),
            member.serial,
        )
    })
}

/// Returns true if another listed member runs on the same node. The pods of removed members do not
/// count.
fn shares_node(view: &ClusterView<'_>, member: &MemberView<'_>) -> bool {
    let node = |member: &MemberView<'_>| member.pod.and_then(|pod| pod.node);
    let mut others = view.listed().filter(|other| other.serial != member.serial);
    node(member).is_some() && others.any(|other| node(other) == node(member))
}
