//! The events that can happen next in a model state: steps of the operator, steps of kubelets, Kubernetes and etcd,
//! and faults.

use evenkeel_etcd::facts::{StartMode, StorageKind};
use evenkeel_etcd::names::Serial;
use evenkeel_etcd::view::quorum;

use crate::Decider;
use crate::effect::{self, Effect};
use crate::etcd_start::StartResult;
use crate::model::{
    BACKUPS, BackupNumber, ClusterModel, DiskState, ModelRestorePod, ModelRestoreState, NO_BACKUP,
    TemplateVariant, UnknownVoter,
};
use crate::observe::{Visibility, observe};

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelEvent {
    /// The operator observes everything and decides on these writes.
    Decide(Vec<Effect>),
    /// The operator observes only a part and decides on these writes.
    DecideWithout(Visibility, Vec<Effect>),
    /// The operator sends its next write.
    Write(Effect),
    /// The operator sends a membership change that etcd accepts only because it has not detected a failed member yet.
    WriteBeforeDetection(Effect),
    /// The operator sends a membership change that times out, because the quorum has just been lost. etcd commits it
    /// when the quorum is back.
    WriteTimedOut(Effect),
    /// The operator crashes; its remaining writes are forgotten.
    Crash,
    /// The operator freezes in the middle of a plan and another one takes over.
    Freeze,
    /// The frozen operator continues and sends its next write.
    LateWrite(Effect),
    /// A kubelet reads a pod from the API.
    KubeletSynced(Serial),
    /// The pod and volume of a new member are placed on the node of a voter that has no running pod.
    NodeTaken {
        /// The new member.
        newcomer: Serial,
        /// The voter.
        of: Serial,
    },
    /// A kubelet starts a pod's container.
    ContainerStarted(Serial),
    /// A kubelet starts a pod's container; its etcd receives all data as a snapshot, and does not serve before the next
    /// log entry.
    StartedFromSnapshot(Serial),
    /// A learner that has lost data gets another leader.
    LeaderChanged(Serial),
    /// A Terminating pod is removed.
    PodRemoved(Serial),
    /// A restore pod ends: the data is in place, or the data directory is not empty.
    RestoreFinished(Serial),
    /// A restore pod fails before it touches the data directory.
    RestoreFailed(Serial),
    /// A Terminating restore pod is removed.
    RestorePodRemoved(Serial),
    /// A user deletes a restore pod.
    RestorePodDeleted(Serial),
    /// The identity of a deleted resource is garbage collected.
    IdentityCollected,
    /// A claim of a deleted resource is garbage collected.
    ClaimCollected(Serial),
    /// A node that was down is back.
    NodeRecovered(Serial),
    /// The operator can reach a member again.
    MemberReachable(Serial),
    /// A user deletes the identity.
    IdentityDeleted,
    /// A user adds a voter that never starts.
    UnknownVoterAdded,
    /// A user deletes a pod.
    PodDeleted(Serial),
    /// A pod enters a terminal phase.
    PodFinished(Serial),
    /// The process of a member dies.
    ProcessDied(Serial),
    /// A user deletes a claim and its pod.
    ClaimDeleted(Serial),
    /// A user restores a claim, its annotations included, from an older copy.
    ClaimRestored(Serial),
    /// The data directory of a running member is emptied.
    DiskWiped(Serial),
    /// The node of a member goes down.
    NodeDown(Serial),
    /// The node of a member is lost for good.
    NodeLost(Serial),
    /// The operator cannot reach a member that other members reach.
    MemberUnreachable(Serial),
    /// The user changes `spec.members`.
    MembersEdited(u8),
    /// The user changes the pod template.
    TemplateEdited(TemplateVariant),
    /// The user names another backup, or none.
    SourceEdited(BackupNumber),
    /// The user creates a `Restore` of this backup, for the current cluster.
    RestoreCreated(BackupNumber),
    /// The user asks for the undo of the `Restore`.
    UndoRequested,
    /// The user deletes the `Restore`.
    RestoreDeleted,
    /// The user deletes the resource and creates it again.
    ResourceRecreated,
    /// The user deletes the resource with orphan propagation and creates it again.
    ResourceRecreatedOverOrphans,
    /// More time passes than every timeout.
    TimePassed,
}

