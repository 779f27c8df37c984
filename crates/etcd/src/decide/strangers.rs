//! Members that somebody else added. One that never started is a slip, or was given up: it takes a vote that nobody gives,
//! and goes when it had its time. One that has started may hold somebody's data, and is never touched.

use super::Verdict;
use crate::identity::Change;
use crate::plan::Wait;
use crate::view::View;

/// Removes a stranger that never started; says that there are others.
pub(super) fn expel(view: &View<'_>) -> Verdict {
    if view.strangers.is_empty() {
        return Verdict::Pass;
    }
    let overdue = view.strangers.iter().find(|stranger| {
        !stranger.started && view.facts.now.since(stranger.since) >= view.facts.cluster.replace_after
    });
    match overdue {
        Some(stranger) if view.expulsion_is_safe(stranger) => Verdict::call(view, Change::Expel(stranger.id)),
        // Before the seal nobody has written yet, and nothing is lost by waiting until the cluster is ours alone.
        _ if !view.identity.sealed => Verdict::Halt(Wait::Strangers(view.strangers.to_vec())),
        _ => Verdict::Wait(Wait::Strangers(view.strangers.to_vec())),
    }
}
