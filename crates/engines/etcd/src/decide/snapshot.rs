//! Forced snapshots: before some versions become effective, every member takes a snapshot of its
//! log.
//!
//! At its start etcd replays the log from the last snapshot. The log of a cluster with few writes
//! may still contain entries of an earlier minor version, which a later version cannot read: 3.7
//! panics at every start on a log with entries of 3.5 (tried: 3.5.35, 3.6.16 and 3.7.3 on one
//! directory). The version therefore becomes effective only when the log of every member begins
//! after all members have left the earlier minor; see
//! [`evenkeel_api::releases::needs_fresh_snapshot`].

use super::RuleResult;
use crate::plan::{EtcdDisruption, EtcdWait};
use crate::view::{ClusterView, MemberView};

/// Forces a snapshot when another version waits for it and all members run the version before it.
pub(super) fn force_snapshot(view: &ClusterView<'_>) -> RuleResult {
    if view.facts.cluster.next_version.is_none()
        || !view.identity.bootstrapped
        || !view.membership_known
    {
        return RuleResult::Pass;
    }
    if !view.unknown_members.is_empty() {
        // The versions of unknown members are not known.
        return RuleResult::Wait(EtcdWait::UnknownMembers(view.unknown_members.to_vec()));
    }
    // Every member that may start again has to take part. A member without a node gets the log from
    // then on.
    let blocking = view
        .listed()
        .find(|member| !can_take_part(view, member) && !member.is_unscheduled_learner());
    if let Some(member) = blocking {
        return RuleResult::Wait(EtcdWait::SnapshotBlocked(member.serial));
    }
    let mut to = view.identity.clone();
    to.snapshotted_version = Some(view.facts.cluster.version);
    RuleResult::disruption(EtcdDisruption::ForceSnapshot {
        from: view.identity.clone(),
        to,
    })
}

fn can_take_part(view: &ClusterView<'_>, member: &MemberView<'_>) -> bool {
    let desired = view.facts.cluster.version;
    let reported = member.health.and_then(|health| health.version);
    let runs_desired_minor = reported
        .is_some_and(|reported| (reported.major, reported.minor) == (desired.major, desired.minor));
    member.is_serving() && member.is_joined() && runs_desired_minor && !view.is_outdated(member)
}
