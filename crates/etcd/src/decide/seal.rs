//! The end of the bootstrap. Only now are clients routed, and no member is ever started as a new cluster again in this
//! epoch.

use super::{Verdict, add};
use crate::facts::{Pod, Start};
use crate::identity::Change;
use crate::plan::{Turn, Wait};
use crate::view::{Data, Member, View, quorum};

/// Seals an epoch when all wanted members are voters, or patience is over for those that cannot start.
pub(super) fn epoch(view: &View<'_>) -> Verdict {
    if view.identity.sealed {
        return Verdict::Pass;
    }
    let wanted = usize::from(view.facts.cluster.members);
    let all = view.voters().count() == wanted && view.learners().count() == 0;
    let (voters, healthy) = (view.voters().count(), view.voters().filter(|member| member.serves()).count());
    let enough = patience_is_over(view) && healthy >= quorum(voters);
    let settled = view
        .voters()
        .all(|member| (member.is_settled() && member.serves()) || (enough && is_away(view, member)));
    if settled && voters > 0 && (all || enough) {
        // Once sealed there is one learner at most: of several that do not start, the newest go, and follow later.
        return match view.learners().filter(|learner| !learner.serves()).last() {
            Some(learner) if view.learners().count() > 1 => {
                Verdict::call(view, Change::Remove(learner.serial))
            }
            None if view.learners().count() > 1 => {
                let learner = view.learners().next().map_or(view.identity.seed, |learner| learner.serial);
                Verdict::Wait(Wait::CatchingUp(learner))
            }
            _ => Verdict::turn(view.identity, Turn::Seal, |to| to.sealed = true),
        };
    }
    match until(view) {
        Some(until) => Verdict::Wait(Wait::Patience(until)),
        None => Verdict::Wait(Wait::SeedStarts(view.identity.seed)),
    }
}

/// Whether a voter is down that can start on nothing but its own data: whoever was given its vote could by then start on nothing
/// else. It comes back, or is replaced, when clients are let in as well as before. The seed never was given its own.
fn is_away(view: &View<'_>, member: &Member<'_>) -> bool {
    let turned = |pod: &Pod| pod.start == Start::OwnData && pod.gate;
    !member.serves()
        && member.serial != view.identity.seed
        && member.data == Data::Own
        && member.pod.is_none_or(turned)
}

/// Whether members that do not start are no longer waited for.
pub(super) fn patience_is_over(view: &View<'_>) -> bool {
    until(view).is_some_and(|until| view.facts.now >= until)
}

/// Whether the bootstrap ends with those who are there: everybody was tried, and one more in the place of one who did not start, and
/// somebody is waited for still. Whoever were added now would only go again, so that the epoch is never sealed.
pub(super) fn is_spent(view: &View<'_>) -> bool {
    let tried = view.identity.next.0.saturating_sub(view.identity.seed.0);
    !view.identity.sealed
        && tried > u16::from(view.facts.cluster.members)
        && view.learners().any(|learner| add::is_held_up(view, learner))
}

/// Counted from the creation of the newest pod: whoever came last gets its time. Those who are only prepared are no members yet, and
/// nobody waits for them, if anybody knows who the members are.
pub(super) fn until(view: &View<'_>) -> Option<evenkeel::Time> {
    let newest = |pods: &mut dyn Iterator<Item = &Pod>| pods.map(|pod| pod.created).max();
    let newest = newest(&mut view.registered().filter_map(|member| member.pod))
        .or_else(|| newest(&mut view.members.values().filter_map(|member| member.pod)));
    newest.map(|created| created.after(view.facts.cluster.patience))
}
