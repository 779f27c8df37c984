//! `make break BUG=name`: explores with a deliberate bug and tells the shortest story in which it does harm.

use std::process::ExitCode;

use evenkeel_explorer::bugs::{BUGS, Bug};
use evenkeel_explorer::explore::explore;

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    let Some(bug) = Bug::find(&name) else {
        eprintln!("Name one of these bugs:");
        for bug in BUGS {
            eprintln!("  {:<30} {}", bug.name, bug.what);
        }
        return ExitCode::FAILURE;
    };
    println!("An operator that {}:\n", bug.what);
    let report = explore(&bug.world(), &bug);
    match report.story {
        Some(story) => {
            println!("{story}\n\n{} states in {:.1?}", report.states, report.took);
            ExitCode::SUCCESS
        }
        None => {
            println!("does no harm in any of {} states", report.states);
            ExitCode::FAILURE
        }
    }
}
