//! `make break BUG=name`: explores with a mutant and prints the shortest run in which it violates a rule.

use std::process::ExitCode;

use evenkeel_explorer::mutants::{MUTANTS, Mutant};
use evenkeel_explorer::search::explore;

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    let Some(mutant) = Mutant::find(&name) else {
        eprintln!("Name one of these mutants:");
        for mutant in MUTANTS {
            eprintln!("  {:<38} {}", mutant.name, mutant.description);
        }
        return ExitCode::FAILURE;
    };
    println!("An operator that {}:\n", mutant.description);
    let report = explore(&mutant.model(), &mutant);
    match report.counterexample {
        Some(counterexample) => {
            println!(
                "{counterexample}\n\n{} states in {:.1?}",
                report.states, report.elapsed
            );
            ExitCode::SUCCESS
        }
        None => {
            println!("violates no rule in {} states", report.states);
            ExitCode::FAILURE
        }
    }
}
