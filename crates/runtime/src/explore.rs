//! An explorer for authors of operators: every state that a small world can come to, with everything going wrong in every
//! order that the world allows. In each its rules hold, and from each a run in which nothing more goes wrong comes to a good
//! rest. For tests.
//!
//! The search is breadth first, so that the first story found is a shortest one. That every state comes to rest is not tried
//! anew from each: what follows a state when nothing goes wrong is one of the states that are visited anyway. It is noted,
//! and in the end every chain of such followers must end in a good rest; one that does not is a circle.

use std::collections::HashMap;
use std::fmt::{self, Display};
use std::hash::Hash;
use std::rc::Rc;

/// A world in which a decision is explored: what there is, and what can happen next.
pub trait Model: Clone + Eq + Hash {
    /// Something that happens.
    type Event: Clone + Display;

    /// What happens by itself when nothing goes wrong, the first first. Nothing when all is at rest.
    fn enabled(&self) -> Vec<Self::Event>;

    /// What may go wrong, as far as there is a budget for it left.
    fn faults(&self) -> Vec<Self::Event>;

    /// Has something happen; says which rule is broken by that.
    fn apply(&mut self, event: &Self::Event) -> Result<(), String>;

    /// Says what is amiss in a world in which nothing happens by itself any more.
    fn check_quiescent(&self) -> Result<(), String>;
}

/// What an exploration found.
#[derive(Debug)]
pub struct SearchReport<E> {
    /// How many states there are.
    pub states: usize,
    /// How many ways lead from one to another.
    pub transitions: usize,
    /// How a rule came to be broken, if one was.
    pub story: Option<Trace<E>>,
}

/// How a rule came to be broken, in as few events as possible.
#[derive(Debug)]
pub struct Trace<E> {
    /// What happened, in order.
    pub events: Vec<E>,
    /// The rule.
    pub broken: String,
}

impl<E: Display> Display for Trace<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, event) in self.events.iter().enumerate() {
            writeln!(f, "{:>3}. {event}", number + 1)?;
        }
        write!(f, "  => {}", self.broken)
    }
}

/// Visits every state that can be reached from here.
pub fn explore<W: Model>(start: &W) -> SearchReport<W::Event> {
    let mut search = Search {
        numbers: HashMap::new(),
        visits: Vec::new(),
        transitions: 0,
    };
    search.reach(start.clone(), None);
    let story = search.run();
    SearchReport {
        states: search.visits.len(),
        transitions: search.transitions,
        story,
    }
}

struct Search<W: Model> {
    numbers: HashMap<Rc<W>, usize>,
    visits: Vec<Visit<W>>,
    transitions: usize,
}

struct Visit<W: Model> {
    world: Rc<W>,
    /// From where it was reached first, and by what.
    from: Option<(usize, W::Event)>,
    /// What follows when nothing goes wrong; itself until that is known, nothing at a good rest.
    next: Option<usize>,
}

impl<W: Model> Search<W> {
    fn run(&mut self) -> Option<Trace<W::Event>> {
        let mut at = 0;
        // Whoever is reached is added at the end.
        while at < self.visits.len() {
            if let Err((event, broken)) = self.visit(at) {
                return Some(self.story(at, event, broken));
            }
            at += 1;
        }
        self.circle()
    }

    fn visit(&mut self, at: usize) -> Result<(), (Option<W::Event>, String)> {
        let world = Rc::clone(&self.visits[at].world);
        let mut events = world.enabled();
        let rests = events.is_empty();
        if rests {
            world
                .check_quiescent()
                .map_err(|amiss| (None, format!("it comes to rest although {amiss}")))?;
            self.visits[at].next = None;
        }
        events.extend(world.faults());
        for (number, event) in events.into_iter().enumerate() {
            self.transitions += 1;
            let mut after = W::clone(&world);
            after
                .apply(&event)
                .map_err(|broken| (Some(event.clone()), broken))?;
            let there = self.reach(after, Some((at, event)));
            if number == 0 && !rests {
                self.visits[at].next = Some(there);
            }
        }
        Ok(())
    }

