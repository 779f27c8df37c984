//! A member whose data is gone is never started under its old ID: it is removed, and a new one joins under a new name.
//! Started on an empty directory it would have forgotten what it acknowledged (tried: an acknowledged write was lost).
//! The dead go before anyone is added: their names do not resolve, which holds a joiner up for 30 s, and older etcds
//! refuse an add while a member is down.
//!
//! One that may come back is given its time first, and is replaced with care: one at a time, and not many within an hour,
//! for whatever brought it down may bring down its successors.

use std::time::Duration;

use evenkeel_runtime::UnixTime;

use super::RuleResult;
use crate::facts::{ClaimFacts, VolumeTopology};
use crate::identity::{MembershipChange, REPLACEMENT_WINDOW};
use crate::names::Serial;
use crate::plan::EtcdWait;
use crate::view::{ClusterView, DataState, MemberView};

/// How long no node takes a pod before that counts for one whose volume none reaches: labels of nodes come and go.
const UNSCHEDULABLE_LIMIT: Duration = Duration::from_secs(60);

/// How many members that might have come back are replaced within an hour.
const MAX_RECENT_REPLACEMENTS: usize = 3;

/// Removes a member that will not come back, or has not for too long; those without a vote first.
pub(super) fn remove_lost_member(view: &ClusterView<'_>) -> RuleResult {
    let gone = |member: &&MemberView<'_>| member.data == DataState::Lost;
    if let Some(member) = view
        .learners()
        .find(gone)
        .or_else(|| view.voters().find(gone))
    {
        return if view.removal_is_safe(member.serial) {
            RuleResult::change_membership(view, MembershipChange::Remove(member.serial))
        } else {
            RuleResult::Wait(EtcdWait::NoQuorum)
        };
    }
    // One that never started has nothing to lose, and on a volume that is no longer wanted it only keeps others from joining.
    let waits = |one: &&MemberView<'_>| {
        one.is_unstarted_learner() && (view.must_be_replaced(one) || is_unschedulable(view, one))
    };
    if let Some(member) = view
        .learners()
        .find(waits)
        .filter(|_| view.identity.bootstrapped)
    {
        return RuleResult::change_membership(view, MembershipChange::Remove(member.serial));
    }
    let given_up = |member: &&MemberView<'_>| is_lost_for_good(view, member);
    match view
        .learners()
        .find(given_up)
        .or_else(|| view.voters().find(given_up))
    {
        Some(member) => replace(view, member),
        None => RuleResult::Pass,
    }
}

/// Removes one that might come back, if that is wise.
fn replace(view: &ClusterView<'_>, member: &MemberView<'_>) -> RuleResult {
    // One for which there is no node yet holds nobody up: what keeps it out may be the very node that is lost.
    let is_on_its_way = |other: &&MemberView<'_>| {
        other.serial != member.serial
            && other
                .pod
                .is_some_and(|pod| pod.node.is_some() && !pod.is_terminating)
            && !is_lost_for_good(view, other)
    };
    if let Some(other) = view.learners().find(is_on_its_way) {
        return RuleResult::Wait(EtcdWait::ReplacementJoin(other.serial));
    }
    if !view.removal_is_safe(member.serial) {
        return RuleResult::Wait(EtcdWait::NoQuorum);
    }
    if !member.is_voter() {
        // Without a vote it is missed by nobody.
        return RuleResult::change_membership(view, MembershipChange::Remove(member.serial));
    }
    // The last three, as they come: of these the first must be an hour old.
    match view
        .identity
        .recent_replacements(view.facts.now)
        .nth_back(MAX_RECENT_REPLACEMENTS - 1)
    {
        Some(first) => RuleResult::Wait(EtcdWait::ReplacementLimit(
            member.serial,
            first.after(REPLACEMENT_WINDOW),
        )),
        None => RuleResult::replace_member(view, member.serial),
    }
}

/// Whether it had its time, and others are well without it.
fn is_lost_for_good(view: &ClusterView<'_>, member: &MemberView<'_>) -> bool {
    is_unreachable(view, member) || is_crashing(view, member)
}

