//! A pod gone comes back as the same member, always, quorum or not, on the volume it joined on. Other operators left
//! pods in a terminal phase for ever: a full reboot was the end of the cluster.

use super::Verdict;
use crate::facts::Start;
use crate::plan::{Leaving, Mark, Step};
use crate::view::{Data, Member, View};

/// Creates the pods of members whose own data is there.
pub(super) fn pods(view: &View<'_>) -> Verdict {
    let gone = alive(view).filter(|member| member.pod.is_none() && has_joined_on(member));
    let create: Vec<_> = gone
        .map(|member| view.pod(member.serial, member.claim.map(|claim| claim.uid), Start::OwnData))
        .collect();
    if create.is_empty() { Verdict::Pass } else { Verdict::Along(create) }
}

/// Deletes those that have ended, to be created again.
pub(super) fn ended(view: &View<'_>) -> Verdict {
    // A seed's pod that was created to be told, and whose telling was overtaken.
    let mut held = alive(view).filter(|member| has_joined_on(member)).filter_map(|member| member.pod);
    if let Some(pod) = held.find(|pod| pod.start == Start::Held && !pod.deleting) {
        return Verdict::mark(Mark::Start { pod: pod.uid, from: Start::Held, to: Start::OwnData });
    }
    let ended = alive(view).filter_map(|member| member.pod).find(|pod| pod.finished && !pod.deleting);
    match ended {
        Some(pod) => {
            Verdict::step(Step::DeletePod { pod: pod.uid, serial: pod.serial, why: Leaving::Finished })
        }
        None => Verdict::Pass,
    }
}

/// Members whose data is not gone. Without a list from etcd, whoever has joined counts as a member.
fn alive<'v, 'f>(view: &'v View<'f>) -> impl Iterator<Item = &'v Member<'f>> {
    let known = view.members.values().filter(|member| member.registered.is_some() || !view.registry);
    known.filter(|member| member.data != Data::Gone)
}

/// Whether it is written on its claim that it joined on it, and the claim stays.
fn has_joined_on(member: &Member<'_>) -> bool {
    member.claim.is_some_and(|claim| claim.joined_on.is_some() && !claim.deleting)
}
