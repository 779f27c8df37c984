//! What kinds of things can be decided, by name. A kind that no exploration ever decides is out of reach: dead code, or a
//! world too kind. The matches are exhaustive, so that a new kind cannot be forgotten here.

use evenkeel_etcd::Etcd;
use evenkeel_etcd::identity::MembershipChange;
use evenkeel_etcd::plan::{
    DeleteReason, EtcdApply, EtcdCreate, EtcdDisruption, EtcdPatch, EtcdWait, IdentityChange,
};
use evenkeel_runtime::Plan;

/// All kinds, those first that the explored world brings about by itself, then those that take somebody who meddles.
pub const ALL: [&str; 60] = [
    "create an identity",
    "create a claim",
    "create a pod",
    "mark how to start",
    "mark what was joined on",
    "mark as turned",
    "mark for routing",
    "mark for no routing",
    "mark as owned",
    "apply the budget",
    "turn: seed starts",
    "turn: formed",
    "turn: seal",
    "turn: settle",
    "turn: seed lost",
    "turn: seed moves",
    "turn: resource replaced",
    "turn: adopt",
    "turn: pass over",
    "call: add",
    "call: promote",
    "call: remove",
    "call: hand over and remove",
    "call: replace",
    "call: expel",
    "delete a pod: old epoch",
    "delete a pod: not a member",
    "delete a pod: finished",
    "delete a pod: makes way",
    "delete a pod: outdated",
    "restart: evict",
    "restart: hand over and evict",
    "restart: delete",
    "wait: unwell",
    "delete a claim: old epoch",
    "delete a claim: not a member",
    "wait: reading",
    "wait: old epoch goes",
    "wait: former goes",
    "wait: seed starts",
    "wait: no quorum",
    "wait: settling",
    "wait: joining",
    "wait: catching up",
    "wait: add unsafe",
    "wait: patience",
    "wait: replacing",
    "apply an object",
    "wait: paused",
    "wait: contradiction",
    "wait: nothing left",
    "wait: name taken",
    "wait: authority lost",
    "wait: strangers",
    "wait: enough",
    "mark as removed",
    "mark as accepted",
    "mark the version",
    "wait: window",
    "wait: too few",
];

/// The kinds of all that a plan decides, and waits for.
pub fn kinds(plan: &Plan<Etcd>) -> Vec<&'static str> {
    let creates = plan.create.iter().map(|create| match create {
        EtcdCreate::Identity(_) => "create an identity",
        EtcdCreate::Claim { .. } => "create a claim",
        EtcdCreate::Pod { .. } => "create a pod",
    });
    let marks = plan.patch.iter().map(|mark| match mark {
        EtcdPatch::SetStartMode { .. } => "mark how to start",
        EtcdPatch::RecordJoinedVolume { .. } => "mark what was joined on",
        EtcdPatch::MarkJoined { .. } => "mark as turned",
        EtcdPatch::AttachClients { .. } => "mark for routing",
        EtcdPatch::DetachClients { .. } => "mark for no routing",
        EtcdPatch::SetOwner { .. } => "mark as owned",
        EtcdPatch::RecordVersion { .. } => "mark the version",
        EtcdPatch::RecordTemplateHash { .. } => "mark the inputs",
        EtcdPatch::ResizeVolume { .. } => "grow a claim",
        EtcdPatch::RecordSpec => "mark as accepted",
        EtcdPatch::RecordRemoval { .. } => "mark as removed",
    });
    let waits = plan.waits.iter().map(wait);
    let applied = plan.apply.iter().map(|apply| match apply {
        EtcdApply::Object(_) => "apply an object",
        EtcdApply::PodDisruptionBudget { .. } => "apply the budget",
    });
    creates
        .chain(marks)
        .chain(applied)
        .chain(plan.disruption.iter().map(step))
        .chain(waits)
        .collect()
}

