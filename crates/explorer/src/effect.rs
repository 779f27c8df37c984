//! The writes of an operator and their effect on the model. Each write has the same preconditions as the real one.

use std::collections::BTreeSet;

use evenkeel_etcd::Etcd;
use evenkeel_etcd::facts::{RestoredVolume, StartMode};
use evenkeel_etcd::identity::{Identity, Intent, MembershipChange, RestoreOrigin, Uid};
use evenkeel_etcd::names::Serial;
use evenkeel_etcd::plan::{
    DeleteReason, EtcdApply, EtcdCreate, EtcdDisruption, EtcdPatch, OwnerTarget,
};
use evenkeel_etcd::view::quorum;
use evenkeel_runtime::Plan;

use crate::model::{
    BACKUPS, ClusterModel, DiskState, ModelClaim, ModelMember, ModelPod, ModelRestore,
    ModelRestorePod, ModelRestoreState, RuleViolation, TemplateVariant, backup_of, member_label,
    restore_of,
};
use crate::observe::is_ready;
use crate::prune::{identity_moves_forward, start_mode_moves_forward};

/// One write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// Creates an object unless it exists.
    Create(EtcdCreate),
    /// Applies an object if it is unchanged since the observation.
    Apply(EtcdApply),
    /// Patches an object if its uid is unchanged.
    Patch(EtcdPatch),
    /// Replaces the identity if it is unchanged.
    UpdateIdentity {
        /// The observed identity.
        from: Identity,
        /// The new identity.
        to: Identity,
    },
    /// Sends a membership change to etcd.
    ChangeMembership(Intent),
    /// Deletes or evicts an object if its uid is unchanged.
    Delete(EtcdDisruption),
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteResult {
    /// Done; the plan continues.
    Done,
    /// Rejected; the rest of the plan is dropped.
    Rejected,
}

/// Returns the writes of a plan in their order.
pub fn plan_writes(plan: &Plan<Etcd>) -> Vec<Effect> {
    let mut writes: Vec<Effect> = plan.create.iter().cloned().map(Effect::Create).collect();
    writes.extend(plan.patch.iter().cloned().map(Effect::Patch));
    writes.extend(plan.apply.iter().copied().map(Effect::Apply));
    match plan.disruption.clone() {
        None => {}
        Some(
            EtcdDisruption::UpdateIdentity { from, to, .. }
            | EtcdDisruption::ForceSnapshot { from, to },
        ) => writes.push(Effect::UpdateIdentity { from, to }),
        Some(EtcdDisruption::ChangeMembership { from, intent, .. }) => {
            // Replacement times are not modelled: every time is either now or long ago.
            let to = Identity {
                replacements: BTreeSet::new(),
                ..from.with_intent(&intent)
            };
            if to != from {
                writes.push(Effect::UpdateIdentity { from, to });
            }
            writes.push(Effect::ChangeMembership(intent));
        }
        Some(delete) => writes.push(Effect::Delete(delete)),
    }
    writes
}

/// Whether the etcd leader has detected the failed members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureDetection {
    /// Detected: some time after a node has lost power, or directly after a process has died.
    Detected,
    /// Not yet detected: a node that loses power closes no connections.
    NotDetected,
}

/// Executes one write. Returns its result, or the rule that it violates.
pub fn apply(
    model: &mut ClusterModel,
    effect: &Effect,
    etcd: FailureDetection,
) -> Result<WriteResult, RuleViolation> {
    match effect {
        Effect::Create(create) => Ok(apply_create(model, create)),
        Effect::Patch(EtcdPatch::SetStartMode { from, to, .. })
            if !start_mode_moves_forward(from, to) =>
        {
            Err(RuleViolation(
                "the start mode of a pod returns to Held or Bootstrap".to_owned(),
            ))
        }
        Effect::Patch(EtcdPatch::RecordRestored {
            claim: uid,
            volume,
            restore,
        }) => record_restored(model, *uid, *volume, *restore),
        Effect::Patch(patch) => Ok(apply_patch(model, patch)),
        Effect::Apply(EtcdApply::PodDisruptionBudget { from, min }) => {
            if *from != model.pdb_min_available.map(Some).into() {
                return Ok(WriteResult::Rejected);
            }
            model.pdb_min_available = Some(*min);
            // The precondition is the resourceVersion, not the value: a write decided before this one is rejected
            // after it, with the rest of its plan.
            let decided = model.late_writes.iter().position(|late| {
                matches!(late, Effect::Apply(EtcdApply::PodDisruptionBudget { .. }))
            });
            model
                .late_writes
                .truncate(decided.unwrap_or(model.late_writes.len()));
            Ok(WriteResult::Done)
        }
        // Services and Secrets never drift in the model.
        Effect::Apply(EtcdApply::Object(_)) => Ok(WriteResult::Done),
        Effect::UpdateIdentity { from, to } if !identity_moves_forward(from, to) => Err(
            RuleViolation("the identity returns to an earlier state".to_owned()),
        ),
        Effect::UpdateIdentity { from, to } => {
            if model.identity.as_ref() != Some(from) {
                return Ok(WriteResult::Rejected);
            }
            model.identity = Some(to.clone());
            Ok(WriteResult::Done)
        }
        Effect::ChangeMembership(intent) => Ok(change_membership(model, intent, etcd)),
        Effect::Delete(disruption) => delete(model, disruption),
    }
}

