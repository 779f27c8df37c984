//! The operator: registers the engines and runs their controllers.

mod flags;

use std::process::ExitCode;

use evenkeel_etcd::EtcdReconciler;
use evenkeel_runtime::program::{self, Context, ProgramInfo};

const INFO: ProgramInfo = ProgramInfo {
    name: "evenkeel-operator",
    version: env!("CARGO_PKG_VERSION"),
    env_prefix: "EVENKEEL",
    metrics_prefix: "evenkeel",
};

fn main() -> ExitCode {
    let flags: flags::Flags = program::parse(&INFO);
    program::main(INFO, flags.program, |context: &Context, scope| {
        tracing::info!(?scope, engine = "etcd", "starting controller");
        let watches = context.watches(scope);
        let (caches, triggers) = evenkeel_etcd::watch(&watches);
        let reconciler = EtcdReconciler::new(
            context.client.clone(),
            caches,
            flags.secrets_interval,
            context.clock.clone(),
            context.random.clone(),
        );
        vec![context.controller("evenkeel.dev/etcd", reconciler, &watches, triggers)]
    })
}
