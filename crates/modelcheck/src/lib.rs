//! A bounded model checker for authors of operators: visits every state that a small model can reach, with every fault in
//! every order that the model allows. The rules of the model must hold in each state, and from each state a run without
//! further faults must converge. For tests only.
//!
//! The search is breadth first, so the first trace is a shortest one. No run to convergence is repeated per state: the
//! fault-free successor of a state is itself a visited state. It is recorded, and at the end every chain of successors must
//! end in a good quiescent state; a chain that does not is a cycle.

use std::collections::HashMap;
use std::fmt::{self, Display};
use std::hash::Hash;
use std::rc::Rc;

/// The state of a model, and the events that can happen next.
pub trait Model: Clone + Eq + Hash {
    /// An event.
    type Event: Clone + Display;

    /// Returns the events that happen without a fault, the most urgent first. Empty if the state is quiescent.
    fn enabled(&self) -> Vec<Self::Event>;

    /// Returns the faults that the model still allows.
    fn faults(&self) -> Vec<Self::Event>;

    /// Applies an event. Returns the rule that it violates.
    fn apply(&mut self, event: &Self::Event) -> Result<(), String>;

    /// Checks a quiescent state. Returns its problem.
    fn check_quiescent(&self) -> Result<(), String>;
}

/// The result of a search.
#[derive(Debug)]
pub struct SearchReport<E> {
    /// The number of states.
    pub states: usize,
    /// The number of transitions.
    pub transitions: usize,
    /// The shortest run that violates a rule, if there is one.
    pub counterexample: Option<Trace<E>>,
}

/// A run that violates a rule.
#[derive(Debug)]
pub struct Trace<E> {
    /// The events in their order.
    pub events: Vec<E>,
    /// The violated rule.
    pub violation: String,
}

impl<E: Display> Display for Trace<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, event) in self.events.iter().enumerate() {
            writeln!(f, "{:>3}. {event}", number + 1)?;
        }
        write!(f, "  => {}", self.violation)
    }
}

/// Visits every state that can be reached from `start`.
pub fn explore<M: Model>(start: &M) -> SearchReport<M::Event> {
    let mut search = Search {
        numbers: HashMap::new(),
        visits: Vec::new(),
        transitions: 0,
    };
    search.reach(start.clone(), None);
    let counterexample = search.run();
    SearchReport {
        states: search.visits.len(),
        transitions: search.transitions,
        counterexample,
    }
}

/// The maximum number of events of a cycle that a trace shows.
const MAX_CYCLE_EVENTS: usize = 24;

struct Search<M: Model> {
    numbers: HashMap<Rc<M>, usize>,
    visits: Vec<Visit<M>>,
    transitions: usize,
}

struct Visit<M: Model> {
    state: Rc<M>,
    /// The first predecessor, and the event that led from there.
    from: Option<(usize, M::Event)>,
    /// The fault-free successor; the state itself until it is known, `None` if the state is quiescent and good.
    next: Option<usize>,
}

impl<M: Model> Search<M> {
    fn run(&mut self) -> Option<Trace<M::Event>> {
        let mut at = 0;
        // New states are appended, so the list is also the queue.
        while at < self.visits.len() {
            if let Err((event, violation)) = self.visit(at) {
                return Some(self.trace(at, event, violation));
            }
            at += 1;
        }
        self.find_cycle()
    }

    fn visit(&mut self, at: usize) -> Result<(), (Option<M::Event>, String)> {
        let state = Rc::clone(&self.visits[at].state);
        let mut events = state.enabled();
        let is_quiescent = events.is_empty();
        if is_quiescent {
            state
                .check_quiescent()
                .map_err(|problem| (None, format!("the model is quiescent although {problem}")))?;
            self.visits[at].next = None;
        }
        events.extend(state.faults());
        for (number, event) in events.into_iter().enumerate() {
            self.transitions += 1;
            let mut after = M::clone(&state);
            after
                .apply(&event)
                .map_err(|violation| (Some(event.clone()), violation))?;
            let reached = self.reach(after, Some((at, event)));
            if number == 0 && !is_quiescent {
                self.visits[at].next = Some(reached);
            }
        }
        Ok(())
    }

    fn reach(&mut self, state: M, from: Option<(usize, M::Event)>) -> usize {
        if let Some(known) = self.numbers.get(&state) {
            return *known;
        }
        let (state, number) = (Rc::new(state), self.visits.len());
        self.numbers.insert(Rc::clone(&state), number);
        self.visits.push(Visit {
            state,
            from,
            next: Some(number),
        });
        number
    }

