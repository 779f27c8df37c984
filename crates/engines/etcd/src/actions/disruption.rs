//! Changes that may disturb clients, or that no other change may overlap.

use evenkeel_api::labels;
use evenkeel_kit::objects::annotation;
use evenkeel_runtime::EventSpec;
use kube::ResourceExt;

use super::{ActionContext, EtcdAction, format_duration, member_display_name, normal, warning};
use crate::decide::replace;
use crate::facts::{OwnedObject, StorageKind};
use crate::identity::{Intent, MembershipChange, Uid};
use crate::names::Serial;
use crate::observe::{ObservedCluster, version};
use crate::plan::{DeleteReason, EtcdDisruption, IdentityChange, RestorePodEnd};
use crate::view::{ClusterView, DataState, MemberView};

/// The reason of a removal that an earlier plan began and whose cause is no longer observed.
const REMOVAL_BEGUN: &str = "the removal has already begun";

impl EtcdAction for EtcdDisruption {
    fn name(&self) -> &'static str {
        match self {
            Self::UpdateIdentity { why, .. } => why.into(),
            Self::ChangeMembership { intent, .. } => change_name(intent),
            Self::RestartMember { .. }
            | Self::ForceSnapshot { .. }
            | Self::DeletePod { .. }
            | Self::DeleteRestorePod { .. }
            | Self::DeleteClaim { .. } => self.into(),
        }
    }

    fn describe(&self, context: &ActionContext<'_>) -> String {
        match self {
            Self::UpdateIdentity { why, .. } => why.describe(context),
            Self::ChangeMembership { intent, .. } => describe_change(context, intent),
            Self::RestartMember {
                serial,
                transfer_to: Some(transfer_to),
                ..
            } => {
                format!(
                    "restarting member {} after a leadership transfer to {}",
                    context.member(*serial),
                    context.member(*transfer_to)
                )
            }
            Self::RestartMember { serial, .. } => {
                format!("restarting member {}", context.member(*serial))
            }
            Self::ForceSnapshot { .. } => {
                let next = context.facts.cluster.next_version;
                let next = next.map(|next| next.to_string()).unwrap_or_default();
                format!("forcing a snapshot on every member before the upgrade to {next}")
            }
            Self::DeletePod { serial, .. } => {
                format!("deleting Pod {}", context.member(*serial))
            }
            Self::DeleteRestorePod { pod, .. } => {
                format!("deleting Pod {}", context.restore_pod_name(*pod))
            }
            Self::DeleteClaim { serial, .. } => {
                format!("deleting PersistentVolumeClaim {}", context.member(*serial))
            }
        }
    }

    fn reason(&self, context: &ActionContext<'_>) -> String {
        match self {
            Self::UpdateIdentity { why, .. } => why.reason(context.observed),
            Self::ChangeMembership { intent, .. } => context
                .view
                .map(|view| change_reason(context, view, intent))
                .unwrap_or_default(),
            Self::RestartMember {
                serial,
                via_eviction,
                ..
            } => context
                .view
                .map(|view| restart_reason(context, view, *serial, *via_eviction))
                .unwrap_or_default(),
            Self::ForceSnapshot { .. } => {
                let next = context.facts.cluster.next_version;
                let next = next.map(|next| next.to_string()).unwrap_or_default();
                format!("etcd {next} cannot read raft log entries of older minor versions")
            }
            Self::DeletePod { serial, why, .. } => {
                let name = context.member(*serial);
                why.reason(&format!("Pod {name}"), &name)
            }
            Self::DeleteRestorePod { why, .. } => why.reason().to_owned(),
            Self::DeleteClaim { serial, why, .. } => {
                let name = context.member(*serial);
                why.reason(&format!("PersistentVolumeClaim {name}"), &name)
            }
        }
    }

    fn event(&self, observed: &ObservedCluster) -> Option<EventSpec> {
        let member = |serial: &Serial| member_display_name(observed, *serial);
        match self {
            Self::UpdateIdentity { why, .. } => why.event(observed),
            Self::ChangeMembership { intent, .. } => change_event(observed, intent),
            Self::RestartMember {
                pod,
                serial,
                via_eviction: true,
                ..
            } => normal(
                "MemberRestarted",
                format!(
                    "Restarted member {} {}",
                    member(serial),
                    restart_purpose(observed, *pod)
                ),
            ),
            Self::RestartMember { pod, serial, .. } => warning(
                "RestartWithoutRedundancy",
                format!(
                    "Restarted member {} {}. The other members have no quorum without it: clients cannot write until it is healthy",
                    member(serial),
                    restart_purpose(observed, *pod)
                ),
            ),
            Self::ForceSnapshot { .. } => {
                let next = observed.desired.next;
                let next = next.map(|next| next.to_string()).unwrap_or_default();
                normal(
                    "SnapshotForced",
                    format!("Forced a snapshot on every member before the upgrade to {next}"),
                )
            }
            Self::DeletePod { serial, why, .. } => {
                let name = member(serial);
                let note = format!("Deleted Pod {name}: {}", why.reason("it", &name));
                match why {
                    DeleteReason::Finished => warning("PodDeleted", note),
                    DeleteReason::OldEpoch
                    | DeleteReason::Replaced
                    | DeleteReason::MemberRemoved
                    | DeleteReason::FreesNode
                    | DeleteReason::Outdated => normal("PodDeleted", note),
                }
            }
            Self::DeleteRestorePod { pod, why, .. } => match why {
                RestorePodEnd::Failed => {
                    let name = observed.restore_pods.get(pod)?.name_any();
                    warning(
                        "RestoreRetried",
                        format!("Deleted Pod {name}: {}", why.reason()),
                    )
                }
                RestorePodEnd::NotNeeded | RestorePodEnd::OtherVolume | RestorePodEnd::Outdated => {
                    None
                }
            },
            Self::DeleteClaim { serial, why, .. } => {
                let name = member(serial);
                normal(
                    "ClaimDeleted",
                    format!(
                        "Deleted PersistentVolumeClaim {name}: {}",
                        why.reason("it", &name)
                    ),
                )
            }
        }
    }

    fn is_prerequisite(&self) -> bool {
        true
    }

    fn is_bookkeeping(&self) -> bool {
        match self {
            Self::UpdateIdentity { why, .. } => why.is_bookkeeping(),
            Self::ChangeMembership { .. }
            | Self::RestartMember { .. }
            | Self::ForceSnapshot { .. }
            | Self::DeletePod { .. }
            | Self::DeleteClaim { .. } => false,
            Self::DeleteRestorePod { why, .. } => *why == RestorePodEnd::NotNeeded,
        }
    }
}

