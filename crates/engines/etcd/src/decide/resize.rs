//! Volumes grow with the spec while members run, if their StorageClass allows it. They never
//! shrink.

use crate::facts::ClaimFacts;
use crate::plan::EtcdPatch;
use crate::view::{ClusterView, DataState, MemberView};

/// Requests the desired size for the claims of all members, in any order. Without etcd's list, those of all members with
/// intact data: full volumes may be the reason why there is no quorum.
pub(super) fn resize_volumes(view: &ClusterView<'_>) -> Vec<EtcdPatch> {
    let stays = |member: &&MemberView<'_>| {
        if view.membership_known {
            member.listed.is_some()
        } else {
            view.identity.bootstrapped && member.data == DataState::Intact
        }
    };
    let claims = view
        .members
        .values()
        .filter(stays)
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
