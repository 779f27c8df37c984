//! Prunes pending writes that can no longer have an effect. An operator that is about to send such
//! a write, or that was frozen before it did, is equivalent to an operator without pending writes.
//!
//! Soundness: such a write is rejected, or has no effect, *whenever* it is sent. A rejected write drops the rest of
//! its plan, so every run with the plan is possible without it; a write without effect leaves the rest of its plan. A
//! write stays rejected because its preconditions never hold again: the model never reuses a uid, and
//! [`identity_moves_forward`] and [`start_mode_moves_forward`] forbid every write that would restore an earlier
//! state.

use evenkeel_etcd::facts::{RestoredVolume, StartMode};
use evenkeel_etcd::identity::{Identity, Uid};
use evenkeel_etcd::plan::{EtcdCreate, EtcdDisruption, EtcdPatch, OwnerTarget};

use crate::effect::Effect;
use crate::model::{ClusterModel, ModelRestoreState};

/// The result that a write will have whenever it is sent.
enum WriteFate {
    Open,
    Rejected,
    NoOp,
}

/// Drops writes without effect from the pending and the late writes.
pub fn prune_writes(model: &mut ClusterModel) {
    for pending in [true, false] {
        let mut effects = std::mem::take(if pending {
            &mut model.pending_writes
        } else {
            &mut model.late_writes
        });
        while let Some(first) = effects.first() {
            match fate(model, first) {
                WriteFate::Open => break,
                WriteFate::Rejected => effects.clear(),
                WriteFate::NoOp => {
                    effects.remove(0);
                }
            }
        }
        *(if pending {
            &mut model.pending_writes
        } else {
            &mut model.late_writes
        }) = effects;
    }
}

fn fate(model: &ClusterModel, effect: &Effect) -> WriteFate {
    match effect {
        // An identity created late, after another one was deleted, has another lineage, and every operator stops on
        // it: see `tampered_facts`.
        Effect::Create(EtcdCreate::Identity(_)) => rejected_if(model.identity.is_some()),
        Effect::Create(EtcdCreate::Pod {
            serial,
            claim: Some(uid),
            ..
        }) => rejected_if(
            model
                .claims
                .get(serial)
                .is_none_or(|claim| claim.uid != *uid),
        ),
        Effect::Create(EtcdCreate::RestorePod {
            serial, claim: uid, ..
        }) => rejected_if(
            model
                .claims
                .get(serial)
                .is_none_or(|claim| claim.uid != *uid),
        ),
        Effect::Patch(patch) => patch_fate(model, patch),
        Effect::UpdateIdentity { from, .. } => rejected_if(
            model
                .identity
                .as_ref()
                .is_none_or(|identity| is_outdated(from, identity)),
        ),
        Effect::Delete(
            EtcdDisruption::DeletePod {
                pod: uid, serial, ..
            }
            | EtcdDisruption::RestartMember {
                pod: uid, serial, ..
            },
        ) => match model.pods.get(serial).filter(|pod| pod.uid == *uid) {
            None => WriteFate::Rejected,
            Some(pod) if pod.is_terminating => WriteFate::NoOp,
            Some(_) => WriteFate::Open,
        },
        Effect::Delete(EtcdDisruption::DeleteRestorePod {
            pod: uid, serial, ..
        }) => {
            let pod = model.restore_pods.get(serial);
            match pod.filter(|pod| pod.uid == *uid) {
                None => WriteFate::Rejected,
                Some(pod) if pod.is_terminating => WriteFate::NoOp,
                Some(_) => WriteFate::Open,
            }
        }
        Effect::Delete(EtcdDisruption::DeleteClaim {
            claim: uid, serial, ..
        }) => rejected_if(
            model
                .claims
                .get(serial)
                .is_none_or(|claim| claim.uid != *uid),
        ),
        Effect::Create(_) | Effect::Apply(_) | Effect::ChangeMembership(_) | Effect::Delete(_) => {
            WriteFate::Open
        }
    }
}

fn rejected_if(rejected: bool) -> WriteFate {
    if rejected {
        WriteFate::Rejected
    } else {
        WriteFate::Open
    }
}