impl IdentityChange {
    fn describe(self, context: &ActionContext<'_>) -> String {
        let identity = context.object(OwnedObject::Identity);
        match self {
            Self::StartSeed => {
                format!("recording the storage of the first member in {identity}")
            }
            Self::RecordCluster(_) => format!("recording the etcd cluster ID in {identity}"),
            Self::FinishBootstrap => {
                let service = context.object(OwnedObject::ClientService);
                format!("finishing bootstrap: adding members to {service}")
            }
            Self::SettleIntent => {
                format!("clearing the recorded membership change in {identity}")
            }
            Self::SeedLost
            | Self::SeedStorageChanged
            | Self::SourceChanged
            | Self::ResourceReplaced => "restarting the bootstrap with new members".to_owned(),
            Self::PrepareRestore => {
                let backup = requested_backup(context.observed);
                format!("preparing a volume with the data of Backup {backup}")
            }
            Self::RestartPreparation => {
                let backup = requested_backup(context.observed);
                format!("preparing another volume with the data of Backup {backup}")
            }
            Self::CancelRestore => "cancelling the restore".to_owned(),
            Self::ReplaceCluster => {
                "replacing the etcd cluster by one with the restored data".to_owned()
            }
            Self::UndoRestore => {
                "undoing the restore: starting the replaced etcd cluster again".to_owned()
            }
            Self::Adopt => "adopting the existing etcd cluster".to_owned(),
            Self::Repair => format!("updating {identity}"),
        }
    }