impl ModelEvent {
    /// Returns every event that can happen next.
    pub fn all(model: &ClusterModel, decider: &dyn Decider) -> Vec<Self> {
        let mut events = Self::enabled(model, decider);
        events.extend(Self::faults(model, decider));
        events
    }

    /// Returns the events that happen without a fault.
    pub fn enabled(model: &ClusterModel, decider: &dyn Decider) -> Vec<Self> {
        let mut events = Vec::new();
        for (serial, pod) in &model.pods {
            if pod.is_unreachable {
                events.push(Self::MemberReachable(*serial));
            }
            if pod.node_down {
                events.push(Self::NodeRecovered(*serial));
            } else if pod.is_terminating {
                events.push(Self::PodRemoved(*serial));
            } else if !pod.is_finished && pod.start_mode != StartMode::Held {
                let is_outdated = |(start, gate): &(StartMode, bool)| {
                    (start, *gate) != (&pod.start_mode, pod.joined_gate)
                };
                if pod.kubelet_view.as_ref().is_none_or(is_outdated)
                    && !model.is_unschedulable(*serial)
                {
                    events.push(Self::KubeletSynced(*serial));
                }
                if !pod.is_running && model.start_result(*serial) != Ok(StartResult::Exits) {
                    events.push(Self::ContainerStarted(*serial));
                }
            }
        }
        for (serial, pod) in &model.restore_pods {
            if pod.is_terminating {
                events.push(Self::RestorePodRemoved(*serial));
            } else if can_finish_restore(model, *serial, pod) {
                events.push(Self::RestoreFinished(*serial));
            }
        }
        if model.identity_terminating {
            events.push(Self::IdentityCollected);
        }
        let terminating = model
            .claims
            .iter()
            .filter(|(serial, claim)| claim.is_terminating && !model.pods.contains_key(serial));
        events.extend(terminating.map(|(serial, _)| Self::ClaimCollected(*serial)));
        match model.pending_writes.first() {
            Some(effect) => events.push(Self::Write(effect.clone())),
            None => {
                let writes = decided_writes(model, decider, Visibility::Full);
                if !writes.is_empty() {
                    events.push(Self::Decide(writes));
                }
            }
        }
        events
    }

    /// Returns the faults that the fault budget still allows.
    pub(crate) fn faults(model: &ClusterModel, decider: &dyn Decider) -> Vec<Self> {
        let mut events = Vec::new();
        if let Some(effect) = model.late_writes.first() {
            events.push(Self::LateWrite(effect.clone()));
        }
        if let Some(effect @ Effect::ChangeMembership(intent)) = model.pending_writes.first() {
            if effect::needs_undetected_failure(model, intent.change) {
                events.push(Self::WriteBeforeDetection(effect.clone()));
            }
            if effect::cluster_logging_change(model, intent.change).is_some() {
                events.push(Self::WriteTimedOut(effect.clone()));
            }
        }
        let learners = model
            .pods
            .keys()
            .filter(|serial| model.needs_new_leader(**serial).is_some());
        events.extend(learners.map(|serial| Self::LeaderChanged(*serial)));
        // The containers of a Terminating pod run until they are killed.
        let terminating = model
            .restore_pods
            .iter()
            .filter(|(serial, pod)| pod.is_terminating && can_finish_restore(model, **serial, pod));
        events.extend(terminating.map(|(serial, _)| Self::RestoreFinished(*serial)));
        if model.budget.crashes > 0 && !model.pending_writes.is_empty() {
            events.push(Self::Crash);
            if model.late_writes.is_empty() {
                events.push(Self::Freeze);
            }
        }
        if model.budget.edits > 0 {
            events.extend(
                [1, 3]
                    .into_iter()
                    .filter(|members| *members != model.desired_members)
                    .map(Self::MembersEdited),
            );
            if model.restores_in_place {
                events.extend(restore_edits(model));
            } else if model.restores {
                let others = BACKUPS.into_iter().chain([NO_BACKUP]);
                let others = others.filter(|backup| *backup != model.source);
                events.extend(others.map(Self::SourceEdited));
            }
            if model.edits_change_template {
                let templates = [
                    TemplateVariant::Original,
                    TemplateVariant::Changed,
                    TemplateVariant::Broken,
                ];
                let others = templates
                    .into_iter()
                    .filter(|template| *template != model.template);
                events.extend(others.map(Self::TemplateEdited));
            } else {
                events.extend([Self::ResourceRecreated, Self::ResourceRecreatedOverOrphans]);
            }
        }
        let has_running_timeouts = model.pods.values().any(|pod| !pod.is_old)
            || model.restore_pods.values().any(|pod| !pod.is_old)
            || model
                .clusters
                .iter()
                .any(|cluster| cluster.unknown_voter == Some(UnknownVoter::Recent));
        if model.budget.delays > 0 && has_running_timeouts {
            events.push(Self::TimePassed);
        }
        if model.budget.faults > 0 {
            add_object_faults(model, decider, &mut events);
        }
        events
    }
}

