//! Clients are routed by a label on the pods of voters, and not before the seal: readiness alone would route them to
//! learners (a learner of 3.5.16 answers 200; tried).

use crate::plan::Mark;
use crate::view::View;

/// Routes clients to every voter that is well and not routed to yet.
pub(super) fn clients(view: &View<'_>) -> Vec<Mark> {
    if !view.identity.sealed || !view.registry {
        return Vec::new();
    }
    let voters = view.voters().filter(|member| member.is_settled() && member.serves());
    voters
        .filter_map(|member| member.pod)
        .filter(|pod| !pod.routed)
        .map(|pod| Mark::Route { pod: pod.uid })
        .collect()
}
