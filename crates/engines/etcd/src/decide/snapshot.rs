//! Before some versions are entered, every member takes a snapshot of its log.
//!
//! At a start etcd replays its log from its last snapshot on, and a log that is seldom written to goes far back: to entries of a
//! minor before the last, which a later one no longer reads. 3.7 panics at every start on a log with entries of 3.5 (tried:
//! 3.5.35, 3.6.16 and 3.7.3 on one directory). So the version is taken over only when the log of every member begins after all
//! had left the earlier minor; see [`evenkeel_api::releases::needs_fresh_snapshot`].

use super::RuleResult;
use crate::plan::{EtcdDisruption, EtcdWait};
use crate::view::{ClusterView, MemberView};

/// Has the logs renewed when another version waits for that, and all members run the one before.
pub(super) fn force_snapshot(view: &ClusterView<'_>) -> RuleResult {
    let desired = view.facts.cluster.version;
    if view.facts.cluster.next_version.is_none()
        || !view.identity.bootstrapped
        || !view.membership_known
    {
        return RuleResult::Pass;
    }
    if !view.unknown_members.is_empty() {
        // Nobody here knows what they run, and what they write.
        return RuleResult::Wait(EtcdWait::UnknownMembers(view.unknown_members.to_vec()));
    }
    let runs_it = |member: &MemberView<'_>| {
        let says = member.health.and_then(|health| health.version);
        says.is_some_and(|says| (says.major, says.minor) == (desired.major, desired.minor))
    };
    // Everybody who may ever start again has to take part. Who has not started yet gets what was written since.
    let is_ready = |member: &MemberView<'_>| {
        member.is_serving() && member.is_joined() && runs_it(member) && !view.is_outdated(member)
    };
    if let Some(member) = view
        .listed()
        .find(|member| !is_ready(member) && !member.is_unscheduled_learner())
    {
        return RuleResult::Wait(EtcdWait::SnapshotBlocked(member.serial));
    }
    let mut to = view.identity.clone();
    to.snapshotted_version = Some(desired);
    RuleResult::disruption(EtcdDisruption::ForceSnapshot {
        from: view.identity.clone(),
        to,
    })
}
