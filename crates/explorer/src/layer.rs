//! One layer of the search: all states at the same distance from the start, and their successors.
//!
//! Threads process a layer in two phases. In the first phase they take blocks of states and apply every possible
//! event; the visited set is only read. In the second phase each thread adds the results to its own shards of the
//! visited set, so no thread waits for another. New states form the next layer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::Decider;
use crate::action_kinds::action_kinds;
use crate::canonical::canonicalize;
use crate::compress::{Fingerprint, PartTables, fingerprint};
use crate::event::ModelEvent;
use crate::fault_budget::{BudgetIndex, BudgetSet};
use crate::observe::{Visibility, observe};
use crate::quiescence::{BadRun, QuiescenceChecker};
use crate::visited::{EntryId, SHARDS, Shard, Visited, shard_of};

/// The number of states that a thread takes at a time.
const BLOCK_SIZE: usize = 64;

/// Visits with their encoded states.
#[derive(Debug, Default)]
pub struct Layer {
    visits: Vec<EntryId>,
    ends: Vec<usize>,
    words: Vec<u32>,
}

impl Layer {
    /// Adds a visit.
    pub fn push(&mut self, visit: EntryId, words: &[u32]) {
        self.visits.push(visit);
        self.words.extend_from_slice(words);
        self.ends.push(self.words.len());
    }

    /// Returns the number of states.
    pub fn len(&self) -> usize {
        self.visits.len()
    }

    /// Returns true if the layer has no states.
    pub fn is_empty(&self) -> bool {
        self.visits.is_empty()
    }

    fn get(&self, at: usize) -> (EntryId, &[u32]) {
        let begin = if at == 0 { 0 } else { self.ends[at - 1] };
        (self.visits[at], &self.words[begin..self.ends[at]])
    }
}

/// The results of one thread for a layer.
#[derive(Debug)]
pub struct LayerResult {
    /// States not visited before this layer, by shard.
    arrivals: Vec<Arrivals>,
    /// Pairs of a state and its successor without faults.
    successors: Vec<(EntryId, EntryId)>,
    /// The number of transitions.
    pub transitions: usize,
    /// The number of decisions by kind of action.
    pub decided: BTreeMap<&'static str, usize>,
    /// The first bad run, with the position of its state in the layer.
    pub bad_run: Option<(usize, EntryId, BadRun)>,
}

/// Reached states in encoded form.
#[derive(Debug, Default)]
struct Arrivals {
    arrivals: Vec<Arrival>,
    ends: Vec<usize>,
    words: Vec<u32>,
}

/// One reached state.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    fingerprint: Fingerprint,
    from: EntryId,
    /// The number of the fault budget, and all budgets that it covers.
    budget: u8,
    covered: BudgetSet,
    /// The state whose fault-free successor this state is.
    predecessor: EntryId,
}

/// A worker thread of a layer.
pub struct LayerWorker<'a> {
    /// The decision function.
    pub decider: &'a dyn Decider,
    /// All fault budgets.
    pub budgets: BudgetIndex,
    /// The parts of encoded states.
    pub parts: &'a PartTables,
    /// The states visited in earlier layers.
    pub visited: &'a Visited,
    /// The layer.
    pub layer: &'a Layer,
    /// The position of the next state that no thread has taken.
    pub next: &'a AtomicUsize,
    /// The position of a state with a bad run; later states need not be explored.
    pub stop_before: &'a AtomicUsize,
}

