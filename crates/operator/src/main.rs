//! The operator: registers the engines and runs their controllers.

mod flags;

use std::process::ExitCode;

use evenkeel_api::ClusterKind;
use evenkeel_backup::Engines;
use evenkeel_backup::backup::{self, BackupReconciler};
use evenkeel_backup::restores::{self, ChangedClusters, RestoreInputs, RestoreReconciler};
use evenkeel_backup::schedule::{self, ScheduleReconciler};
use evenkeel_backup::store::{self, StoreReconciler};
use evenkeel_etcd::{EtcdBackups, EtcdReconciler};
use evenkeel_runtime::Watches;
use evenkeel_runtime::program::{self, Context, ControllerTask, ProgramInfo};

const INFO: ProgramInfo = ProgramInfo {
    name: "evenkeel-operator",
    version: env!("CARGO_PKG_VERSION"),
    env_prefix: "EVENKEEL",
    metrics_prefix: "evenkeel",
};

fn main() -> ExitCode {
    let flags: flags::Flags = program::parse(&INFO);
    let agent_image = flags.agent_image().map(ToOwned::to_owned);
    program::main(INFO, flags.program, |context: &Context, scope| {
        tracing::info!(?scope, engine = "etcd", "starting controller");
        let watches = context.watches(scope);
        let (caches, mut triggers) = evenkeel_etcd::watch(&watches);
        let changed_clusters = vec![(ClusterKind::EtcdCluster, triggers.resource_changes())];
        let reconciler = EtcdReconciler::new(
            context.client.clone(),
            caches,
            flags.secrets_interval,
            context.clock.clone(),
            context.random.clone(),
        )
        .with_agent_image(agent_image.clone());
        let etcd = context.controller("evenkeel.dev/etcd", reconciler, &watches, triggers);
        let mut controllers = vec![etcd];
        controllers.extend(backup_controllers(
            context,
            &watches,
            agent_image.as_deref(),
            changed_clusters,
        ));
        controllers
    })
}

/// Returns the controllers of BackupStores, Backups, BackupSchedules and Restores.
fn backup_controllers(
    context: &Context,
    watches: &Watches,
    agent_image: Option<&str>,
    changed_clusters: ChangedClusters,
) -> [ControllerTask; 4] {
    let (client, clock) = (&context.client, &context.clock);
    let image = agent_image.map(ToOwned::to_owned);
    let engines = Engines::new(vec![Box::new(EtcdBackups::new(
        client.clone(),
        clock.clone(),
    ))]);
    let (store_caches, store_triggers) = store::watch(watches);
    let (backup_caches, mut backup_triggers) = backup::watch(watches, store_caches.stores.clone());
    let restore_inputs = RestoreInputs {
        backups: backup_caches.backups.clone(),
        changed_backups: backup_triggers.resource_changes(),
        changed_clusters,
    };
    let (restore_caches, restore_triggers) = restores::watch(watches, restore_inputs);
    let (schedule_caches, schedule_triggers) = schedule::watch(watches);
    let stores = StoreReconciler::new(client.clone(), store_caches, image.clone(), clock.clone());
    let backups = BackupReconciler::new(
        client.clone(),
        backup_caches,
        engines.clone(),
        image.clone(),
        clock.clone(),
    );
    let schedules = ScheduleReconciler::new(
        client.clone(),
        schedule_caches,
        engines.clone(),
        image,
        clock.clone(),
    );
    let restores = RestoreReconciler::new(client.clone(), restore_caches, engines, clock.clone());
    [
        context.controller("evenkeel.dev/backup-store", stores, watches, store_triggers),
        context.controller("evenkeel.dev/backup", backups, watches, backup_triggers),
        context.controller(schedule::CONTROLLER, schedules, watches, schedule_triggers),
        context.controller(restores::CONTROLLER, restores, watches, restore_triggers),
    ]
}