    fn reason(self, observed: &ObservedCluster) -> String {
        let reason = match self {
            Self::StartSeed => "the first member starts next",
            Self::RecordCluster(_) => "etcd has reported its cluster ID",
            Self::FinishBootstrap => "the members have formed an etcd cluster",
            Self::SettleIntent => "the recorded membership change is done or obsolete",
            Self::SeedLost => "a member that the bootstrap needs was lost",
            Self::SeedStorageChanged => {
                "spec.storage was changed before the first member had a volume"
            }
            Self::SourceChanged => "spec.bootstrap.from was changed before bootstrap was finished",
            Self::ResourceReplaced => {
                "the EtcdCluster was deleted and created again before bootstrap was finished"
            }
            Self::PrepareRestore => "a Restore asks for its data",
            Self::RestartPreparation => "the first volume cannot be used any more",
            Self::CancelRestore => {
                "the Restore was deleted or changed before the cluster was replaced"
            }
            Self::ReplaceCluster => "the volume of its first member has the restored data",
            Self::UndoRestore => "spec.undo of the Restore is set, and the volumes are kept",
            Self::Adopt => "the EtcdCluster was deleted and created again, and its data exists",
            Self::Repair => {
                let identity = observed.desired.names().identity();
                return format!(
                    "ConfigMap {identity} is older than the PersistentVolumeClaims and pods of the cluster"
                );
            }
        };
        reason.to_owned()
    }

    fn event(self, observed: &ObservedCluster) -> Option<EventSpec> {
        let names = observed.desired.names();
        match self {
            Self::FinishBootstrap => normal(
                "BootstrapFinished",
                format!(
                    "Finished bootstrap: members are added to Service {}",
                    names.client_service()
                ),
            ),
            Self::SeedLost
            | Self::SeedStorageChanged
            | Self::SourceChanged
            | Self::ResourceReplaced => warning(
                "BootstrapRestarted",
                format!(
                    "Restarted the bootstrap with new members: {}",
                    self.reason(observed)
                ),
            ),
            Self::RestartPreparation => warning(
                "RestoreRetried",
                "Started to fill another volume: the first one cannot be used any more",
            ),
            Self::CancelRestore => normal(
                "RestoreCancelled",
                "Cancelled the restore: the Restore was deleted or changed before the cluster was replaced",
            ),
            Self::ReplaceCluster => normal(
                "ClusterReplaced",
                format!(
                    "Stopping the members: the cluster is replaced by one with the data of Backup {}. Their volumes are kept",
                    requested_backup(observed)
                ),
            ),
            Self::UndoRestore => normal(
                "RestoreUndone",
                "Stopping the members with the restored data: those with the old data start again",
            ),
            Self::Adopt => normal(
                "ClusterAdopted",
                format!(
                    "Adopted the existing etcd cluster: {}",
                    self.reason(observed)
                ),
            ),
            Self::Repair => warning(
                "IdentityRebuilt",
                format!(
                    "Updated ConfigMap {} from the annotations of PersistentVolumeClaims and pods: it was older than they are",
                    names.identity()
                ),
            ),
            // The restore pod that follows has the event of its beginning.
            Self::PrepareRestore
            | Self::StartSeed
            | Self::RecordCluster(_)
            | Self::SettleIntent => None,
        }
    }

    fn is_bookkeeping(self) -> bool {
        match self {
            Self::StartSeed | Self::RecordCluster(_) | Self::SettleIntent => true,
            Self::FinishBootstrap
            | Self::SeedLost
            | Self::SeedStorageChanged
            | Self::SourceChanged
            | Self::ResourceReplaced
            | Self::PrepareRestore
            | Self::RestartPreparation
            | Self::CancelRestore
            | Self::ReplaceCluster
            | Self::UndoRestore
            | Self::Adopt
            | Self::Repair => false,
        }
    }
}

/// Returns the name of the Backup that a Restore asks for.
fn requested_backup(observed: &ObservedCluster) -> String {
    let request = observed.restore_request.as_ref();
    request
        .map(|request| request.origin.backup.clone())
        .unwrap_or_default()
}

impl RestorePodEnd {
    fn reason(self) -> &'static str {
        match self {
            Self::NotNeeded => "the volume needs no restore any more",
            Self::Failed => "the restore has failed and is tried again",
            Self::OtherVolume => {
                "the pod was created for another PersistentVolumeClaim or another backup"
            }
            Self::Outdated => "the pod has not started, and its template is outdated",
        }
    }
}