fn apply_create(model: &mut ClusterModel, create: &EtcdCreate) -> WriteResult {
    match create {
        EtcdCreate::Identity(identity) => {
            if model.identity.is_some() {
                return WriteResult::Rejected;
            }
            model.identity_owned = model.owns_new_identity(identity);
            model.identity = Some(identity.clone());
        }
        EtcdCreate::Claim {
            serial,
            epoch,
            owned,
        } => {
            if model.claims.contains_key(serial) {
                return WriteResult::Rejected;
            }
            let uid = model.fresh_uid();
            let made_for = model.volume_template();
            model
                .claims
                .insert(*serial, ModelClaim::new(uid, *epoch, made_for, *owned));
        }
        EtcdCreate::Pod {
            serial,
            epoch,
            claim: on,
            start_mode: start,
            template_hash,
        } => {
            let claim = model.claims.get(serial).map(|claim| claim.uid);
            if model.pods.contains_key(serial) || *on != claim {
                return WriteResult::Rejected;
            }
            let uid = model.fresh_uid();
            model.pods.insert(
                *serial,
                ModelPod::new(
                    uid,
                    *epoch,
                    TemplateVariant::of(*template_hash),
                    start.clone(),
                    model.incarnation,
                ),
            );
        }
        EtcdCreate::RestorePod {
            serial,
            epoch,
            claim,
            restore,
            template_hash,
        } => {
            let current = model.claims.get(serial).map(|claim| claim.uid);
            if model.restore_pods.contains_key(serial) || current != Some(*claim) {
                return WriteResult::Rejected;
            }
            let uid = model.fresh_uid();
            model.restore_pods.insert(
                *serial,
                ModelRestorePod {
                    uid,
                    epoch: *epoch,
                    claim: *claim,
                    backup: backup_of(Some(restore)),
                    restore: restore.id,
                    template: TemplateVariant::of(*template_hash),
                    state: ModelRestoreState::Held,
                    is_terminating: false,
                    is_old: false,
                },
            );
        }
    }
    WriteResult::Done
}

/// Records a restore on a claim. The record must be true.
fn record_restored(
    model: &mut ClusterModel,
    uid: Uid,
    volume: Uid,
    restore: Uid,
) -> Result<WriteResult, RuleViolation> {
    let origins = known_origins(model);
    let mut claims = model.claims.iter_mut();
    let Some((serial, claim)) = claims.find(|(_, claim)| claim.uid == uid) else {
        return Ok(WriteResult::Rejected);
    };
    let has_data = match claim.disk {
        DiskState::Empty => false,
        DiskState::Restored(backup) => origins
            .iter()
            .filter(|origin| origin.id == restore)
            .all(|origin| backup_of(Some(origin)) == backup),
        // A write that arrives late, after etcd has started.
        DiskState::Data { .. } => true,
    };
    if !has_data {
        return Err(RuleViolation(format!(
            "a restore is recorded on the claim of {}, whose volume does not have the data of the backup",
            member_label(*serial)
        )));
    }
    claim.restored = Some(RestoredVolume {
        restore,
        claim: uid,
        volume,
    });
    Ok(WriteResult::Done)
}

/// Returns the restores that the spec, the identity or a `Restore` can name.
fn known_origins(model: &ClusterModel) -> Vec<RestoreOrigin> {
    let identity = model.identity.iter();
    let named = identity.flat_map(|identity| {
        let next = identity.next_epoch.as_ref().map(|next| &next.restore);
        next.into_iter().chain(&identity.restore)
    });
    let request = model.restore.map(ModelRestore::origin);
    BACKUPS
        .into_iter()
        .filter_map(restore_of)
        .chain(named.cloned())
        .chain(request)
        .collect()
}

