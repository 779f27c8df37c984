//! Clients are routed by a label on the pods of voters, and not before the seal: readiness alone would route them to
//! learners (a learner of 3.5.16 answers 200; tried).

use super::shrink;
use crate::identity::Change;
use crate::plan::Mark;
use crate::view::View;

/// Routes clients to every voter that is well, is to stay and is not routed to yet. Whoever goes is left by clients first.
pub(super) fn clients(view: &View<'_>) -> Vec<Mark> {
    if !view.identity.sealed || !view.registry {
        return Vec::new();
    }
    let goes = view.identity.intent.as_ref().map(|intent| intent.change);
    let leaver = shrink::goes(view).map(|member| member.serial);
    let voters = view.voters().filter(|member| member.is_settled() && member.serves());
    voters
        .filter(|member| Some(member.serial) != leaver && goes != Some(Change::Remove(member.serial)))
        .filter_map(|member| member.pod)
        .filter(|pod| !pod.routed)
        .map(|pod| Mark::Route { pod: pod.uid })
        .collect()
}
