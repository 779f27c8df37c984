//! Larger bounds, which `make test-all` explores.

use super::*;

#[test]
fn a_single_member_survives_two_faults_a_crash_and_an_edit() {
    // For three members that takes a quarter of an hour: `make explore`.
    explored(
        1,
        StorageKind::Ephemeral,
        Budget {
            faults: 2,
            crashes: 1,
            edits: 1,
            delays: 0,
        },
    );
}

#[test]
fn a_single_member_survives_two_faults_an_edit_and_a_delay() {
    // A newcomer takes the place of the only voter, and nobody does anything about it for longer than anybody's patience. From a
    // cluster that is there: from nothing that takes five minutes (`make explore`).
    let budget = Budget {
        faults: 2,
        crashes: 0,
        edits: 1,
        delays: 1,
    };
    reported(&settled(&World::new(1, StorageKind::Persistent, 2, budget)));
}

#[test]
fn two_members_survive_two_faults_and_a_crash_and_a_fault_an_edit_and_a_delay() {
    for storage in [StorageKind::Persistent, StorageKind::Ephemeral] {
        explored(
            2,
            storage,
            Budget {
                faults: 2,
                crashes: 1,
                ..ONE_FAULT
            },
        );
        explored(
            2,
            storage,
            Budget {
                edits: 1,
                delays: 1,
                ..ONE_FAULT
            },
        );
    }
}

#[test]
fn five_members_survive_a_fault_and_a_crash() {
    explored(5, StorageKind::Ephemeral, ONE_FAULT);
    explored(
        5,
        StorageKind::Persistent,
        Budget {
            crashes: 1,
            ..ONE_FAULT
        },
    );
}

#[test]
fn three_members_survive_an_edit_and_a_delay() {
    for storage in [StorageKind::Persistent, StorageKind::Ephemeral] {
        explored(
            3,
            storage,
            Budget {
                faults: 0,
                crashes: 0,
                edits: 1,
                delays: 1,
            },
        );
    }
}

#[test]
fn three_members_survive_two_faults() {
    // On volumes, see below.
    explored(
        3,
        StorageKind::Ephemeral,
        Budget {
            faults: 2,
            crashes: 0,
            edits: 0,
            delays: 0,
        },
    );
}

#[test]
fn clusters_that_go_with_their_resource_are_begun_anew_when_all_of_the_former_is_gone() {
    let one = Budget {
        faults: 1,
        crashes: 1,
        edits: 1,
        delays: 0,
    };
    reported(&World::new(1, StorageKind::Persistent, 2, one).owned());
    reported(&World::new(1, StorageKind::Ephemeral, 2, one));
    let three = Budget {
        faults: 0,
        crashes: 1,
        edits: 1,
        delays: 0,
    };
    reported(&World::new(3, StorageKind::Persistent, 2, three).owned());
}

#[test]
fn three_members_are_brought_up_to_date_through_a_fault_and_a_crash() {
    rolled(
        3,
        StorageKind::Persistent,
        Budget {
            faults: 1,
            crashes: 1,
            edits: 1,
            delays: 0,
        },
    );
    rolled(
        3,
        StorageKind::Ephemeral,
        Budget {
            faults: 1,
            crashes: 0,
            edits: 1,
            delays: 0,
        },
    );
}

#[test]
fn members_on_volumes_that_are_to_be_others_are_replaced_one_by_one_through_a_fault_and_a_crash() {
    let moved = |members, budget| {
        reported(&settled(
            &World::new(members, StorageKind::Persistent, 2, budget).moving(),
        ));
    };
    moved(
        1,
        Budget {
            faults: 1,
            crashes: 1,
            edits: 1,
            delays: 0,
        },
    );
    moved(
        3,
        Budget {
            faults: 1,
            crashes: 0,
            edits: 1,
            delays: 0,
        },
    );
    moved(
        3,
        Budget {
            faults: 0,
            crashes: 1,
            edits: 1,
            delays: 0,
        },
    );
    moved(
        1,
        Budget {
            faults: 0,
            crashes: 0,
            edits: 2,
            delays: 1,
        },
    );
}

