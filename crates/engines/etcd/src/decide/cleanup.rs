//! Pods and claims of removed members. The etcd of a removed member exits, and the kubelet restarts
//! it until its pod is deleted. A claim is deleted only when its member is known to be removed and
//! the retention of the spec has passed.

use std::collections::BTreeSet;

use evenkeel_runtime::UnixTime;

use super::{RuleResult, bootstrap};
use crate::facts::{ClaimFacts, PodFacts};
use crate::plan::{DeleteReason, EtcdDisruption, EtcdPatch};
use crate::view::{ClusterView, MemberView};

/// Deletes the pods, then the claims of removed members.
pub(super) fn delete_removed_members(view: &ClusterView<'_>) -> RuleResult {
    if membership_uncertain(view) {
        return RuleResult::Pass;
    }
    let pod = removed_members(view)
        .filter_map(|member| member.pod)
        .find(|pod| !pod.is_terminating);
    if let Some(pod) = pod {
        return RuleResult::disruption(EtcdDisruption::DeletePod {
            pod: pod.uid,
            serial: pod.serial,
            why: DeleteReason::MemberRemoved,
        });
    }
    let unneeded = leftover_claims(view).find(|claim| !must_be_retained(view, claim));
    let expired = || retained_claims(view).find(|retained| view.facts.now >= retained.until);
    let unneeded = unneeded.map(|claim| (claim, DeleteReason::MemberRemoved));
    match unneeded.or_else(|| expired().map(|retained| (retained.claim, retained.why))) {
        Some((claim, why)) => RuleResult::disruption(EtcdDisruption::DeleteClaim {
            claim: claim.uid,
            serial: claim.serial,
            why,
        }),
        None => RuleResult::Pass,
    }
}

/// Records on retained claims when their member was removed, and deletes the record of listed
/// members.
pub(super) fn record_removals(view: &ClusterView<'_>) -> Vec<EtcdPatch> {
    if !view.membership_known || membership_uncertain(view) {
        return Vec::new();
    }
    let removed = removed_members(view).filter_map(|member| {
        let claim = member.claim?;
        needs_removal_record(view, claim, member.pod).then_some(claim)
    });
    // A listed member was not removed, even if a record on its claim says so.
    let listed = view
        .listed()
        .filter_map(|member| member.claim)
        .filter(|claim| claim.removed_at.is_some() && !claim.is_terminating);
    let record = |at| {
        move |claim: &ClaimFacts| EtcdPatch::RecordRemoval {
            claim: claim.uid,
            at,
        }
    };
    removed
        .map(record(Some(view.facts.now)))
        .chain(listed.map(record(None)))
        .collect()
}

fn needs_removal_record(
    view: &ClusterView<'_>,
    claim: &ClaimFacts,
    pod: Option<&PodFacts>,
) -> bool {
    if claim.is_terminating || claim.removed_at.is_some() {
        return false;
    }
    if pod.is_none() {
        return must_be_retained(view, claim);
    }
    // The pod may stay for long, for example on a lost node. The version on its volume must not
    // limit the versions of the others.
    let limits_versions =
        claim.joined_on.is_some() && claim.last_version != Some(view.facts.cluster.version);
    limits_versions && view.identity.bootstrapped
}

/// Returns true if an unknown member has started: it may be one of the members that seem to be
/// removed.
fn membership_uncertain(view: &ClusterView<'_>) -> bool {
    view.unknown_members
        .iter()
        .any(|unknown| unknown.has_started)
}

/// Returns when the retention of the next claim ends.
pub(super) fn next_deletion(view: &ClusterView<'_>) -> Option<UnixTime> {
    retained_claims(view).map(|retained| retained.until).min()
}

/// Returns the members that etcd does not list and that are not prepared to be added.
fn removed_members<'v, 'f>(view: &'v ClusterView<'f>) -> impl Iterator<Item = &'v MemberView<'f>> {
    let prepared: BTreeSet<_> = bootstrap::unprepared_serials(view).collect();
    let unlisted = view
        .members
        .values()
        .filter(|member| member.listed.is_none());
    unlisted.filter(move |member| !prepared.contains(&member.serial))
}

/// Returns the claims of removed members without pods that are not recorded as removed yet.
fn leftover_claims<'v>(view: &'v ClusterView<'_>) -> impl Iterator<Item = &'v ClaimFacts> {
    let claims = removed_members(view)
        .filter(|member| member.pod.is_none())
        .filter_map(|member| member.claim);
    claims.filter(|claim| !claim.is_terminating)
}

/// A claim that is retained until a time.
struct RetainedClaim<'v> {
    claim: &'v ClaimFacts,
    until: UnixTime,
    why: DeleteReason,
}

fn retained_claims<'v>(view: &'v ClusterView<'_>) -> impl Iterator<Item = RetainedClaim<'v>> {
    let removed = view.retained_claims.iter().filter_map(|claim| {
        Some(RetainedClaim {
            claim,
            until: claim.removed_at?.after(view.facts.cluster.keep_removed_for),
            why: DeleteReason::MemberRemoved,
        })
    });
    // The data of a replaced epoch is the only one until clients are served from the restored one.
    let replaced = view
        .replaced_claims
        .iter()
        .filter(|_| view.identity.bootstrapped)
        .filter_map(|claim| {
            Some(RetainedClaim {
                claim,
                until: claim.replaced_until.filter(|until| until.0 < i64::MAX)?,
                why: DeleteReason::Replaced,
            })
        });
    removed
        .chain(replaced)
        .filter(|retained| !retained.claim.is_terminating)
}

/// Returns true if clients may have written to the claim's volume and the spec asks for retention.
fn must_be_retained(view: &ClusterView<'_>, claim: &ClaimFacts) -> bool {
    !view.facts.cluster.keep_removed_for.is_zero()
        && view.identity.bootstrapped
        && claim.joined_on.is_some()
}
