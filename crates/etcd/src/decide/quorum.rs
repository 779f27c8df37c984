//! Without a quorum that answers nothing about the membership is known, and nothing is done about it. Other operators
//! reported health over the total loss of members, or rebuilt a cluster that was only cut off.

use super::Verdict;
use crate::plan::Wait;
use crate::view::View;

/// Stops everything that rests on etcd's list of members while it cannot be read.
pub(super) fn check(view: &View<'_>) -> Verdict {
    match (view.registry, view.identity.cluster) {
        (true, _) => Verdict::Pass,
        (false, None) if view.identity.sealed => Verdict::Halt(Wait::NoQuorum),
        (false, None) => Verdict::Halt(Wait::SeedStarts(view.identity.seed)),
        (false, Some(_)) => Verdict::Halt(Wait::NoQuorum),
    }
}
