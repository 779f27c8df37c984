//! Every state that can be reached within a budget of faults: in each the rules of the design hold, and from each a run
//! without further faults converges and goes quiet.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use crate::canonical::canonical;
use crate::event::{self, Event};
use crate::kinds::kinds;
use crate::observe::{Sight, observe};
use crate::world::{Violation, World};
use crate::{Decider, Real};

/// What an exploration found.
#[derive(Debug)]
pub struct Report {
    /// How many states were reached.
    pub states: usize,
    /// How many ways from one to another were tried.
    pub transitions: usize,
    /// How long it took.
    pub took: Duration,
    /// What kinds of things were decided, and in how many states.
    pub decided: BTreeMap<&'static str, usize>,
    /// The shortest story that breaks a rule, if there is one.
    pub story: Option<Story>,
}

/// How a rule came to be broken.
#[derive(Debug)]
pub struct Story {
    /// What happened, in order.
    pub events: Vec<Event>,
    /// The rule.
    pub violation: Violation,
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, event) in self.events.iter().enumerate() {
            writeln!(f, "{:>3}. {event}", number + 1)?;
        }
        write!(f, "  => {}", self.violation.0)
    }
}

type Print = u128;

fn print(world: &World) -> Print {
    let world = canonical(world);
    let half = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        salt.hash(&mut hasher);
        world.hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(1) << 64 | half(2)
}

/// Explores breadth first, so that the first story found is a shortest one.
pub fn explore(start: &World, decider: &dyn Decider) -> Report {
    let began = Instant::now();
    let mut search = Search {
        decider,
        parents: HashMap::new(),
        good: HashSet::new(),
        decided: BTreeMap::new(),
        transitions: 0,
    };
    let story = search.run(start);
    Report {
        states: search.parents.len(),
        transitions: search.transitions,
        took: began.elapsed(),
        decided: search.decided,
        story,
    }
}

/// The world after all that happens by itself has happened: a cluster at rest.
pub fn settled(world: &World) -> World {
    let mut world = world.clone();
    while let Some(event) = Event::by_itself(&world, &Real).into_iter().next() {
        if event.happen(&mut world, &Real).is_err() {
            break;
        }
    }
    world
}

struct Search<'a> {
    decider: &'a dyn Decider,
    parents: HashMap<Print, Option<(Print, Event)>>,
    /// States from which a run without faults is known to converge.
    good: HashSet<Print>,
    decided: BTreeMap<&'static str, usize>,
    transitions: usize,
}

impl Search<'_> {
    fn run(&mut self, start: &World) -> Option<Story> {
        let mut layer = vec![start.clone()];
        self.parents.insert(print(start), None);
        while !layer.is_empty() {
            let mut next = Vec::new();
            for world in layer {
                let at = print(&world);
                if let Err((onward, violation)) = self.converges(&world) {
                    return Some(self.story(at, onward, violation));
                }
                if world.pending.is_empty() {
                    self.note(&world, Sight::Clear);
                }
                for event in Event::all(&world, self.decider) {
                    self.transitions += 1;
                    if let Event::DecideBlind(sight) = event {
                        self.note(&world, sight);
                    }
                    let mut after = world.clone();
                    if let Err(violation) = event.happen(&mut after, self.decider) {
                        return Some(self.story(at, vec![event], violation));
                    }
                    let to = print(&after);
                    if let Entry::Vacant(new) = self.parents.entry(to) {
                        new.insert(Some((at, event)));
                        next.push(after);
                    }
                }
            }
            layer = next;
        }
        None
    }

    /// Runs the world on without faults, each party in turn, until nothing happens any more; then it must be as wanted,
    /// or be beyond what anybody could repair.
    fn converges(&mut self, world: &World) -> Result<(), (Vec<Event>, Violation)> {
        let mut world = world.clone();
        let (mut path, mut onward) = (vec![], vec![]);
        for _ in 0..400 {
            let at = print(&world);
            if self.good.contains(&at) {
                self.good.extend(path);
                return Ok(());
            }
            path.push(at);
            let mut events = Event::by_itself(&world, self.decider);
            if events.is_empty() {
                // Only time is left to change anything.
                let mut later = world.clone();
                event::let_time_pass(&mut later);
                onward.push(Event::TimePasses);
                if event::decide(&later, self.decider, Sight::Clear).is_empty() {
                    if let Err(violation) = rests_well(&later) {
                        return Err((onward, self.explained(violation, &later)));
                    }
                    self.good.extend(path);
                    return Ok(());
                }
                world = later;
                continue;
            }
            // Kubelets first, then the operator: each gets its turn, since what they do is used up.
            let event = events.remove(0);
            let outcome = event.happen(&mut world, self.decider);
            onward.push(event);
            if let Err(violation) = outcome {
                return Err((onward, violation));
            }
        }
        // Its last turns suffice to show how it goes round.
        onward.drain(..onward.len().saturating_sub(12));
        Err((onward, Violation("it never comes to rest, although nothing goes wrong any more".to_owned())))
    }

    /// A bad end, with what the operator has to say about it.
    fn explained(&self, violation: Violation, world: &World) -> Violation {
        let waits = self.decider.decide(&observe(world, Sight::Clear)).status.waits;
        Violation(format!("{}; it waits for {waits:?}", violation.0))
    }

    fn note(&mut self, world: &World, sight: Sight) {
        for kind in kinds(&self.decider.decide(&observe(world, sight))) {
            *self.decided.entry(kind).or_default() += 1;
        }
    }

    fn story(&self, mut at: Print, onward: Vec<Event>, violation: Violation) -> Story {
        let mut events: Vec<Event> = onward.into_iter().rev().collect();
        while let Some(Some((parent, event))) = self.parents.get(&at) {
            events.push(event.clone());
            at = *parent;
        }
        events.reverse();
        Story { events, violation }
    }
}

/// Whether a world in which nothing happens any more is as it should be.
fn rests_well(world: &World) -> Result<(), Violation> {
    let bad = |what: &str| Err(Violation(format!("it comes to rest although {what}")));
    let Some(identity) = &world.identity else { return bad("there is no cluster") };
    let Some(cluster) = world.true_cluster() else { return bad("no cluster was formed") };
    if !identity.sealed {
        return bad("the epoch is not sealed");
    }
    if !world.has_quorum(cluster) {
        return if beyond_repair(world, cluster) { Ok(()) } else { bad("a quorum could be had") };
    }
    let members = &world.clusters[cluster].members;
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
    if world.pods.len() != members.len() || world.claims.keys().any(|serial| !members.contains_key(serial)) {
        return bad("something of a former member is left");
    }
    Ok(())
}

/// Whether too many of a cluster's voters have lost their data for it ever to agree again.
fn beyond_repair(world: &World, cluster: usize) -> bool {
    use crate::world::Disk;
    let voters: Vec<_> =
        world.clusters[cluster].members.iter().filter(|(_, member)| !member.learner).collect();
    let whole = voters.iter().filter(|(serial, _)| {
        matches!(world.disk(**serial), Some(Disk::Data { cluster: on, stale: false, .. }) if usize::from(on) == cluster)
    });
    whole.count() < evenkeel_etcd::view::quorum(voters.len())
}