fn patch_fate(model: &ClusterModel, patch: &EtcdPatch) -> WriteFate {
    let of = |uid: &Uid| model.pods.values().find(|pod| pod.uid == *uid);
    match patch {
        // Clients may be routed to a pod, away from it, and to it again.
        EtcdPatch::AttachClients { pod }
        | EtcdPatch::DetachClients { pod }
        | EtcdPatch::RecordTemplateHash { pod, .. } => rejected_if(of(pod).is_none()),
        EtcdPatch::MarkJoined {
            pod,
            from: StartMode::ExistingData,
        } => match of(pod) {
            None => WriteFate::Rejected,
            Some(pod) if pod.joined_gate && pod.start_mode == StartMode::ExistingData => {
                WriteFate::NoOp
            }
            Some(_) => WriteFate::Open,
        },
        EtcdPatch::SetStartMode { pod, from, .. } | EtcdPatch::MarkJoined { pod, from } => {
            rejected_if(of(pod).is_none_or(|pod| has_left_start_mode(from, &pod.start_mode)))
        }
        EtcdPatch::RecordJoinedVolume { claim: uid, volume } => {
            match model.claims.values().find(|claim| claim.uid == *uid) {
                None => WriteFate::Rejected,
                Some(claim) if claim.joined_on == Some((*uid, *volume)) => WriteFate::NoOp,
                Some(_) => WriteFate::Open,
            }
        }
        EtcdPatch::RecordRestored {
            claim: uid,
            volume,
            restore,
        } => {
            let recorded = Some(RestoredVolume {
                restore: *restore,
                claim: *uid,
                volume: *volume,
            });
            match model.claims.values().find(|claim| claim.uid == *uid) {
                None => WriteFate::Rejected,
                Some(claim) if claim.restored == recorded => WriteFate::NoOp,
                Some(_) => WriteFate::Open,
            }
        }
        EtcdPatch::ReleaseRestorePod { pod: uid } => {
            match model.restore_pods.values().find(|pod| pod.uid == *uid) {
                None => WriteFate::Rejected,
                Some(pod) if pod.is_terminating || pod.state != ModelRestoreState::Held => {
                    WriteFate::NoOp
                }
                Some(_) => WriteFate::Open,
            }
        }
        EtcdPatch::RecordReplaced { claim: uid, .. }
        | EtcdPatch::RecordRemoval { claim: uid, .. }
        | EtcdPatch::RecordVersion { claim: uid, .. }
        | EtcdPatch::ResizeVolume { claim: uid, .. } => {
            rejected_if(model.claims.values().all(|claim| claim.uid != *uid))
        }
        EtcdPatch::SetOwner {
            target: OwnerTarget::Pod(pod),
            ..
        } => rejected_if(of(pod).is_none()),
        EtcdPatch::SetOwner {
            target: OwnerTarget::Claim(uid),
            ..
        } => rejected_if(model.claims.values().all(|claim| claim.uid != *uid)),
        // A member may become stuck before the write. The model does not know the uid of the identity: a write that was
        // decided on a deleted one changes its successor.
        EtcdPatch::NudgeMember { .. }
        | EtcdPatch::SetOwner {
            target: OwnerTarget::Identity,
            ..
        } => WriteFate::Open,
        EtcdPatch::RecordSpec => WriteFate::Rejected,
    }
}

/// Returns true if a pod in start mode `current` never returns to the start mode `other`.
fn has_left_start_mode(other: &StartMode, current: &StartMode) -> bool {
    other != current
        && (matches!(
            other,
            StartMode::Held | StartMode::Bootstrap | StartMode::Restored
        ) || *current == StartMode::ExistingData)
}

/// Returns true if an identity differs from the current one in a field that [`identity_moves_forward`] protects.
fn is_outdated(from: &Identity, now: &Identity) -> bool {
    let protected = |one: &Identity| {
        (
            one.epoch,
            one.highest_epoch(),
            one.next_serial,
            one.bootstrapped,
            one.seed_storage,
            one.cluster_id,
            one.resource_uid,
        )
    };
    protected(from) != protected(now)
}

/// Returns true if an update of the identity only moves forward: serials and epochs are never reused, a finished
/// bootstrap stays finished unless a restore replaces the epoch, and the restore, the seed's storage and the cluster ID are
/// constant within an epoch. An undo returns to the replaced epoch, once.
pub fn identity_moves_forward(from: &Identity, to: &Identity) -> bool {
    let same_epoch = from.epoch == to.epoch;
    let is_undo = from.replaced.as_ref().is_some_and(|replaced| {
        replaced.epoch == to.epoch && !replaced.is_undone(from.epoch) && to.bootstrapped
    });
    let is_replacement = from.next_epoch.as_ref().is_some_and(|next| {
        let replaced = to.replaced.as_ref();
        next.epoch == to.epoch && replaced.is_some_and(|replaced| replaced.epoch == from.epoch)
    });
    (to.epoch >= from.epoch || is_undo)
        && to.highest_epoch() >= from.highest_epoch()
        && to.next_serial >= from.next_serial
        && to.resource_uid >= from.resource_uid
        && (!from.bootstrapped || (same_epoch && to.bootstrapped) || is_replacement || is_undo)
        && (!same_epoch || from.seed_storage.is_none() || from.seed_storage == to.seed_storage)
        && (!same_epoch || from.cluster_id.is_none() || from.cluster_id == to.cluster_id)
        && (!same_epoch || from.restore == to.restore)
}

/// Returns true if a change of the start mode only moves forward: never back to `Held`, to `Bootstrap` and `Restored` only
/// from `Held`, and never away from `ExistingData`.
pub fn start_mode_moves_forward(from: &StartMode, to: &StartMode) -> bool {
    *to != StartMode::Held
        && (!matches!(to, StartMode::Bootstrap | StartMode::Restored) || *from == StartMode::Held)
        && (*from != StartMode::ExistingData || *to == StartMode::ExistingData)
}
