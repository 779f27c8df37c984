//! Who comes first where there is no room for all. What a node has room for is given to whoever asks first; a voter that was
//! evicted may then find a newcomer in its place, and can go nowhere else if its volume is there (seen, twice: once the newcomer
//! was asked to make way too late, and took the place for good). Whoever has a vote comes first.

use super::Verdict;
use crate::facts::Start;
use crate::identity::Change;
use crate::plan::{Leaving, Step};
use crate::view::View;

/// Has a newcomer that no node takes yet make way for a voter that needs a place. One that has a voter's place and costs the
/// quorum goes from it, too, although etcd cannot be asked to remove it: it was never told to start on its own data, so it has
/// no vote.
pub(super) fn make_way(view: &View<'_>) -> Verdict {
    let needed = view.a_voter_needs_a_place();
    let waits = view.learners().filter(|member| needed && member.is_newcomer());
    let waits = waits.filter_map(|member| member.pod).find(|pod| pod.node.is_none() && !pod.deleting);
    let unlisted = view.members.values().filter(|member| !view.registry && view.keeps_a_voter_out(member));
    let mut joining = unlisted.filter_map(|member| member.pod);
    let in_place = || joining.find(|pod| matches!(pod.start, Start::Join(_)) && !pod.deleting);
    match waits.or_else(in_place) {
        Some(pod) => Verdict::Beside(Box::new(Step::DeletePod {
            pod: pod.uid,
            serial: pod.serial,
            why: Leaving::MakesWay,
        })),
        None => Verdict::Pass,
    }
}

/// Removes a learner that has a voter's place. Its pod alone would not do: its volume may be there by now, and it would be back.
/// Another is added when all voters are well.
pub(super) fn give_back(view: &View<'_>) -> Verdict {
    match view.learners().find(|learner| view.keeps_a_voter_out(learner)) {
        Some(learner) if view.removal_is_safe(learner.serial) => {
            Verdict::call(view, Change::Remove(learner.serial))
        }
        _ => Verdict::Pass,
    }
}
