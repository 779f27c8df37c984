//! Resuming what was begun: whoever is in etcd's list gets its claim and its pod, a list that is true, and, once it has
//! joined, flags with which it can only ever start on its own data.

use std::collections::BTreeSet;

use super::{Actions, RuleResult};
use crate::facts::{StartMode, StorageKind};
use crate::names::Serial;
use crate::plan::{EtcdCreate, EtcdPatch, EtcdWait};
use crate::view::{ClusterView, DataState, MemberView};

/// Brings every member that is not settled one piece further.
pub(super) fn resume_joins(view: &ClusterView<'_>) -> RuleResult {
    let mut want = Actions::default();
    let mut joining = BTreeSet::new();
    for member in view
        .listed()
        .filter(|member| !member.is_joined() && member.data != DataState::Lost)
    {
        joining.insert(member.serial);
        if member.has_joined() {
            mark_joined(view, member, &mut want);
        } else {
            start_member(view, member, &mut want);
        }
    }
    if !want.patch.is_empty() {
        RuleResult::Act(Box::new(want))
    } else if !want.create.is_empty() {
        RuleResult::CreateAndContinue(want.create)
    } else if joining.is_empty() {
        RuleResult::Pass
    } else {
        RuleResult::Wait(EtcdWait::MemberJoin(joining))
    }
}

/// For one that has not joined: claim, pod, and the list as it is now, because an old list is refused for ever (tried).
fn start_member(view: &ClusterView<'_>, member: &MemberView<'_>, want: &mut Actions) {
    let (start, epoch) = (StartMode::Join(view.listed_serials()), view.identity.epoch);
    let on = member.claim.map(|claim| claim.uid);
    if view.facts.cluster.storage == StorageKind::Persistent && on.is_none() {
        // Its pod follows when the claim is seen.
        want.create.push(EtcdCreate::Claim {
            serial: member.serial,
            epoch,
        });
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
        None if view.any_voter_needs_node() => {}
        None => want
            .create
            .push(view.pod(member.serial, on, StartMode::Held)),
        Some(pod)
            if may_rewrite(view, member.serial, &pod.start_mode) && pod.start_mode != start =>
        {
            want.patch.push(EtcdPatch::SetStartMode {
                pod: pod.uid,
                from: pod.start_mode.clone(),
                to: start,
            });
        }
        Some(_) => {}
    }
}

/// Only a joiner's list is rewritten: one that founds, or that has its own data, keeps its way.
fn may_rewrite(view: &ClusterView<'_>, serial: Serial, start: &StartMode) -> bool {
    serial != view.identity.seed && matches!(start, StartMode::Held | StartMode::Join(_))
}

/// For one that has joined: what it joined on, and then how it may start from now on.
fn mark_joined(view: &ClusterView<'_>, member: &MemberView<'_>, want: &mut Actions) {
    let Some(pod) = member.pod else { return };
    if let Some(claim) = member.claim.filter(|claim| claim.joined_on.is_none()) {
        let Some(volume) = claim.volume else { return };
        want.patch.push(EtcdPatch::RecordJoinedVolume {
            claim: claim.uid,
            volume,
        });
    }
    let persistent = view.facts.cluster.storage == StorageKind::Persistent;
    if pod.start_mode != StartMode::ExistingData && (member.claim.is_some() || !persistent) {
        want.patch.push(EtcdPatch::MarkJoined {
            pod: pod.uid,
            from: pod.start_mode.clone(),
        });
    }
}

/// Pods of an earlier operator do not say from what they were built. They were built from what is in force, for nothing else is
/// before all of them say so.
pub(super) fn record_template_hashes(view: &ClusterView<'_>) -> Vec<EtcdPatch> {
    let (inputs, version) = (
        view.facts.cluster.pod_template_hash,
        view.facts.cluster.version,
    );
    let pods = view.members.values().filter_map(|member| member.pod);
    pods.filter(|pod| pod.template_hash.is_none() && !pod.is_terminating && !pod.is_finished)
        .map(|pod| EtcdPatch::RecordTemplateHash {
            pod: pod.uid,
            inputs,
            version,
        })
        .collect()
}

/// Pods that were created to start on their own data only need no turning: their gate is set at once, so that they are Ready
/// as soon as their etcd is.
pub(super) fn set_joined_gates(view: &ClusterView<'_>) -> Vec<EtcdPatch> {
    let pods = view.members.values().filter_map(|member| member.pod);
    pods.filter(|pod| {
        pod.start_mode == StartMode::ExistingData
            && !pod.joined_gate
            && !pod.is_terminating
            && !pod.is_finished
    })
    .map(|pod| EtcdPatch::MarkJoined {
        pod: pod.uid,
        from: StartMode::ExistingData,
    })
    .collect()
}

/// With which version of etcd a member runs is written on its claim: what is on the volume is then known although nobody is left
/// who could tell. Not before it has answered: one that never started has rewritten nothing, and may go back.
pub(super) fn record_versions(view: &ClusterView<'_>) -> Vec<EtcdPatch> {
    let joined = view.listed().filter(|member| member.has_joined());
    // What etcd says of itself: an image that was named by its digest may hold another than the spec says.
    let runs = joined.filter_map(|member| {
        Some((
            member.claim?,
            member.health?.version.or(member.pod?.version)?,
        ))
    });
    runs.filter(|(claim, version)| claim.last_version != Some(*version) && !claim.is_terminating)
        .map(|(claim, version)| EtcdPatch::RecordVersion {
            claim: claim.uid,
            version,
        })
        .collect()
}