/// Whether nobody has reached it for too long.
pub(crate) fn is_unreachable(view: &ClusterView<'_>, member: &MemberView<'_>) -> bool {
    unreachable_deadline(view, member).is_some_and(|at| view.facts.now >= at)
}

/// Whether it has crashed for too long.
pub(crate) fn is_crashing(view: &ClusterView<'_>, member: &MemberView<'_>) -> bool {
    crashing_deadline(view, member).is_some_and(|at| view.facts.now >= at)
}

/// The member whose time is over first, of those that may come back and are waited for, and when that is.
pub(crate) fn next_replacement(view: &ClusterView<'_>) -> Option<(Serial, UnixTime)> {
    let times = |member: &MemberView<'_>| {
        let of = member.serial;
        [
            unreachable_deadline(view, member),
            crashing_deadline(view, member),
        ]
        .into_iter()
        .flatten()
        .map(move |at| (of, at))
    };
    let all = view
        .listed()
        .flat_map(times)
        .filter(|(_, at)| *at > view.facts.now);
    all.min_by_key(|(_, at)| *at)
}

/// When one has had its time that nobody hears: neither the operator nor, by its connections, the leader; and Kubernetes does
/// not call its pod Ready. Only who cannot be reached by all three is taken for lost: what the API server cannot reach may
/// serve clients.
fn unreachable_deadline(view: &ClusterView<'_>, member: &MemberView<'_>) -> Option<UnixTime> {
    let pod = member
        .pod
        .filter(|_| view.identity.bootstrapped && member.health.is_none())?;
    // A newcomer that no node takes, or that cannot start where it is, is not lost; nor would another one do better. One whose
    // node is lost is known by its pod, which Kubernetes has sent away and nobody has seen go; and for one that had to make way
    // for the voter whose place it had, and whose volume is there, another one finds another place.
    let lost = pod.node.is_some() && pod.is_terminating;
    let tied = |claim: &ClaimFacts| matches!(claim.topology, VolumeTopology::Node(_));
    let displaced = || member.claim.is_some_and(tied) && is_blocked_by_member(view, member);
    if member.is_unstarted_learner() && !lost && !displaced() {
        return None;
    }
    // What it was built from may be what keeps it from starting: nobody runs on that yet, and a successor would do no better.
    let starts = !pod.is_idle
        || pod.is_terminating
        || view.same_template_works_elsewhere(pod)
        || is_unschedulable(view, member);
    let since = pod
        .unready_since
        .filter(|_| starts)?
        .max(*view.facts.unreachable_since.get(&member.serial)?);
    Some(since.after(view.facts.cluster.replace_after))
}

/// Whether no node takes a pod, and none would that reaches its volume.
fn is_unschedulable(view: &ClusterView<'_>, member: &MemberView<'_>) -> bool {
    let refused = |since: UnixTime| view.facts.now.since(since) >= UNSCHEDULABLE_LIMIT;
    let waits = member
        .pod
        .is_some_and(|pod| pod.node.is_none() && pod.unschedulable_since.is_some_and(refused));
    waits && member.claim.is_some_and(|claim| claim.is_misplaced)
}

fn is_blocked_by_member(view: &ClusterView<'_>, member: &MemberView<'_>) -> bool {
    view.voters()
        .any(|voter| view.occupies_node_of(voter, member))
}

/// When one has had its time that etcd saw start, and that has crashed at every start since, while others run on the very
/// same inputs. Its directory was emptied behind its back, say: a voter then refuses to start, as it must; a learner panics,
/// and panics again.
fn crashing_deadline(view: &ClusterView<'_>, member: &MemberView<'_>) -> Option<UnixTime> {
    let started = member.listed.is_some_and(|entry| entry.has_started) && member.health.is_none();
    let pod = member.pod.filter(|_| started)?;
    // Its successor would be built from something else if it is out of date.
    let helps = view.same_template_works_elsewhere(pod) || view.is_outdated(member);
    let since = pod.crashing_since.filter(|_| helps)?;
    Some(since.after(view.facts.cluster.replace_after))
}
