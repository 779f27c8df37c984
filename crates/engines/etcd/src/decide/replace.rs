//! Replacement of lost members: a member whose data is lost is removed, and a new member joins
//! under a new name.
//!
//! On an empty directory the member would lack writes that it acknowledged (tried: an acknowledged
//! write was lost). Lost members are removed before any is added: their names do not resolve, which
//! delays a new member by 30 s, and older etcds reject an add while a member is down.
//!
//! A member that may recover is replaced only after `replace_after`, and after
//! `replace_drained_after` while its node is cordoned. Such replacements are made one at a time and
//! limited per hour: their cause may take down the new members as well.

use std::time::Duration;

use evenkeel_runtime::UnixTime;

use super::{RuleResult, change_membership, replace_member};
use crate::facts::VolumeTopology;
use crate::identity::{MembershipChange, REPLACEMENT_LIMIT};
use crate::names::Serial;
use crate::plan::EtcdWait;
use crate::view::{ClusterView, DataState, MemberView};

/// How long a pod must be unschedulable before a misplaced volume counts as the reason: labels of
/// nodes change.
const UNSCHEDULABLE_LIMIT: Duration = Duration::from_secs(60);

/// Removes a member that is lost or has been unreachable for too long, learners first.
pub(super) fn remove_lost_member(view: &ClusterView<'_>) -> RuleResult {
    let has_lost_data = |member: &&MemberView<'_>| member.data == DataState::Lost;
    let lost = view.learners().find(has_lost_data);
    if let Some(member) = lost.or_else(|| view.voters().find(has_lost_data)) {
        return if view.removal_is_safe(member.serial) {
            change_membership(view, MembershipChange::Remove(member.serial))
        } else {
            RuleResult::Wait(EtcdWait::NoQuorum)
        };
    }
    // A learner that never started has no data, and on a volume that the spec no longer asks for it
    // keeps others from joining.
    let has_unwanted_volume = |learner: &&MemberView<'_>| {
        learner.is_unstarted_learner()
            && (view.must_be_replaced(learner) || is_unschedulable(view, learner))
    };
    if view.identity.bootstrapped
        && let Some(learner) = view.learners().find(has_unwanted_volume)
    {
        return change_membership(view, MembershipChange::Remove(learner.serial));
    }
    let is_lost = |member: &&MemberView<'_>| is_lost_for_good(view, member);
    let lost = view.learners().find(is_lost);
    match lost.or_else(|| view.voters().find(is_lost)) {
        Some(member) => replace(view, member),
        None => RuleResult::Pass,
    }
}

/// Removes a member that might come back, within the limits.
fn replace(view: &ClusterView<'_>, member: &MemberView<'_>) -> RuleResult {
    // A learner without a node does not delay the replacement: it may need the very node that is
    // lost.
    let is_joining = |other: &&MemberView<'_>| {
        other.serial != member.serial
            && other
                .pod
                .is_some_and(|pod| pod.node.is_some() && !pod.is_terminating)
            && !is_lost_for_good(view, other)
    };
    if let Some(other) = view.learners().find(is_joining) {
        return RuleResult::Wait(EtcdWait::ReplacementJoin(other.serial));
    }
    if !view.removal_is_safe(member.serial) {
        return RuleResult::Wait(EtcdWait::NoQuorum);
    }
    if !member.is_voter() {
        // The limit protects voters only.
        return change_membership(view, MembershipChange::Remove(member.serial));
    }
    match REPLACEMENT_LIMIT.waits_until(&view.identity.replacements, view.facts.now) {
        Some(until) => RuleResult::Wait(EtcdWait::ReplacementLimit(member.serial, until)),
        None => replace_member(view, member.serial),
    }
}

fn is_lost_for_good(view: &ClusterView<'_>, member: &MemberView<'_>) -> bool {
    is_unreachable(view, member) || is_crashing(view, member)
}

/// Returns true if the member has been unreachable for [`ClusterView::replace_after`].
pub(crate) fn is_unreachable(view: &ClusterView<'_>, member: &MemberView<'_>) -> bool {
    unreachable_deadline(view, member).is_some_and(|deadline| view.facts.now >= deadline)
}

/// Returns true if the member has crashed at every start for `replace_after`.
pub(crate) fn is_crashing(view: &ClusterView<'_>, member: &MemberView<'_>) -> bool {
    crashing_deadline(view, member).is_some_and(|deadline| view.facts.now >= deadline)
}