    fn reach(&mut self, world: W, from: Option<(usize, W::Event)>) -> usize {
        if let Some(known) = self.numbers.get(&world) {
            return *known;
        }
        let (world, number) = (Rc::new(world), self.visits.len());
        self.numbers.insert(Rc::clone(&world), number);
        self.visits.push(Visit {
            world,
            from,
            next: Some(number),
        });
        number
    }

    /// The story of the first state from which nothing ever comes to rest.
    fn circle(&self) -> Option<Trace<W::Event>> {
        let mut good = vec![None; self.visits.len()];
        for begin in 0..self.visits.len() {
            let (mut path, mut at) = (Vec::new(), Some(begin));
            let ends_well = loop {
                let Some(here) = at else { break true };
                if let Some(known) = good[here] {
                    break known;
                }
                // Not good as long as nothing else is known: whoever comes here again has gone in a circle.
                good[here] = Some(false);
                path.push(here);
                at = self.visits[here].next;
            };
            path.into_iter()
                .for_each(|here| good[here] = Some(ends_well));
        }
        let first = good.iter().position(|good| *good == Some(false))?;
        let broken = "it never comes to rest, although nothing goes wrong any more".to_owned();
        let mut story = self.story(first, None, broken);
        let mut world = W::clone(&self.visits[first].world);
        for _ in 0..ONWARD {
            let Some(event) = world.enabled().into_iter().next() else {
                break;
            };
            if world.apply(&event).is_err() {
                break;
            }
            story.events.push(event);
        }
        Some(story)
    }

    fn story(&self, at: usize, last: Option<W::Event>, broken: String) -> Trace<W::Event> {
        let mut events: Vec<_> = last.into_iter().collect();
        let mut visit = &self.visits[at];
        while let Some((from, event)) = &visit.from {
            events.push(event.clone());
            visit = &self.visits[*from];
        }
        events.reverse();
        Trace { events, broken }
    }
}

/// How much of a circle is told.
const ONWARD: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    /// A lift that goes to the floor it is called to; calls are what goes wrong.
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Lift {
        floor: u8,
        called: u8,
        calls: u8,
        /// From which floor it falls down.
        rotten: u8,
        /// Which floor it can never rest at.
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
            if self.floor == self.rotten {
                Err("it falls".to_owned())
            } else {
                Ok(())
            }
        }

        fn check_quiescent(&self) -> Result<(), String> {
            if self.floor == 3 && self.rotten == 4 {
                Err("it is too high".to_owned())
            } else {
                Ok(())
            }
        }
    }

    const LIFT: Lift = Lift {
        floor: 0,
        called: 0,
        calls: 2,
        rotten: 9,
        restless: 9,
    };

    #[test]
    fn all_that_can_be_reached_is_visited_once() {
        let report = explore(&LIFT);
        assert!(report.story.is_none());
        // Without calls left any floor and any goal; with one left, the way up to a goal; the start.
        assert_eq!(report.states, 16 + 10 + 1);
    }

    #[test]
    fn the_shortest_story_of_a_broken_rule_is_told() {
        let story = explore(&Lift { rotten: 2, ..LIFT }).story.unwrap();
        assert_eq!(
            story.to_string(),
            "  1. call 2\n  2. move\n  3. move\n  => it falls"
        );
    }

    #[test]
    fn a_bad_rest_is_told_and_so_is_a_world_that_never_rests() {
        let story = explore(&Lift { rotten: 4, ..LIFT }).story.unwrap();
        assert_eq!(story.broken, "it comes to rest although it is too high");
        assert_eq!(story.events.len(), 4);
        let story = explore(&Lift {
            restless: 1,
            ..LIFT
        })
        .story
        .unwrap();
        assert!(
            story.broken.starts_with("it never comes to rest"),
            "{story}"
        );
        assert_eq!(story.events[..2], ["call 1", "move"].map(str::to_owned));
    }
}