fn apply_patch(model: &mut ClusterModel, patch: &EtcdPatch) -> WriteResult {
    if let EtcdPatch::ReleaseRestorePod { pod: uid } = patch {
        let mut pods = model.restore_pods.values_mut();
        return match pods.find(|pod| pod.uid == *uid) {
            Some(pod) => {
                // A kubelet starts no container of a Terminating pod.
                if pod.state == ModelRestoreState::Held && !pod.is_terminating {
                    pod.state = ModelRestoreState::Running;
                }
                WriteResult::Done
            }
            None => WriteResult::Rejected,
        };
    }
    if let EtcdPatch::NudgeMember { .. } = patch {
        // The rest of the plan does not depend on the result.
        if let Some((_, cluster)) = model.reachable_voter() {
            model.append_entry(cluster);
        }
        return WriteResult::Done;
    }
    if let EtcdPatch::RecordJoinedVolume { claim: uid, volume } = patch {
        return match model.claims.values_mut().find(|claim| claim.uid == *uid) {
            Some(claim) => {
                claim.joined_on = Some((*uid, *volume));
                WriteResult::Done
            }
            None => WriteResult::Rejected,
        };
    }
    if let EtcdPatch::RecordReplaced { claim: uid, until } = patch {
        return match model.claims.values_mut().find(|claim| claim.uid == *uid) {
            Some(claim) => {
                claim.is_replaced = until.is_some();
                WriteResult::Done
            }
            None => WriteResult::Rejected,
        };
    }
    if let EtcdPatch::SetOwner { target, owned } = patch
        && !matches!(target, OwnerTarget::Pod(_))
    {
        return set_owner(model, *target, *owned);
    }
    let resource = model.incarnation;
    let (EtcdPatch::SetStartMode { pod: uid, .. }
    | EtcdPatch::MarkJoined { pod: uid, .. }
    | EtcdPatch::AttachClients { pod: uid }
    | EtcdPatch::DetachClients { pod: uid }
    | EtcdPatch::SetOwner {
        target: OwnerTarget::Pod(uid),
        ..
    }) = patch
    else {
        return WriteResult::Rejected;
    };
    let Some((serial, pod)) = model.pods.iter_mut().find(|(_, pod)| pod.uid == *uid) else {
        return WriteResult::Rejected;
    };
    let serial = *serial;
    match patch {
        EtcdPatch::SetStartMode { from, to, .. } if pod.start_mode == *from => {
            pod.start_mode = to.clone()
        }
        EtcdPatch::SetStartMode { .. } => return WriteResult::Rejected,
        EtcdPatch::MarkJoined { from, .. } if pod.start_mode == *from => {
            (pod.start_mode, pod.joined_gate) = (StartMode::ExistingData, true)
        }
        EtcdPatch::MarkJoined { .. } => return WriteResult::Rejected,
        EtcdPatch::SetOwner { .. } => pod.owner_incarnation = resource,
        EtcdPatch::DetachClients { .. } => pod.is_routed = false,
        EtcdPatch::AttachClients { .. }
        | EtcdPatch::RecordJoinedVolume { .. }
        | EtcdPatch::ReleaseRestorePod { .. }
        | EtcdPatch::RecordRestored { .. }
        | EtcdPatch::RecordRemoval { .. }
        | EtcdPatch::RecordReplaced { .. }
        | EtcdPatch::RecordVersion { .. }
        | EtcdPatch::RecordTemplateHash { .. }
        | EtcdPatch::ResizeVolume { .. }
        | EtcdPatch::RecordSpec
        | EtcdPatch::NudgeMember { .. } => pod.is_routed = true,
    }
    let pending = std::mem::take(&mut model.pending_writes);
    invalidate_writes(model, serial);
    model.pending_writes = pending;
    WriteResult::Done
}

/// Adds or removes the owner of the identity or of a claim.
fn set_owner(model: &mut ClusterModel, target: OwnerTarget, owned: bool) -> WriteResult {
    match target {
        OwnerTarget::Identity if model.identity.is_some() => model.identity_owned = owned,
        OwnerTarget::Claim(uid) => {
            let Some(claim) = model.claims.values_mut().find(|claim| claim.uid == uid) else {
                return WriteResult::Rejected;
            };
            claim.is_owned = owned;
        }
        OwnerTarget::Identity | OwnerTarget::Pod(_) => return WriteResult::Rejected,
    }
    WriteResult::Done
}

