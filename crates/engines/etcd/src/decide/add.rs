//! Added members: each joins as a learner, and its serial is reserved with the intent before any
//! object exists. A member is added only when all others in the list have pods: a name that does
//! not resolve delays its start by 30 s (tried).

use std::time::Duration;

use super::{RuleResult, change_membership, finish_bootstrap};
use crate::identity::MembershipChange;
use crate::plan::EtcdWait;
use crate::view::{ClusterView, DataState, MemberView};

/// How long the next member waits for the last one to join.
const BLOCKED_AFTER: Duration = Duration::from_secs(30);

/// Adds a learner while there are fewer members than desired.
pub(super) fn add_member(view: &ClusterView<'_>) -> RuleResult {
    if !has_learner_slot(view) || finish_bootstrap::all_attempts_failed(view) {
        return RuleResult::Pass;
    }
    if !view.unknown_members.is_empty() {
        // A joining member must list all members by name, and the names of unknown members are not
        // known.
        return RuleResult::Wait(EtcdWait::UnsafeToAdd);
    }
    // Learners that start together wait for each other: the next one is added when the last one
    // serves. Its new start mode need not have reached the kubelet: with an outdated list etcd
    // rejects an empty directory.
    let all_in_place = view.listed().all(|member| {
        member.data != DataState::Lost
            && member.pod.is_some_and(|pod| !pod.is_terminating)
            && (member.is_voter() || member.is_serving() || is_blocked(view, member))
    });
    // Even with a quorum etcd rejects an add while a voter is down (tried on 3.5.35, 3.6.16,
    // 3.7.3).
    let all_voters_serve = view
        .voters()
        .all(|voter| voter.is_joined() && voter.is_serving());
    if all_in_place && all_voters_serve {
        change_membership(view, MembershipChange::Add(view.identity.next_serial))
    } else {
        RuleResult::Wait(EtcdWait::UnsafeToAdd)
    }
}

/// Returns true if, during bootstrap, a member has not started within [`BLOCKED_AFTER`]: a node
/// that cannot run its pod does not delay the other members.
pub(super) fn is_blocked(view: &ClusterView<'_>, member: &MemberView<'_>) -> bool {
    let has_started = member.listed.is_some_and(|listed| listed.has_started);
    if view.identity.bootstrapped || has_started {
        return false;
    }
    let age = member.pod.map(|pod| view.facts.now.since(pod.created_at));
    age.is_some_and(|age| age >= BLOCKED_AFTER)
}

/// Returns true if another member is needed and etcd accepts another learner: one at a time after
/// bootstrap.
pub(super) fn has_learner_slot(view: &ClusterView<'_>) -> bool {
    let max_learners = if view.identity.bootstrapped {
        1
    } else {
        usize::from(view.facts.cluster.max_learners)
    };
    view.listed().count() < view.target_members() && view.learners().count() < max_learners
}
