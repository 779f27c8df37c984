//! Everything that can go wrong, in every order, within bounds: the real `decide` and the real members in a small world. No
//! acknowledged write is lost, no two members take writes, no volume of a member is deleted, and when the trouble is over
//! all is as it should be.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod bugs;
mod event;
mod world;

use evenkeel_modelcheck::{SearchReport, explore};

use bugs::Bug;
use event::Event;
use world::{Budget, World};

const NOTHING: Budget = Budget {
    faults: 0,
    crashes: 0,
    freezes: 0,
    edits: 0,
    writes: 0,
    cuts: 0,
    blinks: 0,
};

fn holds(name: &str, start: &World) -> SearchReport<Event> {
    let began = std::time::Instant::now();
    let report = explore(start);
    println!(
        "{name}: {} states, {} ways, {:?}",
        report.states,
        report.transitions,
        began.elapsed()
    );
    if let Some(story) = &report.counterexample {
        panic!("{name}:\n{story}");
    }
    report
}

#[test]
fn a_database_is_founded_whatever_happens_meanwhile() {
    let trouble = Budget {
        faults: 1,
        crashes: 1,
        writes: 1,
        cuts: 1,
        ..NOTHING
    };
    let start = World::new(2).with(trouble);
    assert!(holds("founding", &start).states > 1_000);
}

#[test]
fn three_members_survive_two_losses_one_after_the_other_or_both_at_once() {
    let trouble = Budget {
        faults: 2,
        writes: 2,
        cuts: 1,
        ..NOTHING
    };
    assert!(holds("two losses", &World::new(3).settled(trouble)).states > 10_000);
}

#[test]
fn a_loss_a_crash_and_an_edit_in_any_order_end_well() {
    let trouble = Budget {
        faults: 1,
        crashes: 1,
        edits: 1,
        writes: 1,
        ..NOTHING
    };
    for members in 1..=3 {
        holds("loss, crash, edit", &World::new(members).settled(trouble));
    }
}

#[test]
fn a_look_that_misses_somebody_and_an_operator_that_wakes_late_do_no_harm() {
    let trouble = Budget {
        faults: 1,
        freezes: 1,
        blinks: 1,
        edits: 1,
        writes: 1,
        ..NOTHING
    };
    for members in 1..=3 {
        holds("blink, freeze", &World::new(members).settled(trouble));
    }
}

/// What the explorer says of a bug.
fn harm_of(bug: Bug, start: World) -> String {
    let story = explore(&start.with_bug(bug)).counterexample;
    story
        .unwrap_or_else(|| panic!("{bug:?} is not found"))
        .to_string()
}

#[test]
fn taking_silence_for_loss_is_found() {
    let start = World::new(3).settled(Budget {
        writes: 1,
        blinks: 1,
        cuts: 1,
        ..NOTHING
    });
    let story = harm_of(Bug::SilenceIsLoss, start);
    assert!(story.contains("=> both d-0 and d-1 take writes"), "{story}");
}

#[test]
fn deleting_a_volume_before_its_member_has_left_is_found() {
    let story = harm_of(
        Bug::VolumeGoesFirst,
        World::new(3).settled(Budget {
            edits: 1,
            ..NOTHING
        }),
    );
    assert!(
        story.contains("=> the operator deletes the volume of d-2, which is a member"),
        "{story}"
    );
}

#[test]
fn sweeping_away_who_is_on_the_way_in_is_found() {
    let story = harm_of(Bug::SweepsNewcomers, World::new(2));
    assert!(story.contains("=> the run never converges"), "{story}");
}

#[test]
fn founding_anew_over_lost_data_is_found() {
    let start = World::new(1).settled(Budget {
        faults: 1,
        writes: 1,
        ..NOTHING
    });
    let story = harm_of(Bug::FoundsAgain, start);
    assert!(
        story.contains("=> d-0 serves without write 1, which was acknowledged"),
        "{story}"
    );
}
