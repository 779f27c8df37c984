//! A pod gone comes back as the same member, always, quorum or not, on the volume it joined on. Other operators left
//! pods in a terminal phase for ever: a full reboot was the end of the cluster.

use super::RuleResult;
use crate::facts::StartMode;
use crate::plan::{DeleteReason, EtcdDisruption, EtcdPatch};
use crate::view::{ClusterView, DataState, MemberView};

/// Creates the pods of members whose own data is there.
pub(super) fn recreate_pods(view: &ClusterView<'_>) -> RuleResult {
    let gone = joined_members(view).filter(|member| member.pod.is_none() && has_joined_on(member));
    let create: Vec<_> = gone
        .map(|member| {
            view.pod(
                member.serial,
                member.claim.map(|claim| claim.uid),
                StartMode::ExistingData,
            )
        })
        .collect();
    if create.is_empty() {
        RuleResult::Pass
    } else {
        RuleResult::CreateAndContinue(create)
    }
}

/// Deletes those that have ended, to be created again.
pub(super) fn delete_finished_pods(view: &ClusterView<'_>) -> RuleResult {
    // A seed's pod that was created to be told, and whose telling was overtaken.
    let mut held = joined_members(view)
        .filter(|member| has_joined_on(member))
        .filter_map(|member| member.pod);
    if let Some(pod) = held.find(|pod| pod.start_mode == StartMode::Held && !pod.is_terminating) {
        return RuleResult::patch(EtcdPatch::SetStartMode {
            pod: pod.uid,
            from: StartMode::Held,
            to: StartMode::ExistingData,
        });
    }
    let ended = joined_members(view)
        .filter_map(|member| member.pod)
        .find(|pod| pod.is_finished && !pod.is_terminating);
    match ended {
        Some(pod) => RuleResult::disruption(EtcdDisruption::DeletePod {
            pod: pod.uid,
            serial: pod.serial,
            why: DeleteReason::Finished,
        }),
        None => RuleResult::Pass,
    }
}

/// Members whose data is not gone. Without a list from etcd, whoever has joined counts as a member.
fn joined_members<'v, 'f>(view: &'v ClusterView<'f>) -> impl Iterator<Item = &'v MemberView<'f>> {
    let known = view
        .members
        .values()
        .filter(|member| member.listed.is_some() || !view.membership_known);
    known.filter(|member| member.data != DataState::Lost)
}

/// Whether it is written on its claim that it joined on it, and the claim stays.
fn has_joined_on(member: &MemberView<'_>) -> bool {
    member
        .claim
        .is_some_and(|claim| claim.joined_on.is_some() && !claim.is_terminating)
}
