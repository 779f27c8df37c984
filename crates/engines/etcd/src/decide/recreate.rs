//! Recreation of pods: a missing pod is recreated as the same member, with or without a quorum, on
//! the volume that the member joined on. Operators that leave pods in a terminal phase lose the
//! cluster with a reboot of all nodes.

use super::RuleResult;
use crate::facts::StartMode;
use crate::plan::{DeleteReason, EtcdDisruption, EtcdPatch};
use crate::view::{ClusterView, DataState, MemberView};

/// Creates the missing pods of members whose data exists.
pub(super) fn recreate_pods(view: &ClusterView<'_>) -> RuleResult {
    let missing =
        members_with_data(view).filter(|member| member.pod.is_none() && has_joined_claim(member));
    let create: Vec<_> = missing
        .map(|member| {
            let claim = member.claim.map(|claim| claim.uid);
            view.pod(member.serial, claim, StartMode::ExistingData)
        })
        .collect();
    if create.is_empty() {
        RuleResult::Pass
    } else {
        RuleResult::CreateAndContinue(create)
    }
}

/// Deletes pods in a terminal phase, which are then recreated.
pub(super) fn delete_finished_pods(view: &ClusterView<'_>) -> RuleResult {
    // The held pod of a seed that joined before its start mode could be set.
    let held = members_with_data(view)
        .filter(|member| has_joined_claim(member))
        .filter_map(|member| member.pod)
        .find(|pod| pod.start_mode == StartMode::Held && !pod.is_terminating);
    if let Some(pod) = held {
        return RuleResult::patch(EtcdPatch::SetStartMode {
            pod: pod.uid,
            from: StartMode::Held,
            to: StartMode::ExistingData,
        });
    }
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
