//! What removed members leave behind. A removed member that lives exits and is started again, and again, until its pod is
//! deleted; a claim is deleted only when its member is known to be removed.

use super::Verdict;
use crate::plan::{Leaving, Step};
use crate::view::{Data, View};

/// Deletes pods, then claims, of those who are no members; and pods that stand on data that is not theirs.
pub(super) fn leavers(view: &View<'_>) -> Verdict {
    let strangers = || view.members.values().filter(|member| member.registered.is_none());
    if let Some(pod) = strangers().filter_map(|member| member.pod).find(|pod| !pod.deleting) {
        return Verdict::step(Step::DeletePod { pod: pod.uid, serial: pod.serial, why: Leaving::NotAMember });
    }
    let alone = strangers().filter(|member| member.pod.is_none()).filter_map(|member| member.claim);
    if let Some(claim) = alone.into_iter().find(|claim| !claim.deleting) {
        return Verdict::step(Step::DeleteClaim {
            claim: claim.uid,
            serial: claim.serial,
            why: Leaving::NotAMember,
        });
    }
    // Still a member, but it must not run: what it stands on is not what it joined on.
    let wrong = view.registered().filter(|member| member.data == Data::Gone).filter_map(|member| member.pod);
    match wrong.into_iter().find(|pod| !pod.deleting) {
        Some(pod) => {
            Verdict::step(Step::DeletePod { pod: pod.uid, serial: pod.serial, why: Leaving::DataGone })
        }
        None => Verdict::Pass,
    }
}
