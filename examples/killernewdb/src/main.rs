//! The operator's program: the loop with its lease, health, metrics and log of decisions, for one application.

use std::process::ExitCode;

use evenkeel::Keeper;
use evenkeel::program::Name;
use killernewdb::operator::Operator;

fn main() -> ExitCode {
    let name = Name { program: "killernewdb-operator", version: env!("CARGO_PKG_VERSION") };
    Keeper::main(name, || Operator)
}