/// Sends a membership change. etcd accepts it only with a quorum.
fn change_membership(
    model: &mut ClusterModel,
    intent: &Intent,
    etcd: FailureDetection,
) -> WriteResult {
    let Some((_, cluster)) = model.reachable_voter() else {
        return WriteResult::Rejected;
    };
    if !accepts_change(model, cluster, intent.change, etcd) {
        return WriteResult::Rejected;
    }
    commit_change(model, cluster, intent.change);
    WriteResult::Done
}

/// Returns true if etcd accepts a change. The strict reconfiguration check rejects a change that would cost the
/// quorum, as far as the leader has detected failures, and an addition while any voter is down. A promotion only
/// checks the learner's log, so etcd promotes a dead learner.
fn accepts_change(
    model: &ClusterModel,
    cluster: usize,
    change: MembershipChange,
    etcd: FailureDetection,
) -> bool {
    let members = &model.clusters[cluster].members;
    let voters = model.voter_count(cluster);
    let alive = if etcd == FailureDetection::Detected {
        model.running_voters(cluster)
    } else {
        voters
    };
    match change {
        MembershipChange::Add(serial) => {
            let learners = members.values().filter(|member| member.is_learner).count();
            !members.contains_key(&serial)
                && learners < usize::from(model.max_learners)
                && alive == voters
        }
        MembershipChange::Promote(serial) => members
            .get(&serial)
            .is_some_and(|member| member.is_learner && member.has_started),
        MembershipChange::Remove(serial) if model.is_voter(cluster, serial) => {
            let dead = model.running_cluster(serial) != Some(cluster);
            voters > 1 && (dead || alive > quorum(voters - 1))
        }
        MembershipChange::Remove(serial) => members.contains_key(&serial),
        MembershipChange::RemoveUnknown(_) => model.clusters[cluster].unknown_voter.is_some(),
    }
}

/// Returns true if etcd accepts the change only because it has not detected a failure.
pub fn needs_undetected_failure(model: &ClusterModel, change: MembershipChange) -> bool {
    let taken = |cluster, etcd| accepts_change(model, cluster, change, etcd);
    model.reachable_voter().is_some_and(|(_, cluster)| {
        taken(cluster, FailureDetection::NotDetected) && !taken(cluster, FailureDetection::Detected)
    })
}

/// Applies a committed membership change.
pub(crate) fn commit_change(model: &mut ClusterModel, cluster: usize, change: MembershipChange) {
    model.append_entry(cluster);
    let members = &mut model.clusters[cluster].members;
    match change {
        MembershipChange::Add(serial) => {
            members.insert(
                serial,
                ModelMember {
                    is_learner: true,
                    has_started: false,
                },
            );
        }
        MembershipChange::Promote(serial) => {
            members.insert(
                serial,
                ModelMember {
                    is_learner: false,
                    has_started: true,
                },
            );
        }
        MembershipChange::Remove(serial) => {
            members.remove(&serial);
            stop_removed(model, cluster, serial);
        }
        MembershipChange::RemoveUnknown(_) => model.clusters[cluster].unknown_voter = None,
    }
}

/// Returns the cluster whose leader appends the change to its log although it has just lost its quorum: the cluster
/// of a running voter.
pub fn cluster_logging_change(model: &ClusterModel, change: MembershipChange) -> Option<usize> {
    if model.reachable_voter().is_some() {
        return None;
    }
    let reachable = model
        .pods
        .iter()
        .rev()
        .filter(|(_, pod)| !pod.is_unreachable)
        .map(|(serial, _)| serial);
    let mut clusters = reachable.filter_map(|serial| {
        model
            .running_cluster(*serial)
            .filter(|cluster| model.is_voter(*cluster, *serial))
    });
    let cluster = clusters.next()?;
    let free = model.clusters[cluster].logged_change.is_none();
    (free && accepts_change(model, cluster, change, FailureDetection::NotDetected))
        .then_some(cluster)
}

/// Stops a removed member: a running member notices its removal and exits.
fn stop_removed(model: &mut ClusterModel, cluster: usize, serial: Serial) {
    if model.running_cluster(serial) == Some(cluster) {
        model.set_running(serial, false);
    }
}

