//! What removed members leave behind. A removed member that lives exits and is started again, and again, until its pod is
//! deleted; a claim is deleted only when its member is known to be removed, and has been for as long as the user wants.

use std::collections::BTreeSet;

use evenkeel::Time;

use super::{Verdict, begin};
use crate::facts::Claim;
use crate::plan::{Leaving, Mark, Step};
use crate::view::{Member, View};

/// Deletes pods, then claims, of those who are no members.
pub(super) fn leavers(view: &View<'_>) -> Verdict {
    if is_unsure(view) {
        return Verdict::Pass;
    }
    if let Some(pod) = former(view).filter_map(|member| member.pod).find(|pod| !pod.deleting) {
        return Verdict::step(Step::DeletePod { pod: pod.uid, serial: pod.serial, why: Leaving::NotAMember });
    }
    let at_once = left(view).find(|claim| !is_worth_keeping(view, claim));
    let due = || kept(view).find(|(_, until)| view.facts.now >= *until).map(|(claim, _)| claim);
    match at_once.or_else(due) {
        Some(claim) => Verdict::step(Step::DeleteClaim {
            claim: claim.uid,
            serial: claim.serial,
            why: Leaving::NotAMember,
        }),
        None => Verdict::Pass,
    }
}

/// Claims that are kept for a while are marked, with the time from which that counts.
pub(super) fn removed(view: &View<'_>) -> Vec<Mark> {
    // Without a list from etcd nobody knows who is a member.
    if !view.registry || is_unsure(view) {
        return Vec::new();
    }
    // Also where the pod is yet to go, on a node that is lost, say: what version is on the volume counts no more for what others may
    // run.
    let left = former(view).filter_map(|member| Some((member.claim?, member.pod)));
    let left = left.filter(|(claim, _)| !claim.deleting && claim.removed.is_none());
    let marked = left.filter(|(claim, pod)| {
        let binds = claim.joined_on.is_some() && claim.version != Some(view.facts.cluster.version);
        if pod.is_some() { binds && view.identity.sealed } else { is_worth_keeping(view, claim) }
    });
    let marked = marked
        .map(|(claim, _)| claim)
        .map(|claim| Mark::Removed { claim: claim.uid, at: Some(view.facts.now) });
    // Whoever is a member was not removed, whatever somebody has written on its claim.
    let members = view.registered().filter_map(|member| member.claim);
    let wrong = members.filter(|claim| claim.removed.is_some() && !claim.deleting);
    marked.chain(wrong.map(|claim| Mark::Removed { claim: claim.uid, at: None })).collect()
}

/// Whether a member that nobody knows may be one of those that seem to be none: it has started, somewhere.
fn is_unsure(view: &View<'_>) -> bool {
    view.strangers.iter().any(|stranger| stranger.started)
}

/// When the next claim is to be deleted that is kept until then.
pub(super) fn next(view: &View<'_>) -> Option<Time> {
    kept(view).map(|(_, until)| until).min()
}

/// Whoever is no member, and is not about to become one.
fn former<'v, 'f>(view: &'v View<'f>) -> impl Iterator<Item = &'v Member<'f>> {
    let prepared: BTreeSet<_> = begin::prepared(view).collect();
    let others = view.members.values().filter(|member| member.registered.is_none());
    others.filter(move |member| !prepared.contains(&member.serial))
}

/// The claims of those whose pods are gone, as far as they are not kept already.
fn left<'v>(view: &'v View<'_>) -> impl Iterator<Item = &'v Claim> {
    let alone = former(view).filter(|member| member.pod.is_none()).filter_map(|member| member.claim);
    alone.filter(|claim| !claim.deleting)
}

/// Claims that are kept, and until when.
fn kept<'v>(view: &'v View<'_>) -> impl Iterator<Item = (&'v Claim, Time)> {
    let kept = view.kept.iter().filter(|claim| !claim.deleting);
    kept.filter_map(|claim| Some((*claim, claim.removed?.after(view.facts.cluster.keep_removed_for))))
}

/// Only what clients may have written to is worth keeping.
fn is_worth_keeping(view: &View<'_>, claim: &Claim) -> bool {
    let keeps = !view.facts.cluster.keep_removed_for.is_zero();
    keeps && view.identity.sealed && claim.joined_on.is_some()
}