/// Returns the writes that an operator would decide on now.
pub fn decided_writes(
    model: &ClusterModel,
    decider: &dyn Decider,
    visibility: Visibility,
) -> Vec<Effect> {
    effect::plan_writes(&decider.decide(&observe(model, visibility)))
}

/// Returns the edits of the `Restore`. It can be created for a cluster that has served.
fn restore_edits(model: &ClusterModel) -> Vec<ModelEvent> {
    match &model.restore {
        Some(restore) if restore.undo => vec![ModelEvent::RestoreDeleted],
        Some(_) => vec![ModelEvent::UndoRequested, ModelEvent::RestoreDeleted],
        None => {
            let identity = model.identity.as_ref();
            let has_cluster = identity
                .is_some_and(|identity| identity.bootstrapped && identity.cluster_id.is_some());
            let backup = has_cluster.then_some(ModelEvent::RestoreCreated(BACKUPS[0]));
            backup.into_iter().collect()
        }
    }
}

/// Returns every pair of an unscheduled new member and a voter without a scheduled pod whose node it could take.
fn node_takeovers(model: &ClusterModel) -> Vec<ModelEvent> {
    let Some(cluster) = model
        .current_cluster()
        .filter(|_| model.storage == StorageKind::Persistent)
    else {
        return Vec::new();
    };
    let members = &model.clusters[cluster].members;
    let unscheduled = |serial: &Serial| {
        model
            .pods
            .get(serial)
            .is_none_or(|pod| pod.kubelet_view.is_none())
    };
    let is_joining = |serial: &Serial| {
        let has_join_pod = model
            .pods
            .get(serial)
            .is_some_and(|pod| matches!(pod.start_mode, StartMode::Join(_)) && !pod.is_terminating);
        has_join_pod
            && unscheduled(serial)
            && model
                .claims
                .get(serial)
                .is_some_and(|claim| claim.shares_node_of.is_none())
    };
    let newcomers = members
        .iter()
        .filter(|(serial, member)| member.is_learner && is_joining(serial));
    let away: Vec<_> = members
        .iter()
        .filter(|(serial, member)| !member.is_learner && unscheduled(serial))
        .collect();
    newcomers
        .flat_map(|(newcomer, _)| {
            away.iter().map(|(of, _)| ModelEvent::NodeTaken {
                newcomer: *newcomer,
                of: **of,
            })
        })
        .collect()
}

