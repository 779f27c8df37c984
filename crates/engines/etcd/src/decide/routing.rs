//! Clients are routed by a label on the pods of voters, and not before the seal: readiness alone would route them to
//! learners (a learner of 3.5.16 answers 200; tried).

use super::shrink;
use crate::identity::MembershipChange;
use crate::plan::EtcdPatch;
use crate::view::ClusterView;

/// Routes clients to every voter that is well, is to stay and is not routed to yet. Whoever goes is left by clients first.
pub(super) fn route_clients(view: &ClusterView<'_>) -> Vec<EtcdPatch> {
    if !view.identity.bootstrapped || !view.membership_known {
        return Vec::new();
    }
    let goes = view.identity.intent.as_ref().map(|intent| intent.change);
    let leaver = shrink::next_to_remove(view).map(|member| member.serial);
    let voters = view
        .voters()
        .filter(|member| member.is_joined() && member.is_serving());
    voters
        .filter(|member| {
            Some(member.serial) != leaver && goes != Some(MembershipChange::Remove(member.serial))
        })
        .filter_map(|member| member.pod)
        .filter(|pod| !pod.is_routed)
        .map(|pod| EtcdPatch::AttachClients { pod: pod.uid })
        .collect()
}
