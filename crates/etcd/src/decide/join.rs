//! Resuming what was begun: whoever is in etcd's list gets its claim and its pod, a list that is true, and, once it has
//! joined, flags with which it can only ever start on its own data.

use std::collections::BTreeSet;

use super::{Verdict, Want};
use crate::facts::{Start, Storage};
use crate::names::Serial;
use crate::plan::{Create, Mark, Wait};
use crate::view::{Data, Member, View};

/// Brings every member that is not settled one piece further.
pub(super) fn resume(view: &View<'_>) -> Verdict {
    let mut want = Want::default();
    let mut joining = BTreeSet::new();
    for member in view.registered().filter(|member| !member.is_settled() && member.data != Data::Gone) {
        joining.insert(member.serial);
        if member.has_joined() {
            turn(view, member, &mut want);
        } else {
            bring(view, member, &mut want);
        }
    }
    if !want.mark.is_empty() {
        Verdict::Want(Box::new(want))
    } else if !want.create.is_empty() {
        Verdict::Along(want.create)
    } else if joining.is_empty() {
        Verdict::Pass
    } else {
        Verdict::Wait(Wait::Joining(joining))
    }
}

/// For one that has not joined: claim, pod, and the list as it is now, because an old list is refused for ever (tried).
fn bring(view: &View<'_>, member: &Member<'_>, want: &mut Want) {
    let (start, epoch) = (Start::Join(view.list()), view.identity.epoch);
    let on = member.claim.map(|claim| claim.uid);
    if view.facts.cluster.storage == Storage::Persistent && on.is_none() {
        // Its pod follows when the claim is seen.
        want.create.push(Create::Claim { serial: member.serial, epoch });
        return;
    }
    if member.is_voter() && member.serial != view.identity.seed {
        // Whoever has a vote has joined once, and is never told to join again: on an empty directory it would have forgotten
        // what it acknowledged. Until its data is back, or known to be gone, it waits.
        return;
    }
    match member.pod {
        // Created waiting, and told by a patch pinned to its uid: a pod that joins cannot be created late, by an operator
        // that was frozen while its member got a vote and lost its data.
        None if view.a_voter_needs_a_place() => {}
        None => want.create.push(view.pod(member.serial, on, Start::Held)),
        Some(pod) if may_rewrite(view, member.serial, &pod.start) && pod.start != start => {
            want.mark.push(Mark::Start { pod: pod.uid, from: pod.start.clone(), to: start });
        }
        Some(_) => {}
    }
}

/// Only a joiner's list is rewritten: one that founds, or that has its own data, keeps its way.
fn may_rewrite(view: &View<'_>, serial: Serial, start: &Start) -> bool {
    serial != view.identity.seed && matches!(start, Start::Held | Start::Join(_))
}

/// For one that has joined: what it joined on, and then how it may start from now on.
fn turn(view: &View<'_>, member: &Member<'_>, want: &mut Want) {
    let Some(pod) = member.pod else { return };
    if let Some(claim) = member.claim.filter(|claim| claim.joined_on.is_none()) {
        let Some(volume) = claim.volume else { return };
        want.mark.push(Mark::JoinedOn { claim: claim.uid, volume });
    }
    let persistent = view.facts.cluster.storage == Storage::Persistent;
    if pod.start != Start::OwnData && (member.claim.is_some() || !persistent) {
        want.mark.push(Mark::Turn { pod: pod.uid, from: pod.start.clone() });
    }
}

/// Pods of an earlier operator do not say from what they were built. They were built from what is in force, for nothing else is
/// before all of them say so.
pub(super) fn inputs(view: &View<'_>) -> Vec<Mark> {
    let (inputs, version) = (view.facts.cluster.inputs, view.facts.cluster.version);
    let pods = view.members.values().filter_map(|member| member.pod);
    pods.filter(|pod| pod.inputs.is_none() && !pod.deleting && !pod.finished)
        .map(|pod| Mark::Inputs { pod: pod.uid, inputs, version })
        .collect()
}

/// Pods that were created to start on their own data only need no turning: their gate is set at once, so that they are Ready
/// as soon as their etcd is.
pub(super) fn gates(view: &View<'_>) -> Vec<Mark> {
    let pods = view.members.values().filter_map(|member| member.pod);
    pods.filter(|pod| pod.start == Start::OwnData && !pod.gate && !pod.deleting && !pod.finished)
        .map(|pod| Mark::Turn { pod: pod.uid, from: Start::OwnData })
        .collect()
}

/// With which version of etcd a member runs is written on its claim: what is on the volume is then known although nobody is left
/// who could tell. Not before it has answered: one that never started has rewritten nothing, and may go back.
pub(super) fn versions(view: &View<'_>) -> Vec<Mark> {
    let joined = view.registered().filter(|member| member.has_joined());
    // What etcd says of itself: an image that was named by its digest may hold another than the spec says.
    let runs =
        joined.filter_map(|member| Some((member.claim?, member.voice?.version.or(member.pod?.version)?)));
    runs.filter(|(claim, version)| claim.version != Some(*version) && !claim.deleting)
        .map(|(claim, version)| Mark::Version { claim: claim.uid, version })
        .collect()
}
