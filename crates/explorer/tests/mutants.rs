//! The explorer finds every mutant. This shows that it detects bugs.

use evenkeel_explorer::mutants::MUTANTS;
use evenkeel_explorer::search::explore;

#[test]
fn every_mutant_is_found() {
    for mutant in MUTANTS {
        let report = explore(&mutant.model(), &mutant);
        let counterexample = report
            .counterexample
            .map(|counterexample| counterexample.to_string())
            .unwrap_or_default();
        println!(
            "{} ({} states):\n{counterexample}\n",
            mutant.name, report.states
        );
        assert!(
            !counterexample.is_empty(),
            "{} violates no rule in {} states",
            mutant.name,
            report.states
        );
    }
}

#[test]
fn mutants_have_unique_names() {
    let mut names: Vec<_> = MUTANTS.iter().map(|mutant| mutant.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), MUTANTS.len());
}
