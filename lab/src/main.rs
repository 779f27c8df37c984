//! The program `lab`: manages Kubernetes clusters on this machine and injects faults into them.

mod cli;
mod reference;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}