fn add_object_faults(model: &ClusterModel, decider: &dyn Decider, events: &mut Vec<ModelEvent>) {
    events.extend(node_takeovers(model));
    if model.pending_writes.is_empty() && model.identity.is_some() {
        let partial = |visibility| {
            ModelEvent::DecideWithout(visibility, decided_writes(model, decider, visibility))
        };
        events.extend([Visibility::NoEtcd, Visibility::NoObjects].map(partial));
    }
    if model.identity.is_some() && model.allows_tampering {
        events.push(ModelEvent::IdentityDeleted);
        if cluster_for_unknown_voter(model).is_some() {
            events.push(ModelEvent::UnknownVoterAdded);
        }
    }
    for (serial, pod) in &model.pods {
        if can_start_from_snapshot(model, *serial) {
            events.push(ModelEvent::StartedFromSnapshot(*serial));
        }
        events.push(ModelEvent::PodDeleted(*serial));
        if !pod.node_down && !pod.is_finished {
            events.push(ModelEvent::NodeDown(*serial));
            events.push(ModelEvent::PodFinished(*serial));
        }
        if pod.is_running {
            events.push(ModelEvent::ProcessDied(*serial));
            events.push(ModelEvent::MemberUnreachable(*serial));
            events.push(ModelEvent::DiskWiped(*serial));
        }
        events.push(ModelEvent::NodeLost(*serial));
    }
    for (serial, pod) in &model.restore_pods {
        if pod.state == ModelRestoreState::Running {
            events.push(ModelEvent::RestoreFailed(*serial));
        }
        events.push(ModelEvent::RestorePodDeleted(*serial));
        if !model.pods.contains_key(serial) {
            events.push(ModelEvent::NodeLost(*serial));
        }
    }
    for (serial, claim) in &model.claims {
        events.push(ModelEvent::ClaimDeleted(*serial));
        if matches!(claim.disk, DiskState::Restored(_)) && claim.restored.is_some() {
            events.push(ModelEvent::DiskWiped(*serial));
        }
        if claim.disk != DiskState::Empty {
            events.push(ModelEvent::ClaimRestored(*serial));
        }
    }
}

/// Returns true if a restore pod runs and has its volume.
fn can_finish_restore(model: &ClusterModel, serial: Serial, pod: &ModelRestorePod) -> bool {
    pod.state == ModelRestoreState::Running
        && pod.template != TemplateVariant::Broken
        && model.disk(serial).is_some()
}

/// Returns true if a pod's container can start now, and a leader can send it a snapshot. The log of a cluster in bootstrap
/// is too short for one.
fn can_start_from_snapshot(model: &ClusterModel, serial: Serial) -> bool {
    let Some(pod) = model.pods.get(&serial) else {
        return false;
    };
    let can_start = !pod.is_running && !pod.node_down && !pod.is_terminating && !pod.is_finished;
    let bootstrapped = model
        .identity
        .as_ref()
        .is_some_and(|identity| identity.bootstrapped);
    if !can_start || !bootstrapped {
        return false;
    }
    let cluster = match model.start_result(serial) {
        Ok(StartResult::Joins(cluster)) => cluster,
        Ok(StartResult::ExistingData) => match model.disk(serial) {
            Some(DiskState::Data { cluster, .. }) => usize::from(cluster),
            Some(DiskState::Restored(_) | DiskState::Empty) | None => return false,
        },
        Ok(StartResult::Exits | StartResult::Bootstraps(_) | StartResult::StartsFromBackup(..))
        | Err(_) => return false,
    };
    model.has_quorum(cluster) && model.clusters[cluster].members.contains_key(&serial)
}

/// Returns the cluster that accepts one more voter and keeps its quorum without it. (A single-member cluster also
/// accepts one and loses its quorum; only the user can undo that.)
pub(crate) fn cluster_for_unknown_voter(model: &ClusterModel) -> Option<usize> {
    let cluster = model
        .current_cluster()
        .filter(|cluster| model.clusters[*cluster].unknown_voter.is_none())?;
    let (running, voters) = (model.running_voters(cluster), model.voter_count(cluster));
    (running == voters && running >= quorum(voters + 1)).then_some(cluster)
}
