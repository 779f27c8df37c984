//! Explores every state within these fault budgets: no rule of the design is violated, and every run converges.

use std::collections::BTreeSet;

use evenkeel_etcd::facts::StorageKind;
use evenkeel_explorer::RealDecider;
use evenkeel_explorer::action_kinds::ALL_KINDS;
use evenkeel_explorer::model::{ClusterModel, FaultBudget};
use evenkeel_explorer::search::{ExplorerReport, explore, run_to_quiescence};
use evenkeel_explorer::tampered_facts::TamperingDecider;

const ONE_FAULT: FaultBudget = FaultBudget {
    faults: 1,
    crashes: 0,
    edits: 0,
    delays: 0,
};

fn explore_from_start(members: u8, storage: StorageKind, budget: FaultBudget) -> ExplorerReport {
    explore_with_learners(members, storage, 2, budget)
}

fn explore_with_learners(
    members: u8,
    storage: StorageKind,
    learners: u8,
    budget: FaultBudget,
) -> ExplorerReport {
    explore_and_check(&ClusterModel::new(members, storage, learners, budget))
}

fn explore_and_check(model: &ClusterModel) -> ExplorerReport {
    let report = explore(model, &RealDecider);
    let (members, storage, budget) = (model.desired_members, model.storage, model.budget);
    let tampering = if model.allows_tampering {
        "tampering, "
    } else {
        ""
    };
    let edits = if model.owns_data { "owned, " } else { "" };
    let edits = match (model.edits_change_template, model.edits_change_volumes) {
        (_, true) => "moving, ",
        (true, _) => "rolling, ",
        _ => edits,
    };
    println!(
        "{members} members, {storage:?}, {tampering}{edits}{budget:?}: {} states, {} transitions, {:.1?}",
        report.states, report.transitions, report.elapsed
    );
    let counterexample = report.counterexample.as_ref().map(ToString::to_string);
    assert!(
        counterexample.is_none(),
        "\n{}",
        counterexample.unwrap_or_default()
    );
    report
}

#[test]
fn a_single_member_survives_two_faults_and_a_crash() {
    for storage in [StorageKind::Persistent, StorageKind::Ephemeral] {
        explore_from_start(
            1,
            storage,
            FaultBudget {
                faults: 2,
                crashes: 1,
                edits: 0,
                delays: 0,
            },
        );
    }
}

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
fn a_single_member_survives_a_fault_and_an_edit() {
    for storage in [StorageKind::Persistent, StorageKind::Ephemeral] {
        explore_from_start(
            1,
            storage,
            FaultBudget {
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
        explore_from_start(
            3,
            storage,
            FaultBudget {
                faults: 1,
                crashes: 1,
                edits: 0,
                delays: 0,
            },
        );
    }
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
fn three_members_that_take_one_learner_at_a_time_survive_a_fault() {
    // etcd 3.5 accepts one learner at a time.
    for storage in [StorageKind::Persistent, StorageKind::Ephemeral] {
        explore_with_learners(
            3,
            storage,
            1,
            FaultBudget {
                faults: 1,
                crashes: 0,
                edits: 0,
                delays: 0,
            },
        );
    }
}

#[test]
fn clusters_survive_a_deleted_identity_and_an_unknown_voter() {
    for (members, budget) in [
        (
            1,
            FaultBudget {
                faults: 2,
                ..ONE_FAULT
            },
        ),
        (3, ONE_FAULT),
    ] {
        for storage in [StorageKind::Persistent, StorageKind::Ephemeral] {
            explore_and_check(&ClusterModel::new(members, storage, 2, budget).with_tampering());
        }
    }
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

/// Explores template edits from a converged cluster; one of the templates does not start.
fn explore_rollout(members: u8, storage: StorageKind, budget: FaultBudget) -> ExplorerReport {
    explore_and_check(&run_to_quiescence(
        &ClusterModel::new(members, storage, 2, budget).with_template_edits(),
    ))
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
fn a_template_is_edited_twice_or_reverted() {
    for members in [1, 2] {
        explore_rollout(
            members,
            StorageKind::Persistent,
            FaultBudget {
                faults: 0,
                crashes: 0,
                edits: 2,
                delays: 1,
            },
        );
    }
    explore_rollout(
        3,
        StorageKind::Persistent,
        FaultBudget {
            faults: 0,
            crashes: 0,
            edits: 2,
            delays: 0,
        },
    );
    explore_rollout(
        3,
        StorageKind::Ephemeral,
        FaultBudget {
            faults: 0,
            crashes: 0,
            edits: 1,
            delays: 1,
        },
    );
    explore_rollout(
        5,
        StorageKind::Persistent,
        FaultBudget {
            faults: 0,
            crashes: 0,
            edits: 1,
            delays: 0,
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

/// Explores with tampered facts in every state that a fault and an edit lead to. Returns the kinds of decided
/// actions.
fn explore_with_tampered_facts() -> BTreeSet<&'static str> {
    let decider = TamperingDecider::default();
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
                delays: 0,
            },
        ),
    ];
    for ((members, budget), storage) in bounds
        .into_iter()
        .zip([StorageKind::Ephemeral, StorageKind::Persistent])
    {
        let report = explore(&ClusterModel::new(members, storage, 2, budget), &decider);
        println!(
            "tampered facts: {members} members, {storage:?}: {} states, {:.1?}",
            report.states, report.elapsed
        );
        assert!(
            decider.first_mistake().is_none(),
            "\n{}",
            decider.first_mistake().unwrap_or_default()
        );
    }
    decider.kinds()
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
