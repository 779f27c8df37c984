//! A member whose data is gone is never started under its old ID: it is removed, and a new one joins under a new name.
//! Started on an empty directory it would have forgotten what it acknowledged (tried: an acknowledged write was lost).
//! The dead go before anyone is added: their names do not resolve, which holds a joiner up for 30 s, and older etcds
//! refuse an add while a member is down.

use super::Verdict;
use crate::identity::Change;
use crate::plan::Wait;
use crate::view::{Data, Member, View};

/// Removes a member that will not come back, those without a vote first.
pub(super) fn remove(view: &View<'_>) -> Verdict {
    let dead = |member: &&Member<'_>| member.data == Data::Gone || has_forgotten(view, member);
    match view.learners().find(dead).or_else(|| view.voters().find(dead)) {
        None => Verdict::Pass,
        Some(member) if view.removal_is_safe(member.serial) => {
            Verdict::call(view, Change::Remove(member.serial))
        }
        Some(_) => Verdict::Wait(Wait::NoQuorum),
    }
}

/// One that etcd saw start, and that has crashed at every start for longer than it was given: its directory was emptied
/// behind its back. A voter then refuses to start, as it must; a learner panics, and panics again.
fn has_forgotten(view: &View<'_>, member: &Member<'_>) -> bool {
    let started = member.registered.is_some_and(|entry| entry.started);
    let crashing = member.pod.and_then(|pod| pod.crashing);
    let for_long =
        crashing.is_some_and(|since| view.facts.now.since(since) >= view.facts.cluster.replace_after);
    started && for_long && member.voice.is_none()
}
