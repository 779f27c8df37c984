//! The effect of each event on the model: one handler per event, then the consequences that follow at once, then the
//! invariants.

use evenkeel_etcd::facts::StorageKind;
use evenkeel_etcd::names::Serial;
use evenkeel_etcd::plan::{EtcdDisruption, EtcdPatch};

use crate::Decider;
use crate::effect::{self, Effect, FailureDetection, WriteResult};
use crate::event::{ModelEvent, cluster_for_unknown_voter};
use crate::model::{
    ClusterModel, DiskState, ModelPod, ModelRestore, ModelRestoreState, RuleViolation,
    UnknownVoter, backup_of,
};
use crate::trace_fmt::DescribedWrite;

impl ModelEvent {
    /// Applies the event to the model. Returns the rule that it violates, if any.
    pub fn apply(
        &self,
        model: &mut ClusterModel,
        decider: &dyn Decider,
    ) -> Result<(), RuleViolation> {
        match self {
            Self::Decide(writes) => accept_plan(model, writes)?,
            Self::Write(effect) => send_write(model, effect)?,
            Self::WriteBeforeDetection(effect) => send_write_before_detection(model, effect)?,
            Self::WriteTimedOut(effect) => time_out_write(model, effect),
            Self::Crash => crash(model),
            Self::Freeze => freeze(model, decider),
            Self::LateWrite(effect) => send_late_write(model, effect)?,
            Self::KubeletSynced(serial) => update_pod(model, *serial, sync_kubelet),
            Self::ContainerStarted(serial) => start_container(model, *serial)?,
            Self::LeaderChanged(serial) => model.catch_up(*serial),
            Self::PodRemoved(serial) => remove_terminating_pod(model, *serial),
            Self::RestoreFinished(serial) => finish_restore(model, *serial),
            Self::RestorePodRemoved(serial) => {
                model.restore_pods.remove(serial);
                model.forget_previous_cluster();
            }
            Self::IdentityCollected => collect_identity(model),
            Self::ClaimCollected(serial) => collect_claim(model, *serial),
            Self::NodeRecovered(serial) => update_pod(model, *serial, |pod| pod.node_down = false),
            Self::MemberReachable(serial) => {
                update_pod(model, *serial, |pod| pod.is_unreachable = false);
            }
            Self::MembersEdited(members) => {
                model.budget.edits -= 1;
                model.desired_members = *members;
            }
            Self::TemplateEdited(template) => {
                model.budget.edits -= 1;
                model.template = *template;
            }
            Self::SourceEdited(backup) => {
                model.budget.edits -= 1;
                model.source = *backup;
            }
            Self::RestoreCreated(backup) => {
                model.budget.edits -= 1;
                let identity = model.identity.as_ref();
                model.restore = identity.map(|identity| ModelRestore {
                    backup: *backup,
                    replaces: identity.epoch,
                    undo: false,
                });
            }
            Self::UndoRequested => {
                model.budget.edits -= 1;
                model.restore = model.restore.map(|restore| ModelRestore {
                    undo: true,
                    ..restore
                });
            }
            Self::RestoreDeleted => {
                model.budget.edits -= 1;
                model.restore = None;
            }
            Self::ResourceRecreated => {
                recreate_resource(model);
                model.delete_resource();
            }
            Self::ResourceRecreatedOverOrphans => {
                recreate_resource(model);
                model.orphan_objects();
            }
            Self::TimePassed => {
                model.budget.delays -= 1;
                pass_time(model);
            }
            fault => {
                model.budget.faults -= 1;
                fault.apply_fault(model)?;
            }
        }
        model.settle();
        model.check()
    }

    /// Applies an event of the `faults` budget.
    fn apply_fault(&self, model: &mut ClusterModel) -> Result<(), RuleViolation> {
        match self {
            Self::DecideWithout(_, writes) => accept_plan(model, writes)?,
            Self::IdentityDeleted => delete_identity(model),
            Self::UnknownVoterAdded => add_unknown_voter(model),
            Self::RestoreFailed(serial) => {
                if let Some(pod) = model.restore_pods.get_mut(serial) {
                    pod.state = ModelRestoreState::Failed;
                }
            }
            Self::RestorePodDeleted(serial) => {
                model.restore_pods.remove(serial);
            }
            Self::PodDeleted(serial) => model.remove_pod(*serial),
            Self::PodFinished(serial) => update_pod(model, *serial, |pod| {
                (pod.is_finished, pod.is_running) = (true, false);
            }),
            Self::MemberUnreachable(serial) => {
                update_pod(model, *serial, |pod| pod.is_unreachable = true);
            }
            Self::StartedFromSnapshot(serial) => {
                start_container(model, *serial)?;
                if let Some(cluster) = model.running_cluster(*serial) {
                    model.set_disk(*serial, DiskState::written(cluster, *serial));
                    update_pod(model, *serial, |pod| pod.is_stuck = true);
                }
            }
            Self::NodeTaken { newcomer, of } => take_node(model, *newcomer, *of),
            Self::ProcessDied(serial) => model.set_running(*serial, false),
            Self::DiskWiped(serial) => wipe_disk(model, *serial),
            Self::ClaimDeleted(serial) => delete_claim(model, *serial),
            Self::ClaimRestored(serial) => restore_claim(model, *serial),
            Self::NodeDown(serial) => update_pod(model, *serial, |pod| {
                (pod.node_down, pod.is_running) = (true, false);
            }),
            Self::NodeLost(serial) => lose_node(model, *serial),
            _ => {}
        }
        Ok(())
    }
}