impl LayerWorker<'_> {
    /// Applies every possible event to every state that this thread takes.
    pub fn run(&self, checker: &mut QuiescenceChecker) -> LayerResult {
        let mut result = LayerResult {
            arrivals: (0..SHARDS).map(|_| Arrivals::default()).collect(),
            successors: Vec::new(),
            transitions: 0,
            decided: BTreeMap::new(),
            bad_run: None,
        };
        loop {
            let block = self.next.fetch_add(BLOCK_SIZE, Ordering::Relaxed);
            if block
                >= self
                    .layer
                    .len()
                    .min(self.stop_before.load(Ordering::Relaxed))
            {
                return result;
            }
            for at in block..self.layer.len().min(block + BLOCK_SIZE) {
                if let Err(end) = self.visit(at, checker, &mut result) {
                    self.stop_before.fetch_min(at, Ordering::Relaxed);
                    result.bad_run = Some((at, self.layer.get(at).0, end));
                    return result;
                }
            }
        }
    }

    fn visit(
        &self,
        at: usize,
        checker: &mut QuiescenceChecker,
        result: &mut LayerResult,
    ) -> Result<(), BadRun> {
        let (number, words) = self.layer.get(at);
        let visit = self.visited.visit(number);
        let mut model = self.parts.expand(words);
        model.budget = self.budgets.budget(visit.budget);
        let count_actions = |visibility, result: &mut LayerResult| {
            for kind in action_kinds(&self.decider.decide(&observe(&model, visibility))) {
                *result.decided.entry(kind).or_default() += 1;
            }
        };
        if model.pending_writes.is_empty() {
            count_actions(Visibility::Full, result);
        }
        let mut events = ModelEvent::enabled(&model, self.decider);
        if events.is_empty() {
            checker.check(&model, self.decider, self.parts)?;
            result.successors.push((visit.configuration, EntryId::NONE));
        }
        // The first event is the fault-free successor: events of kubelets before those of the
        // operator. Both are applied eventually, because an event disables itself.
        let mut predecessor = if events.is_empty() {
            EntryId::NONE
        } else {
            visit.configuration
        };
        events.extend(ModelEvent::faults(&model, self.decider));
        let mut words = Vec::new();
        for event in events {
            result.transitions += 1;
            if let ModelEvent::DecideWithout(visibility, _) = event {
                count_actions(visibility, result);
            }
            let mut after = model.clone();
            if let Err(violation) = event.apply(&mut after, self.decider) {
                return Err((vec![event], violation));
            }
            canonicalize(&mut after);
            self.parts.compress(&after, &mut words);
            let (fingerprint, budget) = (fingerprint(&words), self.budgets.number(after.budget));
            match self.visited.find(fingerprint) {
                Some((configuration, covered)) if covered >> budget & 1 == 1 => {
                    result.successors.extend(
                        (predecessor != EntryId::NONE).then_some((predecessor, configuration)),
                    );
                }
                _ => {
                    let covered = self.budgets.covered_by(after.budget);
                    let arrival = Arrival {
                        fingerprint,
                        from: number,
                        budget,
                        covered,
                        predecessor,
                    };
                    result.arrivals[shard_of(fingerprint)].push(arrival, &words);
                }
            }
            predecessor = EntryId::NONE;
        }
        Ok(())
    }
}

impl Arrivals {
    fn push(&mut self, arrival: Arrival, words: &[u32]) {
        self.arrivals.push(arrival);
        self.words.extend_from_slice(words);
        self.ends.push(self.words.len());
    }
}

/// Adds the results of all threads to one shard. Returns the new visits and the fault-free successors.
fn add_to_shard(
    number: usize,
    shard: &mut Shard,
    result: &[LayerResult],
) -> (Layer, Vec<(EntryId, EntryId)>) {
    let (mut layer, mut next) = (Layer::default(), Vec::new());
    for reached in result.iter().map(|result| &result.arrivals[number]) {
        let mut begin = 0;
        for (arrival, end) in reached.arrivals.iter().zip(&reached.ends) {
            let Arrival {
                fingerprint,
                from,
                budget,
                covered,
                predecessor,
            } = *arrival;
            let (configuration, visit) = shard.reach(fingerprint, from, budget, covered);
            visit
                .into_iter()
                .for_each(|visit| layer.push(visit, &reached.words[begin..*end]));
            next.extend((predecessor != EntryId::NONE).then_some((predecessor, configuration)));
            begin = *end;
        }
    }
    (layer, next)
}

/// Adds the results of all threads to the visited set. Returns the next layer.
pub fn add_to_visited(visited: &mut Visited, result: &[LayerResult], threads: usize) -> Layer {
    let share = SHARDS.div_ceil(threads);
    let added: Vec<(Layer, Vec<(EntryId, EntryId)>)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .step_by(share)
            .zip(visited.shards.chunks_mut(share))
            .map(|(first, shards)| {
                let add_share = move || {
                    (first..)
                        .zip(shards)
                        .map(|(number, shard)| add_to_shard(number, shard, result))
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
    for (from, to) in result.iter().flat_map(|result| &result.successors) {
        visited.set_next(*from, *to);
    }
    layer
}
