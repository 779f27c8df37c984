//! In-place restores: a new epoch with the data of a backup replaces the epoch that serves, or that has lost its quorum.
//!
//! The volume of the new seed is filled first, while the cluster serves: a backup that cannot be restored, or a volume that
//! is not provisioned, changes nothing. One write of the identity then replaces the epoch. The pods of the replaced epoch are
//! deleted before the new seed starts, and its claims are kept for a while: an undo makes that epoch current again.

use std::time::Duration;

use evenkeel_runtime::UnixTime;

use super::restore::{self, VolumeToFill};
use super::{Actions, RuleResult, update_identity};
use crate::facts::{ClaimFacts, RestoreRequest, SourceProblem, StorageKind};
use crate::identity::{NextEpoch, ReplacedEpoch};
use crate::plan::{EtcdCreate, EtcdPatch, EtcdWait, IdentityChange};
use crate::view::ClusterView;

/// Records on the claims of a replaced epoch until when they are kept, and deletes the records on the claims of the current
/// one. No pod of the replaced epoch exists any more, and the seed of the current one has not started: if the identity is
/// lost from now on, the records show which epoch was replaced.
pub(super) fn record_replaced(view: &ClusterView<'_>) -> RuleResult {
    let replaced = view.replaced_claims.iter().filter_map(|claim| {
        let until = match claim.replaced_until {
            Some(_) => return None,
            None => kept_until(view, claim)?,
        };
        (!claim.is_terminating).then_some((*claim, Some(until)))
    });
    let members = view.members.values().filter_map(|member| member.claim);
    let current = members.chain(view.retained_claims.iter().copied());
    let current = current.filter(|claim| claim.replaced_until.is_some() && !claim.is_terminating);
    let patch: Vec<_> = replaced
        .chain(current.map(|claim| (claim, None)))
        .map(|(claim, until)| EtcdPatch::RecordReplaced {
            claim: claim.uid,
            until,
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

/// Returns until when a claim of a replaced epoch is to be kept: as long as the other claims of its epoch.
fn kept_until(view: &ClusterView<'_>, claim: &ClaimFacts) -> Option<UnixTime> {
    let recorded = view
        .replaced_claims
        .iter()
        .filter(|other| other.epoch == claim.epoch);
    let recorded = recorded.filter_map(|other| other.replaced_until).max();
    let replaced = view.identity.replaced.as_ref();
    let replaced = replaced.filter(|replaced| replaced.epoch == claim.epoch);
    let keep = replaced.map(|replaced| Duration::from_secs(replaced.keep_seconds));
    recorded.or(keep.map(|keep| view.facts.now.after(keep)))
}

/// Takes the next step of the restore that a `Restore` asks for. Its waits block no other rule: the cluster serves meanwhile,
/// and is healed.
pub(super) fn replace_cluster(view: &ClusterView<'_>) -> RuleResult {
    let identity = view.identity;
    let request = view.facts.restore_request.as_ref();
    if let Some(request) = request.filter(|request| request.undo) {
        return undo(view, request);
    }
    if !identity.bootstrapped {
        return RuleResult::Pass;
    }
    let request = request.filter(|request| Some(request.replaces) == identity.cluster_id);
    match (&identity.next_epoch, request) {
        (None, None) => RuleResult::Pass,
        (None, Some(request)) => prepare(view, request),
        (Some(next), Some(request)) if next.restore == request.origin => match fill(view, next) {
            RuleResult::Pass => replace(view, next, request),
            result => continuing(result),
        },
        (Some(_), _) => update_identity(identity, IdentityChange::CancelRestore, |to| {
            to.next_epoch = None;
        }),
    }
}

fn prepare(view: &ClusterView<'_>, request: &RestoreRequest) -> RuleResult {
    if view.facts.cluster.storage == StorageKind::Ephemeral {
        return RuleResult::Wait(EtcdWait::RestoreSource(SourceProblem::EphemeralStorage));
    }
    continuing(restore::when_usable(view, || {
        begin_preparation(view, request, IdentityChange::PrepareRestore)
    }))
}

/// Reserves an epoch and a serial for the seed whose volume is filled.
fn begin_preparation(
    view: &ClusterView<'_>,
    request: &RestoreRequest,
    why: IdentityChange,
) -> RuleResult {
    update_identity(view.identity, why, |to| {
        let highest = view.highest_serial();
        let seed = to.next_serial.max(highest.map_or(to.seed, |it| it.next()));
        let epoch = to.highest_epoch().next();
        to.next_serial = seed.next();
        to.highest_epoch = Some(epoch);
        to.next_epoch = Some(Box::new(NextEpoch {
            epoch,
            seed,
            restore: request.origin.clone(),
        }));
    })
}

fn fill(view: &ClusterView<'_>, next: &NextEpoch) -> RuleResult {
    let restart = || match &view.facts.restore_request {
        Some(request) => begin_preparation(view, request, IdentityChange::RestartPreparation),
        None => RuleResult::Pass,
    };
    let is_unusable = |claim: &ClaimFacts| claim.joined_on.is_some() || claim.is_terminating;
    if view.next_claim.is_some_and(is_unusable) {
        return restart();
    }
    let volume = VolumeToFill {
        serial: next.seed,
        epoch: next.epoch,
        origin: &next.restore,
        claim: view.next_claim,
        has_pod: false,
        create: EtcdCreate::Claim {
            serial: next.seed,
            epoch: next.epoch,
            owned: view.facts.cluster.owns_data,
        },
    };
    restore::fill(view, &volume, &restart)
}

/// Replaces the current epoch. Its pods are deleted next.
fn replace(view: &ClusterView<'_>, next: &NextEpoch, request: &RestoreRequest) -> RuleResult {
    let identity = view.identity;
    update_identity(identity, IdentityChange::ReplaceCluster, |to| {
        let replaced =
            identity.as_replaced(next.restore.clone(), voters(view), request.keep_seconds);
        to.begin_epoch(next.epoch, next.seed, Some(next.restore.clone()));
        to.replaced = Some(replaced);
    })
}

/// Makes the replaced epoch current again, if its volumes are still kept. What clients wrote since is kept as long.
fn undo(view: &ClusterView<'_>, request: &RestoreRequest) -> RuleResult {
    let identity = view.identity;
    let replaced = identity.replaced.as_ref();
    let Some(replaced) = replaced.filter(|replaced| {
        replaced.replaced_by.id == request.origin.id && !replaced.is_undone(identity.epoch)
    }) else {
        return RuleResult::Pass;
    };
    if !is_kept(view, replaced) {
        return RuleResult::Pass;
    }
    update_identity(identity, IdentityChange::UndoRestore, |to| {
        let given_up = identity.as_replaced(
            replaced.replaced_by.clone(),
            voters(view),
            replaced.keep_seconds,
        );
        to.highest_epoch = Some(identity.highest_epoch());
        to.epoch = replaced.epoch;
        to.seed = replaced.seed;
        to.seed_storage = replaced.seed_storage;
        to.cluster_id = replaced.cluster_id;
        to.restore = replaced.restore.clone();
        to.bootstrapped = true;
        to.intent = None;
        to.snapshotted_version = None;
        to.next_epoch = None;
        // Before bootstrap is finished no client has written.
        to.replaced = identity.bootstrapped.then_some(given_up);
    })
}

/// Returns the number of voters of the current epoch; without a quorum, that of the members that have joined.
fn voters(view: &ClusterView<'_>) -> usize {
    if view.membership_known {
        return view.votes();
    }
    let members = view.members.values();
    let joined = members.filter(|member| {
        let claim = member.claim;
        claim.is_some_and(|claim| claim.joined_on.is_some() && claim.removed_at.is_none())
    });
    joined.count()
}

/// Returns true if a volume of the replaced epoch is still kept.
fn is_kept(view: &ClusterView<'_>, replaced: &ReplacedEpoch) -> bool {
    let mut claims = view.replaced_claims.iter();
    claims.any(|claim| {
        let has_time = claim
            .replaced_until
            .is_none_or(|until| until > view.facts.now);
        claim.epoch == replaced.epoch && !claim.is_terminating && !claim.is_lost && has_time
    })
}

/// Returns the result of a rule that never keeps later rules from acting: its writes may be rejected for ever.
fn continuing(result: RuleResult) -> RuleResult {
    match result {
        RuleResult::Block(wait) => RuleResult::Wait(wait),
        RuleResult::Act(actions)
            if actions.patch.is_empty()
                && actions.apply.is_empty()
                && actions.disruption.is_none() =>
        {
            RuleResult::CreateAndContinue(actions.create)
        }
        result => result,
    }
}

#[cfg(test)]
#[path = "in_place_tests.rs"]
mod tests;