#[test]
fn a_bootstrap_on_volumes_that_are_to_be_others_begins_again_through_a_fault_and_a_crash() {
    let begun = |members, budget| {
        reported(&World::new(members, StorageKind::Persistent, 2, budget).moving())
    };
    begun(
        1,
        Budget {
            faults: 1,
            crashes: 1,
            edits: 1,
            delays: 0,
        },
    );
    begun(
        3,
        Budget {
            faults: 0,
            crashes: 1,
            edits: 1,
            delays: 0,
        },
    );
    begun(
        1,
        Budget {
            faults: 0,
            crashes: 1,
            edits: 2,
            delays: 0,
        },
    );
    // With a crash that takes two minutes: `make explore`.
    begun(
        1,
        Budget {
            faults: 0,
            crashes: 0,
            edits: 2,
            delays: 1,
        },
    );
}

#[test]
fn one_and_two_members_are_brought_up_to_date_through_faults_and_a_crash() {
    for members in [1, 2] {
        rolled(
            members,
            StorageKind::Persistent,
            Budget {
                faults: 1,
                crashes: 1,
                edits: 1,
                delays: 0,
            },
        );
    }
    rolled(
        1,
        StorageKind::Persistent,
        Budget {
            faults: 2,
            crashes: 0,
            edits: 1,
            delays: 0,
        },
    );
}

/// What is decided when somebody meddles at any state that a fault and an edit lead to.
fn meddled_with() -> BTreeSet<&'static str> {
    let decider = Meddled::default();
    let bounds = [
        (
            1,
            Budget {
                faults: 1,
                crashes: 0,
                edits: 1,
                delays: 0,
            },
        ),
        (
            3,
            Budget {
                faults: 1,
                crashes: 0,
                edits: 0,
                delays: 0,
            },
        ),
    ];
    for ((members, budget), storage) in bounds
        .into_iter()
        .zip([StorageKind::Ephemeral, StorageKind::Persistent])
    {
        let report = explore(&World::new(members, storage, 2, budget), &decider);
        println!(
            "meddled with: {members} members, {storage:?}: {} states, {:.1?}",
            report.states, report.took
        );
        assert!(
            decider.wrong().is_none(),
            "\n{}",
            decider.wrong().unwrap_or_default()
        );
    }
    decider.kinds()
}

#[test]
fn everything_that_can_be_decided_is_decided_somewhere() {
    let bounds = [
        (
            1,
            Budget {
                faults: 1,
                crashes: 0,
                edits: 1,
                delays: 0,
            },
        ),
        (
            3,
            Budget {
                faults: 1,
                crashes: 0,
                edits: 0,
                delays: 1,
            },
        ),
        (
            3,
            Budget {
                faults: 0,
                crashes: 0,
                edits: 1,
                delays: 0,
            },
        ),
        (
            3,
            Budget {
                faults: 2,
                crashes: 0,
                edits: 0,
                delays: 0,
            },
        ),
    ];
    let reports =
        bounds.map(|(members, budget)| explored(members, StorageKind::Persistent, budget));
    let mut decided: BTreeSet<&str> = reports
        .into_iter()
        .flat_map(|report| report.decided.into_keys())
        .collect();
    let stranger = World::new(
        3,
        StorageKind::Persistent,
        2,
        Budget {
            delays: 1,
            ..ONE_FAULT
        },
    )
    .meddled();
    decided.extend(reported(&stranger).decided.into_keys());
    for (members, budget) in [
        (
            1,
            Budget {
                edits: 1,
                ..ONE_FAULT
            },
        ),
        (
            3,
            Budget {
                edits: 1,
                ..ONE_FAULT
            },
        ),
    ] {
        decided.extend(
            rolled(members, StorageKind::Persistent, budget)
                .decided
                .into_keys(),
        );
    }
    decided.extend(meddled_with());
    let moved = Budget {
        faults: 0,
        crashes: 0,
        edits: 2,
        delays: 1,
    };
    let moved = reported(&World::new(1, StorageKind::Persistent, 2, moved).moving());
    decided.extend(moved.decided.into_keys());
    let all: BTreeSet<&str> = ALL.into_iter().collect();
    let missing: Vec<_> = all.difference(&decided).collect();
    assert!(missing.is_empty(), "out of reach: {missing:?}");
    let unforeseen: Vec<_> = decided.difference(&all).collect();
    assert!(
        unforeseen.is_empty(),
        "decided, and not foreseen: {unforeseen:?}"
    );
}
