//! Larger bounds, which `make test-all` explores.

use super::*;

#[test]
fn a_single_member_survives_two_faults_a_crash_and_an_edit() {
    // For three members this takes 15 minutes: `make explore`.
    explore_from_start(
        1,
        StorageKind::Ephemeral,
        FaultBudget {
            faults: 2,
            crashes: 1,
            edits: 1,
            delays: 0,
        },
    );
}

#[test]
fn a_single_member_survives_two_faults_an_edit_and_a_delay() {
    // A new member takes the node of the only voter, and all timeouts expire meanwhile. Starts from a converged
    // cluster; from an empty one this takes five minutes (`make explore`).
    let budget = FaultBudget {
        faults: 2,
        crashes: 0,
        edits: 1,
        delays: 1,
    };
    explore_and_check(&run_to_quiescence(&ClusterModel::new(
        1,
        StorageKind::Persistent,
        2,
        budget,
    )));
}

#[test]
fn two_members_survive_two_faults_and_a_crash_or_an_edit_and_a_delay() {
    for storage in [StorageKind::Persistent, StorageKind::Ephemeral] {
        explore_from_start(
            2,
            storage,
            FaultBudget {
                faults: 2,
                crashes: 1,
                ..ONE_FAULT
            },
        );
        explore_from_start(
            2,
            storage,
            FaultBudget {
                edits: 1,
                delays: 1,
                ..ONE_FAULT
            },
        );
    }
}

#[test]
fn restored_members_survive_faults_crashes_edits_and_delays() {
    let budget = |faults, crashes, edits, delays| FaultBudget {
        faults,
        crashes,
        edits,
        delays,
    };
    explore_restore(1, budget(2, 1, 0, 0));
    explore_restore(1, budget(1, 1, 1, 0));
    explore_restore(1, budget(1, 0, 2, 0));
    explore_restore(1, budget(1, 1, 0, 1));
    explore_restore(3, budget(1, 1, 0, 0));
    explore_restore(3, budget(0, 0, 1, 1));
    let model = ClusterModel::new(1, StorageKind::Persistent, 2, budget(2, 0, 0, 0));
    explore_and_check(&model.with_restore().with_tampering());
    let model = ClusterModel::new(1, StorageKind::Persistent, 2, budget(1, 0, 2, 0));
    explore_and_check(&model.with_restore().with_volume_edits());
}

#[test]
fn in_place_restores_survive_faults_crashes_and_edits() {
    let budget = |faults, crashes, edits, delays| FaultBudget {
        faults,
        crashes,
        edits,
        delays,
    };
    explore_in_place_restore(1, budget(0, 0, 3, 0));
    explore_in_place_restore(1, budget(1, 0, 2, 0));
    explore_in_place_restore(1, budget(2, 0, 1, 0));
    explore_in_place_restore(1, budget(0, 1, 2, 0));
    explore_in_place_restore(3, budget(1, 0, 1, 0));
    explore_in_place_restore(3, budget(0, 1, 1, 0));
}

#[test]
fn five_members_survive_a_fault_and_a_crash() {
    explore_from_start(5, StorageKind::Ephemeral, ONE_FAULT);
    explore_from_start(
        5,
        StorageKind::Persistent,
        FaultBudget {
            crashes: 1,
            ..ONE_FAULT
        },
    );
}

