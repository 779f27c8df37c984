//! What an operator does to the world, one write at a time, each as pinned as the real one.

use std::collections::BTreeSet;

use evenkeel::Plan;
use evenkeel_etcd::Etcd;
use evenkeel_etcd::facts::Start;
use evenkeel_etcd::identity::{Change, Identity, Intent};
use evenkeel_etcd::names::Serial;
use evenkeel_etcd::plan::{Apply, Create, Leaving, Mark, Owned, Step};
use evenkeel_etcd::view::quorum;

use crate::doomed::{never_back, never_held_again};
use crate::observe::ready;
use crate::world::{Claim, Inputs, Member, Pod, Violation, World, shown};

/// One write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// Something is created unless it is there.
    Create(Create),
    /// Something is made as it should be, if it is still what it was.
    Apply(Apply),
    /// Something is marked, if it is still the same object.
    Mark(Mark),
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
    Delete(Step),
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
    effects.extend(plan.mark.iter().cloned().map(Effect::Mark));
    effects.extend(plan.apply.iter().copied().map(Effect::Apply));
    match plan.step.clone() {
        None => {}
        Some(Step::Identity { from, to, .. } | Step::Renew { from, to }) => {
            effects.push(Effect::Swap { from, to })
        }
        Some(Step::Call { from, intent, .. }) => {
            // How many were replaced of late is not of this world, in which it is always now, or long ago.
            let to = Identity { replaced: BTreeSet::new(), ..from.noting(&intent) };
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
        Effect::Mark(Mark::Start { from, to, .. }) if !never_held_again(from, to) => Err(Violation(
            "a pod that was told how to start is told to wait, or to found a cluster".to_owned(),
        )),
        Effect::Mark(mark) => Ok(apply_mark(world, mark)),
        Effect::Apply(Apply::Budget { from, min }) => {
            if *from != world.budget_min.map(Some).into() {
                return Ok(Outcome::Refused);
            }
            world.budget_min = Some(*min);
            // Pinned by its resourceVersion, not by its value: what was decided before this write is refused after it, and
            // with it the rest of its plan.
            let decided =
                world.late.iter().position(|late| matches!(late, Effect::Apply(Apply::Budget { .. })));
            world.late.truncate(decided.unwrap_or(world.late.len()));
            Ok(Outcome::Done)
        }
        // Services and secrets are always as they should be, here.
        Effect::Apply(Apply::Object(_)) => Ok(Outcome::Done),
        Effect::Swap { from, to } if !never_back(from, to) => {
            Err(Violation("the identity goes back to what it was".to_owned()))
        }
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

fn apply_create(world: &mut World, create: &Create) -> Outcome {
    match create {
        Create::Identity(identity) => {
            if world.identity.is_some() {
                return Outcome::Refused;
            }
            world.identity = Some(identity.clone());
        }
        Create::Claim { serial, epoch } => {
            if world.claims.contains_key(serial) {
                return Outcome::Refused;
            }
            let uid = world.fresh_uid();
            let made_for = world.volumes_for();
            world.claims.insert(*serial, Claim::new(uid, *epoch, made_for));
        }
        Create::Pod { serial, epoch, on, start, inputs } => {
            let claim = world.claims.get(serial).map(|claim| claim.uid);
            if world.pods.contains_key(serial) || *on != claim {
                return Outcome::Refused;
            }
            let uid = world.fresh_uid();
            world
                .pods
                .insert(*serial, Pod::new(uid, *epoch, Inputs::of(*inputs), start.clone(), world.resource));
        }
    }
    Outcome::Done
}

fn apply_mark(world: &mut World, mark: &Mark) -> Outcome {
    if let Mark::JoinedOn { claim: uid, volume } = mark {
        return match world.claims.values_mut().find(|claim| claim.uid == *uid) {
            Some(claim) => {
                claim.joined_on = Some((*uid, *volume));
                Outcome::Done
            }
            None => Outcome::Refused,
        };
    }
    let resource = world.resource;
    let (Mark::Start { pod: uid, .. }
    | Mark::Turn { pod: uid, .. }
    | Mark::Route { pod: uid }
    | Mark::Unroute { pod: uid }
    | Mark::Own { what: Owned::Pod(uid), .. }) = mark
    else {
        return Outcome::Refused;
    };
    let Some((serial, pod)) = world.pods.iter_mut().find(|(_, pod)| pod.uid == *uid) else {
        return Outcome::Refused;
    };
    let serial = *serial;
    match mark {
        Mark::Start { from, to, .. } if pod.start == *from => pod.start = to.clone(),
        Mark::Start { .. } => return Outcome::Refused,
        Mark::Turn { from, .. } if pod.start == *from => (pod.start, pod.gate) = (Start::OwnData, true),
        Mark::Turn { .. } => return Outcome::Refused,
        Mark::Own { .. } => pod.owner = resource,
        Mark::Unroute { .. } => pod.routed = false,
        Mark::Route { .. }
        | Mark::JoinedOn { .. }
        | Mark::Removed { .. }
        | Mark::Version { .. }
        | Mark::Inputs { .. }
        | Mark::Grow { .. }
        | Mark::Accept => pod.routed = true,
    }
    let pending = std::mem::take(&mut world.pending);
    overtakes(world, serial);
    world.pending = pending;
    Outcome::Done
}

/// etcd answers only with a quorum.
fn ask(world: &mut World, intent: &Intent, etcd: Etcds) -> Outcome {
    let Some((_, cluster)) = world.spokesman() else { return Outcome::Refused };
    if !is_taken(world, cluster, intent.change, etcd) {
        return Outcome::Refused;
    }
    make(world, cluster, intent.change);
    Outcome::Done
}

/// Whether etcd takes a change. Strict reconfiguration refuses what would cost the quorum, as far as the leader has
/// noticed who is down, and an add while any voter is; but it looks at a learner's log only: it promotes a dead one.
fn is_taken(world: &World, cluster: usize, change: Change, etcd: Etcds) -> bool {
    let members = &world.clusters[cluster].members;
    let voters = world.votes(cluster);
    let alive = if etcd == Etcds::HasNoticed { world.alive_voters(cluster) } else { voters };
    match change {
        Change::Add(serial) => {
            let learners = members.values().filter(|member| member.learner).count();
            !members.contains_key(&serial) && learners < usize::from(world.max_learners) && alive == voters
        }
        Change::Promote(serial) => {
            members.get(&serial).is_some_and(|member| member.learner && member.started)
        }
        Change::Remove(serial) if world.is_voter(cluster, serial) => {
            let dead = world.running_in(serial) != Some(cluster);
            voters > 1 && (dead || alive > quorum(voters - 1))
        }
        Change::Remove(serial) => members.contains_key(&serial),
        Change::Expel(_) => world.clusters[cluster].stranger.is_some(),
    }
}

/// Whether a call is taken only by an etcd that has not noticed who is down.
pub fn depends_on_notice(world: &World, change: Change) -> bool {
    let taken = |cluster, etcd| is_taken(world, cluster, change, etcd);
    world.spokesman().is_some_and(|(_, cluster)| {
        taken(cluster, Etcds::HasNotNoticed) && !taken(cluster, Etcds::HasNoticed)
    })
}

/// The membership after a change that a quorum agreed on.
pub(crate) fn make(world: &mut World, cluster: usize, change: Change) {
    let members = &mut world.clusters[cluster].members;
    match change {
        Change::Add(serial) => {
            members.insert(serial, Member { learner: true, started: false });
        }
        Change::Promote(serial) => {
            members.insert(serial, Member { learner: false, started: true });
        }
        Change::Remove(serial) => {
            members.remove(&serial);
            stop_removed(world, cluster, serial);
        }
        Change::Expel(_) => world.clusters[cluster].stranger = None,
    }
}

/// Where a call would go that is taken into a leader's log although its quorum has just been lost: to a voter that speaks.
pub fn takes_into_log(world: &World, change: Change) -> Option<usize> {
    if world.spokesman().is_some() {
        return None;
    }
    let heard = world.pods.iter().rev().filter(|(_, pod)| !pod.unheard).map(|(serial, _)| serial);
    let mut clusters = heard
        .filter_map(|serial| world.running_in(*serial).filter(|cluster| world.is_voter(*cluster, *serial)));
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

fn delete(world: &mut World, step: &Step) -> Result<Outcome, Violation> {
    match step {
        Step::Restart { serial, spared: true, .. } if !may_be_evicted(world, *serial) => Ok(Outcome::Refused),
        Step::Restart { pod: uid, serial, .. } | Step::DeletePod { pod: uid, serial, .. } => {
            let Some(pod) = world.pods.get_mut(serial).filter(|pod| pod.uid == *uid) else {
                return Ok(Outcome::Refused);
            };
            pod.deleting = true;
            pod.runs = false;
            Ok(Outcome::Done)
        }
        Step::DeleteClaim { claim: uid, serial, .. } => {
            let Some(claim) = world.claims.get(serial).filter(|claim| claim.uid == *uid) else {
                return Ok(Outcome::Refused);
            };
            let current = world.identity.as_ref().is_some_and(|identity| identity.epoch == claim.epoch);
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
        Step::Identity { .. } | Step::Renew { .. } | Step::Call { .. } => Ok(Outcome::Refused),
    }
}

/// Whether the disruption budget lets a pod go: it counts those that are routed to and Ready, and lets the others go.
fn may_be_evicted(world: &World, serial: Serial) -> bool {
    let counts = |serial: &Serial| {
        world.pods.get(serial).is_some_and(|pod| pod.routed && !pod.deleting) && ready(world, *serial)
    };
    let left = world.pods.keys().filter(|other| **other != serial && counts(other)).count();
    !counts(&serial) || world.budget_min.is_none_or(|min| left >= usize::from(min))
}

/// A pod has changed: what was decided on it before is pinned to its resourceVersion, and refused from now on, with the rest of
/// its plan.
pub(crate) fn overtakes(world: &mut World, serial: Serial) {
    let is_overtaken = |effect: &Effect| match effect {
        Effect::Delete(
            Step::Restart { serial: of, .. } | Step::DeletePod { serial: of, why: Leaving::Outdated, .. },
        ) => *of == serial,
        _ => false,
    };
    let decided = world.late.iter().position(is_overtaken);
    world.late.truncate(decided.unwrap_or(world.late.len()));
    let decided = world.pending.iter().position(is_overtaken);
    world.pending.truncate(decided.unwrap_or(world.pending.len()));
}

/// A change in words.
pub fn shown_change(change: Change) -> String {
    match change {
        Change::Add(serial) => format!("adding {}", shown(serial)),
        Change::Promote(serial) => format!("promoting {}", shown(serial)),
        Change::Remove(serial) => format!("removing {}", shown(serial)),
        Change::Expel(_) => "removing the stranger".to_owned(),
    }
}