fn update_pod(model: &mut ClusterModel, serial: Serial, update: impl FnOnce(&mut ModelPod)) {
    if let Some(pod) = model.pods.get_mut(&serial) {
        update(pod);
    }
}

fn accept_plan(model: &mut ClusterModel, writes: &Vec<Effect>) -> Result<(), RuleViolation> {
    model.pending_writes.clone_from(writes);
    check_plan(model)
}

fn send_write(model: &mut ClusterModel, effect: &Effect) -> Result<(), RuleViolation> {
    model.pending_writes.remove(0);
    if effect::apply(model, effect, FailureDetection::Detected)? == WriteResult::Rejected {
        model.pending_writes.clear();
    }
    Ok(())
}

fn send_write_before_detection(
    model: &mut ClusterModel,
    effect: &Effect,
) -> Result<(), RuleViolation> {
    model.pending_writes.remove(0);
    effect::apply(model, effect, FailureDetection::NotDetected)?;
    Ok(())
}

fn time_out_write(model: &mut ClusterModel, effect: &Effect) {
    model.pending_writes.clear();
    if let Effect::ChangeMembership(intent) = effect
        && let Some(cluster) = effect::cluster_logging_change(model, intent.change)
    {
        model.clusters[cluster].logged_change = Some(intent.change);
    }
}

fn crash(model: &mut ClusterModel) {
    model.budget.crashes -= 1;
    model.pending_writes.clear();
}

/// Keeps the writes that the frozen operator may still send. Its writes to Kubernetes may still arrive. The operator checks
/// its lease before it sends a request to etcd and before it restarts a member that the quorum needs.
fn freeze(model: &mut ClusterModel, decider: &dyn Decider) {
    model.budget.crashes -= 1;
    model.late_writes = std::mem::take(&mut model.pending_writes);
    let checks_lease = |effect: &Effect| {
        matches!(
            effect,
            Effect::ChangeMembership(_)
                | Effect::Patch(EtcdPatch::NudgeMember { .. })
                | Effect::Delete(EtcdDisruption::RestartMember {
                    via_eviction: false,
                    ..
                })
        )
    };
    model
        .late_writes
        .retain(|effect| decider.sends_after_lease() || !checks_lease(effect));
}

fn send_late_write(model: &mut ClusterModel, effect: &Effect) -> Result<(), RuleViolation> {
    model.late_writes.remove(0);
    let with_quorum = bootstrapped_quorum(model);
    if effect::apply(model, effect, FailureDetection::NotDetected)? == WriteResult::Rejected {
        model.late_writes.clear();
    }
    // A restore replaces the cluster by a write of the identity. Its members serve until their pods are deleted.
    if with_quorum.is_some_and(|cluster| !model.has_quorum(cluster)) {
        return Err(RuleViolation(format!(
            "a late write costs the quorum: {}",
            DescribedWrite(effect)
        )));
    }
    Ok(())
}

fn sync_kubelet(pod: &mut ModelPod) {
    pod.kubelet_view = Some((pod.start_mode.clone(), pod.joined_gate));
}

fn start_container(model: &mut ClusterModel, serial: Serial) -> Result<(), RuleViolation> {
    model.start_container(serial)?;
    effect::invalidate_writes(model, serial);
    Ok(())
}

/// Ends a restore on the volume that the pod has mounted, which is that of the claim with the pod's name.
fn finish_restore(model: &mut ClusterModel, serial: Serial) {
    let disk = model.disk(serial);
    let Some(pod) = model.restore_pods.get_mut(&serial) else {
        return;
    };
    let backup = pod.backup;
    if disk == Some(DiskState::Empty) {
        pod.state = ModelRestoreState::Succeeded;
        model.set_disk(serial, DiskState::Restored(backup));
    } else {
        pod.state = ModelRestoreState::FailedToInstall;
    }
}

fn remove_terminating_pod(model: &mut ClusterModel, serial: Serial) {
    model.remove_pod(serial);
    model.forget_previous_cluster();
}

fn collect_identity(model: &mut ClusterModel) {
    remove_identity(model);
    // The deleted resource owned the PodDisruptionBudget as well.
    model.pdb_min_available = None;
    model.forget_previous_cluster();
}

fn collect_claim(model: &mut ClusterModel, serial: Serial) {
    model.claims.remove(&serial);
    model.forget_previous_cluster();
}

