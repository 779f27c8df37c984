//! The program that runs engines in a cluster.

mod flags;

use std::process::ExitCode;

use clap::Parser;
use evenkeel_etcd::EtcdReconciler;
use evenkeel_runtime::program::{self, Context, ProgramInfo};

fn main() -> ExitCode {
    let flags = flags::Flags::parse();
    let name = ProgramInfo {
        program: "evenkeel-operator",
        version: env!("CARGO_PKG_VERSION"),
    };
    program::main(name, flags.program, |means: &Context, scope| {
        tracing::info!(?scope, "looking after etcd");
        let streams = means.streams(scope);
        let (stores, wakers) = evenkeel_etcd::watch(&streams);
        let (client, clock, random) = (
            means.client.clone(),
            means.clock.clone(),
            means.random.clone(),
        );
        let operator = EtcdReconciler::new(client, stores, flags.secrets_interval, clock, random);
        means.looping("evenkeel.dev/etcd", operator, (&streams, wakers))
    })
}
