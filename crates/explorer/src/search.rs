//! The search: visits every state that is reachable within a fault budget, checks the rules of the design in each,
//! and checks that a run without further faults converges from each.
//!
//! The search is breadth first, layer by layer, so the first counterexample is a shortest one. These reductions make
//! millions of states affordable, and each is sound:
//! - A visited state is stored as a 128-bit fingerprint of its canonical form, and the states of a layer in
//!   compressed form ([`compress`]).
//! - A state is explored under its canonical names. Renaming does not change the possible events, so no run is lost.
//!   Traces are printed under the names of a replayed run.
//! - No run to convergence is repeated per state: the fault-free successor of a state is itself a visited state.
//!   Its id is recorded, and at the end every chain of successors must end in a good quiescent state. A chain that
//!   does not is a cycle.
//! - In a quiescent state only time can change anything. The consequences of passing time are explored at once
//!   ([`quiescence`]), whatever the budget.
//!
//! [`compress`]: crate::compress
//! [`quiescence`]: crate::quiescence

use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use evenkeel_modelcheck::Trace;

use crate::canonical::canonical;
use crate::compress::{Fingerprint, PartTables, fingerprint};
use crate::event::ModelEvent;
use crate::fault_budget::BudgetIndex;
use crate::layer::{Layer, LayerResult, LayerWorker, add_to_visited};
use crate::model::ClusterModel;
use crate::prune::prune_writes;
use crate::quiescence::{BadRun, QuiescenceChecker, no_convergence};
use crate::visited::{EntryId, Visited, shard_of};
use crate::{Decider, RealDecider};

/// The result of an exploration.
#[derive(Debug)]
pub struct ExplorerReport {
    /// The number of configurations: states without their fault budget.
    pub configurations: usize,
    /// The number of visited states: configurations, each with the largest budgets that it can be reached with.
    pub states: usize,
    /// The number of transitions.
    pub transitions: usize,
    /// The number of layers: the length of the longest shortest run.
    pub layers: usize,
    /// The elapsed time.
    pub elapsed: Duration,
    /// The number of decisions by kind of action.
    pub decided: BTreeMap<&'static str, usize>,
    /// The shortest run that violates a rule, if there is one.
    pub counterexample: Option<Trace<ModelEvent>>,
}

/// Explores with one thread.
pub fn explore(start: &ClusterModel, decider: &dyn Decider) -> ExplorerReport {
    explore_with_progress(start, decider, 1, &mut |_, _, _| {})
}

/// Explores with several threads. After each layer calls `progress` with the number of layers, the size of the next
/// layer and the number of visited states.
pub fn explore_with_progress(
    start: &ClusterModel,
    decider: &dyn Decider,
    threads: usize,
    progress: &mut dyn FnMut(usize, usize, usize),
) -> ExplorerReport {
    let began = Instant::now();
    // Larger budgets are out of reach anyway.
    let budgets = BudgetIndex::up_to(start.budget)
        .unwrap_or_else(|| unreachable!("a budget of {:?}", start.budget));
    let mut search = Search {
        start,
        decider,
        budgets,
        parts: PartTables::new(start),
        visited: Visited::default(),
        decided: BTreeMap::new(),
        transitions: 0,
        layers: 0,
    };
    let counterexample = search.run(threads.max(1), progress);
    ExplorerReport {
        configurations: search.visited.configurations(),
        states: search.visited.visits(),
        transitions: search.transitions,
        layers: search.layers,
        elapsed: began.elapsed(),
        decided: search.decided,
        counterexample,
    }
}

/// Returns the state after all fault-free events: a converged cluster.
pub fn run_to_quiescence(model: &ClusterModel) -> ClusterModel {
    let mut model = model.clone();
    while let Some(event) = ModelEvent::enabled(&model, &RealDecider).into_iter().next() {
        if event.apply(&mut model, &RealDecider).is_err() {
            break;
        }
    }
    model
}

/// The maximum number of events of a cycle that a counterexample shows.
const MAX_CYCLE_EVENTS: usize = 24;

struct Search<'a> {
    start: &'a ClusterModel,
    decider: &'a dyn Decider,
    budgets: BudgetIndex,
    parts: PartTables,
    visited: Visited,
    decided: BTreeMap<&'static str, usize>,
    transitions: usize,
    layers: usize,
}

