//! Members whose pods were built from something else than what is wanted now are brought up to date: one at a time, while
//! everybody else is well, followers first and whoever leads last, so that the lead moves once. The first that does not come
//! back ends it, with a quorum that is as it was; what is wanted next, or again, is the new target at once.
//!
//! Data that is in a pod goes with it: there, one more member joins, built from what is wanted, before one goes that is not
//! (see [`View::target`]).

use super::Verdict;
use crate::facts::Storage;
use crate::plan::{Leaving, Step, Wait};
use crate::view::{Data, Member, View, quorum};

/// Has a pod that does not run be built anew, quorum or not: nobody misses it, and what it was built from may be the reason. An
/// operator that mends only what is well leaves a cluster down after a bad edit, though the edit was long taken back.
pub(super) fn idle(view: &View<'_>) -> Verdict {
    let outdated =
        view.members.values().filter(|member| view.is_outdated(member) && comes_back(view, member));
    let idle =
        outdated.filter_map(|member| member.pod).filter(|pod| !pod.deleting && !pod.finished && pod.idle);
    // One that crashes where others do not has another trouble, and would take that along; it is replaced in time.
    let mut mended = idle.filter(|pod| pod.crashing.is_none() || !view.suits_others(pod));
    match mended.next() {
        Some(pod) => {
            Verdict::step(Step::DeletePod { pod: pod.uid, serial: pod.serial, why: Leaving::Outdated })
        }
        None => Verdict::Pass,
    }
}

/// Whether nothing is lost with its pod.
fn comes_back(view: &View<'_>, member: &Member<'_>) -> bool {
    match view.facts.cluster.storage {
        Storage::Persistent => member.data != Data::Gone,
        Storage::Ephemeral => member.is_newcomer() || !view.identity.sealed,
    }
}

/// Restarts the next member that serves and is out of date.
pub(super) fn serving(view: &View<'_>) -> Verdict {
    let outdated = view.voters().filter(|member| view.is_outdated(member));
    let leads = |member: &&Member<'_>| member.voice.is_some_and(|voice| voice.leads);
    let next = outdated.min_by_key(|member| (leads(member), member.serial));
    let Some(next) = next.filter(|_| view.identity.sealed) else { return Verdict::Pass };
    if let Some(opens) = view.facts.cluster.disrupt.waits_until(view.facts.now) {
        return Verdict::Wait(Wait::Window(opens));
    }
    if let Some(unwell) = view.registered().find(|member| is_waited_for(member)) {
        return Verdict::Wait(Wait::Unwell(unwell.serial));
    }
    let Some(pod) = next.pod.filter(|_| !view.must_be_replaced(next)) else { return Verdict::Pass };
    let spared = view.healthy_voters_but(next.serial) >= quorum(view.votes());
    // With one or two voters there is no majority without any of them: whoever wants them restarted wants that.
    if !spared && view.votes() > 2 {
        return Verdict::Wait(Wait::TooFew);
    }
    let heir = view.heir_of(next.serial);
    Verdict::step(Step::Restart { pod: pod.uid, serial: next.serial, heir, spared })
}

/// Whether somebody must be well before the next one is disturbed: everybody must, in Kubernetes' eyes and for clients, too. But
/// for a newcomer that no node takes: whoever asked for it may never get it.
fn is_waited_for(member: &Member<'_>) -> bool {
    if !member.is_voter() {
        return !(member.is_newcomer() && member.pod.is_none_or(|pod| pod.node.is_none()));
    }
    let is_well = member.serves() && member.is_settled() && member.pod.is_some_and(|pod| pod.routed);
    !is_well
}
