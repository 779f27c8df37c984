//! A bounded model checker for tests of operators: visits every reachable state of a small model, with faults in every
//! order that the model allows. Invariants must hold in every state, and from every state a run without further faults
//! must end in a valid quiescent state.
//!
//! The search is breadth first, so that the first trace found is a shortest one. Quiescence is not searched from each
//! state: the successor of a state without faults is visited anyway. The search records it, and at the end every chain of
//! such successors must end in a valid quiescent state; a chain that does not is a cycle.

use std::collections::HashMap;
use std::fmt::{self, Display};
use std::hash::Hash;
use std::rc::Rc;

/// A model of an operator and its environment.
pub trait Model: Clone + Eq + Hash {
    /// An event that changes the state.
    type Event: Clone + Display;

    /// Returns the events that happen without faults, in order. Empty in a quiescent state.
    fn enabled(&self) -> Vec<Self::Event>;

    /// Returns the faults that may happen, within the remaining limits.
    fn faults(&self) -> Vec<Self::Event>;

    /// Applies an event. Returns the violated invariant, if any.
    fn apply(&mut self, event: &Self::Event) -> Result<(), String>;

    /// Returns the problem of a quiescent state, if any.
    fn check_quiescent(&self) -> Result<(), String>;
}

/// The result of an exploration.
#[derive(Debug)]
pub struct SearchReport<E> {
    /// The number of states.
    pub states: usize,
    /// The number of transitions.
    pub transitions: usize,
    /// The shortest trace to a violation, if there is one.
    pub trace: Option<Trace<E>>,
}

/// A shortest sequence of events that leads to a violation.
#[derive(Debug)]
pub struct Trace<E> {
    /// The events, in order.
    pub events: Vec<E>,
    /// The violation.
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

/// Visits every state that is reachable from `start`.
pub fn explore<M: Model>(start: &M) -> SearchReport<M::Event> {
    let mut search = Search {
        numbers: HashMap::new(),
        visits: Vec::new(),
        transitions: 0,
    };
    search.reach(start.clone(), None);
    let trace = search.run();
    SearchReport {
        states: search.visits.len(),
        transitions: search.transitions,
        trace,
    }
}

struct Search<M: Model> {
    numbers: HashMap<Rc<M>, usize>,
    visits: Vec<Visit<M>>,
    transitions: usize,
}

struct Visit<M: Model> {
    state: Rc<M>,
    /// The state and the event from which this state was reached first.
    from: Option<(usize, M::Event)>,
    /// The successor without faults; the state itself until it is known, `None` for a valid quiescent state.
    next: Option<usize>,
}

impl<M: Model> Search<M> {
    fn run(&mut self) -> Option<Trace<M::Event>> {
        let mut at = 0;
        // New states are added at the end.
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
                .map_err(|problem| (None, format!("the quiescent state is invalid: {problem}")))?;
            self.visits[at].next = None;
        }
        events.extend(state.faults());
        for (number, event) in events.into_iter().enumerate() {
            self.transitions += 1;
            let mut after = M::clone(&state);
            after
                .apply(&event)
                .map_err(|violation| (Some(event.clone()), violation))?;
            let successor = self.reach(after, Some((at, event)));
            if number == 0 && !is_quiescent {
                self.visits[at].next = Some(successor);
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

    /// Returns the trace to the first state from which no quiescent state is reached.
    fn find_cycle(&self) -> Option<Trace<M::Event>> {
        let mut good = vec![None; self.visits.len()];
        for begin in 0..self.visits.len() {
            let (mut path, mut at) = (Vec::new(), Some(begin));
            let is_good = loop {
                let Some(here) = at else { break true };
                if let Some(known) = good[here] {
                    break known;
                }
                // Not good until proven otherwise: a chain that returns here is a cycle.
                good[here] = Some(false);
                path.push(here);
                at = self.visits[here].next;
            };
            path.into_iter().for_each(|here| good[here] = Some(is_good));
        }
        let first = good.iter().position(|good| *good == Some(false))?;
        let violation = "no quiescent state is reached without further faults".to_owned();
        let mut trace = self.trace(first, None, violation);
        let mut state = M::clone(&self.visits[first].state);
        for _ in 0..CYCLE_EVENTS {
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

/// The number of events of a cycle in its trace.
const CYCLE_EVENTS: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    /// A lift that moves to the floor it is called to. Calls are the faults.
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Lift {
        floor: u8,
        called: u8,
        calls: u8,
        /// The floor with a violated invariant.
        broken: u8,
        /// The floor without a quiescent state.
        restless: u8,
    }

    impl Model for Lift {
        type Event = String;

        fn enabled(&self) -> Vec<String> {
            let moves = self.floor != self.called || self.floor == self.restless;
            moves.then(|| "move".to_owned()).into_iter().collect()
        }

        fn faults(&self) -> Vec<String> {
            let floors = if self.calls > 0 { 0..4 } else { 0..0 };
            floors.map(|floor| format!("call {floor}")).collect()
        }

        fn apply(&mut self, event: &String) -> Result<(), String> {
            match event.strip_prefix("call ") {
                Some(floor) => {
                    self.called = floor.parse().unwrap();
                    self.calls -= 1;
                }
                None if self.floor < self.called => self.floor += 1,
                None => self.floor = self.floor.saturating_sub(1),
            }
            if self.floor == self.broken {
                Err("the lift falls".to_owned())
            } else {
                Ok(())
            }
        }

        fn check_quiescent(&self) -> Result<(), String> {
            if self.floor == 3 && self.broken == 4 {
                Err("the lift is too high".to_owned())
            } else {
                Ok(())
            }
        }
    }

    const LIFT: Lift = Lift {
        floor: 0,
        called: 0,
        calls: 2,
        broken: 9,
        restless: 9,
    };

    #[test]
    fn every_reachable_state_is_visited_once() {
        let report = explore(&LIFT);
        assert!(report.trace.is_none());
        // No calls left: any floor and any goal. One left: the way up to a goal. And the start.
        assert_eq!(report.states, 16 + 10 + 1);
    }

    #[test]
    fn the_shortest_trace_to_a_violation_is_reported() {
        let trace = explore(&Lift { broken: 2, ..LIFT }).trace.unwrap();
        assert_eq!(
            trace.to_string(),
            "  1. call 2\n  2. move\n  3. move\n  => the lift falls"
        );
    }

    #[test]
    fn invalid_quiescence_and_cycles_are_reported() {
        let trace = explore(&Lift { broken: 4, ..LIFT }).trace.unwrap();
        assert_eq!(
            trace.violation,
            "the quiescent state is invalid: the lift is too high"
        );
        assert_eq!(trace.events.len(), 4);
        let trace = explore(&Lift {
            restless: 1,
            ..LIFT
        })
        .trace
        .unwrap();
        assert!(trace.violation.starts_with("no quiescent state"), "{trace}");
        assert_eq!(trace.events[..2], ["call 1", "move"].map(str::to_owned));
    }
}