    /// Returns the trace to the first state that never converges.
    fn find_cycle(&self) -> Option<Trace<M::Event>> {
        let mut converges = vec![None; self.visits.len()];
        for start in 0..self.visits.len() {
            let (mut path, mut at) = (Vec::new(), Some(start));
            let result = loop {
                let Some(here) = at else { break true };
                if let Some(known) = converges[here] {
                    break known;
                }
                // A path that returns to this state is a cycle.
                converges[here] = Some(false);
                path.push(here);
                at = self.visits[here].next;
            };
            path.into_iter()
                .for_each(|here| converges[here] = Some(result));
        }
        let first = converges.iter().position(|result| *result == Some(false))?;
        let violation = "the run never converges although no more faults happen".to_owned();
        let mut trace = self.trace(first, None, violation);
        let mut state = M::clone(&self.visits[first].state);
        for _ in 0..MAX_CYCLE_EVENTS {
            let Some(event) = state.enabled().into_iter().next() else {
                break;
            };
            if state.apply(&event).is_err() {
                break;
            }
            trace.events.push(event);
        }
        Some(trace)
    }

    fn trace(&self, at: usize, last: Option<M::Event>, violation: String) -> Trace<M::Event> {
        let mut events: Vec<_> = last.into_iter().collect();
        let mut visit = &self.visits[at];
        while let Some((from, event)) = &visit.from {
            events.push(event.clone());
            visit = &self.visits[*from];
        }
        events.reverse();
        Trace { events, violation }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lift that moves to the floor it is called to; calls are the faults.
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Lift {
        floor: u8,
        called_to: u8,
        remaining_calls: u8,
        /// The floor on which the lift falls.
        broken_floor: u8,
        /// The floor on which the lift never stops.
        unstable_floor: u8,
    }

    impl Model for Lift {
        type Event = String;

        fn enabled(&self) -> Vec<String> {
            let moves = self.floor != self.called_to || self.floor == self.unstable_floor;
            moves.then(|| "move".to_owned()).into_iter().collect()
        }

        fn faults(&self) -> Vec<String> {
            let floors = if self.remaining_calls > 0 { 0..4 } else { 0..0 };
            floors.map(|floor| format!("call {floor}")).collect()
        }

        fn apply(&mut self, event: &String) -> Result<(), String> {
            match event.strip_prefix("call ") {
                Some(floor) => {
                    self.called_to = floor.parse().unwrap();
                    self.remaining_calls -= 1;
                }
                None if self.floor < self.called_to => self.floor += 1,
                None => self.floor = self.floor.saturating_sub(1),
            }
            if self.floor == self.broken_floor {
                Err("the lift falls".to_owned())
            } else {
                Ok(())
            }
        }

        fn check_quiescent(&self) -> Result<(), String> {
            if self.floor == 3 && self.broken_floor == 4 {
                Err("the lift is too high".to_owned())
            } else {
                Ok(())
            }
        }
    }

    const LIFT: Lift = Lift {
        floor: 0,
        called_to: 0,
        remaining_calls: 2,
        broken_floor: 9,
        unstable_floor: 9,
    };

    #[test]
    fn every_reachable_state_is_visited_once() {
        let report = explore(&LIFT);
        assert!(report.counterexample.is_none());
        // Without remaining calls any floor and any target; with one, the way up to a target; the start.
        assert_eq!(report.states, 16 + 10 + 1);
    }

    #[test]
    fn the_shortest_trace_of_a_violation_is_returned() {
        let trace = explore(&Lift {
            broken_floor: 2,
            ..LIFT
        })
        .counterexample
        .unwrap();
        assert_eq!(
            trace.to_string(),
            "  1. call 2\n  2. move\n  3. move\n  => the lift falls"
        );
    }

    #[test]
    fn bad_quiescent_states_and_cycles_are_violations() {
        let trace = explore(&Lift {
            broken_floor: 4,
            ..LIFT
        })
        .counterexample
        .unwrap();
        assert_eq!(
            trace.violation,
            "the model is quiescent although the lift is too high"
        );
        assert_eq!(trace.events.len(), 4);
        let trace = explore(&Lift {
            unstable_floor: 1,
            ..LIFT
        })
        .counterexample
        .unwrap();
        assert!(
            trace.violation.starts_with("the run never converges"),
            "{trace}"
        );
        assert_eq!(trace.events[..2], ["call 1", "move"].map(str::to_owned));
    }
}
