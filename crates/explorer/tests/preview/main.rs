//! Compares previews with the explorer's model: from the same state, a preview must predict the actions that the operator
//! takes in the model when nothing else fails, and the state in which it becomes idle.
//!
//! A preview simulates on facts, the explorer on a compact model (docs/adr/0017-previews-simulate-facts.md). Both take the
//! operator's decisions from the same `decide`, so that every difference is one between the two simulations.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod comparison;
mod deliberate_bugs;
mod edits;
mod full;
mod known_differences;
#[path = "../leaves/objects.rs"]
#[expect(dead_code, reason = "the leaf walk uses more of it")]
mod objects;
mod run;
mod states;

use crate::known_differences::{BROKEN_TEMPLATE, WIPED_DISK, check};
use crate::states::{Events, State, converged_clusters, new_clusters, on_the_way};

/// Returns the states and those after one more event.
fn with_events(states: Vec<State>, events: Events) -> Vec<State> {
    let after: Vec<_> = states
        .iter()
        .flat_map(|state| state.after(events))
        .collect();
    states.into_iter().chain(after).collect()
}

#[test]
fn previews_match_the_model_after_a_fault_or_an_edit() {
    for members in [1, 2, 3, 5] {
        let mut states = new_clusters(members);
        states.extend(converged_clusters(members));
        let states = with_events(states, Events::All);
        let later: Vec<_> = states.iter().map(State::later).collect();
        check(states.into_iter().chain(later), &[BROKEN_TEMPLATE]);
    }
}

#[test]
fn previews_match_the_model_at_every_step_of_a_bootstrap_with_a_fault() {
    for members in [1, 3] {
        let states = new_clusters(members).iter().flat_map(on_the_way).collect();
        check(with_events(states, Events::Faults), &[WIPED_DISK]);
    }
}

#[test]
fn previews_match_the_model_at_every_step_of_an_edit() {
    let edited = converged_clusters(3);
    let edited = edited.iter().flat_map(|state| state.after(Events::Edits));
    let states: Vec<_> = edited.flat_map(|state| on_the_way(&state)).collect();
    check(states, &[BROKEN_TEMPLATE]);
}
