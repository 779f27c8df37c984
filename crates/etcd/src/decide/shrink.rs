//! One member less: whoever is missed least goes first, and never one whose going would cost the quorum.

use super::Verdict;
use crate::identity::Change;
use crate::plan::Wait;
use crate::view::View;

/// Removes a member while there are more than wanted.
pub(super) fn member(view: &View<'_>) -> Verdict {
    if view.registered().count() <= usize::from(view.facts.cluster.members) {
        return Verdict::Pass;
    }
    // Learners before voters, the unwell before the well, the newest before the oldest; before the seal never the seed.
    let leaver = view
        .registered()
        .filter(|member| view.identity.sealed || member.serial != view.identity.seed)
        .max_by_key(|member| (!member.is_voter(), !member.serves(), member.serial));
    match leaver {
        Some(member) if view.removal_is_safe(member.serial) => {
            Verdict::call(view, Change::Remove(member.serial))
        }
        Some(_) => Verdict::Wait(Wait::NoQuorum),
        None => Verdict::Pass,
    }
}
