//! The program `evenkeel-agent`.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    evenkeel_agent::run::run(&evenkeel_agent::run::AgentOptions::parse())
}
