//! Explores every state within these fault budgets: no rule of the design is violated, and every run converges.

mod full;

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
    let restore = match (model.restores, model.restores_in_place) {
        (_, true) => "restored in place, ",
        (true, false) => "restored, ",
        (false, false) => "",
    };
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
        "{members} members, {storage:?}, {restore}{tampering}{edits}{budget:?}: {} states, {} transitions, {:.1?}",
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
fn a_member_that_starts_from_a_snapshot_is_nudged_until_it_serves() {
    // In a converged cluster one fault stops a member, and another one lets it start from a snapshot. A new member starts
    // from one without a fault before.
    for (members, edits, faults) in [(3, 0, 2), (1, 1, 1)] {
        let budget = FaultBudget {
            faults,
            edits,
            ..ONE_FAULT
        };
        let model = ClusterModel::new(members, StorageKind::Persistent, 2, budget);
        let report = explore_and_check(&run_to_quiescence(&model));
        assert!(report.decided.contains_key("nudge-member"));
    }
}

/// Explores a cluster that begins with the data of a backup.
fn explore_restore(members: u8, budget: FaultBudget) -> ExplorerReport {
    let model = ClusterModel::new(members, StorageKind::Persistent, 2, budget);
    explore_and_check(&model.with_restore())
}

#[test]
fn a_restored_member_survives_two_faults_or_a_crash_with_a_fault_or_an_edit() {
    for (faults, crashes, edits) in [(2, 0, 0), (1, 1, 0), (0, 1, 1)] {
        let budget = FaultBudget {
            faults,
            crashes,
            edits,
            delays: 0,
        };
        explore_restore(1, budget);
    }
}

#[test]
fn three_restored_members_survive_a_fault() {
    explore_restore(3, ONE_FAULT);
}

/// Explores the restore of a converged cluster, its undo and its cancellation.
fn explore_in_place_restore(members: u8, budget: FaultBudget) -> ExplorerReport {
    let model = ClusterModel::new(members, StorageKind::Persistent, 2, budget);
    explore_and_check(&run_to_quiescence(&model.with_in_place_restore()))
}

#[test]
fn a_running_member_is_restored_and_the_restore_is_undone() {
    for (faults, crashes, edits) in [(0, 1, 2), (1, 1, 1)] {
        let budget = FaultBudget {
            faults,
            crashes,
            edits,
            delays: 0,
        };
        explore_in_place_restore(1, budget);
    }
}

#[test]
fn three_running_members_are_restored_and_the_restore_is_undone() {
    let edits = FaultBudget {
        edits: 2,
        ..FaultBudget::NONE
    };
    explore_in_place_restore(3, edits);
}

/// Explores template edits from a converged cluster; one of the templates does not start.
fn explore_rollout(members: u8, storage: StorageKind, budget: FaultBudget) -> ExplorerReport {
    explore_and_check(&run_to_quiescence(
        &ClusterModel::new(members, storage, 2, budget).with_template_edits(),
    ))
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
    let restored = ClusterModel::new(1, StorageKind::Persistent, 2, ONE_FAULT).with_restore();
    let report = explore(&restored, &decider);
    println!("tampered facts: restored: {} states", report.states);
    assert!(
        decider.first_mistake().is_none(),
        "\n{}",
        decider.first_mistake().unwrap_or_default()
    );
    decider.kinds()
}