fn step(step: &EtcdDisruption) -> &'static str {
    match step {
        EtcdDisruption::UpdateIdentity { why, .. } => match why {
            IdentityChange::StartSeed => "turn: seed starts",
            IdentityChange::RecordCluster(_) => "turn: formed",
            IdentityChange::FinishBootstrap => "turn: seal",
            IdentityChange::SettleIntent => "turn: settle",
            IdentityChange::SeedLost => "turn: seed lost",
            IdentityChange::SeedStorageChanged => "turn: seed moves",
            IdentityChange::ResourceReplaced => "turn: resource replaced",
            IdentityChange::Adopt => "turn: adopt",
            IdentityChange::Repair => "turn: pass over",
        },
        EtcdDisruption::ChangeMembership {
            intent,
            transfer_to,
            ..
        } => match intent.change {
            MembershipChange::Add(_) => "call: add",
            MembershipChange::Promote(_) => "call: promote",
            MembershipChange::RemoveUnknown(_) => "call: expel",
            MembershipChange::Remove(_) if intent.is_replacement => "call: replace",
            MembershipChange::Remove(_) if transfer_to.is_some() => "call: hand over and remove",
            MembershipChange::Remove(_) => "call: remove",
        },
        EtcdDisruption::ForceSnapshot { .. } => "renew the logs",
        EtcdDisruption::RestartMember { spared: false, .. } => "restart: delete",
        EtcdDisruption::RestartMember {
            transfer_to: Some(_),
            ..
        } => "restart: hand over and evict",
        EtcdDisruption::RestartMember { .. } => "restart: evict",
        EtcdDisruption::DeletePod { why, .. } => match why {
            DeleteReason::OldEpoch => "delete a pod: old epoch",
            DeleteReason::MemberRemoved => "delete a pod: not a member",
            DeleteReason::Finished => "delete a pod: finished",
            DeleteReason::FreesNode => "delete a pod: makes way",
            DeleteReason::Outdated => "delete a pod: outdated",
        },
        EtcdDisruption::DeleteClaim { why, .. } => match why {
            DeleteReason::OldEpoch => "delete a claim: old epoch",
            DeleteReason::MemberRemoved => "delete a claim: not a member",
            DeleteReason::Finished | DeleteReason::FreesNode | DeleteReason::Outdated => {
                "delete a claim: for no reason"
            }
        },
    }
}

fn wait(wait: &EtcdWait) -> &'static str {
    match wait {
        EtcdWait::Unreadable(_) => "wait: reading",
        EtcdWait::Paused => "wait: paused",
        EtcdWait::InconsistentObjects => "wait: contradiction",
        EtcdWait::DataLost(_) => "wait: nothing left",
        EtcdWait::OldEpochDeletion => "wait: old epoch goes",
        EtcdWait::PreviousResourceDeletion(_) => "wait: former goes",
        EtcdWait::SeedStart(_) => "wait: seed starts",
        EtcdWait::NoQuorum => "wait: no quorum",
        EtcdWait::OpenIntent(_) => "wait: settling",
        EtcdWait::MemberJoin(_) => "wait: joining",
        EtcdWait::LearnerCatchUp(_) => "wait: catching up",
        EtcdWait::UnsafeToAdd => "wait: add unsafe",
        EtcdWait::BootstrapTimeout(_) => "wait: patience",
        EtcdWait::NameConflict(_) => "wait: name taken",
        EtcdWait::CaMissing(_) => "wait: authority lost",
        EtcdWait::UnknownMembers(_) => "wait: strangers",
        EtcdWait::ReplacementJoin(_) => "wait: replacing",
        EtcdWait::ReplacementLimit(..) => "wait: enough",
        EtcdWait::MaintenanceWindow(_) => "wait: window",
        EtcdWait::UnhealthyMember(_) => "wait: unwell",
        EtcdWait::TooFewVoters => "wait: too few",
        EtcdWait::VersionMismatch(..) => "wait: misnamed",
        EtcdWait::VolumeResize(_) => "wait: growing",
        EtcdWait::SnapshotBlocked(_) => "wait: not renewed",
    }
}
