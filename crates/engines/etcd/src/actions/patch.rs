//! Changes that disturb no client.

use evenkeel_api::quantity;
use evenkeel_runtime::EventSpec;
use kube::ResourceExt;

use super::{ActionContext, EtcdAction, format_duration, normal};
use crate::facts::StartMode;
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
            } => format!("letting {} join", pod_member(pod)),
            Self::SetStartMode { pod, .. } => format!("starting {}", pod_member(pod)),
            Self::RecordJoinedVolume { claim, .. } => {
                format!("noting on which volume {} has joined", claim_member(claim))
            }
            Self::MarkJoined { pod, .. } => format!("noting that {} has joined", pod_member(pod)),
            Self::AttachClients { pod } => format!("letting clients reach {}", pod_member(pod)),
            Self::DetachClients { pod } => {
                format!("leading clients away from {}, which goes", pod_member(pod))
            }
            Self::RecordRemoval { claim, at: None } => {
                format!("noting that {} is a member", claim_member(claim))
            }
            Self::RecordRemoval { claim, at: Some(_) } => {
                let retention = format_duration(context.observed.desired.keep_removed_for);
                format!(
                    "keeping the volume of {} for {retention}",
                    claim_member(claim)
                )
            }
            Self::RecordVersion { claim, version } => {
                format!("noting that {} runs {version}", claim_member(claim))
            }
            Self::RecordTemplateHash { pod, .. } => {
                format!("noting from what the pod of {} was built", pod_member(pod))
            }
            Self::ResizeVolume { claim, to } => {
                let size = quantity::binary(*to);
                format!("growing the volume of {} to {size}", claim_member(claim))
            }
            Self::RecordSpec => "noting the spec".to_owned(),
            Self::SetOwner { target, owned } => {
                let target = match target {
                    OwnerTarget::Identity => "the identity".to_owned(),
                    OwnerTarget::Claim(claim) => format!("the volume of {}", claim_member(claim)),
                    OwnerTarget::Pod(pod) => format!("the pod of {}", pod_member(pod)),
                };
                if *owned {
                    format!("having {target} go with the resource")
                } else {
                    format!("having {target} stay when the resource goes")
                }
            }
            Self::NudgeMember { member } => format!(
                "appending an entry to etcd's log so that {} starts to serve",
                context.member(*member)
            ),
        }
    }

    fn reason(&self, context: &ActionContext<'_>) -> String {
        let reason = match self {
            Self::SetStartMode {
                to: StartMode::Bootstrap,
                ..
            } => "it is the first member",
            Self::SetStartMode {
                to: StartMode::Join(_),
                ..
            } => "etcd lists it, and it must know who the others are",
            Self::SetStartMode { .. } => "it has joined before",
            Self::RecordJoinedVolume { .. } | Self::MarkJoined { .. } => {
                "it has joined, and is to start on nothing but its own data from now on"
            }
            Self::AttachClients { .. } => "it has a vote, and serves",
            Self::DetachClients { pod } if is_voter_pod(context, *pod) => "it is to be removed",
            Self::DetachClients { .. } => "it has no vote",
            Self::RecordRemoval { at: Some(_), .. } => {
                "its member was removed, and its data is kept for a while"
            }
            Self::RecordRemoval { at: None, .. } => "etcd lists its member",
            Self::RecordVersion { .. } => {
                "it may rewrite the data, so that nothing older can read it"
            }
            Self::RecordTemplateHash { .. } => {
                "an earlier operator has built it, which did not say so"
            }
            Self::ResizeVolume { .. } => "it is smaller than the spec says",
            Self::RecordSpec => {
                "it was accepted, and stays in force should the next one be refused"
            }
            Self::SetOwner { .. } => {
                "what goes with the resource is to belong to it, and nothing else"
            }
            Self::NudgeMember { .. } => {
                "it received its data as a snapshot and does not serve before the next log entry"
            }
        };
        reason.to_owned()
    }

    fn event(&self, observed: &ObservedCluster) -> Option<EventSpec> {
        match self {
            Self::AttachClients { pod } => {
                let name = observed.pods.get(pod)?.name_any();
                normal("MemberAddedToService", format!("routed clients to {name}"))
            }
            Self::DetachClients { pod } => {
                let name = observed.pods.get(pod)?.name_any();
                normal(
                    "MemberRemovedFromService",
                    format!("routed clients away from {name}, which goes"),
                )
            }
            Self::RecordRemoval { claim, at: Some(_) } => {
                let name = observed.claims.get(claim)?.name_any();
                let retention = format_duration(observed.desired.keep_removed_for);
                normal(
                    "ClaimRetained",
                    format!(
                        "the claim {name} of a member that was removed is kept for {retention}"
                    ),
                )
            }
            Self::ResizeVolume { claim, to } => {
                let name = observed.claims.get(claim)?.name_any();
                let size = quantity::binary(*to);
                normal(
                    "VolumeResizeRequested",
                    format!("asked for a volume of {size} for the claim {name}"),
                )
            }
            Self::SetStartMode { .. }
            | Self::RecordJoinedVolume { .. }
            | Self::MarkJoined { .. }
            | Self::RecordRemoval { at: None, .. }
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
            | Self::MarkJoined { .. }
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
            | Self::MarkJoined { .. }
            | Self::RecordRemoval { .. }
            | Self::RecordVersion { .. }
            | Self::RecordTemplateHash { .. }
            | Self::RecordSpec => true,
            Self::SetStartMode { .. }
            | Self::AttachClients { .. }
            | Self::DetachClients { .. }
            | Self::ResizeVolume { .. }
            | Self::SetOwner { .. }
            | Self::NudgeMember { .. } => false,
        }
    }
}

fn is_voter_pod(context: &ActionContext<'_>, uid: Uid) -> bool {
    let mut voters = context.view.into_iter().flat_map(ClusterView::voters);
    voters.any(|voter| voter.pod.is_some_and(|pod| pod.uid == uid))
}
