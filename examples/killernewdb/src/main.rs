//! The operator program.

use std::process::ExitCode;

use evenkeel_runtime::SimpleReconciler;
use evenkeel_runtime::program::ProgramInfo;
use killernewdb::operator::KillerNewDbEngine;

fn main() -> ExitCode {
    let info = ProgramInfo {
        name: "killernewdb-operator",
        version: env!("CARGO_PKG_VERSION"),
        env_prefix: "KILLERNEWDB",
        metrics_prefix: "killernewdb",
    };
    SimpleReconciler::main(info, || KillerNewDbEngine)
}
