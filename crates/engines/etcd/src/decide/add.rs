//! One more member, as a learner: its serial is reserved with the intent, before anything exists. It is added only when
//! all others in the list have their pods, for a name that does not resolve holds its start up for 30 s (tried).

use std::time::Duration;

use super::{RuleResult, finish_bootstrap};
use crate::identity::MembershipChange;
use crate::plan::EtcdWait;
use crate::view::{ClusterView, DataState, MemberView};

/// Adds a learner while there are fewer members than wanted.
pub(super) fn add_member(view: &ClusterView<'_>) -> RuleResult {
    if !has_learner_slot(view) || finish_bootstrap::all_attempts_failed(view) {
        return RuleResult::Pass;
    }
    if !view.unknown_members.is_empty() {
        // Whoever joins must name all members, and nobody here knows what strangers are called.
        return RuleResult::Wait(EtcdWait::UnsafeToAdd);
    }
    // Learners started together wait for each other: the next one is added when the last one serves. Whether the kubelet
    // has seen its new flags does not matter yet: with a list that is out of date it is refused on an empty directory.
    let in_place = view.listed().all(|member| {
        member.data != DataState::Lost
            && member.pod.is_some_and(|pod| !pod.is_terminating)
            && (member.is_voter() || member.is_serving() || is_blocked(view, member))
    });
    // With a quorum etcd still refuses an add while any voter is down (tried on 3.5.35, 3.6.16, 3.7.3).
    let ready = view
        .voters()
        .all(|voter| voter.is_joined() && voter.is_serving());
    if in_place && ready {
        RuleResult::change_membership(view, MembershipChange::Add(view.identity.next_serial))
    } else {
        RuleResult::Wait(EtcdWait::UnsafeToAdd)
    }
}

/// How long the next one waits for the last one to join.
const BLOCKED_AFTER: Duration = Duration::from_secs(30);

/// Before the seal, whether a member that never started has had its time: a node that cannot take its member does not
/// hold the others up.
pub(super) fn is_blocked(view: &ClusterView<'_>, member: &MemberView<'_>) -> bool {
    let began = member.listed.is_some_and(|entry| entry.has_started);
    let age = member.pod.map(|pod| view.facts.now.since(pod.created_at));
    !view.identity.bootstrapped && !began && age.is_some_and(|age| age >= BLOCKED_AFTER)
}

/// Whether one more member is wanted and etcd takes one more learner. Once sealed, one at a time.
pub(super) fn has_learner_slot(view: &ClusterView<'_>) -> bool {
    let limit = if view.identity.bootstrapped {
        1
    } else {
        usize::from(view.facts.cluster.max_learners)
    };
    view.listed().count() < view.target_members() && view.learners().count() < limit
}
