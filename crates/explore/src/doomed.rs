//! Writes that were decided and can no longer change anything. An operator that is about to make one, or that was frozen
//! before it did, is in no other position than one that has nothing left to do: such writes are dropped from a world's form.
//!
//! Why that is sound: the write is refused, or does nothing, *whenever* it goes out. If it is refused the rest of the plan is
//! dropped with it, and all that can happen with the plan can happen without; the same for a write that does nothing, whose
//! plan goes on. That a write stays refused rests on what never comes back: uids, which this world never uses twice, and
//! whatever [`never_back`] and [`never_held_again`] forbid to anybody, on pain of a violation.

use evenkeel_etcd::facts::Start;
use evenkeel_etcd::identity::{Identity, Uid};
use evenkeel_etcd::plan::{Create, Mark, Owned, Step};

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
        let mut effects = std::mem::take(if at { &mut world.pending } else { &mut world.late });
        while let Some(first) = effects.first() {
            match fate(world, first) {
                Fate::Open => break,
                Fate::Refused => effects.clear(),
                Fate::Nothing => {
                    effects.remove(0);
                }
            }
        }
        *(if at { &mut world.pending } else { &mut world.late }) = effects;
    }
}

fn fate(world: &World, effect: &Effect) -> Fate {
    match effect {
        // Of those created when there was one, the identity that is created late, when it was deleted, is of another lineage, and
        // has everybody stop: see `meddled`.
        Effect::Create(Create::Identity(_)) => refused_if(world.identity.is_some()),
        Effect::Create(Create::Pod { serial, on: Some(uid), .. }) => {
            refused_if(world.claims.get(serial).is_none_or(|claim| claim.uid != *uid))
        }
        Effect::Mark(mark) => mark_fate(world, mark),
        Effect::Swap { from, .. } => {
            refused_if(world.identity.as_ref().is_none_or(|identity| is_past(from, identity)))
        }
        Effect::Delete(Step::DeletePod { pod: uid, serial, .. } | Step::Restart { pod: uid, serial, .. }) => {
            match world.pods.get(serial).filter(|pod| pod.uid == *uid) {
                None => Fate::Refused,
                Some(pod) if pod.deleting => Fate::Nothing,
                Some(_) => Fate::Open,
            }
        }
        Effect::Delete(Step::DeleteClaim { claim: uid, serial, .. }) => {
            refused_if(world.claims.get(serial).is_none_or(|claim| claim.uid != *uid))
        }
        Effect::Create(_) | Effect::Apply(_) | Effect::Ask(_) | Effect::Delete(_) => Fate::Open,
    }
}

fn refused_if(refused: bool) -> Fate {
    if refused { Fate::Refused } else { Fate::Open }
}

fn mark_fate(world: &World, mark: &Mark) -> Fate {
    let of = |uid: &Uid| world.pods.values().find(|pod| pod.uid == *uid);
    match mark {
        // Clients may be routed to a pod, away from it, and to it again.
        Mark::Route { pod } | Mark::Unroute { pod } | Mark::Inputs { pod, .. } => {
            refused_if(of(pod).is_none())
        }
        Mark::Turn { pod, from: Start::OwnData } => match of(pod) {
            None => Fate::Refused,
            Some(pod) if pod.gate && pod.start == Start::OwnData => Fate::Nothing,
            Some(_) => Fate::Open,
        },
        Mark::Start { pod, from, .. } | Mark::Turn { pod, from } => {
            refused_if(of(pod).is_none_or(|pod| has_left(from, &pod.start)))
        }
        Mark::JoinedOn { claim: uid, volume } => {
            match world.claims.values().find(|claim| claim.uid == *uid) {
                None => Fate::Refused,
                Some(claim) if claim.joined_on == Some((*uid, *volume)) => Fate::Nothing,
                Some(_) => Fate::Open,
            }
        }
        Mark::Removed { claim: uid, .. }
        | Mark::Version { claim: uid, .. }
        | Mark::Grow { claim: uid, .. } => refused_if(world.claims.values().all(|claim| claim.uid != *uid)),
        Mark::Own { what: Owned::Pod(pod), .. } => refused_if(of(pod).is_none()),
        // Only pods change hands in this world.
        Mark::Own { .. } | Mark::Accept => Fate::Refused,
    }
}

/// Whether a pod that is to start in one way will never be to start in that other way again.
fn has_left(other: &Start, way: &Start) -> bool {
    other != way && (matches!(other, Start::Held | Start::Found) || *way == Start::OwnData)
}

/// Whether an identity differs from the one there is now in something that [`never_back`] protects.
fn is_past(from: &Identity, now: &Identity) -> bool {
    let kept = |one: &Identity| (one.epoch, one.next, one.sealed, one.seed_on, one.cluster, one.resource);
    kept(from) != kept(now)
}

/// Whether a swap of the identity goes only forward: serials and epochs are never used again, a seal is never broken, and
/// what a seed was started on and which cluster it formed stay what they are for their epoch.
pub fn never_back(from: &Identity, to: &Identity) -> bool {
    let same_epoch = from.epoch == to.epoch;
    to.epoch >= from.epoch
        && to.next >= from.next
        && to.resource >= from.resource
        && (!from.sealed || (same_epoch && to.sealed))
        && (!same_epoch || from.seed_on.is_none() || from.seed_on == to.seed_on)
        && (!same_epoch || from.cluster.is_none() || from.cluster == to.cluster)
}

/// Whether a pod is neither told to wait once it was told to start, nor told to found anything but by its first word, nor
/// told anything else once it starts on its own data.
pub fn never_held_again(from: &Start, to: &Start) -> bool {
    *to != Start::Held
        && (*to != Start::Found || *from == Start::Held)
        && (*from != Start::OwnData || *to == Start::OwnData)
}
