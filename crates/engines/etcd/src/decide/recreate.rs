//! Recreation of pods: a missing pod is recreated as the same member, with or without a quorum, on
//! the volume that the member joined on. Operators that leave pods in a terminal phase lose the
//! cluster with a reboot of all nodes.

use super::{Actions, RuleResult};
use crate::facts::StartMode;
use crate::plan::{DeleteReason, EtcdDisruption, EtcdPatch};
use crate::view::{ClusterView, DataState, MemberView};

/// Creates the missing pods of members whose data exists. They are created held: an operator that was frozen while a restore
/// replaced the epoch could otherwise start a member of the replaced epoch late.
pub(super) fn recreate_pods(view: &ClusterView<'_>) -> RuleResult {
    let missing =
        members_with_data(view).filter(|member| member.pod.is_none() && has_joined_claim(member));
    let create: Vec<_> = missing
        .map(|member| {
            let claim = member.claim.map(|claim| claim.uid);
            view.pod(member.serial, claim, StartMode::Held)
        })
        .collect();
    if create.is_empty() {
        RuleResult::Pass
    } else {
        RuleResult::CreateAndContinue(create)
    }
}

/// Lets the held pods of members that have joined start on their existing data. The readiness gate is set in the same write.
pub(super) fn release_pods(view: &ClusterView<'_>) -> RuleResult {
    let patch: Vec<_> = members_with_data(view)
        .filter(|member| has_joined_claim(member))
        .filter_map(|member| member.pod)
        .filter(|pod| pod.start_mode == StartMode::Held && !pod.is_terminating)
        .map(|pod| EtcdPatch::MarkJoined {
            pod: pod.uid,
            from: StartMode::Held,
        })
        .collect();
    if patch.is_empty() {
        return RuleResult::Pass;
    }
    RuleResult::Act(Box::new(Actions {
        patch,
        ..Actions::default()
    }))
}

/// Deletes pods in a terminal phase, which are then recreated.
pub(super) fn delete_finished_pods(view: &ClusterView<'_>) -> RuleResult {
    let finished = members_with_data(view)
        .filter_map(|member| member.pod)
        .find(|pod| pod.is_finished && !pod.is_terminating);
    match finished {
        Some(pod) => RuleResult::disruption(EtcdDisruption::DeletePod {
            pod: pod.uid,
            serial: pod.serial,
            why: DeleteReason::Finished,
        }),
        None => RuleResult::Pass,
    }
}

/// Returns the members whose data is not lost. While etcd's list is unknown every member of the
/// epoch counts.
fn members_with_data<'v, 'f>(
    view: &'v ClusterView<'f>,
) -> impl Iterator<Item = &'v MemberView<'f>> {
    let members = view
        .members
        .values()
        .filter(|member| member.listed.is_some() || !view.membership_known);
    members.filter(|member| member.data != DataState::Lost)
}

/// Returns true if the claim is recorded as joined and is not terminating.
fn has_joined_claim(member: &MemberView<'_>) -> bool {
    member
        .claim
        .is_some_and(|claim| claim.joined_on.is_some() && !claim.is_terminating)
}
