//! What removed members leave behind. A removed member that lives exits and is started again, and again, until its pod is
//! deleted; a claim is deleted only when its member is known to be removed, and has been for as long as the user wants.

use std::collections::BTreeSet;

use evenkeel_runtime::UnixTime;

use super::{RuleResult, bootstrap};
use crate::facts::ClaimFacts;
use crate::plan::{DeleteReason, EtcdDisruption, EtcdPatch};
use crate::view::{ClusterView, MemberView};

/// Deletes pods, then claims, of those who are no members.
pub(super) fn delete_removed_members(view: &ClusterView<'_>) -> RuleResult {
    if membership_uncertain(view) {
        return RuleResult::Pass;
    }
    if let Some(pod) = removed_members(view)
        .filter_map(|member| member.pod)
        .find(|pod| !pod.is_terminating)
    {
        return RuleResult::disruption(EtcdDisruption::DeletePod {
            pod: pod.uid,
            serial: pod.serial,
            why: DeleteReason::MemberRemoved,
        });
    }
    let at_once = leftover_claims(view).find(|claim| !is_worth_keeping(view, claim));
    let due = || {
        retained_claims(view)
            .find(|(_, until)| view.facts.now >= *until)
            .map(|(claim, _)| claim)
    };
    match at_once.or_else(due) {
        Some(claim) => RuleResult::disruption(EtcdDisruption::DeleteClaim {
            claim: claim.uid,
            serial: claim.serial,
            why: DeleteReason::MemberRemoved,
        }),
        None => RuleResult::Pass,
    }
}

/// Claims that are kept for a while are marked, with the time from which that counts.
pub(super) fn record_removals(view: &ClusterView<'_>) -> Vec<EtcdPatch> {
    // Without a list from etcd nobody knows who is a member.
    if !view.membership_known || membership_uncertain(view) {
        return Vec::new();
    }
    // Also where the pod is yet to go, on a node that is lost, say: what version is on the volume counts no more for what others may
    // run.
    let left = removed_members(view).filter_map(|member| Some((member.claim?, member.pod)));
    let left = left.filter(|(claim, _)| !claim.is_terminating && claim.removed_at.is_none());
    let marked = left.filter(|(claim, pod)| {
        let binds =
            claim.joined_on.is_some() && claim.last_version != Some(view.facts.cluster.version);
        if pod.is_some() {
            binds && view.identity.bootstrapped
        } else {
            is_worth_keeping(view, claim)
        }
    });
    let marked = marked
        .map(|(claim, _)| claim)
        .map(|claim| EtcdPatch::RecordRemoval {
            claim: claim.uid,
            at: Some(view.facts.now),
        });
    // Whoever is a member was not removed, whatever somebody has written on its claim.
    let members = view.listed().filter_map(|member| member.claim);
    let wrong = members.filter(|claim| claim.removed_at.is_some() && !claim.is_terminating);
    marked
        .chain(wrong.map(|claim| EtcdPatch::RecordRemoval {
            claim: claim.uid,
            at: None,
        }))
        .collect()
}

/// Whether a member that nobody knows may be one of those that seem to be none: it has started, somewhere.
fn membership_uncertain(view: &ClusterView<'_>) -> bool {
    view.unknown_members
        .iter()
        .any(|unknown| unknown.has_started)
}

/// When the next claim is to be deleted that is kept until then.
pub(super) fn next_deletion(view: &ClusterView<'_>) -> Option<UnixTime> {
    retained_claims(view).map(|(_, until)| until).min()
}

/// Whoever is no member, and is not about to become one.
fn removed_members<'v, 'f>(view: &'v ClusterView<'f>) -> impl Iterator<Item = &'v MemberView<'f>> {
    let prepared: BTreeSet<_> = bootstrap::unprepared_serials(view).collect();
    let others = view
        .members
        .values()
        .filter(|member| member.listed.is_none());
    others.filter(move |member| !prepared.contains(&member.serial))
}

/// The claims of those whose pods are gone, as far as they are not kept already.
fn leftover_claims<'v>(view: &'v ClusterView<'_>) -> impl Iterator<Item = &'v ClaimFacts> {
    let alone = removed_members(view)
        .filter(|member| member.pod.is_none())
        .filter_map(|member| member.claim);
    alone.filter(|claim| !claim.is_terminating)
}

/// Claims that are kept, and until when.
fn retained_claims<'v>(
    view: &'v ClusterView<'_>,
) -> impl Iterator<Item = (&'v ClaimFacts, UnixTime)> {
    let kept = view
        .retained_claims
        .iter()
        .filter(|claim| !claim.is_terminating);
    kept.filter_map(|claim| {
        Some((
            *claim,
            claim.removed_at?.after(view.facts.cluster.keep_removed_for),
        ))
    })
}

/// Only what clients may have written to is worth keeping.
fn is_worth_keeping(view: &ClusterView<'_>, claim: &ClaimFacts) -> bool {
    let keeps = !view.facts.cluster.keep_removed_for.is_zero();
    keeps && view.identity.bootstrapped && claim.joined_on.is_some()
}
