//! All states of one distance from the start, and what can happen next in them.
//!
//! Threads share a layer in two turns. In the first they take states of it, block by block, and live through everything that
//! can happen in each; the set of visited states is only read. In the second each thread adds what was found to its own parts
//! of that set, so that nobody waits for anybody, and what is new is the next layer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::Decider;
use crate::budgets::{Budgets, Set};
use crate::canonical::rename;
use crate::collapse::{Parts, Print, print};
use crate::event::Event;
use crate::kinds::kinds;
use crate::observe::{Sight, observe};
use crate::rest::{BadEnd, Patience};
use crate::visited::{Number, SHARDS, Shard, Visited, shard_of};

/// How many states a thread takes at a time.
const BLOCK: usize = 64;

/// Visits, with the words of their worlds.
#[derive(Debug, Default)]
pub struct Layer {
    visits: Vec<Number>,
    ends: Vec<usize>,
    words: Vec<u32>,
}

impl Layer {
    /// Adds a visit.
    pub fn push(&mut self, visit: Number, words: &[u32]) {
        self.visits.push(visit);
        self.words.extend_from_slice(words);
        self.ends.push(self.words.len());
    }

    /// How many states it has.
    pub fn len(&self) -> usize {
        self.visits.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.visits.is_empty()
    }

    fn get(&self, at: usize) -> (Number, &[u32]) {
        let begin = if at == 0 { 0 } else { self.ends[at - 1] };
        (self.visits[at], &self.words[begin..self.ends[at]])
    }
}

/// What one thread finds in a layer.
#[derive(Debug)]
pub struct Found {
    /// Worlds not visited before this layer, by the part of the set they belong in.
    new: Vec<Reached>,
    /// What follows which state when nothing goes wrong.
    next: Vec<(Number, Number)>,
    /// How many ways from one state to another were tried.
    pub transitions: usize,
    /// What kinds of things were decided, and how often.
    pub decided: BTreeMap<&'static str, usize>,
    /// The first state, by its place in the layer, that comes to a bad end.
    pub bad: Option<(usize, Number, BadEnd)>,
}

/// Worlds that were reached, in no more than their words.
#[derive(Debug, Default)]
struct Reached {
    worlds: Vec<Arrival>,
    ends: Vec<usize>,
    words: Vec<u32>,
}

/// A world that was reached.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    print: Print,
    from: Number,
    /// The number of its budget, and all budgets that it covers.
    budget: u8,
    covers: Set,
    /// The world that it follows when nothing goes wrong.
    follows: Number,
}

/// A thread's place among those that share a layer.
pub struct Explorer<'a> {
    /// Who decides.
    pub decider: &'a dyn Decider,
    /// The budgets that there are.
    pub budgets: Budgets,
    /// The parts that worlds are made of.
    pub parts: &'a Parts,
    /// What was visited before.
    pub visited: &'a Visited,
    /// The layer.
    pub layer: &'a Layer,
    /// The next state that nobody has taken.
    pub taken: &'a AtomicUsize,
    /// A state that comes to a bad end: those behind it need not be looked at.
    pub stop: &'a AtomicUsize,
}

