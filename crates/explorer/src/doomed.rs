//! Writes that were decided and can no longer change anything. An operator that is about to make one, or that was frozen
//! before it did, is in no other position than one that has nothing left to do: such writes are dropped from a world's form.
//!
//! Why that is sound: the write is refused, or does nothing, *whenever* it goes out. If it is refused the rest of the plan is
//! dropped with it, and all that can happen with the plan can happen without; the same for a write that does nothing, whose
//! plan goes on. That a write stays refused rests on what never comes back: uids, which this world never uses twice, and
//! whatever [`never_back`] and [`never_held_again`] forbid to anybody, on pain of a violation.

use evenkeel_etcd::facts::StartMode;
use evenkeel_etcd::identity::{Identity, Uid};
use evenkeel_etcd::plan::{EtcdCreate, EtcdDisruption, EtcdPatch, OwnerTarget};

use crate::effect::Effect;
use crate::world::World;

/// What will come of a write.
enum Fate {
    Open,
    Refused,
    Nothing,
}

/// Drops what can no longer change anything from what is about to be written, and from what may be written late.
pub fn drop_doomed(world: &mut World) {
    for at in [true, false] {
        let mut effects = std::mem::take(if at {
            &mut world.pending
        } else {
            &mut world.late
        });
        while let Some(first) = effects.first() {
            match fate(world, first) {
                Fate::Open => break,
                Fate::Refused => effects.clear(),
                Fate::Nothing => {
                    effects.remove(0);
                }
            }
        }
        *(if at {
            &mut world.pending
        } else {
            &mut world.late
        }) = effects;
    }
}

fn fate(world: &World, effect: &Effect) -> Fate {
    match effect {
        // Of those created when there was one, the identity that is created late, when it was deleted, is of another lineage, and
        // has everybody stop: see `meddled`.
        Effect::Create(EtcdCreate::Identity(_)) => refused_if(world.identity.is_some()),
        Effect::Create(EtcdCreate::Pod {
            serial,
            claim: Some(uid),
            ..
        }) => refused_if(
            world
                .claims
                .get(serial)
                .is_none_or(|claim| claim.uid != *uid),
        ),
        Effect::Mark(mark) => mark_fate(world, mark),
        Effect::Swap { from, .. } => refused_if(
            world
                .identity
                .as_ref()
                .is_none_or(|identity| is_past(from, identity)),
        ),
        Effect::Delete(
            EtcdDisruption::DeletePod {
                pod: uid, serial, ..
            }
            | EtcdDisruption::RestartMember {
                pod: uid, serial, ..
            },
        ) => match world.pods.get(serial).filter(|pod| pod.uid == *uid) {
            None => Fate::Refused,
            Some(pod) if pod.deleting => Fate::Nothing,
            Some(_) => Fate::Open,
        },
        Effect::Delete(EtcdDisruption::DeleteClaim {
            claim: uid, serial, ..
        }) => refused_if(
            world
                .claims
                .get(serial)
                .is_none_or(|claim| claim.uid != *uid),
        ),
        Effect::Create(_) | Effect::Apply(_) | Effect::Ask(_) | Effect::Delete(_) => Fate::Open,
    }
}

fn refused_if(refused: bool) -> Fate {
    if refused { Fate::Refused } else { Fate::Open }
}

fn mark_fate(world: &World, mark: &EtcdPatch) -> Fate {
    let of = |uid: &Uid| world.pods.values().find(|pod| pod.uid == *uid);
    match mark {
        // Clients may be routed to a pod, away from it, and to it again.
        EtcdPatch::AttachClients { pod }
        | EtcdPatch::DetachClients { pod }
        | EtcdPatch::RecordTemplateHash { pod, .. } => refused_if(of(pod).is_none()),
        EtcdPatch::MarkJoined {
            pod,
            from: StartMode::ExistingData,
        } => match of(pod) {
            None => Fate::Refused,
            Some(pod) if pod.gate && pod.start == StartMode::ExistingData => Fate::Nothing,
            Some(_) => Fate::Open,
        },
        EtcdPatch::SetStartMode { pod, from, .. } | EtcdPatch::MarkJoined { pod, from } => {
            refused_if(of(pod).is_none_or(|pod| has_left(from, &pod.start)))
        }
        EtcdPatch::RecordJoinedVolume { claim: uid, volume } => {
            match world.claims.values().find(|claim| claim.uid == *uid) {
                None => Fate::Refused,
                Some(claim) if claim.joined_on == Some((*uid, *volume)) => Fate::Nothing,
                Some(_) => Fate::Open,
            }
        }
        EtcdPatch::RecordRemoval { claim: uid, .. }
        | EtcdPatch::RecordVersion { claim: uid, .. }
        | EtcdPatch::ResizeVolume { claim: uid, .. } => {
            refused_if(world.claims.values().all(|claim| claim.uid != *uid))
        }
        EtcdPatch::SetOwner {
            target: OwnerTarget::Pod(pod),
            ..
        } => refused_if(of(pod).is_none()),
        // Only pods change hands in this world.
        EtcdPatch::SetOwner { .. } | EtcdPatch::RecordSpec => Fate::Refused,
    }
}

/// Whether a pod that is to start in one way will never be to start in that other way again.
fn has_left(other: &StartMode, way: &StartMode) -> bool {
    other != way
        && (matches!(other, StartMode::Held | StartMode::Bootstrap)
            || *way == StartMode::ExistingData)
}

/// Whether an identity differs from the one there is now in something that [`never_back`] protects.
fn is_past(from: &Identity, now: &Identity) -> bool {
    let kept = |one: &Identity| {
        (
            one.epoch,
            one.next_serial,
            one.bootstrapped,
            one.seed_storage,
            one.cluster_id,
            one.resource_uid,
        )
    };
    kept(from) != kept(now)
}

/// Whether a swap of the identity goes only forward: serials and epochs are never used again, a seal is never broken, and
/// what a seed was started on and which cluster it formed stay what they are for their epoch.
pub fn never_back(from: &Identity, to: &Identity) -> bool {
    let same_epoch = from.epoch == to.epoch;
    to.epoch >= from.epoch
        && to.next_serial >= from.next_serial
        && to.resource_uid >= from.resource_uid
        && (!from.bootstrapped || (same_epoch && to.bootstrapped))
        && (!same_epoch || from.seed_storage.is_none() || from.seed_storage == to.seed_storage)
        && (!same_epoch || from.cluster_id.is_none() || from.cluster_id == to.cluster_id)
}

/// Whether a pod is neither told to wait once it was told to start, nor told to found anything but by its first word, nor
/// told anything else once it starts on its own data.
pub fn never_held_again(from: &StartMode, to: &StartMode) -> bool {
    *to != StartMode::Held
        && (*to != StartMode::Bootstrap || *from == StartMode::Held)
        && (*from != StartMode::ExistingData || *to == StartMode::ExistingData)
}