impl DeleteReason {
    /// Returns the reason as a clause about `object`, a pod or claim of `member`.
    fn reason(self, object: &str, member: &str) -> String {
        match self {
            Self::OldEpoch => format!("{object} belongs to an abandoned bootstrap"),
            Self::Replaced => format!("{object} belongs to a cluster that a restore has replaced"),
            Self::MemberRemoved => format!("member {member} was removed"),
            Self::Finished => format!("{object} has terminated and must be recreated"),
            Self::FreesNode => format!("{object} waits for a node that a voter needs first"),
            Self::Outdated => format!("{object} does not serve and its template is outdated"),
        }
    }
}

fn change_name(intent: &Intent) -> &'static str {
    match intent.change {
        MembershipChange::Add(_) => "add-member",
        MembershipChange::Promote(_) => "promote-member",
        MembershipChange::Remove(_) if intent.is_replacement => "replace-member",
        MembershipChange::Remove(_) => "remove-member",
        MembershipChange::RemoveUnknown(_) => "remove-unknown-member",
    }
}

/// Describes a membership change.
pub(super) fn describe_change(context: &ActionContext<'_>, intent: &Intent) -> String {
    match intent.change {
        MembershipChange::Add(serial) => {
            format!("adding member {} as a learner", context.member(serial))
        }
        MembershipChange::Promote(serial) => {
            format!("promoting learner {} to voter", context.member(serial))
        }
        MembershipChange::Remove(serial) if intent.is_replacement => {
            format!("replacing member {}", context.member(serial))
        }
        MembershipChange::Remove(serial) => format!("removing member {}", context.member(serial)),
        MembershipChange::RemoveUnknown(id) => format!("removing unknown member {:x}", id.0),
    }
}

fn change_event(observed: &ObservedCluster, intent: &Intent) -> Option<EventSpec> {
    let member = |serial| member_display_name(observed, serial);
    match intent.change {
        MembershipChange::Add(serial) => normal(
            "MemberAdded",
            format!("Added member {} as a learner", member(serial)),
        ),
        MembershipChange::Promote(serial) => normal(
            "MemberPromoted",
            format!("Promoted learner {} to voter", member(serial)),
        ),
        MembershipChange::Remove(serial) if intent.is_replacement => warning(
            "MemberReplaced",
            format!(
                "Removed member {} to replace it: it was unreachable or crashing for at least {}",
                member(serial),
                format_duration(observed.desired.replace_after)
            ),
        ),
        MembershipChange::Remove(serial) => normal(
            "MemberRemoved",
            format!("Removed member {}", member(serial)),
        ),
        MembershipChange::RemoveUnknown(id) => warning(
            "UnknownMemberRemoved",
            format!("Removed unknown member {:x}: it never started", id.0),
        ),
    }
}

fn change_reason(context: &ActionContext<'_>, view: &ClusterView<'_>, intent: &Intent) -> String {
    match intent.change {
        MembershipChange::Add(_) => {
            let (listed, desired) = (view.listed().count(), view.facts.cluster.members);
            format!("{listed} of {desired} members exist and all voters are healthy")
        }
        MembershipChange::Promote(serial) => {
            let healthy = view.voters().filter(|member| member.is_serving()).count();
            let votes = view.votes();
            let name = context.member(serial);
            format!("learner {name} has caught up and {healthy} of {votes} voters are healthy")
        }
        MembershipChange::RemoveUnknown(id) => {
            let after = format_duration(view.facts.cluster.replace_after);
            format!(
                "the operator did not add member {:x}, which has not started within {after}",
                id.0
            )
        }
        MembershipChange::Remove(serial) => match view.members.get(&serial) {
            Some(member) => removal_reason(context, view, member),
            None => REMOVAL_BEGUN.to_owned(),
        },
    }
}

