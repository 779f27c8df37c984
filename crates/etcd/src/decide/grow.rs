//! Volumes grow with the spec, while members run on them, where their class allows it. They never shrink.

use crate::facts::Claim;
use crate::plan::Mark;
use crate::view::{Member, View};

/// Has the claims of members ask for what is wanted. Nobody is disturbed by that, and who grows first does not matter.
pub(super) fn claims(view: &View<'_>) -> Vec<Mark> {
    let to = view.facts.cluster.size;
    let small = view.registered().filter_map(|member| to_grow(view, member));
    small.map(|claim| Mark::Grow { claim: claim.uid, to }).collect()
}

/// The claim of a member whose volume is smaller than is wanted, and stays. What is not there yet cannot grow (Kubernetes grows
/// bound claims only), and what goes need not.
pub(super) fn to_grow<'f>(view: &View<'_>, member: &Member<'f>) -> Option<&'f Claim> {
    let claim = member.claim.filter(|claim| !claim.deleting && claim.volume.is_some())?;
    (claim.size < view.facts.cluster.size && !view.must_be_replaced(member)).then_some(claim)
}
