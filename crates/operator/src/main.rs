//! The operator: registers the engines and runs their controllers.

mod flags;

use std::process::ExitCode;

use clap::Parser;
use evenkeel_etcd::EtcdReconciler;
use evenkeel_runtime::program::{self, Context, ProgramInfo};

fn main() -> ExitCode {
    let flags = flags::Flags::parse();
    let info = ProgramInfo {
        program: "evenkeel-operator",
        version: env!("CARGO_PKG_VERSION"),
    };
    program::main(info, flags.program, |context: &Context, scope| {
        tracing::info!(?scope, "starting the etcd controller");
        let streams = context.streams(scope);
        let (caches, triggers) = evenkeel_etcd::watch(&streams);
        let reconciler = EtcdReconciler::new(
            context.client.clone(),
            caches,
            flags.secrets_interval,
            context.clock.clone(),
            context.random.clone(),
        );
        context.looping("evenkeel.dev/etcd", reconciler, (&streams, triggers))
    })
}