fn delete(
    model: &mut ClusterModel,
    disruption: &EtcdDisruption,
) -> Result<WriteResult, RuleViolation> {
    match disruption {
        EtcdDisruption::RestartMember {
            serial,
            via_eviction: true,
            ..
        } if !can_evict(model, *serial) => Ok(WriteResult::Rejected),
        EtcdDisruption::RestartMember {
            pod: uid, serial, ..
        }
        | EtcdDisruption::DeletePod {
            pod: uid, serial, ..
        } => {
            let Some(pod) = model.pods.get_mut(serial).filter(|pod| pod.uid == *uid) else {
                return Ok(WriteResult::Rejected);
            };
            pod.is_terminating = true;
            pod.is_running = false;
            Ok(WriteResult::Done)
        }
        EtcdDisruption::DeleteRestorePod {
            pod: uid, serial, ..
        } => {
            let pod = model.restore_pods.get_mut(serial);
            let Some(pod) = pod.filter(|pod| pod.uid == *uid) else {
                return Ok(WriteResult::Rejected);
            };
            pod.is_terminating = true;
            Ok(WriteResult::Done)
        }
        EtcdDisruption::DeleteClaim {
            claim: uid, serial, ..
        } => {
            let Some(claim) = model.claims.get(serial).filter(|claim| claim.uid == *uid) else {
                return Ok(WriteResult::Rejected);
            };
            let current = model
                .identity
                .as_ref()
                .is_some_and(|identity| identity.epoch == claim.epoch);
            let member = model
                .current_cluster()
                .is_some_and(|cluster| model.clusters[cluster].members.contains_key(serial));
            if current && member {
                return Err(RuleViolation(format!(
                    "the volume of {} is deleted although {0} is still a member",
                    member_label(*serial)
                )));
            }
            if let DiskState::Data { cluster, .. } = claim.disk
                && let Some(of) = model.clusters.get(usize::from(cluster))
                && !current
                && model.restores_in_place
                && of.has_served_clients
                && of
                    .members
                    .get(serial)
                    .is_some_and(|member| !member.is_learner)
            {
                return Err(RuleViolation(format!(
                    "the volume of {} is deleted although a restore of its cluster can be undone",
                    member_label(*serial)
                )));
            }
            model.claims.remove(serial);
            Ok(WriteResult::Done)
        }
        EtcdDisruption::UpdateIdentity { .. }
        | EtcdDisruption::ForceSnapshot { .. }
        | EtcdDisruption::ChangeMembership { .. } => Ok(WriteResult::Rejected),
    }
}

/// Returns true if the PodDisruptionBudget allows the eviction. It counts pods that are routed and Ready, and always
/// allows evicting the others.
fn can_evict(model: &ClusterModel, serial: Serial) -> bool {
    let counts = |serial: &Serial| {
        model
            .pods
            .get(serial)
            .is_some_and(|pod| pod.is_routed && !pod.is_terminating)
            && is_ready(model, *serial)
    };
    let left = model
        .pods
        .keys()
        .filter(|other| **other != serial && counts(other))
        .count();
    !counts(&serial)
        || model
            .pdb_min_available
            .is_none_or(|min| left >= usize::from(min))
}

/// Drops the writes whose precondition is the old resourceVersion of this pod, with the rest of their plans.
pub(crate) fn invalidate_writes(model: &mut ClusterModel, serial: Serial) {
    let is_overtaken = |effect: &Effect| match effect {
        Effect::Delete(
            EtcdDisruption::RestartMember { serial: of, .. }
            | EtcdDisruption::DeletePod {
                serial: of,
                why: DeleteReason::Outdated,
                ..
            },
        ) => *of == serial,
        _ => false,
    };
    let decided = model.late_writes.iter().position(is_overtaken);
    model
        .late_writes
        .truncate(decided.unwrap_or(model.late_writes.len()));
    let decided = model.pending_writes.iter().position(is_overtaken);
    model
        .pending_writes
        .truncate(decided.unwrap_or(model.pending_writes.len()));
}

/// Describes a membership change.
pub fn describe_change(change: MembershipChange) -> String {
    match change {
        MembershipChange::Add(serial) => format!("adding {}", member_label(serial)),
        MembershipChange::Promote(serial) => format!("promoting {}", member_label(serial)),
        MembershipChange::Remove(serial) => format!("removing {}", member_label(serial)),
        MembershipChange::RemoveUnknown(_) => "removing the unknown member".to_owned(),
    }
}
