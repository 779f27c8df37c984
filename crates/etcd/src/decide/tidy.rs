//! What removed members leave behind. A removed member that lives exits and is started again, and again, until its pod is
//! deleted; a claim is deleted only when its member is known to be removed.

use std::collections::BTreeSet;

use super::{Verdict, begin};
use crate::plan::{Leaving, Step};
use crate::view::View;

/// Deletes pods, then claims, of those who are no members.
pub(super) fn leavers(view: &View<'_>) -> Verdict {
    let prepared: BTreeSet<_> = begin::prepared(view).collect();
    let strangers = || {
        let others = view.members.values().filter(|member| member.registered.is_none());
        others.filter(|member| !prepared.contains(&member.serial))
    };
    if let Some(pod) = strangers().filter_map(|member| member.pod).find(|pod| !pod.deleting) {
        return Verdict::step(Step::DeletePod { pod: pod.uid, serial: pod.serial, why: Leaving::NotAMember });
    }
    let mut alone = strangers().filter(|member| member.pod.is_none()).filter_map(|member| member.claim);
    match alone.find(|claim| !claim.deleting) {
        Some(claim) => Verdict::step(Step::DeleteClaim {
            claim: claim.uid,
            serial: claim.serial,
            why: Leaving::NotAMember,
        }),
        None => Verdict::Pass,
    }
}