fn removal_reason(
    context: &ActionContext<'_>,
    view: &ClusterView<'_>,
    member: &MemberView<'_>,
) -> String {
    let (listed, desired) = (view.listed().count(), view.facts.cluster.members);
    let name = context.member(member.serial);
    if member.data == DataState::Lost {
        return data_loss_reason(context, view, member);
    }
    if !member.is_voter() && view.blocks_a_voter(member) {
        let blocked = view
            .voters()
            .find(|voter| view.occupies_node_of(member, voter));
        let blocked = blocked.map(|voter| context.member(voter.serial));
        return format!(
            "learner {name} occupies the node that voter {} needs",
            blocked.unwrap_or_default()
        );
    }
    let is_misplaced = member.claim.is_some_and(|claim| claim.is_misplaced);
    if member.is_unstarted_learner() && (view.must_be_replaced(member) || is_misplaced) {
        return format!(
            "learner {name} has not started, and its PersistentVolumeClaim does not match the current spec"
        );
    }
    if replace::is_crashing(view, member) {
        let after = format_duration(view.facts.cluster.replace_after);
        return format!("etcd in Pod {name} has crashed at every start for {after}");
    }
    if replace::is_unreachable(view, member) {
        let after = format_duration(view.replace_after(member));
        return format!(
            "neither the operator nor the leader has reached member {name} for {after}, and its pod is not Ready"
        );
    }
    if listed > usize::from(desired) {
        return format!("{listed} members exist and spec.members is {desired}");
    }
    REMOVAL_BEGUN.to_owned()
}

/// Returns how a member's data was lost.
fn data_loss_reason(
    context: &ActionContext<'_>,
    view: &ClusterView<'_>,
    member: &MemberView<'_>,
) -> String {
    let name = context.member(member.serial);
    match (view.facts.cluster.storage, member.claim) {
        (StorageKind::Ephemeral, _) => {
            format!("Pod {name} is gone, and its ephemeral data with it")
        }
        (_, None) => format!("PersistentVolumeClaim {name} is gone, and its data with it"),
        (_, Some(claim)) if claim.is_lost => {
            format!("the volume of PersistentVolumeClaim {name} is on a node that no longer exists")
        }
        (_, Some(claim)) if claim.joined_on.is_some() => {
            format!(
                "PersistentVolumeClaim {name} or its volume is not the one that the member joined on"
            )
        }
        (_, Some(_)) => {
            format!(
                "PersistentVolumeClaim {name} has no record of the volume that the member joined on"
            )
        }
    }
}

fn restart_reason(
    context: &ActionContext<'_>,
    view: &ClusterView<'_>,
    serial: Serial,
    via_eviction: bool,
) -> String {
    let cause = outdated_because(context, view, serial);
    if !via_eviction {
        return format!(
            "{cause}. The other members have no quorum without it: clients cannot write until it is healthy"
        );
    }
    let outdated = view
        .voters()
        .filter(|voter| view.is_outdated_or_misplaced(voter));
    format!(
        "{cause} and all other members are healthy ({} left to restart)",
        outdated.count()
    )
}

fn outdated_because(context: &ActionContext<'_>, view: &ClusterView<'_>, serial: Serial) -> String {
    let name = context.member(serial);
    let desired = &view.facts.cluster;
    let pod = view.members.get(&serial).and_then(|member| member.pod);
    if let Some(version) = pod.and_then(|pod| pod.version)
        && version != desired.version
    {
        return format!(
            "member {name} runs etcd {version} instead of {}",
            desired.version
        );
    }
    let template_hash = pod.and_then(|pod| pod.template_hash);
    if template_hash.is_some_and(|hash| hash != desired.pod_template_hash) {
        return format!("the spec has changed since Pod {name} was created");
    }
    format!("a restart of member {name} was requested")
}

/// Returns the purpose of a restart for its event, which follows the name of the member.
fn restart_purpose(observed: &ObservedCluster, pod: Uid) -> String {
    let desired = &observed.desired;
    let pod = observed.pods.get(&pod).map(|pod| &pod.metadata);
    let has_other_version = pod
        .and_then(version)
        .is_some_and(|version| version != desired.version);
    if has_other_version {
        return format!("to run etcd {}", desired.version);
    }
    let template_hash = pod.and_then(|pod| annotation(pod, labels::POD_TEMPLATE_HASH));
    if template_hash.is_some_and(|hash| hash.parse::<Uid>().ok() != Some(desired.inputs)) {
        return "to apply the changed spec".to_owned();
    }
    "as requested".to_owned()
}
