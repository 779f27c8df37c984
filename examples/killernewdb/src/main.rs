//! The operator's program: the loop with its lease, health, metrics and log of decisions, for one application.

use std::process::ExitCode;

use evenkeel_runtime::SimpleReconciler;
use evenkeel_runtime::program::ProgramInfo;
use killernewdb::operator::Operator;

fn main() -> ExitCode {
    let name = ProgramInfo {
        program: "killernewdb-operator",
        version: env!("CARGO_PKG_VERSION"),
    };
    SimpleReconciler::main(name, || Operator)
}
