//! A member whose data is gone is never started under its old ID: it is removed, and a new one joins under a new name.
//! Started on an empty directory it would have forgotten what it acknowledged (tried: an acknowledged write was lost).
//! The dead go before anyone is added: their names do not resolve, which holds a joiner up for 30 s, and older etcds
//! refuse an add while a member is down.
//!
//! One that may come back is given its time first, and is replaced with care: one at a time, and not many within an hour,
//! for whatever brought it down may bring down its successors.

use std::time::Duration;

use evenkeel::Time;

use super::Verdict;
use crate::facts::{Claim, Reach};
use crate::identity::{Change, OF_LATE};
use crate::names::Serial;
use crate::plan::Wait;
use crate::view::{Data, Member, View};

/// How long no node takes a pod before that counts for one whose volume none reaches: labels of nodes come and go.
const KEPT_AWAY: Duration = Duration::from_secs(60);

/// How many members that might have come back are replaced within an hour.
const MOST_OF_LATE: usize = 3;

/// Removes a member that will not come back, or has not for too long; those without a vote first.
pub(super) fn remove(view: &View<'_>) -> Verdict {
    let gone = |member: &&Member<'_>| member.data == Data::Gone;
    if let Some(member) = view.learners().find(gone).or_else(|| view.voters().find(gone)) {
        return if view.removal_is_safe(member.serial) {
            Verdict::call(view, Change::Remove(member.serial))
        } else {
            Verdict::Wait(Wait::NoQuorum)
        };
    }
    // One that never started has nothing to lose, and on a volume that is no longer wanted it only keeps others from joining.
    let waits =
        |one: &&Member<'_>| one.is_newcomer() && (view.must_be_replaced(one) || is_kept_away(view, one));
    if let Some(member) = view.learners().find(waits).filter(|_| view.identity.sealed) {
        return Verdict::call(view, Change::Remove(member.serial));
    }
    let given_up = |member: &&Member<'_>| is_given_up(view, member);
    match view.learners().find(given_up).or_else(|| view.voters().find(given_up)) {
        Some(member) => replace(view, member),
        None => Verdict::Pass,
    }
}

/// Removes one that might come back, if that is wise.
fn replace(view: &View<'_>, member: &Member<'_>) -> Verdict {
    // One for which there is no node yet holds nobody up: what keeps it out may be the very node that is lost.
    let is_on_its_way = |other: &&Member<'_>| {
        other.serial != member.serial
            && other.pod.is_some_and(|pod| pod.node.is_some() && !pod.deleting)
            && !is_given_up(view, other)
    };
    if let Some(other) = view.learners().find(is_on_its_way) {
        return Verdict::Wait(Wait::Replacing(other.serial));
    }
    if !view.removal_is_safe(member.serial) {
        return Verdict::Wait(Wait::NoQuorum);
    }
    if !member.is_voter() {
        // Without a vote it is missed by nobody.
        return Verdict::call(view, Change::Remove(member.serial));
    }
    // The last three, as they come: of these the first must be an hour old.
    match view.identity.replaced_of_late(view.facts.now).nth_back(MOST_OF_LATE - 1) {
        Some(first) => Verdict::Wait(Wait::Enough(member.serial, first.after(OF_LATE))),
        None => Verdict::replace(view, member.serial),
    }
}

/// Whether it had its time, and others are well without it.
fn is_given_up(view: &View<'_>, member: &Member<'_>) -> bool {
    is_out_of_reach(view, member) || crashes(view, member)
}

/// Whether nobody has reached it for too long.
pub(crate) fn is_out_of_reach(view: &View<'_>, member: &Member<'_>) -> bool {
    out_of_reach_at(view, member).is_some_and(|at| view.facts.now >= at)
}

/// Whether it has crashed for too long.
pub(crate) fn crashes(view: &View<'_>, member: &Member<'_>) -> bool {
    crashes_at(view, member).is_some_and(|at| view.facts.now >= at)
}

/// The member whose time is over first, of those that may come back and are waited for, and when that is.
pub(crate) fn waited_for(view: &View<'_>) -> Option<(Serial, Time)> {
    let times = |member: &Member<'_>| {
        let of = member.serial;
        [out_of_reach_at(view, member), crashes_at(view, member)]
            .into_iter()
            .flatten()
            .map(move |at| (of, at))
    };
    let all = view.registered().flat_map(times).filter(|(_, at)| *at > view.facts.now);
    all.min_by_key(|(_, at)| *at)
}

/// When one has had its time that nobody hears: neither the operator nor, by its connections, the leader; and Kubernetes does
/// not call its pod Ready. Only who cannot be reached by all three is taken for lost: what the API server cannot reach may
/// serve clients.
fn out_of_reach_at(view: &View<'_>, member: &Member<'_>) -> Option<Time> {
    let pod = member.pod.filter(|_| view.identity.sealed && member.voice.is_none())?;
    // A newcomer that no node takes, or that cannot start where it is, is not lost; nor would another one do better. One whose
    // node is lost is known by its pod, which Kubernetes has sent away and nobody has seen go; and for one that had to make way
    // for the voter whose place it had, and whose volume is there, another one finds another place.
    let lost = pod.node.is_some() && pod.deleting;
    let tied = |claim: &Claim| matches!(claim.reach, Reach::Node(_));
    let displaced = || member.claim.is_some_and(tied) && is_kept_out(view, member);
    if member.is_newcomer() && !lost && !displaced() {
        return None;
    }
    // What it was built from may be what keeps it from starting: nobody runs on that yet, and a successor would do no better.
    let starts = !pod.idle || pod.deleting || view.suits_others(pod) || is_kept_away(view, member);
    let since = pod.unready.filter(|_| starts)?.max(*view.facts.silent.get(&member.serial)?);
    Some(since.after(view.facts.cluster.replace_after))
}

/// Whether no node takes a pod, and none would that reaches its volume.
fn is_kept_away(view: &View<'_>, member: &Member<'_>) -> bool {
    let refused = |since: Time| view.facts.now.since(since) >= KEPT_AWAY;
    let waits = member.pod.is_some_and(|pod| pod.node.is_none() && pod.refused.is_some_and(refused));
    waits && member.claim.is_some_and(|claim| claim.misplaced)
}

fn is_kept_out(view: &View<'_>, member: &Member<'_>) -> bool {
    view.voters().any(|voter| view.has_the_place_of(voter, member))
}

/// When one has had its time that etcd saw start, and that has crashed at every start since, while others run on the very
/// same inputs. Its directory was emptied behind its back, say: a voter then refuses to start, as it must; a learner panics,
/// and panics again.
fn crashes_at(view: &View<'_>, member: &Member<'_>) -> Option<Time> {
    let started = member.registered.is_some_and(|entry| entry.started) && member.voice.is_none();
    let pod = member.pod.filter(|_| started)?;
    // Its successor would be built from something else if it is out of date.
    let helps = view.suits_others(pod) || view.is_outdated(member);
    let since = pod.crashing.filter(|_| helps)?;
    Some(since.after(view.facts.cluster.replace_after))
}
