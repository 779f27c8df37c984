//! Volumes grow with the spec, while members run on them, where their class allows it. They never shrink.

use crate::facts::ClaimFacts;
use crate::plan::EtcdPatch;
use crate::view::{ClusterView, MemberView};

/// Has the claims of members ask for what is wanted. Nobody is disturbed by that, and who grows first does not matter.
pub(super) fn resize_volumes(view: &ClusterView<'_>) -> Vec<EtcdPatch> {
    let to = view.facts.cluster.volume_size;
    let small = view
        .listed()
        .filter_map(|member| claim_to_resize(view, member));
    small
        .map(|claim| EtcdPatch::ResizeVolume {
            claim: claim.uid,
            to,
        })
        .collect()
}

/// The claim of a member whose volume is smaller than is wanted, and stays. What is not there yet cannot grow (Kubernetes grows
/// bound claims only), and what goes need not.
pub(super) fn claim_to_resize<'f>(
    view: &ClusterView<'_>,
    member: &MemberView<'f>,
) -> Option<&'f ClaimFacts> {
    let claim = member
        .claim
        .filter(|claim| !claim.is_terminating && claim.volume.is_some())?;
    (claim.requested_size < view.facts.cluster.volume_size && !view.must_be_replaced(member))
        .then_some(claim)
}
