//! Members whose pods were built from something else than what is wanted now are brought up to date: one at a time, while
//! everybody else is well, followers first and whoever leads last, so that the lead moves once. The first that does not come
//! back ends it, with a quorum that is as it was; what is wanted next, or again, is the new target at once.
//!
//! Data that is in a pod goes with it, and a volume stays where it is and of what class it is: there, one more member joins, built from
//! what is wanted, before one goes that is not (see [`View::target`]).

use std::time::Duration;

use evenkeel_api::Version;

use super::{Verdict, grow};
use crate::facts::{Pod, Storage};
use crate::names::Serial;
use crate::plan::{Leaving, Step, Wait};
use crate::view::{Data, Member, View, quorum};

/// How long a pod may take to start before it is taken for one that does not come up.
const STARTS: Duration = Duration::from_secs(60);

/// From how many wanted members on all of them are spared: with one or two there is no majority without any of them, and whoever
/// wants so few, and wants them restarted, wants that.
const SPARED: u8 = 3;

/// Has a pod that does not run be built anew, quorum or not: nobody misses it, and what it was built from may be the reason. An
/// operator that mends only what is well leaves a cluster down after a bad edit, though the edit was long taken back.
pub(super) fn idle(view: &View<'_>) -> Verdict {
    let outdated =
        view.members.values().filter(|member| view.is_outdated(member) && comes_back(view, member));
    let mut idle = outdated.filter(|member| is_idle(view, member)).filter_map(|member| member.pod);
    match idle.next() {
        Some(pod) => {
            Verdict::step(Step::DeletePod { pod: pod.uid, serial: pod.serial, why: Leaving::Outdated })
        }
        None => Verdict::Pass,
    }
}

/// Whether nobody misses its pod: it says nothing, and does not run; or it runs, and has not been Ready for longer than a start takes,
/// while others are heard. What a kubelet said last, which is cut off since, is no proof against a member that answers.
fn is_idle(view: &View<'_>, member: &Member<'_>) -> bool {
    let is_idle = |pod: &Pod| pod.idle || is_mute(view, member.serial, pod);
    member.voice.is_none() && member.pod.is_some_and(|pod| !pod.deleting && !pod.finished && is_idle(pod))
}

/// Whether a pod that runs is heard by nobody. Whoever hears nobody may be the one who is cut off; and one after the other, so that what
/// is wrong with what is wanted now ends it.
fn is_mute(view: &View<'_>, serial: Serial, pod: &Pod) -> bool {
    let late = |since| view.facts.now.since(since) >= STARTS;
    let alone = view.facts.cluster.members < SPARED;
    let goes = |other: &Member<'_>| other.pod.is_none_or(|pod| pod.deleting);
    let tried = |other: &Member<'_>| !other.serves() && (!view.is_outdated(other) || goes(other));
    let others = || view.registry && !view.registered().any(tried);
    // Nobody hears it, or those who do can do without it.
    let spared = || view.healthy_voters_but(serial) >= quorum(view.votes());
    let missed = || !view.facts.silent.contains_key(&serial) && !spared();
    let is_safe = alone || (others() && !missed());
    is_safe && !pod.ready && pod.unready.is_some_and(late)
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
    if !view.identity.sealed || !view.voters().any(|member| view.is_behind(member)) {
        return Verdict::Pass;
    }
    if let Some(opens) = view.facts.cluster.disrupt.waits_until(view.facts.now) {
        return Verdict::Wait(Wait::Window(opens));
    }
    let is_small = |member: &&Member<'_>| {
        member.claim.is_some_and(|claim| claim.grows) || grow::to_grow(view, member).is_some()
    };
    if let Some(small) = view.registered().find(is_small) {
        // A larger quota on a volume that has not grown yet, and perhaps may not, would let it fill up.
        return Verdict::Wait(Wait::Growing(small.serial));
    }
    if let Some((other, version)) = view.voters().find_map(|member| misnamed(view, member)) {
        return Verdict::Wait(Wait::Misnamed(other, version));
    }
    if let Some(unwell) = view.registered().find(|member| is_waited_for(member)) {
        return Verdict::Wait(Wait::Unwell(unwell.serial));
    }
    // Those that cannot be restarted are replaced, when others that are added have joined.
    let outdated = view.voters().filter(|one| view.is_outdated(one) && !view.must_be_replaced(one));
    let leads = |member: &&Member<'_>| member.voice.is_some_and(|voice| voice.leads);
    let next = outdated.min_by_key(|member| (leads(member), member.serial));
    let Some((next, pod)) = next.and_then(|next| Some((next, next.pod?))) else { return Verdict::Pass };
    let spared = view.healthy_voters_but(next.serial) >= quorum(view.votes());
    // Who wants three, and has two at the moment, has not asked for that.
    if !spared && view.facts.cluster.members >= SPARED {
        return Verdict::Wait(Wait::TooFew);
    }
    let heir = view.heir_of(next.serial);
    Verdict::step(Step::Restart { pod: pod.uid, serial: next.serial, heir, spared })
}

/// Who is up to date and says that it is an etcd of another minor than is wanted: it runs an image that was named by its digest, say.
/// Nobody else is to follow it there.
fn misnamed(view: &View<'_>, member: &Member<'_>) -> Option<(Serial, Version)> {
    let (says, wanted) = (member.voice?.version?, view.facts.cluster.version);
    let differs = (says.major, says.minor) != (wanted.major, wanted.minor);
    (differs && !view.is_outdated(member)).then_some((member.serial, says))
}

/// Whether somebody must be well before the next one is disturbed: everybody must, in Kubernetes' eyes and for clients, too. But
/// for a newcomer that no node takes.
fn is_waited_for(member: &Member<'_>) -> bool {
    if !member.is_voter() {
        return !member.is_unplaced();
    }
    let is_well = member.serves() && member.is_settled() && member.pod.is_some_and(|pod| pod.routed);
    !is_well
}