impl Explorer<'_> {
    /// Lives through all that can happen next in every state that this thread gets hold of.
    pub fn run(&self, patience: &mut Patience) -> Found {
        let mut found = Found {
            new: (0..SHARDS).map(|_| Reached::default()).collect(),
            next: Vec::new(),
            transitions: 0,
            decided: BTreeMap::new(),
            bad: None,
        };
        loop {
            let block = self.taken.fetch_add(BLOCK, Ordering::Relaxed);
            if block >= self.layer.len().min(self.stop.load(Ordering::Relaxed)) {
                return found;
            }
            for at in block..self.layer.len().min(block + BLOCK) {
                if let Err(end) = self.visit(at, patience, &mut found) {
                    self.stop.fetch_min(at, Ordering::Relaxed);
                    found.bad = Some((at, self.layer.get(at).0, end));
                    return found;
                }
            }
        }
    }

    fn visit(&self, at: usize, patience: &mut Patience, found: &mut Found) -> Result<(), BadEnd> {
        let (number, words) = self.layer.get(at);
        let visit = self.visited.visit(number);
        let mut world = self.parts.expand(words);
        world.budget = self.budgets.budget(visit.budget);
        let note = |sight, found: &mut Found| {
            for kind in kinds(&self.decider.decide(&observe(&world, sight))) {
                *found.decided.entry(kind).or_default() += 1;
            }
        };
        if world.pending.is_empty() {
            note(Sight::Clear, found);
        }
        let mut events = Event::by_itself(&world, self.decider);
        if events.is_empty() {
            patience.ends_well(&world, self.decider, self.parts)?;
            found.next.push((visit.world, Number::NONE));
        }
        // Kubelets first, then the operator: each gets its turn, since what they do is used up.
        let mut follows = if events.is_empty() {
            Number::NONE
        } else {
            visit.world
        };
        events.extend(Event::wrong(&world, self.decider));
        let mut words = Vec::new();
        for event in events {
            found.transitions += 1;
            if let Event::DecideBlind(sight, _) = event {
                note(sight, found);
            }
            let mut after = world.clone();
            if let Err(violation) = event.happen(&mut after, self.decider) {
                return Err((vec![event], violation));
            }
            rename(&mut after);
            self.parts.collapse(&after, &mut words);
            let (print, budget) = (print(&words), self.budgets.number(after.budget));
            match self.visited.find(print) {
                Some((world, covered)) if covered >> budget & 1 == 1 => {
                    found
                        .next
                        .extend((follows != Number::NONE).then_some((follows, world)));
                }
                _ => {
                    let covers = self.budgets.covered(after.budget);
                    let arrival = Arrival {
                        print,
                        from: number,
                        budget,
                        covers,
                        follows,
                    };
                    found.new[shard_of(print)].push(arrival, &words);
                }
            }
            follows = Number::NONE;
        }
        Ok(())
    }
}

impl Reached {
    fn push(&mut self, arrival: Arrival, words: &[u32]) {
        self.worlds.push(arrival);
        self.words.extend_from_slice(words);
        self.ends.push(self.words.len());
    }
}

/// Adds what all threads found to one part of the set; returns what was new, and what follows which state.
fn add(number: usize, shard: &mut Shard, found: &[Found]) -> (Layer, Vec<(Number, Number)>) {
    let (mut layer, mut next) = (Layer::default(), Vec::new());
    for reached in found.iter().map(|found| &found.new[number]) {
        let mut begin = 0;
        for (arrival, end) in reached.worlds.iter().zip(&reached.ends) {
            let Arrival {
                print,
                from,
                budget,
                covers,
                follows,
            } = *arrival;
            let (world, visit) = shard.reach(print, from, budget, covers);
            visit
                .into_iter()
                .for_each(|visit| layer.push(visit, &reached.words[begin..*end]));
            next.extend((follows != Number::NONE).then_some((follows, world)));
            begin = *end;
        }
    }
    (layer, next)
}

/// Adds what all threads found to the set; returns the next layer.
pub fn add_all(visited: &mut Visited, found: &[Found], threads: usize) -> Layer {
    let share = SHARDS.div_ceil(threads);
    let added: Vec<(Layer, Vec<(Number, Number)>)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .step_by(share)
            .zip(visited.shards.chunks_mut(share))
            .map(|(first, shards)| {
                let add_share = move || {
                    (first..)
                        .zip(shards)
                        .map(|(number, shard)| add(number, shard, found))
                };
                scope.spawn(move || add_share().collect::<Vec<_>>())
            })
            .collect();
        let joined = threads.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        joined.flatten().collect()
    });
    let mut layer = Layer::default();
    layer
        .words
        .reserve(added.iter().map(|(part, _)| part.words.len()).sum());
    for (part, next) in added {
        for at in 0..part.len() {
            let (visit, words) = part.get(at);
            layer.push(visit, words);
        }
        next.into_iter()
            .for_each(|(from, to)| visited.set_next(from, to));
    }
    for (from, to) in found.iter().flat_map(|found| &found.next) {
        visited.set_next(*from, *to);
    }
    layer
}
