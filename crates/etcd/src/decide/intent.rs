//! A change of the membership that was begun is finished before another is begun. A call that was sent late is accepted
//! by etcd: after a successor had removed dead C, a thawed operator's "remove B" left one voter (tried).

use std::time::Duration;

use super::Verdict;
use crate::identity::{Change, Intent};
use crate::plan::{Step, Turn, Wait};
use crate::view::{Member, View};

/// A call that went out this long ago has ended, one way or the other: calls have a deadline well below.
pub(crate) const VOID_AFTER: Duration = Duration::from_secs(30);

/// Settles the open intent: done, repeated, or void.
pub(super) fn settle(view: &View<'_>) -> Verdict {
    let Some(intent) = &view.identity.intent else { return Verdict::Pass };
    if is_done(view, intent.change) {
        return close(view);
    }
    // Repeating it is harmless: whichever of the two calls comes second finds it done. But the world may have changed.
    let voters = (view.voter_list(), view.strange_voters());
    if voters == (intent.voters.clone(), intent.strangers.clone()) && is_still_right(view, intent) {
        return Verdict::intend(view, intent.clone());
    }
    if view.facts.now.since(intent.since) >= VOID_AFTER {
        return close(view);
    }
    Verdict::Halt(Wait::Settling(Intent::clone(intent)))
}

fn close(view: &View<'_>) -> Verdict {
    let mut to = view.identity.clone();
    to.intent = None;
    Verdict::Beside(Box::new(Step::Identity { from: view.identity.clone(), to, why: Turn::Settle }))
}

fn is_done(view: &View<'_>, change: Change) -> bool {
    let entry = change.member().and_then(|serial| view.members.get(&serial)?.registered);
    match change {
        Change::Add(_) => entry.is_some(),
        Change::Promote(_) => entry.is_none_or(|entry| !entry.learner),
        Change::Remove(_) => entry.is_none(),
        Change::Expel(id) => view.strangers.iter().all(|stranger| stranger.id != id),
    }
}

fn is_still_right(view: &View<'_>, intent: &Intent) -> bool {
    let change = intent.change;
    let member = change.member().and_then(|serial| view.members.get(&serial));
    match change {
        // etcd refuses an add while any voter is down (tried on 3.5.35, 3.6.16, 3.7.3): repeated for ever, it would keep the
        // dead from being removed.
        Change::Add(_) => view.registered().count() < view.target() && view.voters().all(Member::serves),
        Change::Promote(_) => member.is_some_and(|member| view.promotion_is_safe(member)),
        // One that has come back meanwhile stays.
        Change::Remove(_) if intent.replaces && member.is_some_and(|member| member.voice.is_some()) => false,
        Change::Remove(serial) => view.removal_is_safe(serial),
        Change::Expel(id) => {
            let mut strangers = view.strangers.iter().filter(|stranger| stranger.id == id);
            strangers.any(|stranger| !stranger.started && view.expulsion_is_safe(stranger))
        }
    }
}