#[test]
fn three_members_survive_an_edit_and_a_delay() {
    for storage in [StorageKind::Persistent, StorageKind::Ephemeral] {
        explore_from_start(
            3,
            storage,
            FaultBudget {
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
    // On volumes: see `every_kind_of_action_is_decided_somewhere`.
    explore_from_start(
        3,
        StorageKind::Ephemeral,
        FaultBudget {
            faults: 2,
            crashes: 0,
            edits: 0,
            delays: 0,
        },
    );
}

#[test]
fn an_owned_cluster_is_bootstrapped_anew_after_its_old_objects_are_deleted() {
    let one = FaultBudget {
        faults: 1,
        crashes: 1,
        edits: 1,
        delays: 0,
    };
    explore_and_check(&ClusterModel::new(1, StorageKind::Persistent, 2, one).with_owned_data());
    explore_and_check(&ClusterModel::new(1, StorageKind::Ephemeral, 2, one));
    let three = FaultBudget {
        faults: 0,
        crashes: 1,
        edits: 1,
        delays: 0,
    };
    explore_and_check(&ClusterModel::new(3, StorageKind::Persistent, 2, three).with_owned_data());
}

#[test]
fn three_members_are_rolled_out_through_a_fault_and_a_crash() {
    explore_rollout(
        3,
        StorageKind::Persistent,
        FaultBudget {
            faults: 1,
            crashes: 1,
            edits: 1,
            delays: 0,
        },
    );
    explore_rollout(
        3,
        StorageKind::Ephemeral,
        FaultBudget {
            faults: 1,
            crashes: 0,
            edits: 1,
            delays: 0,
        },
    );
}

#[test]
fn members_move_to_other_volumes_one_by_one_through_a_fault_and_a_crash() {
    let moved = |members, budget| {
        explore_and_check(&run_to_quiescence(
            &ClusterModel::new(members, StorageKind::Persistent, 2, budget).with_volume_edits(),
        ));
    };
    moved(
        1,
        FaultBudget {
            faults: 1,
            crashes: 1,
            edits: 1,
            delays: 0,
        },
    );
    moved(
        3,
        FaultBudget {
            faults: 1,
            crashes: 0,
            edits: 1,
            delays: 0,
        },
    );
    moved(
        3,
        FaultBudget {
            faults: 0,
            crashes: 1,
            edits: 1,
            delays: 0,
        },
    );
    moved(
        1,
        FaultBudget {
            faults: 0,
            crashes: 0,
            edits: 2,
            delays: 1,
        },
    );
}

#[test]
fn a_bootstrap_restarts_on_other_volumes_through_a_fault_and_a_crash() {
    let bootstrapped = |members, budget| {
        explore_and_check(
            &ClusterModel::new(members, StorageKind::Persistent, 2, budget).with_volume_edits(),
        )
    };
    bootstrapped(
        1,
        FaultBudget {
            faults: 1,
            crashes: 1,
            edits: 1,
            delays: 0,
        },
    );
    bootstrapped(
        3,
        FaultBudget {
            faults: 0,
            crashes: 1,
            edits: 1,
            delays: 0,
        },
    );
    bootstrapped(
        1,
        FaultBudget {
            faults: 0,
            crashes: 1,
            edits: 2,
            delays: 0,
        },
    );
    // With a crash this takes two minutes: `make explore`.
    bootstrapped(
        1,
        FaultBudget {
            faults: 0,
            crashes: 0,
            edits: 2,
            delays: 1,
        },
    );
}

#[test]
fn one_and_two_members_are_rolled_out_through_faults_and_a_crash() {
    for members in [1, 2] {
        explore_rollout(
            members,
            StorageKind::Persistent,
            FaultBudget {
                faults: 1,
                crashes: 1,
                edits: 1,
                delays: 0,
            },
        );
    }
    explore_rollout(
        1,
        StorageKind::Persistent,
        FaultBudget {
            faults: 2,
            crashes: 0,
            edits: 1,
            delays: 0,
        },
    );
}

#[test]
fn every_kind_of_action_is_decided_somewhere() {
    let bounds = [
        (
            1,
            FaultBudget {
                faults: 1,
                crashes: 0,
                edits: 1,
                delays: 0,
            },
        ),
        (
            3,
            FaultBudget {
                faults: 1,
                crashes: 0,
                edits: 0,
                delays: 1,
            },
        ),
        (
            3,
            FaultBudget {
                faults: 0,
                crashes: 0,
                edits: 1,
                delays: 0,
            },
        ),
        (
            3,
            FaultBudget {
                faults: 2,
                crashes: 0,
                edits: 0,
                delays: 0,
            },
        ),
    ];
    let reports = bounds
        .map(|(members, budget)| explore_from_start(members, StorageKind::Persistent, budget));
    let mut decided: BTreeSet<&str> = reports
        .into_iter()
        .flat_map(|report| report.decided.into_keys())
        .collect();
    let restored = FaultBudget {
        edits: 1,
        ..ONE_FAULT
    };
    decided.extend(explore_restore(1, restored).decided.into_keys());
    let in_place = FaultBudget {
        edits: 2,
        ..ONE_FAULT
    };
    decided.extend(explore_in_place_restore(1, in_place).decided.into_keys());
    let unknown_voter = ClusterModel::new(
        3,
        StorageKind::Persistent,
        2,
        FaultBudget {
            delays: 1,
            ..ONE_FAULT
        },
    )
    .with_tampering();
    decided.extend(explore_and_check(&unknown_voter).decided.into_keys());
    for (members, budget) in [
        (
            1,
            FaultBudget {
                edits: 1,
                ..ONE_FAULT
            },
        ),
        (
            3,
            FaultBudget {
                edits: 1,
                ..ONE_FAULT
            },
        ),
    ] {
        decided.extend(
            explore_rollout(members, StorageKind::Persistent, budget)
                .decided
                .into_keys(),
        );
    }
    decided.extend(explore_with_tampered_facts());
    let moved = FaultBudget {
        faults: 0,
        crashes: 0,
        edits: 2,
        delays: 1,
    };
    let moved = explore_and_check(
        &ClusterModel::new(1, StorageKind::Persistent, 2, moved).with_volume_edits(),
    );
    decided.extend(moved.decided.into_keys());
    let all: BTreeSet<&str> = ALL_KINDS.into_iter().collect();
    let missing: Vec<_> = all.difference(&decided).collect();
    assert!(missing.is_empty(), "never decided: {missing:?}");
    let unlisted: Vec<_> = decided.difference(&all).collect();
    assert!(
        unlisted.is_empty(),
        "decided, but not listed in ALL_KINDS: {unlisted:?}"
    );
}
