//! One member less: whoever is missed least goes first, and never one whose going would cost the quorum.

use super::RuleResult;
use crate::identity::MembershipChange;
use crate::plan::{EtcdPatch, EtcdWait};
use crate::view::{ClusterView, MemberView};

/// Removes a member while there are more than wanted.
pub(super) fn remove_member(view: &ClusterView<'_>) -> RuleResult {
    let Some(member) = leaver(view) else {
        return RuleResult::Pass;
    };
    if !view.removal_is_safe(member.serial) {
        return RuleResult::Wait(EtcdWait::NoQuorum);
    }
    if let Some(unwell) = unhealthy_during_move(view, member) {
        return RuleResult::Wait(EtcdWait::UnhealthyMember(unwell.serial));
    }
    match member.pod.filter(|pod| pod.is_routed) {
        Some(pod) => RuleResult::patch(EtcdPatch::DetachClients { pod: pod.uid }),
        None => RuleResult::change_membership(view, MembershipChange::Remove(member.serial)),
    }
}

/// Who goes now, while nobody is waited for.
pub(super) fn next_to_remove<'v, 'f>(view: &'v ClusterView<'f>) -> Option<&'v MemberView<'f>> {
    leaver(view).filter(|leaver| unhealthy_during_move(view, leaver).is_none())
}

/// Whether there is one too many only since somebody is to be replaced, and has a successor.
fn is_moving(view: &ClusterView<'_>) -> bool {
    view.listed().count() <= view.target_members()
}

/// Who has to be well before one goes that is well and is to be replaced. Whoever is down gets its time like any other (see `dead`):
/// were it only passed over, what brought it down would bring down one successor after the other.
fn unhealthy_during_move<'v, 'f>(
    view: &'v ClusterView<'f>,
    leaver: &MemberView<'_>,
) -> Option<&'v MemberView<'f>> {
    let mut others = view
        .voters()
        .filter(|other| other.serial != leaver.serial && !other.is_serving());
    others
        .next()
        .filter(|_| is_moving(view) && leaver.is_serving())
}

/// Who goes next, if there are more than wanted. In a move that is somebody who is to be replaced. Else learners before voters, the unwell before the well, those who are to be
/// replaced before those who are not, those who share their node before those who do not, others before who leads, the newest
/// before the oldest; before the seal never the seed.
fn leaver<'v, 'f>(view: &'v ClusterView<'f>) -> Option<&'v MemberView<'f>> {
    let there = view.listed().count();
    // One that joins so that another can go is not the one that goes.
    let joins = view.learners().next().is_some() && is_moving(view);
    if there <= usize::from(view.facts.cluster.members) || joins {
        return None;
    }
    let node = |member: &MemberView<'_>| member.pod.and_then(|pod| pod.node);
    // Those who were removed, and whose pods are about to go, share it no more.
    let shares = |member: &MemberView<'_>| {
        let mut others = view.listed().filter(|other| other.serial != member.serial);
        node(member).is_some() && others.any(|other| node(other) == node(member))
    };
    let leads = |member: &MemberView<'_>| member.health.is_some_and(|health| health.is_leader);
    let may_go = |member: &&MemberView<'_>| {
        let is_last = !view.identity.bootstrapped && member.serial == view.identity.seed;
        !is_last && (!is_moving(view) || view.must_be_replaced(member))
    };
    view.listed().filter(may_go).max_by_key(|member| {
        let replaced = view.must_be_replaced(member);
        (
            !member.is_voter(),
            !member.is_serving(),
            replaced,
            shares(member),
            !leads(member),
            member.serial,
        )
    })
}
