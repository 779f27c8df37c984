//! The exploration of all faults in every order, within limits: the real `decide` and the real members in a small model.
//! No acknowledged write is lost, at most one member accepts writes, no volume of a member is deleted, and the database
//! converges after the faults.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod bugs;
mod event;
mod world;

use evenkeel_modelcheck::{SearchReport, explore};

use bugs::Bug;
use event::Event;
use world::{DbModel, FaultLimits};

const NO_FAULTS: FaultLimits = FaultLimits {
    faults: 0,
    crashes: 0,
    freezes: 0,
    edits: 0,
    writes: 0,
    cuts: 0,
    missed_probes: 0,
};

fn check(name: &str, start: &DbModel) -> SearchReport<Event> {
    let began = std::time::Instant::now();
    let report = explore(start);
    println!(
        "{name}: {} states, {} transitions, {:?}",
        report.states,
        report.transitions,
        began.elapsed()
    );
    if let Some(trace) = &report.counterexample {
        panic!("{name}:\n{trace}");
    }
    report
}

#[test]
fn the_bootstrap_succeeds_despite_faults() {
    let limits = FaultLimits {
        faults: 1,
        crashes: 1,
        writes: 1,
        cuts: 1,
        ..NO_FAULTS
    };
    let start = DbModel::new(2).with(limits);
    assert!(check("bootstrap", &start).states > 1_000);
}

#[test]
fn three_members_survive_two_losses() {
    let limits = FaultLimits {
        faults: 2,
        writes: 2,
        cuts: 1,
        ..NO_FAULTS
    };
    assert!(check("two losses", &DbModel::new(3).settled(limits)).states > 10_000);
}

#[test]
fn the_database_converges_after_a_loss_a_crash_and_an_edit() {
    let limits = FaultLimits {
        faults: 1,
        crashes: 1,
        edits: 1,
        writes: 1,
        ..NO_FAULTS
    };
    for members in 1..=3 {
        check("loss, crash, edit", &DbModel::new(members).settled(limits));
    }
}

#[test]
fn a_missed_probe_and_a_frozen_operator_do_no_harm() {
    let limits = FaultLimits {
        faults: 1,
        freezes: 1,
        missed_probes: 1,
        edits: 1,
        writes: 1,
        ..NO_FAULTS
    };
    for members in 1..=3 {
        check(
            "missed probe, freeze",
            &DbModel::new(members).settled(limits),
        );
    }
}

/// Returns the trace that the explorer finds for a bug.
fn trace_of(bug: Bug, start: DbModel) -> String {
    let trace = explore(&start.with_bug(bug)).counterexample;
    trace
        .unwrap_or_else(|| panic!("{bug:?} is not found"))
        .to_string()
}

#[test]
fn treating_an_unreachable_member_as_lost_is_found() {
    let start = DbModel::new(3).settled(FaultLimits {
        writes: 1,
        missed_probes: 1,
        cuts: 1,
        ..NO_FAULTS
    });
    let trace = trace_of(Bug::UnreachableIsLost, start);
    assert!(
        trace.contains("=> both d-0 and d-1 accept writes"),
        "{trace}"
    );
}

#[test]
fn deleting_the_volume_of_a_listed_member_is_found() {
    let trace = trace_of(
        Bug::VolumeDeletedFirst,
        DbModel::new(3).settled(FaultLimits {
            edits: 1,
            ..NO_FAULTS
        }),
    );
    assert!(
        trace.contains("=> the operator deletes the volume of d-2, which is a member"),
        "{trace}"
    );
}

#[test]
fn deleting_a_joining_member_is_found() {
    let trace = trace_of(Bug::JoiningMemberDeleted, DbModel::new(2));
    assert!(trace.contains("=> the run never converges"), "{trace}");
}

#[test]
fn a_second_bootstrap_after_data_loss_is_found() {
    let start = DbModel::new(1).settled(FaultLimits {
        faults: 1,
        writes: 1,
        ..NO_FAULTS
    });
    let trace = trace_of(Bug::BootstrapsAgain, start);
    assert!(
        trace.contains("=> d-0 serves without write 1, which was acknowledged"),
        "{trace}"
    );
}
