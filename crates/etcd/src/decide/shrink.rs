//! One member less: whoever is missed least goes first, and never one whose going would cost the quorum.

use super::Verdict;
use crate::identity::Change;
use crate::plan::{Mark, Wait};
use crate::view::{Member, View};

/// Removes a member while there are more than wanted.
pub(super) fn member(view: &View<'_>) -> Verdict {
    let Some(member) = leaver(view) else { return Verdict::Pass };
    if !view.removal_is_safe(member.serial) {
        return Verdict::Wait(Wait::NoQuorum);
    }
    if let Some(unwell) = unwell_in_a_move(view, member) {
        return Verdict::Wait(Wait::Unwell(unwell.serial));
    }
    match member.pod.filter(|pod| pod.routed) {
        Some(pod) => Verdict::mark(Mark::Unroute { pod: pod.uid }),
        None => Verdict::call(view, Change::Remove(member.serial)),
    }
}

/// Who goes now, while nobody is waited for.
pub(super) fn goes<'v, 'f>(view: &'v View<'f>) -> Option<&'v Member<'f>> {
    leaver(view).filter(|leaver| unwell_in_a_move(view, leaver).is_none())
}

/// Whether there is one too many only since somebody is to be replaced, and has a successor.
fn moves(view: &View<'_>) -> bool {
    view.registered().count() <= view.target()
}

/// Who has to be well before one goes that is well and is to be replaced. Whoever is down gets its time like any other (see `dead`):
/// were it only passed over, what brought it down would bring down one successor after the other.
fn unwell_in_a_move<'v, 'f>(view: &'v View<'f>, leaver: &Member<'_>) -> Option<&'v Member<'f>> {
    let mut others = view.voters().filter(|other| other.serial != leaver.serial && !other.serves());
    others.next().filter(|_| moves(view) && leaver.serves())
}

/// Who goes next, if there are more than wanted. In a move that is somebody who is to be replaced. Else learners before voters, the unwell before the well, those who are to be
/// replaced before those who are not, those who share their node before those who do not, others before who leads, the newest
/// before the oldest; before the seal never the seed.
fn leaver<'v, 'f>(view: &'v View<'f>) -> Option<&'v Member<'f>> {
    let there = view.registered().count();
    // One that joins so that another can go is not the one that goes.
    let joins = view.learners().next().is_some() && moves(view);
    if there <= usize::from(view.facts.cluster.members) || joins {
        return None;
    }
    let node = |member: &Member<'_>| member.pod.and_then(|pod| pod.node);
    // Those who were removed, and whose pods are about to go, share it no more.
    let shares = |member: &Member<'_>| {
        let mut others = view.registered().filter(|other| other.serial != member.serial);
        node(member).is_some() && others.any(|other| node(other) == node(member))
    };
    let leads = |member: &Member<'_>| member.voice.is_some_and(|voice| voice.leads);
    let may_go = |member: &&Member<'_>| {
        let is_last = !view.identity.sealed && member.serial == view.identity.seed;
        !is_last && (!moves(view) || view.must_be_replaced(member))
    };
    view.registered().filter(may_go).max_by_key(|member| {
        let replaced = view.must_be_replaced(member);
        (!member.is_voter(), !member.serves(), replaced, shares(member), !leads(member), member.serial)
    })
}
