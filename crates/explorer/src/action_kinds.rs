//! Names for the kinds of actions and waits. A kind that no exploration decides is unreachable: dead code, or a model
//! without the failure that leads to it. The matches are exhaustive, so a new kind cannot be forgotten here.

use evenkeel_etcd::Etcd;
use evenkeel_etcd::identity::MembershipChange;
use evenkeel_etcd::plan::{
    DeleteReason, EtcdApply, EtcdCreate, EtcdDisruption, EtcdPatch, EtcdWait, IdentityChange,
};
use evenkeel_runtime::Plan;

/// All kinds: first those that the model reaches by itself, then those that need tampering.
pub const ALL_KINDS: [&str; 60] = [
    "create: identity",
    "create: claim",
    "create: pod",
    "patch: start mode",
    "patch: joined volume",
    "patch: joined",
    "patch: attach clients",
    "patch: detach clients",
    "patch: owner",
    "apply: PodDisruptionBudget",
    "identity: start seed",
    "identity: record cluster",
    "identity: finish bootstrap",
    "identity: settle intent",
    "identity: seed lost",
    "identity: seed storage changed",
    "identity: resource replaced",
    "identity: adopt",
    "identity: repair",
    "membership: add",
    "membership: promote",
    "membership: remove",
    "membership: transfer leadership and remove",
    "membership: replace",
    "membership: remove unknown",
    "delete pod: old epoch",
    "delete pod: member removed",
    "delete pod: finished",
    "delete pod: frees node",
    "delete pod: outdated",
    "restart: evict",
    "restart: transfer leadership and evict",
    "restart: delete",
    "wait: unhealthy member",
    "delete claim: old epoch",
    "delete claim: member removed",
    "wait: unreadable",
    "wait: old epoch deletion",
    "wait: previous resource deletion",
    "wait: seed start",
    "wait: no quorum",
    "wait: open intent",
    "wait: member join",
    "wait: learner catch-up",
    "wait: unsafe to add",
    "wait: bootstrap timeout",
    "wait: replacement join",
    "apply: object",
    "wait: paused",
    "wait: inconsistent objects",
    "wait: data lost",
    "wait: name conflict",
    "wait: CA missing",
    "wait: unknown members",
    "wait: replacement limit",
    "patch: removal",
    "patch: spec",
    "patch: version",
    "wait: maintenance window",
    "wait: too few voters",
];

/// Returns the kinds of all actions and waits of a plan.
pub fn action_kinds(plan: &Plan<Etcd>) -> Vec<&'static str> {
    let creates = plan.create.iter().map(|create| match create {
        EtcdCreate::Identity(_) => "create: identity",
        EtcdCreate::Claim { .. } => "create: claim",
        EtcdCreate::Pod { .. } => "create: pod",
    });
    let patches = plan.patch.iter().map(|patch| match patch {
        EtcdPatch::SetStartMode { .. } => "patch: start mode",
        EtcdPatch::RecordJoinedVolume { .. } => "patch: joined volume",
        EtcdPatch::MarkJoined { .. } => "patch: joined",
        EtcdPatch::AttachClients { .. } => "patch: attach clients",
        EtcdPatch::DetachClients { .. } => "patch: detach clients",
        EtcdPatch::SetOwner { .. } => "patch: owner",
        EtcdPatch::RecordVersion { .. } => "patch: version",
        EtcdPatch::RecordTemplateHash { .. } => "patch: template hash",
        EtcdPatch::ResizeVolume { .. } => "patch: volume size",
        EtcdPatch::RecordSpec => "patch: spec",
        EtcdPatch::RecordRemoval { .. } => "patch: removal",
    });
    let waits = plan.waits.iter().map(wait_kind);
    let applied = plan.apply.iter().map(|apply| match apply {
        EtcdApply::Object(_) => "apply: object",
        EtcdApply::PodDisruptionBudget { .. } => "apply: PodDisruptionBudget",
    });
    creates
        .chain(patches)
        .chain(applied)
        .chain(plan.disruption.iter().map(disruption_kind))
        .chain(waits)
        .collect()
}