/// A member that is replaced unless it recovers before the deadline.
pub(crate) struct PendingReplacement {
    pub(crate) serial: Serial,
    pub(crate) deadline: UnixTime,
}

/// Returns the pending replacement with the earliest deadline.
pub(crate) fn next_replacement(view: &ClusterView<'_>) -> Option<PendingReplacement> {
    let deadlines = |member: &MemberView<'_>| {
        [
            unreachable_deadline(view, member),
            crashing_deadline(view, member),
        ]
    };
    let pending = view.listed().flat_map(|member| {
        let deadlines = deadlines(member).into_iter().flatten();
        deadlines.map(|deadline| PendingReplacement {
            serial: member.serial,
            deadline,
        })
    });
    pending
        .filter(|pending| pending.deadline > view.facts.now)
        .min_by_key(|pending| pending.deadline)
}

/// Returns when an unreachable member counts as lost. Three observers must report it as
/// unreachable: the operator, the leader by its streams, and Kubernetes, which does not report the
/// pod as Ready. A member that the API server cannot reach may still serve clients.
fn unreachable_deadline(view: &ClusterView<'_>, member: &MemberView<'_>) -> Option<UnixTime> {
    let since = unreachable_since(view, member)?;
    Some(since.after(view.replace_after(member)))
}

/// Returns since when Kubernetes, the operator and the leader all miss the member; `None` while its
/// replacement is not pending.
pub(crate) fn unreachable_since(
    view: &ClusterView<'_>,
    member: &MemberView<'_>,
) -> Option<UnixTime> {
    // Before bootstrap is finished its own timeouts apply.
    if !view.identity.bootstrapped {
        return None;
    }
    // The operator reaches it.
    if member.health.is_some() {
        return None;
    }
    let pod = member.pod?;
    // A new member that cannot be scheduled, or that cannot start on its node, is not lost; another
    // new member would fail in the same way. The exceptions: its node is lost, so that its pod
    // stays Terminating; or it was displaced from the node of its volume.
    let node_is_lost = pod.node.is_some() && pod.is_terminating;
    if member.is_unstarted_learner() && !node_is_lost && !is_displaced(view, member) {
        return None;
    }
    // A template with which no member runs yet may be the reason, and a new member would fail in
    // the same way.
    let may_be_template = pod.is_idle
        && !pod.is_terminating
        && !view.same_template_works_elsewhere(pod)
        && !is_unschedulable(view, member);
    if may_be_template {
        return None;
    }
    // Kubernetes and the leader do not reach it.
    let unready_since = pod.unready_since?;
    let unreachable_since = *view.facts.unreachable_since.get(&member.serial)?;
    Some(unready_since.max(unreachable_since))
}

/// Returns true if a voter occupies the only node that can mount the member's volume. A new member
/// finds another node.
fn is_displaced(view: &ClusterView<'_>, member: &MemberView<'_>) -> bool {
    let has_local_volume = member
        .claim
        .is_some_and(|claim| matches!(claim.topology, VolumeTopology::Node(_)));
    has_local_volume
        && view
            .voters()
            .any(|voter| view.occupies_node_of(voter, member))
}

/// Returns true if the pod has been unschedulable for [`UNSCHEDULABLE_LIMIT`] and no selected node
/// can mount its volume.
fn is_unschedulable(view: &ClusterView<'_>, member: &MemberView<'_>) -> bool {
    let is_misplaced = member.claim.is_some_and(|claim| claim.is_misplaced);
    let unscheduled = member.pod.filter(|pod| pod.node.is_none());
    let since = unscheduled.and_then(|pod| pod.unschedulable_since);
    is_misplaced && since.is_some_and(|since| view.facts.now.since(since) >= UNSCHEDULABLE_LIMIT)
}

/// Returns when a started member that crashes at every start counts as lost, while others run with
/// the same template. On a directory that was emptied a voter exits with an error, and a learner
/// panics at every start.
fn crashing_deadline(view: &ClusterView<'_>, member: &MemberView<'_>) -> Option<UnixTime> {
    let has_started = member.listed.is_some_and(|listed| listed.has_started);
    if !has_started || member.health.is_some() {
        return None;
    }
    let pod = member.pod?;
    // A new member helps only if the template is not the reason, or if it is built from another
    // template.
    if !view.same_template_works_elsewhere(pod) && !view.is_outdated(member) {
        return None;
    }
    Some(pod.crashing_since?.after(view.facts.cluster.replace_after))
}
