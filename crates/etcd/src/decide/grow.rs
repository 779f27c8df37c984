//! Volumes grow with the spec, while members run on them, where their class allows it. They never shrink.

use crate::plan::Mark;
use crate::view::View;

/// Has the claims of members ask for what is wanted. Nobody is disturbed by that, and who grows first does not matter.
pub(super) fn claims(view: &View<'_>) -> Vec<Mark> {
    let to = view.facts.cluster.size;
    let claims =
        view.registered().filter(|member| !view.must_be_replaced(member)).filter_map(|one| one.claim);
    claims
        .filter(|claim| claim.size < to && !claim.deleting && claim.volume.is_some())
        .map(|claim| Mark::Grow { claim: claim.uid, to })
        .collect()
}
