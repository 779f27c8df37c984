//! What an operator does to the world, one write at a time, each as pinned as the real one.

use std::collections::BTreeSet;

use evenkeel_etcd::Etcd;
use evenkeel_etcd::facts::StartMode;
use evenkeel_etcd::identity::{Identity, Intent, MembershipChange};
use evenkeel_etcd::names::Serial;
use evenkeel_etcd::plan::{
    DeleteReason, EtcdApply, EtcdCreate, EtcdDisruption, EtcdPatch, OwnerTarget,
};
use evenkeel_etcd::view::quorum;
use evenkeel_runtime::Plan;

use crate::doomed::{never_back, never_held_again};
use crate::observe::ready;
use crate::world::{Claim, Inputs, Member, Pod, Violation, World, shown};

/// One write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// Something is created unless it is there.
    Create(EtcdCreate),
    /// Something is made as it should be, if it is still what it was.
    Apply(EtcdApply),
    /// Something is marked, if it is still the same object.
    Mark(EtcdPatch),
    /// The identity is swapped, if it is still what it was.
    Swap {
        /// What it was.
        from: Identity,
        /// What it becomes.
        to: Identity,
    },
    /// etcd is asked for a change.
    Ask(Intent),
    /// Something is deleted, if it is still the same object.
    Delete(EtcdDisruption),
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was done: the plan goes on.
    Done,
    /// It was refused: the rest of the plan is dropped.
    Refused,
}

/// The writes that carry out a plan, in order.
pub fn effects(plan: &Plan<Etcd>) -> Vec<Effect> {
    let mut effects: Vec<Effect> = plan.create.iter().cloned().map(Effect::Create).collect();
    effects.extend(plan.patch.iter().cloned().map(Effect::Mark));
    effects.extend(plan.apply.iter().copied().map(Effect::Apply));
    match plan.disruption.clone() {
        None => {}
        Some(
            EtcdDisruption::UpdateIdentity { from, to, .. }
            | EtcdDisruption::ForceSnapshot { from, to },
        ) => effects.push(Effect::Swap { from, to }),
        Some(EtcdDisruption::ChangeMembership { from, intent, .. }) => {
            // How many were replaced of late is not of this world, in which it is always now, or long ago.
            let to = Identity {
                replacements: BTreeSet::new(),
                ..from.with_intent(&intent)
            };
            if to != from {
                effects.push(Effect::Swap { from, to });
            }
            effects.push(Effect::Ask(intent));
        }
        Some(delete) => effects.push(Effect::Delete(delete)),
    }
    effects
}

/// What an etcd knows of its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Etcds {
    /// Who is down: a while after it went down, or at once when its process died.
    HasNoticed,
    /// Nothing yet, for nodes that go down say no farewell.
    HasNotNoticed,
}

/// Carries out one write; says what became of it, or which rule it broke.
pub fn apply(world: &mut World, effect: &Effect, etcd: Etcds) -> Result<Outcome, Violation> {
    match effect {
        Effect::Create(create) => Ok(apply_create(world, create)),
        Effect::Mark(EtcdPatch::SetStartMode { from, to, .. }) if !never_held_again(from, to) => {
            Err(Violation(
                "a pod that was told how to start is told to wait, or to found a cluster"
                    .to_owned(),
            ))
        }
        Effect::Mark(mark) => Ok(apply_mark(world, mark)),
        Effect::Apply(EtcdApply::PodDisruptionBudget { from, min }) => {
            if *from != world.budget_min.map(Some).into() {
                return Ok(Outcome::Refused);
            }
            world.budget_min = Some(*min);
            // Pinned by its resourceVersion, not by its value: what was decided before this write is refused after it, and
            // with it the rest of its plan.
            let decided = world.late.iter().position(|late| {
                matches!(late, Effect::Apply(EtcdApply::PodDisruptionBudget { .. }))
            });
            world.late.truncate(decided.unwrap_or(world.late.len()));
            Ok(Outcome::Done)
        }
        // Services and secrets are always as they should be, here.
        Effect::Apply(EtcdApply::Object(_)) => Ok(Outcome::Done),
        Effect::Swap { from, to } if !never_back(from, to) => Err(Violation(
            "the identity goes back to what it was".to_owned(),
        )),
        Effect::Swap { from, to } => {
            if world.identity.as_ref() != Some(from) {
                return Ok(Outcome::Refused);
            }
            world.identity = Some(to.clone());
            Ok(Outcome::Done)
        }
        Effect::Ask(intent) => Ok(ask(world, intent, etcd)),
        Effect::Delete(step) => delete(world, step),
    }
}

