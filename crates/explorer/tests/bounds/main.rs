//! Every state within these bounds: no rule of the design is broken, and all ways lead to rest.

mod full;

use std::collections::BTreeSet;

use evenkeel_etcd::facts::StorageKind;
use evenkeel_explorer::Real;
use evenkeel_explorer::explore::{Report, explore, settled};
use evenkeel_explorer::kinds::ALL;
use evenkeel_explorer::meddled::Meddled;
use evenkeel_explorer::world::{Budget, World};

const ONE_FAULT: Budget = Budget {
    faults: 1,
    crashes: 0,
    edits: 0,
    delays: 0,
};

fn explored(members: u8, storage: StorageKind, budget: Budget) -> Report {
    explored_with(members, storage, 2, budget)
}

fn explored_with(members: u8, storage: StorageKind, learners: u8, budget: Budget) -> Report {
    reported(&World::new(members, storage, learners, budget))
}

fn reported(world: &World) -> Report {
    let report = explore(world, &Real);
    let (members, storage, budget) = (world.wanted, world.storage, world.budget);
    let meddled = if world.meddles { "meddled with, " } else { "" };
    let owned = if world.owned { "owned, " } else { "" };
    let owned = match (world.rolls, world.moves) {
        (_, true) => "moving, ",
        (true, _) => "rolling, ",
        _ => owned,
    };
    println!(
        "{members} members, {storage:?}, {meddled}{owned}{budget:?}: {} states, {} transitions, {:.1?}",
        report.states, report.transitions, report.took
    );
    let story = report.story.as_ref().map(ToString::to_string);
    assert!(story.is_none(), "\n{}", story.unwrap_or_default());
    report
}

#[test]
fn a_single_member_survives_two_faults_and_a_crash() {
    for storage in [StorageKind::Persistent, StorageKind::Ephemeral] {
        explored(
            1,
            storage,
            Budget {
                faults: 2,
                crashes: 1,
                edits: 0,
                delays: 0,
            },
        );
    }
}

#[test]
fn a_single_member_survives_a_fault_and_an_edit() {
    for storage in [StorageKind::Persistent, StorageKind::Ephemeral] {
        explored(
            1,
            storage,
            Budget {
                faults: 1,
                crashes: 0,
                edits: 1,
                delays: 0,
            },
        );
    }
}

#[test]
fn three_members_survive_a_fault_and_a_crash() {
    for storage in [StorageKind::Persistent, StorageKind::Ephemeral] {
        explored(
            3,
            storage,
            Budget {
                faults: 1,
                crashes: 1,
                edits: 0,
                delays: 0,
            },
        );
    }
}

#[test]
fn three_members_that_take_one_learner_at_a_time_survive_a_fault() {
    // As etcd 3.5 does.
    for storage in [StorageKind::Persistent, StorageKind::Ephemeral] {
        explored_with(
            3,
            storage,
            1,
            Budget {
                faults: 1,
                crashes: 0,
                edits: 0,
                delays: 0,
            },
        );
    }
}

#[test]
fn clusters_survive_the_loss_of_their_identity_and_members_that_somebody_adds() {
    for (members, budget) in [
        (
            1,
            Budget {
                faults: 2,
                ..ONE_FAULT
            },
        ),
        (3, ONE_FAULT),
    ] {
        for storage in [StorageKind::Persistent, StorageKind::Ephemeral] {
            reported(&World::new(members, storage, 2, budget).meddled());
        }
    }
}

/// From a cluster that is there, whose pods are to be built from something else, that or what does not even start.
fn rolled(members: u8, storage: StorageKind, budget: Budget) -> Report {
    reported(&settled(&World::new(members, storage, 2, budget).rolling()))
}

#[test]
fn what_members_are_built_from_is_changed_and_changed_again_or_taken_back() {
    for members in [1, 2] {
        rolled(
            members,
            StorageKind::Persistent,
            Budget {
                faults: 0,
                crashes: 0,
                edits: 2,
                delays: 1,
            },
        );
    }
    rolled(
        3,
        StorageKind::Persistent,
        Budget {
            faults: 0,
            crashes: 0,
            edits: 2,
            delays: 0,
        },
    );
    rolled(
        3,
        StorageKind::Ephemeral,
        Budget {
            faults: 0,
            crashes: 0,
            edits: 1,
            delays: 1,
        },
    );
    rolled(
        5,
        StorageKind::Persistent,
        Budget {
            faults: 0,
            crashes: 0,
            edits: 1,
            delays: 0,
        },
    );
}