fn recreate_resource(model: &mut ClusterModel) {
    model.budget.edits -= 1;
    model.incarnation += 1;
}

/// Lets every timeout expire.
pub fn pass_time(model: &mut ClusterModel) {
    for pod in model.pods.values_mut() {
        pod.is_old = true;
    }
    for pod in model.restore_pods.values_mut() {
        pod.is_old = true;
    }
    for cluster in &mut model.clusters {
        cluster.unknown_voter = cluster.unknown_voter.map(|_| UnknownVoter::Old);
    }
    if let Some(intent) = model
        .identity
        .as_mut()
        .and_then(|identity| identity.intent.as_mut())
    {
        intent.recorded_at = crate::observe::LONG_AGO;
    }
}

fn remove_identity(model: &mut ClusterModel) {
    model.identity = None;
    (model.identity_owned, model.identity_terminating) = (false, false);
}

fn delete_identity(model: &mut ClusterModel) {
    remove_identity(model);
    for cluster in &mut model.clusters {
        cluster.identity_deleted = true;
    }
}

fn add_unknown_voter(model: &mut ClusterModel) {
    if let Some(cluster) = cluster_for_unknown_voter(model) {
        model.clusters[cluster].unknown_voter = Some(UnknownVoter::Recent);
    }
}

fn take_node(model: &mut ClusterModel, newcomer: Serial, of: Serial) {
    let node = model.node_of(of);
    if let Some(claim) = model.claims.get_mut(&newcomer) {
        claim.shares_node_of = Some(node);
    }
    update_pod(model, newcomer, sync_kubelet);
}

fn wipe_disk(model: &mut ClusterModel, serial: Serial) {
    model.set_disk(serial, DiskState::Empty);
    model.set_running(serial, false);
}

/// Deletes a claim and the pods that use it. A restore pod that is not scheduled or has finished uses none.
fn delete_claim(model: &mut ClusterModel, serial: Serial) {
    model.claims.remove(&serial);
    model.remove_pod(serial);
    model
        .restore_pods
        .retain(|of, pod| *of != serial || pod.state != ModelRestoreState::Running);
}

fn restore_claim(model: &mut ClusterModel, serial: Serial) {
    model.remove_pod(serial);
    model
        .restore_pods
        .retain(|of, pod| *of != serial || pod.state != ModelRestoreState::Running);
    let uid = model.fresh_uid();
    let Some(claim) = model.claims.get_mut(&serial) else {
        return;
    };
    claim.uid = uid;
    if let DiskState::Data { stale, .. } = &mut claim.disk {
        *stale = true;
    }
}

fn lose_node(model: &mut ClusterModel, serial: Serial) {
    model.remove_pod(serial);
    model.restore_pods.remove(&serial);
    if model.storage == StorageKind::Persistent
        && let Some(claim) = model.claims.get_mut(&serial)
    {
        claim.node_lost = true;
    }
}

/// Returns the current cluster if its bootstrap is finished and it has a quorum.
fn bootstrapped_quorum(model: &ClusterModel) -> Option<usize> {
    let bootstrapped = model
        .identity
        .as_ref()
        .is_some_and(|identity| identity.bootstrapped);
    model
        .current_cluster()
        .filter(|cluster| bootstrapped && model.has_quorum(*cluster))
}

/// Checks a plan against the state for which it was decided: executed at once, it must not cost an existing quorum. A failure
/// between the decision and the write does not count against the plan, and a rejection by etcd does not count in its favour.
fn check_plan(model: &ClusterModel) -> Result<(), RuleViolation> {
    let finishes = |effect: &Effect| match effect {
        Effect::UpdateIdentity { from, to } => {
            !from.bootstrapped
                && to.bootstrapped
                && !model.restores_in_place
                && backup_of(from.restore.as_ref()) != model.source
        }
        _ => false,
    };
    if model.pending_writes.iter().any(finishes) {
        return Err(RuleViolation(
            "the bootstrap finishes with the data of another backup than the spec names".to_owned(),
        ));
    }
    let Some(cluster) = bootstrapped_quorum(model) else {
        return Ok(());
    };
    let mut after = model.clone();
    for effect in &model.pending_writes {
        // A cluster of one or two healthy members can only be restarted without a quorum.
        let too_small = model.desired_members <= 2
            && model.voter_count(cluster) <= 2
            && model.running_voters(cluster) == model.voter_count(cluster);
        if too_small
            && matches!(
                effect,
                Effect::Delete(EtcdDisruption::RestartMember {
                    via_eviction: false,
                    ..
                })
            )
        {
            break;
        }
        if effect::apply(&mut after, effect, FailureDetection::NotDetected)?
            == WriteResult::Rejected
        {
            break;
        }
        if !after.has_quorum(cluster) {
            return Err(RuleViolation(format!(
                "a decided write costs the quorum: {}",
                DescribedWrite(effect)
            )));
        }
    }
    Ok(())
}
