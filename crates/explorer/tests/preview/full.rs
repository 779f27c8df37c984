//! Larger bounds.

use crate::known_differences::{BROKEN_TEMPLATE, WIPED_DISK, check};
use crate::states::{Events, converged_clusters, new_clusters, on_the_way};
use crate::with_events;

#[test]
fn previews_match_the_model_at_every_step_of_a_bootstrap_with_any_event() {
    for members in [3, 5] {
        let states = new_clusters(members).iter().flat_map(on_the_way).collect();
        check(
            with_events(states, Events::All),
            &[BROKEN_TEMPLATE, WIPED_DISK],
        );
    }
}

#[test]
fn previews_match_the_model_after_two_events() {
    let states = converged_clusters(3);
    let states = states.iter().flat_map(|state| state.after(Events::All));
    check(
        with_events(states.collect(), Events::All),
        &[BROKEN_TEMPLATE, WIPED_DISK],
    );
}

#[test]
fn previews_match_the_model_at_every_step_of_an_edit_with_a_fault() {
    let edited = converged_clusters(3);
    let edited = edited.iter().flat_map(|state| state.after(Events::Edits));
    let states = edited.flat_map(|state| on_the_way(&state)).collect();
    check(
        with_events(states, Events::Faults),
        &[BROKEN_TEMPLATE, WIPED_DISK],
    );
}