impl Search<'_> {
    fn run(
        &mut self,
        threads: usize,
        progress: &mut dyn FnMut(usize, usize, usize),
    ) -> Option<Trace<ModelEvent>> {
        let mut words = Vec::new();
        self.parts.compress(&canonical(self.start), &mut words);
        let fingerprint = fingerprint(&words);
        let (budget, covered) = (
            self.budgets.number(self.start.budget),
            self.budgets.covered_by(self.start.budget),
        );
        let (_, visit) = self.visited.shards[shard_of(fingerprint)].reach(
            fingerprint,
            EntryId::NONE,
            budget,
            covered,
        );
        let mut layer = Layer::default();
        visit
            .into_iter()
            .for_each(|visit| layer.push(visit, &words));
        let mut checkers: Vec<QuiescenceChecker> =
            (0..threads).map(|_| QuiescenceChecker::default()).collect();
        while !layer.is_empty() {
            let results = self.expand_layer(&layer, &mut checkers);
            self.layers += 1;
            for result in &results {
                self.transitions += result.transitions;
                for (kind, times) in &result.decided {
                    *self.decided.entry(kind).or_default() += times;
                }
            }
            let bad = results
                .iter()
                .filter_map(|result| result.bad_run.as_ref())
                .min_by_key(|(at, ..)| *at);
            if let Some((_, visit, end)) = bad {
                return Some(self.counterexample(*visit, end));
            }
            layer = add_to_visited(&mut self.visited, &results, threads);
            progress(self.layers, layer.len(), self.visited.visits());
        }
        self.find_cycle()
            .map(|(visit, end)| self.counterexample(visit, &end))
    }

    fn expand_layer(&self, layer: &Layer, checkers: &mut [QuiescenceChecker]) -> Vec<LayerResult> {
        let (next, stop_before) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
        let worker = LayerWorker {
            decider: self.decider,
            budgets: self.budgets,
            parts: &self.parts,
            visited: &self.visited,
            layer,
            next: &next,
            stop_before: &stop_before,
        };
        let worker = &worker;
        std::thread::scope(|scope| {
            let threads: Vec<_> = checkers
                .iter_mut()
                .map(|checker| scope.spawn(move || worker.run(checker)))
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

    /// Returns the first visit of a state that never converges, and some of the events that follow.
    fn find_cycle(&self) -> Option<(EntryId, BadRun)> {
        let mut converging = self.visited.empty_set();
        let mut seen = self.visited.empty_set();
        for configuration in self.visited.all_configurations() {
            let (mut path, mut at) = (Vec::new(), configuration);
            while at != EntryId::NONE && !seen.contains(at) {
                seen.insert(at);
                path.push(at);
                at = self.visited.next(at);
            }
            if at == EntryId::NONE || converging.contains(at) {
                path.into_iter()
                    .for_each(|passed| converging.insert(passed));
            }
        }
        let diverges =
            |visit: &EntryId| !converging.contains(self.visited.visit(*visit).configuration);
        let visits = self.visited.all_visits().filter(diverges);
        let first = visits.min_by_key(|visit| self.path(*visit).len())?;
        let mut model = self.replay(first).1;
        let mut onward = Vec::new();
        while onward.len() < MAX_CYCLE_EVENTS {
            let Some(event) = ModelEvent::enabled(&model, self.decider).into_iter().next() else {
                break;
            };
            let end = event.apply(&mut model, self.decider);
            onward.push(event);
            if end.is_err() {
                break;
            }
        }
        Some((first, (onward, no_convergence())))
    }

    /// Returns the states on the way to a visit, without the start, with their budgets.
    fn path(&self, visit: EntryId) -> Vec<(Fingerprint, u8)> {
        let mut path = Vec::new();
        let mut at = self.visited.visit(visit);
        while at.from != EntryId::NONE {
            path.push((self.visited.fingerprint(at.configuration), at.budget));
            at = self.visited.visit(at.from);
        }
        path.reverse();
        path
    }

    /// Replays the run that leads to a visit. Returns its events and its final state.
    fn replay(&self, visit: EntryId) -> (Vec<ModelEvent>, ClusterModel) {
        let (mut model, mut events) = (self.start.clone(), Vec::new());
        for (fingerprint, budget) in self.path(visit) {
            let step = ModelEvent::all(&model, self.decider)
                .into_iter()
                .find_map(|event| {
                    let mut after = model.clone();
                    event.apply(&mut after, self.decider).ok()?;
                    // The search drops such writes as well; without them another event may follow.
                    prune_writes(&mut after);
                    let is_next = self.budgets.number(after.budget) == budget
                        && self.fingerprint(&after) == fingerprint;
                    is_next.then_some((event, after))
                });
            let Some((event, after)) = step else { break };
            events.push(event);
            model = after;
        }
        (events, model)
    }

    fn fingerprint(&self, model: &ClusterModel) -> Fingerprint {
        let mut words = Vec::new();
        self.parts.compress(&canonical(model), &mut words);
        fingerprint(&words)
    }

    fn counterexample(&self, visit: EntryId, (onward, violation): &BadRun) -> Trace<ModelEvent> {
        let (mut events, _) = self.replay(visit);
        events.extend(onward.iter().cloned());
        Trace {
            events,
            violation: violation.0.clone(),
        }
    }
}
