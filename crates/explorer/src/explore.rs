//! Every state that can be reached within a budget of faults: in each the rules of the design hold, and from each a run
//! without further faults converges and goes quiet.
//!
//! The search is breadth first, layer by layer, so that the first story found is a shortest one. What makes millions of
//! states cheap, and why each is sound:
//! - A state is kept as 128 bits of its canonical form, and the worlds of a layer as numbers of their parts ([`collapse`]).
//! - A world is explored under its canonical names. Renaming keeps what can happen, so nothing is lost; stories are told under
//!   the names of a world that lives through them again.
//! - That every state comes to rest is not tried anew from each: what follows a state when nothing goes wrong is one of the
//!   states that the search visits anyway. It is noted, and in the end it is seen whether every chain of such followers ends
//!   in a good rest. A chain that does not is a circle.
//! - In a state at rest only time can change anything. What comes of that is lived through at once ([`rest`]): no budget
//!   allows time to pass, but there is always time.
//!
//! [`collapse`]: crate::collapse
//! [`rest`]: crate::rest

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use crate::budgets::Budgets;
use crate::canonical::canonical;
use crate::collapse::{Parts, Print, print};
use crate::event::Event;
use crate::layer::{Explorer, Found, Layer, add_all};
use crate::rest::{BadEnd, Patience, never_rests};
use crate::visited::{Number, Visited, shard_of};
use crate::world::{Violation, World};
use crate::{Decider, Real};

