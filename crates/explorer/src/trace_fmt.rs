//! Descriptions of events and writes for traces.

use std::fmt;

use evenkeel_etcd::facts::StartMode;
use evenkeel_etcd::plan::{EtcdApply, EtcdCreate, EtcdDisruption, EtcdPatch, OwnerTarget};

use crate::effect::{self, Effect};
use crate::event::ModelEvent;
use crate::model::{NO_BACKUP, member_label};
use crate::observe::Visibility;

impl fmt::Display for ModelEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decide(_) => f.write_str("the operator observes and decides"),
            Self::DecideWithout(Visibility::NoEtcd, _) => {
                f.write_str("the operator decides while no etcd member answers")
            }
            Self::DecideWithout(..) => f.write_str(
                "the operator decides while the lists of pods and claims are unavailable",
            ),
            Self::Write(effect) => write!(f, "the operator {}", DescribedWrite(effect)),
            Self::WriteBeforeDetection(effect) => {
                write!(
                    f,
                    "the operator {}, before etcd detects the failed member",
                    DescribedWrite(effect)
                )
            }
            Self::WriteTimedOut(effect) => {
                write!(
                    f,
                    "the operator {} and gets a timeout, but etcd keeps the change in its log",
                    DescribedWrite(effect)
                )
            }
            Self::Crash => f.write_str("the operator crashes"),
            Self::Freeze => f.write_str(
                "the operator freezes in the middle of its plan and another one takes over",
            ),
            Self::LateWrite(effect) => {
                write!(
                    f,
                    "the frozen operator continues and {}",
                    DescribedWrite(effect)
                )
            }
            Self::KubeletSynced(serial) => {
                write!(f, "the kubelet of {} reads its pod", member_label(*serial))
            }
            Self::NodeTaken { newcomer, of } => {
                write!(
                    f,
                    "{} is placed on the node that {} needs",
                    member_label(*newcomer),
                    member_label(*of)
                )
            }
            Self::ContainerStarted(serial) => {
                write!(
                    f,
                    "the kubelet starts the container of {}",
                    member_label(*serial)
                )
            }
            Self::StartedFromSnapshot(serial) => {
                write!(
                    f,
                    "the kubelet starts the container of {}, which receives a snapshot and does not serve before the next \
                     log entry",
                    member_label(*serial)
                )
            }
            Self::LeaderChanged(serial) => {
                write!(
                    f,
                    "{} gets another leader, which treats it as new",
                    member_label(*serial)
                )
            }
            Self::PodRemoved(serial) => {
                write!(f, "the pod of {} is removed", member_label(*serial))
            }
            Self::RestoreFinished(serial) => {
                write!(f, "the restore of {} ends", member_label(*serial))
            }
            Self::RestoreFailed(serial) => {
                write!(f, "the restore of {} fails", member_label(*serial))
            }
            Self::RestorePodRemoved(serial) => {
                write!(f, "the restore pod of {} is removed", member_label(*serial))
            }
            Self::RestorePodDeleted(serial) => {
                write!(
                    f,
                    "a user deletes the restore pod of {}",
                    member_label(*serial)
                )
            }
            Self::SourceEdited(NO_BACKUP) => f.write_str("the user removes spec.bootstrap.from"),
            Self::SourceEdited(backup) => {
                write!(f, "the user names backup {backup} in spec.bootstrap.from")
            }
            Self::RestoreCreated(backup) => {
                write!(f, "the user creates a Restore of backup {backup}")
            }
            Self::UndoRequested => f.write_str("the user asks for the undo of the Restore"),
            Self::RestoreDeleted => f.write_str("the user deletes the Restore"),
            Self::IdentityCollected => {
                f.write_str("the identity of the deleted resource is garbage collected")
            }
            Self::ClaimCollected(serial) => {
                write!(
                    f,
                    "the claim of {}, owned by the deleted resource, is garbage collected",
                    member_label(*serial)
                )
            }
            Self::IdentityDeleted => f.write_str("a user deletes the identity"),
            Self::UnknownVoterAdded => f.write_str("a user adds a voter that never starts"),
            Self::MemberReachable(serial) => {
                write!(f, "the operator can reach {} again", member_label(*serial))
            }
            Self::MemberUnreachable(serial) => {
                write!(
                    f,
                    "the operator cannot reach {}, although other members can",
                    member_label(*serial)
                )
            }
            Self::NodeRecovered(serial) => {
                write!(f, "the node of {} is back", member_label(*serial))
            }
            Self::PodDeleted(serial) => {
                write!(f, "a user deletes the pod of {}", member_label(*serial))
            }
            Self::PodFinished(serial) => write!(
                f,
                "the pod of {} enters a terminal phase",
                member_label(*serial)
            ),
            Self::ProcessDied(serial) => write!(f, "the process of {} dies", member_label(*serial)),
            Self::ClaimDeleted(serial) => {
                write!(
                    f,
                    "a user deletes the pod and the claim of {}",
                    member_label(*serial)
                )
            }
            Self::ClaimRestored(serial) => {
                write!(
                    f,
                    "a user restores the claim of {} from an older copy",
                    member_label(*serial)
                )
            }
            Self::DiskWiped(serial) => {
                write!(
                    f,
                    "the data directory of {} is emptied while it runs",
                    member_label(*serial)
                )
            }
            Self::NodeDown(serial) => write!(f, "the node of {} goes down", member_label(*serial)),
            Self::NodeLost(serial) => {
                write!(f, "the node of {} is lost for good", member_label(*serial))
            }
            Self::MembersEdited(members) => write!(f, "the user sets spec.members to {members}"),
            Self::TemplateEdited(template) => {
                write!(f, "the user changes the pod template: {template:?}")
            }
            Self::ResourceRecreated => {
                f.write_str("the user deletes the resource and creates it again")
            }
            Self::ResourceRecreatedOverOrphans => f.write_str(
                "the user deletes the resource, orphaning its pods, and creates it again",
            ),
            Self::TimePassed => f.write_str("all timeouts expire"),
        }
    }
}

