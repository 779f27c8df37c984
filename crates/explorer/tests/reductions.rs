//! The reductions of the search lose no state: the tests compare it with a plain search, which keeps every state
//! under its own names, with its fault budget and with writes that have no effect.

use std::collections::HashSet;

use evenkeel_etcd::facts::StorageKind;
use evenkeel_explorer::canonical::canonical;
use evenkeel_explorer::compress::PartTables;
use evenkeel_explorer::event::ModelEvent;
use evenkeel_explorer::model::{ClusterModel, FaultBudget};
use evenkeel_explorer::mutants::MUTANTS;
use evenkeel_explorer::quiescence::QuiescenceChecker;
use evenkeel_explorer::search::explore;
use evenkeel_explorer::{Decider, RealDecider};

/// Visits every state, layer by layer, until `visit` returns true.
fn plain_search(
    start: &ClusterModel,
    decider: &dyn Decider,
    mut visit: impl FnMut(&ClusterModel, &[ModelEvent]) -> bool,
) {
    let mut seen = HashSet::from([start.clone()]);
    let mut layer = vec![start.clone()];
    while !layer.is_empty() {
        let mut next = Vec::new();
        for model in layer {
            let events = ModelEvent::all(&model, decider);
            if visit(&model, &events) {
                return;
            }
            for event in events {
                let mut after = model.clone();
                if event.apply(&mut after, decider).is_ok() && seen.insert(after.clone()) {
                    next.push(after);
                }
            }
        }
        layer = next;
    }
}

/// Returns the canonical form of a state without its fault budget.
fn form(model: &ClusterModel) -> ClusterModel {
    let mut form = canonical(model);
    form.budget = FaultBudget::NONE;
    form
}

const SMALL: [(u8, FaultBudget); 4] = [
    (
        1,
        FaultBudget {
            faults: 1,
            crashes: 1,
            edits: 0,
            delays: 0,
        },
    ),
    (
        1,
        FaultBudget {
            faults: 0,
            crashes: 1,
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
    (
        3,
        FaultBudget {
            faults: 0,
            crashes: 1,
            edits: 0,
            delays: 0,
        },
    ),
];

#[test]
fn a_plain_search_reaches_the_same_configurations() {
    for (members, budget) in SMALL {
        let persistent = ClusterModel::new(members, StorageKind::Persistent, 2, budget);
        let ephemeral = ClusterModel::new(members, StorageKind::Ephemeral, 2, budget);
        for start in [persistent.clone(), persistent.with_owned_data(), ephemeral] {
            let (mut forms, mut states) = (HashSet::new(), 0);
            plain_search(&start, &RealDecider, |model, _| {
                states += 1;
                forms.insert(form(model));
                false
            });
            let report = explore(&start, &RealDecider);
            println!(
                "{members} members, {:?}, {budget:?}: {} configurations for {states} states",
                start.storage, report.configurations
            );
            assert_eq!(report.configurations, forms.len());
        }
    }
}

#[test]
fn names_do_not_change_the_possible_events() {
    for (members, budget) in SMALL {
        let start = ClusterModel::new(members, StorageKind::Persistent, 2, budget);
        plain_search(&start, &RealDecider, |model, events| {
            let after = |model: &ClusterModel, event: &ModelEvent| {
                let mut after = model.clone();
                event
                    .apply(&mut after, &RealDecider)
                    .map(|()| canonical(&after))
                    .map_err(|violation| violation.0)
            };
            // A write that can no longer have an effect is not part of the canonical form and changes nothing.
            let unchanged = Ok(canonical(model));
            let named = canonical(model);
            let renamed: HashSet<_> = ModelEvent::all(&named, &RealDecider)
                .iter()
                .map(|event| after(&named, event))
                .collect();
            for event in events {
                let end = after(model, event);
                let idle = matches!(
                    event,
                    ModelEvent::Write(_)
                        | ModelEvent::LateWrite(_)
                        | ModelEvent::Crash
                        | ModelEvent::Freeze
                );
                let idle = idle && end.as_ref().is_ok_and(|end| form(end) == form(model));
                assert!(
                    idle || end == unchanged || renamed.contains(&end),
                    "{event}"
                );
            }
            false
        });
    }
}

#[test]
fn a_plain_search_finds_the_mutants_too() {
    // Only mutants that the reduced search finds early: the plain search takes far longer.
    for mutant in MUTANTS
        .into_iter()
        .filter(|mutant| explore(&mutant.model(), mutant).states < 3_000)
    {
        let start = mutant.model();
        let parts = PartTables::new(&start);
        let mut checker = QuiescenceChecker::default();
        let mut violation = None;
        plain_search(&start, &mutant, |model, events| {
            let broken = events
                .iter()
                .find_map(|event| event.apply(&mut model.clone(), &mutant).err());
            violation = broken.or_else(|| run_on(model, &mutant, &parts, &mut checker));
            violation.is_some()
        });
        println!("{}: {:?}", mutant.name, violation);
        assert!(violation.is_some(), "{} violates no rule", mutant.name);
    }
}

/// Runs a state until it is quiescent, then lets time pass, and returns the violated rule.
fn run_on(
    model: &ClusterModel,
    decider: &dyn Decider,
    parts: &PartTables,
    checker: &mut QuiescenceChecker,
) -> Option<evenkeel_explorer::model::RuleViolation> {
    let mut model = model.clone();
    for _ in 0..400 {
        match ModelEvent::enabled(&model, decider).into_iter().next() {
            Some(event) => {
                if let Err(violation) = event.apply(&mut model, decider) {
                    return Some(violation);
                }
            }
            None => {
                return checker
                    .check(&model, decider, parts)
                    .err()
                    .map(|(_, violation)| violation);
            }
        }
    }
    Some(evenkeel_explorer::quiescence::no_convergence())
}
