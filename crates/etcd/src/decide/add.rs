//! One more member, as a learner: its serial is reserved with the intent, before anything exists. It is added only when
//! all others in the list have their pods, for a name that does not resolve holds its start up for 30 s (tried).

use std::time::Duration;

use super::{Verdict, seal};
use crate::identity::Change;
use crate::plan::Wait;
use crate::view::{Data, Member, View};

/// Adds a learner while there are fewer members than wanted.
pub(super) fn member(view: &View<'_>) -> Verdict {
    if !has_room(view) || seal::is_spent(view) {
        return Verdict::Pass;
    }
    if !view.strangers.is_empty() {
        // Whoever joins must name all members, and nobody here knows what strangers are called.
        return Verdict::Wait(Wait::AddUnsafe);
    }
    // Learners started together wait for each other: the next one is added when the last one serves. Whether the kubelet
    // has seen its new flags does not matter yet: with a list that is out of date it is refused on an empty directory.
    let in_place = view.registered().all(|member| {
        member.data != Data::Gone
            && member.pod.is_some_and(|pod| !pod.deleting)
            && (member.is_voter() || member.serves() || is_held_up(view, member))
    });
    // With a quorum etcd still refuses an add while any voter is down (tried on 3.5.35, 3.6.16, 3.7.3).
    let ready = view.voters().all(|voter| voter.is_settled() && voter.serves());
    if in_place && ready {
        Verdict::call(view, Change::Add(view.identity.next))
    } else {
        Verdict::Wait(Wait::AddUnsafe)
    }
}

/// How long the next one waits for the last one to join.
const HELD_UP_AFTER: Duration = Duration::from_secs(30);

/// Before the seal, whether a member that never started has had its time: a node that cannot take its member does not
/// hold the others up.
pub(super) fn is_held_up(view: &View<'_>, member: &Member<'_>) -> bool {
    let began = member.registered.is_some_and(|entry| entry.started);
    let age = member.pod.map(|pod| view.facts.now.since(pod.created));
    !view.identity.sealed && !began && age.is_some_and(|age| age >= HELD_UP_AFTER)
}

/// Whether one more member is wanted and etcd takes one more learner. Once sealed, one at a time.
pub(super) fn has_room(view: &View<'_>) -> bool {
    let limit = if view.identity.sealed { 1 } else { usize::from(view.facts.cluster.max_learners) };
    view.registered().count() < view.target() && view.learners().count() < limit
}