fn apply_create(world: &mut World, create: &EtcdCreate) -> Outcome {
    match create {
        EtcdCreate::Identity(identity) => {
            if world.identity.is_some() {
                return Outcome::Refused;
            }
            world.identity = Some(identity.clone());
        }
        EtcdCreate::Claim { serial, epoch } => {
            if world.claims.contains_key(serial) {
                return Outcome::Refused;
            }
            let uid = world.fresh_uid();
            let made_for = world.volumes_for();
            world
                .claims
                .insert(*serial, Claim::new(uid, *epoch, made_for));
        }
        EtcdCreate::Pod {
            serial,
            epoch,
            claim: on,
            start_mode: start,
            template_hash,
        } => {
            let claim = world.claims.get(serial).map(|claim| claim.uid);
            if world.pods.contains_key(serial) || *on != claim {
                return Outcome::Refused;
            }
            let uid = world.fresh_uid();
            world.pods.insert(
                *serial,
                Pod::new(
                    uid,
                    *epoch,
                    Inputs::of(*template_hash),
                    start.clone(),
                    world.resource,
                ),
            );
        }
    }
    Outcome::Done
}

fn apply_mark(world: &mut World, mark: &EtcdPatch) -> Outcome {
    if let EtcdPatch::RecordJoinedVolume { claim: uid, volume } = mark {
        return match world.claims.values_mut().find(|claim| claim.uid == *uid) {
            Some(claim) => {
                claim.joined_on = Some((*uid, *volume));
                Outcome::Done
            }
            None => Outcome::Refused,
        };
    }
    let resource = world.resource;
    let (EtcdPatch::SetStartMode { pod: uid, .. }
    | EtcdPatch::MarkJoined { pod: uid, .. }
    | EtcdPatch::AttachClients { pod: uid }
    | EtcdPatch::DetachClients { pod: uid }
    | EtcdPatch::SetOwner {
        target: OwnerTarget::Pod(uid),
        ..
    }) = mark
    else {
        return Outcome::Refused;
    };
    let Some((serial, pod)) = world.pods.iter_mut().find(|(_, pod)| pod.uid == *uid) else {
        return Outcome::Refused;
    };
    let serial = *serial;
    match mark {
        EtcdPatch::SetStartMode { from, to, .. } if pod.start == *from => pod.start = to.clone(),
        EtcdPatch::SetStartMode { .. } => return Outcome::Refused,
        EtcdPatch::MarkJoined { from, .. } if pod.start == *from => {
            (pod.start, pod.gate) = (StartMode::ExistingData, true)
        }
        EtcdPatch::MarkJoined { .. } => return Outcome::Refused,
        EtcdPatch::SetOwner { .. } => pod.owner = resource,
        EtcdPatch::DetachClients { .. } => pod.routed = false,
        EtcdPatch::AttachClients { .. }
        | EtcdPatch::RecordJoinedVolume { .. }
        | EtcdPatch::RecordRemoval { .. }
        | EtcdPatch::RecordVersion { .. }
        | EtcdPatch::RecordTemplateHash { .. }
        | EtcdPatch::ResizeVolume { .. }
        | EtcdPatch::RecordSpec => pod.routed = true,
    }
    let pending = std::mem::take(&mut world.pending);
    overtakes(world, serial);
    world.pending = pending;
    Outcome::Done
}

/// etcd answers only with a quorum.
fn ask(world: &mut World, intent: &Intent, etcd: Etcds) -> Outcome {
    let Some((_, cluster)) = world.spokesman() else {
        return Outcome::Refused;
    };
    if !is_taken(world, cluster, intent.change, etcd) {
        return Outcome::Refused;
    }
    make(world, cluster, intent.change);
    Outcome::Done
}

/// Whether etcd takes a change. Strict reconfiguration refuses what would cost the quorum, as far as the leader has
/// noticed who is down, and an add while any voter is; but it looks at a learner's log only: it promotes a dead one.
fn is_taken(world: &World, cluster: usize, change: MembershipChange, etcd: Etcds) -> bool {
    let members = &world.clusters[cluster].members;
    let voters = world.votes(cluster);
    let alive = if etcd == Etcds::HasNoticed {
        world.alive_voters(cluster)
    } else {
        voters
    };
    match change {
        MembershipChange::Add(serial) => {
            let learners = members.values().filter(|member| member.learner).count();
            !members.contains_key(&serial)
                && learners < usize::from(world.max_learners)
                && alive == voters
        }
        MembershipChange::Promote(serial) => members
            .get(&serial)
            .is_some_and(|member| member.learner && member.started),
        MembershipChange::Remove(serial) if world.is_voter(cluster, serial) => {
            let dead = world.running_in(serial) != Some(cluster);
            voters > 1 && (dead || alive > quorum(voters - 1))
        }
        MembershipChange::Remove(serial) => members.contains_key(&serial),
        MembershipChange::RemoveUnknown(_) => world.clusters[cluster].stranger.is_some(),
    }
}

/// Whether a call is taken only by an etcd that has not noticed who is down.
pub fn depends_on_notice(world: &World, change: MembershipChange) -> bool {
    let taken = |cluster, etcd| is_taken(world, cluster, change, etcd);
    world.spokesman().is_some_and(|(_, cluster)| {
        taken(cluster, Etcds::HasNotNoticed) && !taken(cluster, Etcds::HasNoticed)
    })
}

