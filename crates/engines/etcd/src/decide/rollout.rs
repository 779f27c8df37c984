//! Rollouts: members with an outdated template are restarted one at a time while all others are
//! healthy, followers first and the leader last, so that leadership moves once.
//!
//! The rollout stops at the first member that does not become healthy again, so the quorum is
//! preserved. An edit of the spec changes the target at once.
//!
//! Members that cannot be restarted with their data are replaced instead: a new member joins before
//! an old one is removed, see [`ClusterView::target_members`].

use std::time::Duration;

use super::{RuleResult, resize};
use crate::facts::{PodFacts, StorageKind, WindowWait};
use crate::names::Serial;
use crate::plan::{DeleteReason, EtcdDisruption, EtcdWait};
use crate::view::{ClusterView, DataState, MemberView};

/// How long a pod may take to start before it counts as failed.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The number of desired members from which on the quorum is preserved. With one or two members
/// every restart costs the quorum, and a user who asks for a restart accepts that.
const MIN_VOTERS_FOR_EVICTION: u8 = 3;

/// Deletes an outdated pod that does not run, with or without a quorum: its template may be the
/// reason. An operator that waits for healthy members leaves a cluster down after a bad edit, even
/// if the edit was reverted.
pub(super) fn replace_idle_pods(view: &ClusterView<'_>) -> RuleResult {
    let idle = view.members.values().find(|member| {
        view.is_outdated(member) && keeps_data(view, member) && is_idle(view, member)
    });
    match idle.and_then(|member| member.pod) {
        Some(pod) => RuleResult::disruption(EtcdDisruption::DeletePod {
            pod: pod.uid,
            serial: pod.serial,
            why: DeleteReason::Outdated,
        }),
        None => RuleResult::Pass,
    }
}

/// Returns true if the member does not answer, and its pod does not run or has not become Ready in
/// time. A member that answers runs, whatever the last report of its kubelet says: the kubelet may
/// have been partitioned since.
fn is_idle(view: &ClusterView<'_>, member: &MemberView<'_>) -> bool {
    let Some(pod) = member.pod else { return false };
    if member.health.is_some() || pod.is_terminating || pod.is_finished {
        return false;
    }
    pod.is_idle || is_unresponsive(view, member.serial, pod)
}

/// Returns true if a running pod can be deleted although the operator alone does not reach it: the
/// operator itself may be partitioned. One pod at a time, so that a bad template stops at the
/// first.
fn is_unresponsive(view: &ClusterView<'_>, serial: Serial, pod: &PodFacts) -> bool {
    if pod.is_ready || !start_timed_out(view, pod) {
        return false;
    }
    if view.facts.cluster.members < MIN_VOTERS_FOR_EVICTION {
        return true;
    }
    if !view.membership_known || restart_in_progress(view) {
        return false;
    }
    let leader_misses_it = view.facts.unreachable_since.contains_key(&serial);
    leader_misses_it || view.has_quorum_without(serial)
}

fn start_timed_out(view: &ClusterView<'_>, pod: &PodFacts) -> bool {
    pod.unready_since
        .is_some_and(|since| view.facts.now.since(since) >= START_TIMEOUT)
}

/// Returns true if a member that has the current template, or whose pod is gone or terminating,
/// does not serve.
fn restart_in_progress(view: &ClusterView<'_>) -> bool {
    view.listed().any(|member| {
        let pod_is_leaving = member.pod.is_none_or(|pod| pod.is_terminating);
        !member.is_serving() && (!view.is_outdated(member) || pod_is_leaving)
    })
}

/// Returns true if the deletion of the member's pod loses no data.
fn keeps_data(view: &ClusterView<'_>, member: &MemberView<'_>) -> bool {
    match view.facts.cluster.storage {
        StorageKind::Persistent => member.data != DataState::Lost,
        StorageKind::Ephemeral => member.is_unstarted_learner() || !view.identity.bootstrapped,
    }
}

/// Restarts the next serving member that is outdated.
pub(super) fn restart_outdated(view: &ClusterView<'_>) -> RuleResult {
    if !view.identity.bootstrapped
        || !view
            .voters()
            .any(|member| view.is_outdated_or_misplaced(member))
    {
        return RuleResult::Pass;
    }
    match view.facts.cluster.disruption.wait(view.facts.now) {
        Some(WindowWait::Opens(opens)) => {
            return RuleResult::Wait(EtcdWait::MaintenanceWindow(opens));
        }
        Some(WindowWait::Correction) => return RuleResult::Wait(EtcdWait::InvalidWindows),
        None => {}
    }
    // A larger quota on a volume that is not resized yet would let the volume fill up.
    if let Some(member) = view.listed().find(|member| is_resizing(view, member)) {
        return RuleResult::Wait(EtcdWait::VolumeResize(member.serial));
    }
    if let Some(wait) = view
        .voters()
        .find_map(|member| version_mismatch(view, member))
    {
        return RuleResult::Wait(wait);
    }
    if let Some(member) = view.listed().find(|member| must_recover_first(member)) {
        return RuleResult::Wait(EtcdWait::UnhealthyMember(member.serial));
    }
    // Members that must be replaced are removed once their successors have joined.
    let outdated = view
        .voters()
        .filter(|member| view.is_outdated(member) && !view.must_be_replaced(member));
    let next = outdated.min_by_key(|member| (member.is_leader(), member.serial));
    let Some(next) = next else {
        return RuleResult::Pass;
    };
    let Some(pod) = next.pod else {
        return RuleResult::Pass;
    };
    let via_eviction = view.has_quorum_without(next.serial);
    // With three desired members of which two are healthy, the user has not accepted an outage.
    if !via_eviction && view.facts.cluster.members >= MIN_VOTERS_FOR_EVICTION {
        return RuleResult::Wait(EtcdWait::TooFewVoters);
    }
    RuleResult::disruption(EtcdDisruption::RestartMember {
        pod: pod.uid,
        serial: next.serial,
        transfer_to: view.transfer_target(next.serial),
        via_eviction,
    })
}

fn is_resizing(view: &ClusterView<'_>, member: &MemberView<'_>) -> bool {
    member.claim.is_some_and(|claim| claim.resize_pending)
        || resize::claim_to_resize(view, member).is_some()
}

/// Returns the wait for a member that is up to date and reports another minor version than the
/// desired one: an image named by its digest may contain any version. No other member is restarted
/// until then.
fn version_mismatch(view: &ClusterView<'_>, member: &MemberView<'_>) -> Option<EtcdWait> {
    let reported = member.health?.version?;
    let desired = view.facts.cluster.version;
    let is_same_minor = (reported.major, reported.minor) == (desired.major, desired.minor);
    if is_same_minor || view.is_outdated(member) {
        return None;
    }
    Some(EtcdWait::VersionMismatch(member.serial, reported))
}

/// Returns true if the member must become healthy before the next one is restarted. A new member
/// without a node is the exception.
fn must_recover_first(member: &MemberView<'_>) -> bool {
    if !member.is_voter() {
        return !member.is_unscheduled_learner();
    }
    let is_routed = member.pod.is_some_and(|pod| pod.is_routed);
    !(member.is_serving() && member.is_joined() && is_routed)
}
