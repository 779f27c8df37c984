//! A learner gets its vote when it has caught up *and is alive*, can start on nothing but its own data, and one vote more
//! leaves enough that are well. Before the seal all are promoted at the end: an add right after a promotion waits 5 s.

use super::{Verdict, add, seal};
use crate::identity::Change;
use crate::plan::Wait;
use crate::view::View;

/// Promotes a learner that is ready.
pub(super) fn learner(view: &View<'_>) -> Verdict {
    if view.registered().count() > view.target() {
        // One too many: it is not given a vote only to be removed.
        return Verdict::Pass;
    }
    let still_adding = !view.identity.sealed && add::has_room(view) && !seal::patience_is_over(view);
    if still_adding {
        return Verdict::Pass;
    }
    let Some(first) = view.learners().next() else { return Verdict::Pass };
    match view.learners().find(|learner| view.promotion_is_safe(learner)) {
        Some(learner) => Verdict::call(view, Change::Promote(learner.serial)),
        None => Verdict::Wait(Wait::CatchingUp(first.serial)),
    }
}
