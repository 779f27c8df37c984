//! Routing: a label on the pods of voters adds them to the client Service once bootstrap is
//! finished. Readiness alone would route clients to learners (a learner of 3.5.16 answers 200;
//! tried).

use super::shrink;
use crate::facts::PodFacts;
use crate::identity::MembershipChange;
use crate::plan::EtcdPatch;
use crate::view::ClusterView;

/// Attaches clients to every healthy voter that is not about to be removed.
pub(super) fn route_clients(view: &ClusterView<'_>) -> Vec<EtcdPatch> {
    if !view.identity.bootstrapped || !view.membership_known {
        return Vec::new();
    }
    // An identity that was rebuilt during bootstrap counts as bootstrapped, and the resource may
    // still own the data. The plan removes the owner references first.
    let is_routed = |pod: &PodFacts| pod.is_routed;
    let mut pods = view.members.values().filter_map(|member| member.pod);
    if view.owns_kept_data() && !pods.any(is_routed) {
        return Vec::new();
    }
    let open_change = view.identity.intent.as_ref().map(|intent| intent.change);
    let next_removed = shrink::next_to_remove(view).map(|member| member.serial);
    let voters = view.voters().filter(|member| {
        member.is_joined()
            && member.is_serving()
            && next_removed != Some(member.serial)
            && open_change != Some(MembershipChange::Remove(member.serial))
    });
    voters
        .filter_map(|member| member.pod)
        .filter(|pod| !pod.is_routed)
        .map(|pod| EtcdPatch::AttachClients { pod: pod.uid })
        .collect()
}