fn disruption_kind(disruption: &EtcdDisruption) -> &'static str {
    match disruption {
        EtcdDisruption::UpdateIdentity { why, .. } => match why {
            IdentityChange::StartSeed => "identity: start seed",
            IdentityChange::RecordCluster(_) => "identity: record cluster",
            IdentityChange::FinishBootstrap => "identity: finish bootstrap",
            IdentityChange::SettleIntent => "identity: settle intent",
            IdentityChange::SeedLost => "identity: seed lost",
            IdentityChange::SeedStorageChanged => "identity: seed storage changed",
            IdentityChange::ResourceReplaced => "identity: resource replaced",
            IdentityChange::Adopt => "identity: adopt",
            IdentityChange::Repair => "identity: repair",
        },
        EtcdDisruption::ChangeMembership {
            intent,
            transfer_to,
            ..
        } => match intent.change {
            MembershipChange::Add(_) => "membership: add",
            MembershipChange::Promote(_) => "membership: promote",
            MembershipChange::RemoveUnknown(_) => "membership: remove unknown",
            MembershipChange::Remove(_) if intent.is_replacement => "membership: replace",
            MembershipChange::Remove(_) if transfer_to.is_some() => {
                "membership: transfer leadership and remove"
            }
            MembershipChange::Remove(_) => "membership: remove",
        },
        EtcdDisruption::ForceSnapshot { .. } => "force a snapshot",
        EtcdDisruption::RestartMember { spared: false, .. } => "restart: delete",
        EtcdDisruption::RestartMember {
            transfer_to: Some(_),
            ..
        } => "restart: transfer leadership and evict",
        EtcdDisruption::RestartMember { .. } => "restart: evict",
        EtcdDisruption::DeletePod { why, .. } => match why {
            DeleteReason::OldEpoch => "delete pod: old epoch",
            DeleteReason::MemberRemoved => "delete pod: member removed",
            DeleteReason::Finished => "delete pod: finished",
            DeleteReason::FreesNode => "delete pod: frees node",
            DeleteReason::Outdated => "delete pod: outdated",
        },
        EtcdDisruption::DeleteClaim { why, .. } => match why {
            DeleteReason::OldEpoch => "delete claim: old epoch",
            DeleteReason::MemberRemoved => "delete claim: member removed",
            DeleteReason::Finished | DeleteReason::FreesNode | DeleteReason::Outdated => {
                "delete claim: no reason"
            }
        },
    }
}

fn wait_kind(wait: &EtcdWait) -> &'static str {
    match wait {
        EtcdWait::Unreadable(_) => "wait: unreadable",
        EtcdWait::Paused => "wait: paused",
        EtcdWait::InconsistentObjects => "wait: inconsistent objects",
        EtcdWait::DataLost(_) => "wait: data lost",
        EtcdWait::OldEpochDeletion => "wait: old epoch deletion",
        EtcdWait::PreviousResourceDeletion(_) => "wait: previous resource deletion",
        EtcdWait::SeedStart(_) => "wait: seed start",
        EtcdWait::NoQuorum => "wait: no quorum",
        EtcdWait::OpenIntent(_) => "wait: open intent",
        EtcdWait::MemberJoin(_) => "wait: member join",
        EtcdWait::LearnerCatchUp(_) => "wait: learner catch-up",
        EtcdWait::UnsafeToAdd => "wait: unsafe to add",
        EtcdWait::BootstrapTimeout(_) => "wait: bootstrap timeout",
        EtcdWait::NameConflict(_) => "wait: name conflict",
        EtcdWait::CaMissing(_) => "wait: CA missing",
        EtcdWait::UnknownMembers(_) => "wait: unknown members",
        EtcdWait::ReplacementJoin(_) => "wait: replacement join",
        EtcdWait::ReplacementLimit(..) => "wait: replacement limit",
        EtcdWait::MaintenanceWindow(_) => "wait: maintenance window",
        EtcdWait::UnhealthyMember(_) => "wait: unhealthy member",
        EtcdWait::TooFewVoters => "wait: too few voters",
        EtcdWait::VersionMismatch(..) => "wait: version mismatch",
        EtcdWait::VolumeResize(_) => "wait: volume resize",
        EtcdWait::SnapshotBlocked(_) => "wait: snapshot blocked",
    }
}
