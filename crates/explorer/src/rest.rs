//! When nothing happens any more: whether all is as it should be, or beyond what anybody could repair.

use std::collections::HashSet;

use evenkeel_etcd::names::Serial;
use evenkeel_etcd::view::quorum;

use crate::Decider;
use crate::canonical::canonical;
use crate::collapse::{Parts, Print, print};
use crate::event::{self, Event};
use crate::observe::{Sight, observe};
use crate::starting::Starting;
use crate::world::{Budget, Disk, Inputs, Violation, World};

/// How many things may happen until it must be at rest.
const ENOUGH: usize = 400;

/// What happened on the way to a bad end, and why it is bad.
pub type BadEnd = (Vec<Event>, Violation);

/// Looks on when only time is left to change anything.
#[derive(Debug, Default)]
pub struct Patience {
    /// Worlds, past anybody's patience, that are known to come to a good rest.
    good: HashSet<Print>,
}

impl Patience {
    /// Lets time pass in a world where nothing happens by itself, and then all that happens by itself, each party in turn,
    /// until nothing does.
    pub fn ends_well(
        &mut self,
        world: &World,
        decider: &dyn Decider,
        parts: &Parts,
    ) -> Result<(), BadEnd> {
        let mut world = world.clone();
        // What may still go wrong does not matter to a run in which nothing does.
        world.budget = Budget::NOTHING;
        event::let_time_pass(&mut world);
        let (mut path, mut onward, mut words) = (vec![], vec![Event::TimePasses], vec![]);
        for _ in 0..ENOUGH {
            let Some(event) = Event::by_itself(&world, decider).into_iter().next() else {
                let mut later = world.clone();
                event::let_time_pass(&mut later);
                if later != world {
                    onward.push(Event::TimePasses);
                    world = later;
                    continue;
                }
                if let Some(former) = stopped(&world) {
                    // It is taken back, and all must be well again.
                    onward.push(Event::Rolled(former));
                    world.inputs = former;
                    continue;
                }
                if let Err(violation) = rests_well(&world) {
                    return Err((onward, explained(&violation, &world, decider)));
                }
                self.good.extend(path);
                return Ok(());
            };
            parts.collapse(&canonical(&world), &mut words);
            let at = print(&words);
            if self.good.contains(&at) {
                self.good.extend(path);
                return Ok(());
            }
            path.push(at);
            let outcome = event.happen(&mut world, decider);
            onward.push(event);
            if let Err(violation) = outcome {
                return Err((onward, violation));
            }
        }
        Err((onward, never_rests()))
    }
}

/// That it goes on for ever.
pub fn never_rests() -> Violation {
    Violation("it never comes to rest, although nothing goes wrong any more".to_owned())
}

/// A bad end, with what the operator has to say about it.
fn explained(violation: &Violation, world: &World, decider: &dyn Decider) -> Violation {
    let waits = decider.decide(&observe(world, Sight::Clear)).waits;
    Violation(format!("{}; it waits for {waits:?}", violation.0))
}

/// What pods are to be built from again when a roll has stopped at a member that does not start: nobody knows whether that is what it
/// was built from, and a person is asked.
fn stopped(world: &World) -> Option<Inputs> {
    if world.inputs == Inputs::Bad {
        return Some(Inputs::First);
    }
    let ends = |serial: &Serial| world.starting(*serial) == Ok(Starting::Ends);
    let mut of_now = world
        .pods
        .iter()
        .filter(|(_, pod)| pod.inputs == world.inputs && !pod.runs);
    let others = world
        .pods
        .iter()
        .filter(|(serial, pod)| pod.inputs != world.inputs && world.serves(**serial));
    let alone = world
        .pods
        .iter()
        .all(|(serial, pod)| pod.inputs != world.inputs || !world.serves(*serial));
    let former = others.map(|(_, pod)| pod.inputs).next();
    former.filter(|_| alone && of_now.any(|(serial, _)| ends(serial)))
}

/// Whether a world in which nothing happens any more is as it should be.
fn rests_well(world: &World) -> Result<(), Violation> {
    let bad = |what: &str| Err(Violation(format!("it comes to rest although {what}")));
    let Some(identity) = &world.identity else {
        return bad("there is no cluster");
    };
    let Some(cluster) = world.true_cluster() else {
        // Somebody has deleted all that there was, and nobody can know what that was.
        let mut disks = world
            .claims
            .keys()
            .chain(world.pods.keys())
            .map(|serial| world.disk(*serial));
        let nothing = disks.all(|disk| !matches!(disk, Some(Disk::Data { .. })));
        let all_gone = world.meddles && identity.bootstrapped && nothing;
        return if all_gone {
            Ok(())
        } else {
            bad("no cluster was formed")
        };
    };
    if !identity.bootstrapped {
        return bad("the epoch is not sealed");
    }
    if !world.has_quorum(cluster) {
        return if beyond_repair(world, cluster) {
            Ok(())
        } else {
            bad("a quorum could be had")
        };
    }
    let members = &world.clusters[cluster].members;
    if world.clusters[cluster].stranger.is_some() {
        return bad("somebody else's member that never started has a vote");
    }
    if members.len() != usize::from(world.wanted) {
        return bad("there are more or fewer members than wanted");
    }
    let well = members.iter().all(|(serial, member)| {
        let pod = world.pods.get(serial);
        !member.learner && world.serves(*serial) && pod.is_some_and(|pod| pod.routed && pod.gate)
    });
    if !well {
        return bad("not every member serves and is routed to");
    }
    if world.pods.values().any(|pod| pod.inputs != world.inputs) {
        return bad("some pods are not built from what is wanted");
    }
    if world
        .claims
        .values()
        .any(|claim| claim.made_for != world.volumes_for())
    {
        return bad("some volumes are not what is wanted");
    }
    if world.pods.len() != members.len()
        || world
            .claims
            .keys()
            .any(|serial| !members.contains_key(serial))
    {
        return bad("something of a former member is left");
    }
    Ok(())
}

/// Whether too many of a cluster's voters have lost their data for it ever to agree again.
fn beyond_repair(world: &World, cluster: usize) -> bool {
    let voters: Vec<_> = world.clusters[cluster]
        .members
        .iter()
        .filter(|(_, member)| !member.learner)
        .collect();
    let whole = voters.iter().filter(|(serial, _)| {
        matches!(world.disk(**serial), Some(Disk::Data { cluster: on, stale: false, .. }) if usize::from(on) == cluster)
    });
    whole.count() < quorum(world.votes(cluster))
}
