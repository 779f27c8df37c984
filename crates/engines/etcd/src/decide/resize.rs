//! Volumes grow with the spec while members run, if their StorageClass allows it. They never
//! shrink.

use crate::facts::ClaimFacts;
use crate::plan::EtcdPatch;
use crate::view::{ClusterView, MemberView};

/// Requests the desired size for the claims of all members, in any order.
pub(super) fn resize_volumes(view: &ClusterView<'_>) -> Vec<EtcdPatch> {
    let claims = view
        .listed()
        .filter_map(|member| claim_to_resize(view, member));
    claims
        .map(|claim| EtcdPatch::ResizeVolume {
            claim: claim.uid,
            to: view.facts.cluster.volume_size,
        })
        .collect()
}

/// Returns the claim of a member if it is smaller than desired and stays. Kubernetes resizes bound
/// claims only.
pub(super) fn claim_to_resize<'f>(
    view: &ClusterView<'_>,
    member: &MemberView<'f>,
) -> Option<&'f ClaimFacts> {
    let claim = member.claim?;
    if claim.is_terminating || claim.volume.is_none() || view.must_be_replaced(member) {
        return None;
    }
    (claim.requested_size < view.facts.cluster.volume_size).then_some(claim)
}
