//! Changes that disturb no client.

use evenkeel_api::quantity;
use evenkeel_runtime::EventSpec;
use kube::ResourceExt;

use super::{ActionContext, EtcdAction, format_duration, normal};
use crate::facts::{OwnedObject, StartMode};
use crate::identity::Uid;
use crate::observe::ObservedCluster;
use crate::plan::{EtcdPatch, OwnerTarget};
use crate::view::ClusterView;

impl EtcdAction for EtcdPatch {
    fn name(&self) -> &'static str {
        self.into()
    }

    fn describe(&self, context: &ActionContext<'_>) -> String {
        let pod_member = |uid: &Uid| context.pod_member(*uid);
        let claim_member = |uid: &Uid| context.claim_member(*uid);
        match self {
            Self::SetStartMode {
                pod,
                to: StartMode::Join(_),
                ..
            } => format!(
                "starting etcd in Pod {} to join the cluster",
                pod_member(pod)
            ),
            Self::SetStartMode {
                pod,
                to: StartMode::Bootstrap,
                ..
            } => format!(
                "starting etcd in Pod {} to form the cluster",
                pod_member(pod)
            ),
            Self::SetStartMode { pod, .. } => {
                format!(
                    "starting etcd in Pod {} on its existing data",
                    pod_member(pod)
                )
            }
            Self::RecordJoinedVolume { claim, .. } => {
                format!(
                    "recording on PersistentVolumeClaim {} the volume that its member joined on",
                    claim_member(claim)
                )
            }
            Self::ReleaseRestorePod { pod } => {
                format!("starting Pod {}", context.restore_pod_name(*pod))
            }
            Self::RecordRestored { claim, .. } => format!(
                "recording on PersistentVolumeClaim {} that its volume has the restored data",
                claim_member(claim)
            ),
            Self::MarkJoined { pod, .. } => {
                format!(
                    "recording on Pod {} that its member has joined",
                    pod_member(pod)
                )
            }
            Self::AttachClients { pod } => {
                let service = context.object(OwnedObject::ClientService);
                format!("adding member {} to {service}", pod_member(pod))
            }
            Self::DetachClients { pod } => {
                let service = context.object(OwnedObject::ClientService);
                format!("removing member {} from {service}", pod_member(pod))
            }
            Self::RecordRemoval { claim, at: None } => {
                format!(
                    "clearing the removal time on PersistentVolumeClaim {}",
                    claim_member(claim)
                )
            }
            Self::RecordRemoval { claim, at: Some(_) } => {
                let retention = format_duration(context.observed.desired.keep_removed_for);
                format!(
                    "retaining PersistentVolumeClaim {} for {retention}",
                    claim_member(claim)
                )
            }
            Self::RecordReplaced {
                claim,
                until: Some(until),
            } => format!(
                "keeping PersistentVolumeClaim {} of the replaced cluster until {}",
                claim_member(claim),
                jiff::Timestamp::from_second(until.0).unwrap_or_default()
            ),
            Self::RecordReplaced { claim, until: None } => format!(
                "clearing the record of the replacement on PersistentVolumeClaim {}",
                claim_member(claim)
            ),
            Self::RecordVersion { claim, version } => {
                format!(
                    "recording etcd version {version} on PersistentVolumeClaim {}",
                    claim_member(claim)
                )
            }
            Self::RecordTemplateHash { pod, .. } => {
                format!("recording the template hash on Pod {}", pod_member(pod))
            }
            Self::ResizeVolume { claim, to } => {
                let size = quantity::binary(*to);
                format!(
                    "resizing PersistentVolumeClaim {} to {size}",
                    claim_member(claim)
                )
            }
            Self::RecordSpec => format!(
                "recording the accepted spec in {}",
                context.object(OwnedObject::Identity)
            ),
            Self::SetOwner { target, owned } => {
                let target = owner_target(context, *target);
                if *owned {
                    format!("setting the owner reference of {target}")
                } else {
                    format!("removing the owner reference of {target}")
                }
            }
            Self::NudgeMember { member } => format!(
                "appending an entry to etcd's log so that {} starts to serve",
                context.member(*member)
            ),
        }
    }

    fn reason(&self, context: &ActionContext<'_>) -> String {
        let pod_member = |uid: &Uid| context.pod_member(*uid);
        let claim_member = |uid: &Uid| context.claim_member(*uid);
        match self {
            Self::SetStartMode {
                pod,
                to: StartMode::Bootstrap,
                ..
            } => format!("{} is the first member", pod_member(pod)),
            Self::SetStartMode {
                pod,
                to: StartMode::Join(_),
                ..
            } => format!(
                "etcd lists {}, which needs the names of the other members",
                pod_member(pod)
            ),
            Self::SetStartMode {
                pod,
                to: StartMode::Restored,
                ..
            } => format!(
                "{} is the first member, and its volume has the restored data",
                pod_member(pod)
            ),
            Self::ReleaseRestorePod { .. } => {
                "the backup can be restored, and no other pod uses the volume".to_owned()
            }
            Self::RecordRestored { .. } => "the restore has succeeded".to_owned(),
            Self::SetStartMode { pod, .. } | Self::MarkJoined { pod, .. } => {
                format!(
                    "{} has joined and must start only on its existing data",
                    pod_member(pod)
                )
            }
            Self::RecordJoinedVolume { claim, .. } => {
                format!(
                    "{} has joined and must start only on its existing data",
                    claim_member(claim)
                )
            }
            Self::AttachClients { pod } => format!("{} is a healthy voter", pod_member(pod)),
            Self::DetachClients { pod } if is_voter_pod(context, *pod) => {
                format!("the operator removes {} next", pod_member(pod))
            }
            Self::DetachClients { pod } => format!("{} is not a voter", pod_member(pod)),
            Self::RecordRemoval { claim, at: Some(_) } => {
                let retention = format_duration(context.observed.desired.keep_removed_for);
                format!(
                    "member {} was removed and spec.storage.keepRemovedFor is {retention}",
                    claim_member(claim)
                )
            }
            Self::RecordRemoval { claim, at: None } => {
                format!("etcd lists member {}", claim_member(claim))
            }
            Self::RecordReplaced { until: Some(_), .. } => {
                "a restore has replaced its cluster, and can be undone until then".to_owned()
            }
            Self::RecordReplaced { until: None, .. } => "the restore was undone".to_owned(),
            Self::RecordVersion { version, .. } => {
                format!("etcd {version} may rewrite the data so that older versions cannot read it")
            }
            Self::RecordTemplateHash { pod, .. } => {
                format!(
                    "an earlier operator created Pod {} without a template hash",
                    pod_member(pod)
                )
            }
            Self::ResizeVolume { claim, .. } => {
                format!(
                    "PersistentVolumeClaim {} is smaller than spec.storage.size",
                    claim_member(claim)
                )
            }
            Self::RecordSpec => {
                "the spec is valid and stays in effect if the next one is invalid".to_owned()
            }
            Self::SetOwner { target, owned } => {
                let target = owner_target(context, *target);
                if *owned {
                    format!("{target} is deleted together with the EtcdCluster")
                } else {
                    format!("{target} is kept when the EtcdCluster is deleted")
                }
            }
            Self::NudgeMember { member } => format!(
                "{} has a leader and does not answer clients: its etcd may wait for the next log entry",
                context.member(*member)
            ),
        }
    }

    fn event(&self, observed: &ObservedCluster) -> Option<EventSpec> {
        match self {
            Self::AttachClients { pod } => {
                let name = observed.pods.get(pod)?.name_any();
                let service = observed.desired.names().client_service();
                normal(
                    "MemberAddedToService",
                    format!("Added member {name} to Service {service}"),
                )
            }
            Self::DetachClients { pod } => {
                let name = observed.pods.get(pod)?.name_any();
                let service = observed.desired.names().client_service();
                normal(
                    "MemberRemovedFromService",
                    format!("Removed member {name} from Service {service}"),
                )
            }
            Self::RecordRemoval { claim, at: Some(_) } => {
                let name = observed.claims.get(claim)?.name_any();
                let retention = format_duration(observed.desired.keep_removed_for);
                normal(
                    "ClaimRetained",
                    format!(
                        "Retained PersistentVolumeClaim {name} of a removed member: it is deleted after {retention}"
                    ),
                )
            }
            Self::ResizeVolume { claim, to } => {
                let name = observed.claims.get(claim)?.name_any();
                let size = quantity::binary(*to);
                normal(
                    "VolumeResizeRequested",
                    format!("Requested {size} for PersistentVolumeClaim {name}"),
                )
            }
            Self::RecordRestored { claim, .. } => {
                let name = observed.claims.get(claim)?.name_any();
                let backup = observed.restore_origin()?.backup.clone();
                normal(
                    "Restored",
                    format!("Restored Backup {backup} onto PersistentVolumeClaim {name}"),
                )
            }
            Self::SetStartMode { .. }
            | Self::RecordJoinedVolume { .. }
            | Self::ReleaseRestorePod { .. }
            | Self::MarkJoined { .. }
            | Self::RecordRemoval { at: None, .. }
            | Self::RecordReplaced { .. }
            | Self::RecordVersion { .. }
            | Self::RecordTemplateHash { .. }
            | Self::RecordSpec
            | Self::SetOwner { .. }
            | Self::NudgeMember { .. } => None,
        }
    }

    /// A membership change depends on the start mode of the other members, and the start mode on
    /// the recorded volume.
    fn is_prerequisite(&self) -> bool {
        match self {
            Self::SetStartMode { .. }
            | Self::RecordJoinedVolume { .. }
            | Self::ReleaseRestorePod { .. }
            | Self::RecordRestored { .. }
            | Self::MarkJoined { .. }
            | Self::RecordReplaced { .. }
            | Self::RecordVersion { .. }
            | Self::RecordTemplateHash { .. } => true,
            Self::AttachClients { .. }
            | Self::DetachClients { .. }
            | Self::RecordRemoval { .. }
            | Self::ResizeVolume { .. }
            | Self::RecordSpec
            | Self::SetOwner { .. }
            | Self::NudgeMember { .. } => false,
        }
    }

    fn is_bookkeeping(&self) -> bool {
        match self {
            Self::RecordJoinedVolume { .. }
            | Self::RecordRestored { .. }
            | Self::MarkJoined { .. }
            | Self::RecordRemoval { .. }
            | Self::RecordReplaced { .. }
            | Self::RecordVersion { .. }
            | Self::RecordTemplateHash { .. }
            | Self::RecordSpec => true,
            Self::SetStartMode { .. }
            | Self::ReleaseRestorePod { .. }
            | Self::AttachClients { .. }
            | Self::DetachClients { .. }
            | Self::ResizeVolume { .. }
            | Self::SetOwner { .. }
            | Self::NudgeMember { .. } => false,
        }
    }
}

/// Returns kind and name of an object that the resource can own.
fn owner_target(context: &ActionContext<'_>, target: OwnerTarget) -> String {
    match target {
        OwnerTarget::Identity => context.object(OwnedObject::Identity),
        OwnerTarget::Claim(claim) => {
            format!("PersistentVolumeClaim {}", context.claim_member(claim))
        }
        OwnerTarget::Pod(pod) => format!("Pod {}", context.pod_member(pod)),
    }
}

fn is_voter_pod(context: &ActionContext<'_>, uid: Uid) -> bool {
    let mut voters = context.view.into_iter().flat_map(ClusterView::voters);
    voters.any(|voter| voter.pod.is_some_and(|pod| pod.uid == uid))
}
