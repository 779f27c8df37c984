//! The end of the bootstrap. Only now are clients routed, and no member is ever started as a new cluster again in this
//! epoch.

use super::Verdict;
use crate::identity::Change;
use crate::plan::{Turn, Wait};
use crate::view::{View, quorum};

/// Seals an epoch when all wanted members are voters, or patience is over for those that cannot start.
pub(super) fn epoch(view: &View<'_>) -> Verdict {
    if view.identity.sealed {
        return Verdict::Pass;
    }
    let wanted = usize::from(view.facts.cluster.members);
    let all = view.voters().count() == wanted && view.learners().count() == 0;
    let settled = view.voters().all(|member| member.is_settled() && member.serves());
    let (voters, healthy) = (view.voters().count(), view.voters().filter(|member| member.serves()).count());
    let enough = patience_is_over(view) && healthy >= quorum(voters);
    if settled && voters > 0 && (all || enough) {
        // Once sealed there is one learner at most: of several that do not start, the newest go, and follow later.
        return match view.learners().filter(|learner| !learner.serves()).last() {
            Some(learner) if view.learners().count() > 1 => {
                Verdict::call(view, Change::Remove(learner.serial))
            }
            _ if view.learners().count() > 1 => Verdict::Wait(Wait::CatchingUp(view.identity.seed)),
            _ => Verdict::turn(view.identity, Turn::Seal, |to| to.sealed = true),
        };
    }
    match until(view) {
        Some(until) => Verdict::Wait(Wait::Patience(until)),
        None => Verdict::Wait(Wait::SeedStarts(view.identity.seed)),
    }
}

/// Whether members that do not start are no longer waited for.
pub(super) fn patience_is_over(view: &View<'_>) -> bool {
    until(view).is_some_and(|until| view.facts.now >= until)
}

/// Counted from the creation of the newest pod: whoever came last gets its time.
fn until(view: &View<'_>) -> Option<evenkeel::Time> {
    let newest = view.members.values().filter_map(|member| member.pod).map(|pod| pod.created).max();
    newest.map(|created| created.after(view.facts.cluster.patience))
}
