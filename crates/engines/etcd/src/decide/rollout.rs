//! Members whose pods were built from something else than what is wanted now are brought up to date: one at a time, while
//! everybody else is well, followers first and whoever leads last, so that the lead moves once. The first that does not come
//! back ends it, with a quorum that is as it was; what is wanted next, or again, is the new target at once.
//!
//! Data that is in a pod goes with it, and a volume stays where it is and of what class it is: there, one more member joins, built from
//! what is wanted, before one goes that is not (see [`View::target`]).

use std::time::Duration;

use evenkeel_api::Version;

use super::{RuleResult, resize};
use crate::facts::{PodFacts, StorageKind};
use crate::names::Serial;
use crate::plan::{DeleteReason, EtcdDisruption, EtcdWait};
use crate::view::{ClusterView, DataState, MemberView, quorum};

/// How long a pod may take to start before it is taken for one that does not come up.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// From how many wanted members on all of them are spared: with one or two there is no majority without any of them, and whoever
/// wants so few, and wants them restarted, wants that.
const MIN_VOTERS_FOR_EVICTION: u8 = 3;

/// Has a pod that does not run be built anew, quorum or not: nobody misses it, and what it was built from may be the reason. An
/// operator that mends only what is well leaves a cluster down after a bad edit, though the edit was long taken back.
pub(super) fn replace_idle_pods(view: &ClusterView<'_>) -> RuleResult {
    let outdated = view
        .members
        .values()
        .filter(|member| view.is_outdated(member) && is_restarting(view, member));
    let mut idle = outdated
        .filter(|member| is_idle(view, member))
        .filter_map(|member| member.pod);
    match idle.next() {
        Some(pod) => RuleResult::disruption(EtcdDisruption::DeletePod {
            pod: pod.uid,
            serial: pod.serial,
            why: DeleteReason::Outdated,
        }),
        None => RuleResult::Pass,
    }
}

/// Whether nobody misses its pod: it says nothing, and does not run; or it runs, and has not been Ready for longer than a start takes,
/// while others are heard. What a kubelet said last, which is cut off since, is no proof against a member that answers.
fn is_idle(view: &ClusterView<'_>, member: &MemberView<'_>) -> bool {
    let is_idle = |pod: &PodFacts| pod.is_idle || is_unresponsive(view, member.serial, pod);
    member.health.is_none()
        && member
            .pod
            .is_some_and(|pod| !pod.is_terminating && !pod.is_finished && is_idle(pod))
}

/// Whether a pod that runs is heard by nobody. Whoever hears nobody may be the one who is cut off; and one after the other, so that what
/// is wrong with what is wanted now ends it.
fn is_unresponsive(view: &ClusterView<'_>, serial: Serial, pod: &PodFacts) -> bool {
    let late = |since| view.facts.now.since(since) >= START_TIMEOUT;
    let alone = view.facts.cluster.members < MIN_VOTERS_FOR_EVICTION;
    let goes = |other: &MemberView<'_>| other.pod.is_none_or(|pod| pod.is_terminating);
    let tried =
        |other: &MemberView<'_>| !other.is_serving() && (!view.is_outdated(other) || goes(other));
    let others = || view.membership_known && !view.listed().any(tried);
    // Nobody hears it, or those who do can do without it.
    let spared = || view.healthy_voters_except(serial) >= quorum(view.votes());
    let missed = || !view.facts.unreachable_since.contains_key(&serial) && !spared();
    let is_safe = alone || (others() && !missed());
    is_safe && !pod.is_ready && pod.unready_since.is_some_and(late)
}

/// Whether nothing is lost with its pod.
fn is_restarting(view: &ClusterView<'_>, member: &MemberView<'_>) -> bool {
    match view.facts.cluster.storage {
        StorageKind::Persistent => member.data != DataState::Lost,
        StorageKind::Ephemeral => member.is_unstarted_learner() || !view.identity.bootstrapped,
    }
}

/// Restarts the next member that serves and is out of date.
pub(super) fn restart_outdated(view: &ClusterView<'_>) -> RuleResult {
    if !view.identity.bootstrapped
        || !view
            .voters()
            .any(|member| view.is_outdated_or_misplaced(member))
    {
        return RuleResult::Pass;
    }
    if let Some(opens) = view.facts.cluster.disruption.waits_until(view.facts.now) {
        return RuleResult::Wait(EtcdWait::MaintenanceWindow(opens));
    }
    let is_small = |member: &&MemberView<'_>| {
        member.claim.is_some_and(|claim| claim.resize_pending)
            || resize::claim_to_resize(view, member).is_some()
    };
    if let Some(small) = view.listed().find(is_small) {
        // A larger quota on a volume that has not grown yet, and perhaps may not, would let it fill up.
        return RuleResult::Wait(EtcdWait::VolumeResize(small.serial));
    }
    if let Some((other, version)) = view
        .voters()
        .find_map(|member| version_mismatch(view, member))
    {
        return RuleResult::Wait(EtcdWait::VersionMismatch(other, version));
    }
    if let Some(unwell) = view.listed().find(|member| must_recover_first(member)) {
        return RuleResult::Wait(EtcdWait::UnhealthyMember(unwell.serial));
    }
    // Those that cannot be restarted are replaced, when others that are added have joined.
    let outdated = view
        .voters()
        .filter(|one| view.is_outdated(one) && !view.must_be_replaced(one));
    let leads = |member: &&MemberView<'_>| member.health.is_some_and(|health| health.is_leader);
    let next = outdated.min_by_key(|member| (leads(member), member.serial));
    let Some((next, pod)) = next.and_then(|next| Some((next, next.pod?))) else {
        return RuleResult::Pass;
    };
    let spared = view.healthy_voters_except(next.serial) >= quorum(view.votes());
    // Who wants three, and has two at the moment, has not asked for that.
    if !spared && view.facts.cluster.members >= MIN_VOTERS_FOR_EVICTION {
        return RuleResult::Wait(EtcdWait::TooFewVoters);
    }
    let transfer_to = view.transfer_target(next.serial);
    RuleResult::disruption(EtcdDisruption::RestartMember {
        pod: pod.uid,
        serial: next.serial,
        transfer_to,
        spared,
    })
}

/// Who is up to date and says that it is an etcd of another minor than is wanted: it runs an image that was named by its digest, say.
/// Nobody else is to follow it there.
fn version_mismatch(view: &ClusterView<'_>, member: &MemberView<'_>) -> Option<(Serial, Version)> {
    let (says, desired) = (member.health?.version?, view.facts.cluster.version);
    let differs = (says.major, says.minor) != (desired.major, desired.minor);
    (differs && !view.is_outdated(member)).then_some((member.serial, says))
}

/// Whether somebody must be well before the next one is disturbed: everybody must, in Kubernetes' eyes and for clients, too. But
/// for a newcomer that no node takes.
fn must_recover_first(member: &MemberView<'_>) -> bool {
    if !member.is_voter() {
        return !member.is_unscheduled_learner();
    }
    let is_well =
        member.is_serving() && member.is_joined() && member.pod.is_some_and(|pod| pod.is_routed);
    !is_well
}