/// The membership after a change that a quorum agreed on.
pub(crate) fn make(world: &mut World, cluster: usize, change: MembershipChange) {
    let members = &mut world.clusters[cluster].members;
    match change {
        MembershipChange::Add(serial) => {
            members.insert(
                serial,
                Member {
                    learner: true,
                    started: false,
                },
            );
        }
        MembershipChange::Promote(serial) => {
            members.insert(
                serial,
                Member {
                    learner: false,
                    started: true,
                },
            );
        }
        MembershipChange::Remove(serial) => {
            members.remove(&serial);
            stop_removed(world, cluster, serial);
        }
        MembershipChange::RemoveUnknown(_) => world.clusters[cluster].stranger = None,
    }
}

/// Where a call would go that is taken into a leader's log although its quorum has just been lost: to a voter that speaks.
pub fn takes_into_log(world: &World, change: MembershipChange) -> Option<usize> {
    if world.spokesman().is_some() {
        return None;
    }
    let heard = world
        .pods
        .iter()
        .rev()
        .filter(|(_, pod)| !pod.unheard)
        .map(|(serial, _)| serial);
    let mut clusters = heard.filter_map(|serial| {
        world
            .running_in(*serial)
            .filter(|cluster| world.is_voter(*cluster, *serial))
    });
    let cluster = clusters.next()?;
    let free = world.clusters[cluster].in_log.is_none();
    (free && is_taken(world, cluster, change, Etcds::HasNotNoticed)).then_some(cluster)
}

/// A removed member that lives notices, and exits.
fn stop_removed(world: &mut World, cluster: usize, serial: Serial) {
    if world.running_in(serial) == Some(cluster) {
        world.set_runs(serial, false);
    }
}

fn delete(world: &mut World, step: &EtcdDisruption) -> Result<Outcome, Violation> {
    match step {
        EtcdDisruption::RestartMember {
            serial,
            via_eviction: true,
            ..
        } if !may_be_evicted(world, *serial) => Ok(Outcome::Refused),
        EtcdDisruption::RestartMember {
            pod: uid, serial, ..
        }
        | EtcdDisruption::DeletePod {
            pod: uid, serial, ..
        } => {
            let Some(pod) = world.pods.get_mut(serial).filter(|pod| pod.uid == *uid) else {
                return Ok(Outcome::Refused);
            };
            pod.deleting = true;
            pod.runs = false;
            Ok(Outcome::Done)
        }
        EtcdDisruption::DeleteClaim {
            claim: uid, serial, ..
        } => {
            let Some(claim) = world.claims.get(serial).filter(|claim| claim.uid == *uid) else {
                return Ok(Outcome::Refused);
            };
            let current = world
                .identity
                .as_ref()
                .is_some_and(|identity| identity.epoch == claim.epoch);
            let member = world
                .true_cluster()
                .is_some_and(|cluster| world.clusters[cluster].members.contains_key(serial));
            if current && member {
                return Err(Violation(format!(
                    "the volume of {} is deleted while it is a member",
                    shown(*serial)
                )));
            }
            world.claims.remove(serial);
            Ok(Outcome::Done)
        }
        EtcdDisruption::UpdateIdentity { .. }
        | EtcdDisruption::ForceSnapshot { .. }
        | EtcdDisruption::ChangeMembership { .. } => Ok(Outcome::Refused),
    }
}

/// Whether the disruption budget lets a pod go: it counts those that are routed to and Ready, and lets the others go.
fn may_be_evicted(world: &World, serial: Serial) -> bool {
    let counts = |serial: &Serial| {
        world
            .pods
            .get(serial)
            .is_some_and(|pod| pod.routed && !pod.deleting)
            && ready(world, *serial)
    };
    let left = world
        .pods
        .keys()
        .filter(|other| **other != serial && counts(other))
        .count();
    !counts(&serial) || world.budget_min.is_none_or(|min| left >= usize::from(min))
}

/// A pod has changed: what was decided on it before is pinned to its resourceVersion, and refused from now on, with the rest of
/// its plan.
pub(crate) fn overtakes(world: &mut World, serial: Serial) {
    let is_overtaken = |effect: &Effect| match effect {
        Effect::Delete(
            EtcdDisruption::RestartMember { serial: of, .. }
            | EtcdDisruption::DeletePod {
                serial: of,
                why: DeleteReason::Outdated,
                ..
            },
        ) => *of == serial,
        _ => false,
    };
    let decided = world.late.iter().position(is_overtaken);
    world.late.truncate(decided.unwrap_or(world.late.len()));
    let decided = world.pending.iter().position(is_overtaken);
    world
        .pending
        .truncate(decided.unwrap_or(world.pending.len()));
}

/// A change in words.
pub fn shown_change(change: MembershipChange) -> String {
    match change {
        MembershipChange::Add(serial) => format!("adding {}", shown(serial)),
        MembershipChange::Promote(serial) => format!("promoting {}", shown(serial)),
        MembershipChange::Remove(serial) => format!("removing {}", shown(serial)),
        MembershipChange::RemoveUnknown(_) => "removing the stranger".to_owned(),
    }
}