/// What an exploration found.
#[derive(Debug)]
pub struct Report {
    /// How many worlds were reached, whatever might still go wrong in them.
    pub worlds: usize,
    /// How many states were visited: worlds, each with the largest budgets that it can be reached with.
    pub states: usize,
    /// How many ways from one to another were tried.
    pub transitions: usize,
    /// How many things happen until the last state is reached.
    pub layers: usize,
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

/// Explores with one thread.
pub fn explore(start: &World, decider: &dyn Decider) -> Report {
    explore_with(start, decider, 1, &mut |_, _, _| {})
}

/// Explores with so many threads, and tells after each layer how many there were, how many states are in the next, and
/// how many were reached in all.
pub fn explore_with(
    start: &World,
    decider: &dyn Decider,
    threads: usize,
    tell: &mut dyn FnMut(usize, usize, usize),
) -> Report {
    let began = Instant::now();
    // More would not be explored in anybody's lifetime.
    let budgets = Budgets::up_to(start.budget)
        .unwrap_or_else(|| unreachable!("a budget of {:?}", start.budget));
    let mut search = Search {
        start,
        decider,
        budgets,
        parts: Parts::new(start),
        visited: Visited::default(),
        decided: BTreeMap::new(),
        transitions: 0,
        layers: 0,
    };
    let story = search.run(threads.max(1), tell);
    Report {
        worlds: search.visited.worlds(),
        states: search.visited.visits(),
        transitions: search.transitions,
        layers: search.layers,
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
    start: &'a World,
    decider: &'a dyn Decider,
    budgets: Budgets,
    parts: Parts,
    visited: Visited,
    decided: BTreeMap<&'static str, usize>,
    transitions: usize,
    layers: usize,
}

impl Search<'_> {
    fn run(&mut self, threads: usize, tell: &mut dyn FnMut(usize, usize, usize)) -> Option<Story> {
        let mut words = Vec::new();
        self.parts.collapse(&canonical(self.start), &mut words);
        let print = print(&words);
        let (budget, covers) = (
            self.budgets.number(self.start.budget),
            self.budgets.covered(self.start.budget),
        );
        let (_, visit) =
            self.visited.shards[shard_of(print)].reach(print, Number::NONE, budget, covers);
        let mut layer = Layer::default();
        visit
            .into_iter()
            .for_each(|visit| layer.push(visit, &words));
        let mut patience: Vec<Patience> = (0..threads).map(|_| Patience::default()).collect();
        while !layer.is_empty() {
            let found = self.live_through(&layer, &mut patience);
            self.layers += 1;
            for found in &found {
                self.transitions += found.transitions;
                for (kind, times) in &found.decided {
                    *self.decided.entry(kind).or_default() += times;
                }
            }
            let bad = found
                .iter()
                .filter_map(|found| found.bad.as_ref())
                .min_by_key(|(at, ..)| *at);
            if let Some((_, visit, end)) = bad {
                return Some(self.story(*visit, end));
            }
            layer = add_all(&mut self.visited, &found, threads);
            tell(self.layers, layer.len(), self.visited.visits());
        }
        self.circle().map(|(visit, end)| self.story(visit, &end))
    }

    fn live_through(&self, layer: &Layer, patience: &mut [Patience]) -> Vec<Found> {
        let (taken, stop) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
        let explorer = Explorer {
            decider: self.decider,
            budgets: self.budgets,
            parts: &self.parts,
            visited: &self.visited,
            layer,
            taken: &taken,
            stop: &stop,
        };
        let explorer = &explorer;
        std::thread::scope(|scope| {
            let threads: Vec<_> = patience
                .iter_mut()
                .map(|patience| scope.spawn(move || explorer.run(patience)))
                .collect();
            threads
                .into_iter()
                .map(|thread| {
                    thread
                        .join()
                        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                })
                .collect()
        })
    }

    /// The first visit to a world that never comes to rest, and some of what happens then.
    fn circle(&self) -> Option<(Number, BadEnd)> {
        let mut good = self.visited.marks();
        let mut seen = self.visited.marks();
        for world in self.visited.all_worlds() {
            let (mut path, mut at) = (Vec::new(), world);
            while at != Number::NONE && !seen.has(at) {
                seen.set(at);
                path.push(at);
                at = self.visited.next(at);
            }
            if at == Number::NONE || good.has(at) {
                path.into_iter().for_each(|world| good.set(world));
            }
        }
        let restless = |visit: &Number| !good.has(self.visited.visit(*visit).world);
        let visits = self.visited.all_visits().filter(restless);
        let first = visits.min_by_key(|visit| self.path(*visit).len())?;
        let mut world = self.live_again(first).1;
        let mut turns = Vec::new();
        while turns.len() < 24 {
            let Some(event) = Event::by_itself(&world, self.decider).into_iter().next() else {
                break;
            };
            let end = event.happen(&mut world, self.decider);
            turns.push(event);
            if end.is_err() {
                break;
            }
        }
        Some((first, (turns, never_rests())))
    }

    /// The worlds on the way to a visit, the start left out, with their budgets.
    fn path(&self, visit: Number) -> Vec<(Print, u8)> {
        let mut path = Vec::new();
        let mut at = self.visited.visit(visit);
        while at.from != Number::NONE {
            path.push((self.visited.print(at.world), at.budget));
            at = self.visited.visit(at.from);
        }
        path.reverse();
        path
    }

    /// What happens on the way to a visit, under the names of the world that it happens to.
    fn live_again(&self, visit: Number) -> (Vec<Event>, World) {
        let (mut world, mut events) = (self.start.clone(), Vec::new());
        for (print, budget) in self.path(visit) {
            let lived = Event::all(&world, self.decider)
                .into_iter()
                .find_map(|event| {
                    let mut after = world.clone();
                    event.happen(&mut after, self.decider).ok()?;
                    let there =
                        self.budgets.number(after.budget) == budget && self.print(&after) == print;
                    there.then_some((event, after))
                });
            let Some((event, after)) = lived else { break };
            events.push(event);
            world = after;
        }
        (events, world)
    }

    fn print(&self, world: &World) -> Print {
        let mut words = Vec::new();
        self.parts.collapse(&canonical(world), &mut words);
        print(&words)
    }

    fn story(&self, visit: Number, (onward, violation): &BadEnd) -> Story {
        let (mut events, _) = self.live_again(visit);
        events.extend(onward.iter().cloned());
        Story {
            events,
            violation: violation.clone(),
        }
    }
}