pub(crate) struct DescribedWrite<'a>(pub(crate) &'a Effect);

impl fmt::Display for DescribedWrite<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = |start: &StartMode| match start {
            StartMode::Held => "start mode Held".to_owned(),
            StartMode::Bootstrap => "start mode Bootstrap".to_owned(),
            StartMode::Join(list) => {
                format!(
                    "start mode Join with {}",
                    list.iter()
                        .map(|one| member_label(*one))
                        .collect::<Vec<_>>()
                        .join(", ")
                )
            }
            StartMode::ExistingData => "start mode ExistingData".to_owned(),
            StartMode::Restored => "start mode Restored".to_owned(),
        };
        match self.0 {
            Effect::Create(EtcdCreate::Identity(_)) => f.write_str("creates the identity"),
            Effect::Create(EtcdCreate::Claim { serial, .. }) => {
                write!(f, "creates the claim of {}", member_label(*serial))
            }
            Effect::Create(EtcdCreate::Pod {
                serial,
                start_mode: start,
                ..
            }) => {
                write!(
                    f,
                    "creates the pod of {} in {}",
                    member_label(*serial),
                    mode(start)
                )
            }
            Effect::Create(EtcdCreate::RestorePod { serial, .. }) => {
                write!(f, "creates the restore pod of {}", member_label(*serial))
            }
            Effect::Patch(EtcdPatch::ReleaseRestorePod { .. }) => {
                f.write_str("lets a restore pod start")
            }
            Effect::Patch(EtcdPatch::RecordRestored { .. }) => {
                f.write_str("records on a claim that its volume is restored")
            }
            Effect::Patch(EtcdPatch::SetStartMode { to, .. }) => {
                write!(f, "switches a pod to {}", mode(to))
            }
            Effect::Patch(EtcdPatch::RecordJoinedVolume { .. }) => {
                f.write_str("records on a claim that its member joined on it")
            }
            Effect::Patch(EtcdPatch::MarkJoined { .. }) => {
                f.write_str("switches a pod to start mode ExistingData and marks it joined")
            }
            Effect::Patch(EtcdPatch::AttachClients { .. }) => {
                f.write_str("routes clients to a pod")
            }
            Effect::Patch(EtcdPatch::DetachClients { .. }) => {
                f.write_str("routes clients away from a pod")
            }
            Effect::Patch(EtcdPatch::RecordReplaced { .. }) => {
                f.write_str("records whether a claim belongs to a replaced cluster")
            }
            Effect::Patch(EtcdPatch::RecordRemoval { .. }) => {
                f.write_str("records on a claim that its member was removed")
            }
            Effect::Patch(EtcdPatch::RecordVersion { .. }) => {
                f.write_str("records the version of a member on its claim")
            }
            Effect::Patch(EtcdPatch::RecordTemplateHash { .. }) => {
                f.write_str("records the template hash of a pod")
            }
            Effect::Patch(EtcdPatch::ResizeVolume { .. }) => {
                f.write_str("requests a larger volume for a claim")
            }
            Effect::Patch(EtcdPatch::NudgeMember { member }) => {
                write!(
                    f,
                    "appends an entry to etcd's log so that {} serves",
                    member_label(*member)
                )
            }
            Effect::Patch(EtcdPatch::RecordSpec) => f.write_str("records the spec"),
            Effect::Patch(EtcdPatch::SetOwner { owned: true, .. }) => {
                f.write_str("sets the owner of an object")
            }
            Effect::Patch(EtcdPatch::SetOwner {
                target: OwnerTarget::Identity,
                ..
            }) => f.write_str("removes the owner of the identity"),
            Effect::Patch(EtcdPatch::SetOwner { .. }) => {
                f.write_str("removes the owner of a claim")
            }
            Effect::Apply(EtcdApply::PodDisruptionBudget { min, .. }) => {
                write!(f, "sets minAvailable of the PodDisruptionBudget to {min}")
            }
            Effect::Apply(EtcdApply::Object(_)) => f.write_str("applies a Service or Secret"),
            Effect::UpdateIdentity { from, to } if to.bootstrapped && !from.bootstrapped => {
                f.write_str("finishes the bootstrap")
            }
            Effect::UpdateIdentity { from, to } if to.epoch != from.epoch => {
                f.write_str("starts a new epoch")
            }
            Effect::UpdateIdentity { to, .. } => match &to.intent {
                Some(intent) => write!(
                    f,
                    "records its intent: {}",
                    effect::describe_change(intent.change)
                ),
                None => f.write_str("updates the identity"),
            },
            Effect::ChangeMembership(intent) => {
                write!(
                    f,
                    "asks etcd for {}",
                    effect::describe_change(intent.change)
                )
            }
            Effect::Delete(EtcdDisruption::RestartMember {
                serial,
                via_eviction: true,
                ..
            }) => {
                write!(f, "evicts the pod of {}", member_label(*serial))
            }
            Effect::Delete(EtcdDisruption::RestartMember { serial, .. }) => {
                write!(f, "restarts {}", member_label(*serial))
            }
            Effect::Delete(EtcdDisruption::DeletePod { serial, .. }) => {
                write!(f, "deletes the pod of {}", member_label(*serial))
            }
            Effect::Delete(EtcdDisruption::DeleteRestorePod { serial, .. }) => {
                write!(f, "deletes the restore pod of {}", member_label(*serial))
            }
            Effect::Delete(EtcdDisruption::DeleteClaim { serial, .. }) => {
                write!(f, "deletes the claim of {}", member_label(*serial))
            }
            Effect::Delete(_) => f.write_str("does nothing"),
        }
    }
}
