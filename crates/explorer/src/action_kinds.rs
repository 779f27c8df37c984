//! The kinds of actions and waits that can be decided, by machine name. A kind that no exploration
//! decides is unreachable: it is dead code, or the explored world is too small.

use evenkeel_etcd::Etcd;
use evenkeel_etcd::actions::{EtcdAction, etcd_action};
use evenkeel_etcd::identity::MembershipChange;
use evenkeel_etcd::plan::{DeleteReason, EtcdDisruption, EtcdWait};
use evenkeel_runtime::{Action, Plan};

/// All kinds that explorations reach: first those of the explored world itself, then those that
/// need tampered facts.
pub const ALL_KINDS: [&str; 77] = [
    "create-identity",
    "create-claim",
    "create-pod",
    "set-start-mode",
    "record-joined-volume",
    "mark-joined",
    "attach-clients",
    "detach-clients",
    "set-owner",
    "nudge-member",
    "apply-pdb",
    "start-seed",
    "record-cluster",
    "finish-bootstrap",
    "settle-intent",
    "restart-bootstrap-seed-lost",
    "restart-bootstrap-storage-changed",
    "restart-bootstrap-resource-replaced",
    "adopt-cluster",
    "repair-identity",
    "add-member",
    "promote-member",
    "remove-member",
    "remove-member/transfer",
    "replace-member",
    "remove-unknown-member",
    "delete-pod/old-epoch",
    "delete-pod/member-removed",
    "delete-pod/finished",
    "delete-pod/frees-node",
    "delete-pod/outdated",
    "restart-member",
    "restart-member/transfer",
    "restart-member/delete",
    "unhealthy-member",
    "delete-claim/old-epoch",
    "delete-claim/member-removed",
    "unreadable",
    "old-epoch-deletion",
    "previous-resource-deletion",
    "seed-start",
    "no-quorum",
    "open-intent",
    "member-join",
    "learner-catch-up",
    "unsafe-to-add",
    "bootstrap-timeout",
    "replacement-join",
    "create-restore-pod",
    "release-restore-pod",
    "record-restored",
    "delete-restore-pod",
    "restart-bootstrap-source-changed",
    "restore",
    "restore-retry",
    "restore-pod-deletion",
    "prepare-restore",
    "restart-preparation",
    "cancel-restore",
    "replace-cluster",
    "undo-restore",
    "record-replaced",
    "delete-pod/replaced",
    "apply-object",
    "paused",
    "inconsistent-objects",
    "data-lost",
    "name-conflict",
    "ca-missing",
    "unknown-members",
    "restore-source",
    "replacement-limit",
    "record-removal",
    "record-spec",
    "record-version",
    "maintenance-window",
    "too-few-voters",
];

/// Returns the kinds of all actions and waits of a plan.
pub fn action_kinds(plan: &Plan<Etcd>) -> Vec<&'static str> {
    let actions = plan.actions().map(|action| match action {
        Action::Disruption(disruption) => disruption_kind(disruption),
        action => etcd_action(&action).name(),
    });
    actions
        .chain(plan.waits.iter().map(EtcdWait::name))
        .collect()
}

/// Returns the machine name of a disruption, with the variant that `execute` treats differently.
fn disruption_kind(disruption: &EtcdDisruption) -> &'static str {
    match disruption {
        EtcdDisruption::ChangeMembership {
            intent,
            transfer_to: Some(_),
            ..
        } if !intent.is_replacement && matches!(intent.change, MembershipChange::Remove(_)) => {
            "remove-member/transfer"
        }
        EtcdDisruption::RestartMember {
            via_eviction: false,
            ..
        } => "restart-member/delete",
        EtcdDisruption::RestartMember {
            transfer_to: Some(_),
            ..
        } => "restart-member/transfer",
        EtcdDisruption::DeletePod { why, .. } => match why {
            DeleteReason::OldEpoch => "delete-pod/old-epoch",
            DeleteReason::Replaced => "delete-pod/replaced",
            DeleteReason::MemberRemoved => "delete-pod/member-removed",
            DeleteReason::Finished => "delete-pod/finished",
            DeleteReason::FreesNode => "delete-pod/frees-node",
            DeleteReason::Outdated => "delete-pod/outdated",
        },
        EtcdDisruption::DeleteClaim { why, .. } => match why {
            DeleteReason::OldEpoch => "delete-claim/old-epoch",
            DeleteReason::Replaced => "delete-claim/replaced",
            DeleteReason::MemberRemoved => "delete-claim/member-removed",
            DeleteReason::Finished | DeleteReason::FreesNode | DeleteReason::Outdated => {
                "delete-claim/unexpected"
            }
        },
        EtcdDisruption::UpdateIdentity { .. }
        | EtcdDisruption::ChangeMembership { .. }
        | EtcdDisruption::RestartMember { .. }
        | EtcdDisruption::DeleteRestorePod { .. }
        | EtcdDisruption::ForceSnapshot { .. } => disruption.name(),
    }
}
