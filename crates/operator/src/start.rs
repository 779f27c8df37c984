//! Putting the parts together: client, lease, watches, loops, and an orderly end.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use evenkeel::{
    Candidate, Events, Health, Leadership, LeaseSettings, Metrics, Parts, Requests, Rhythm, Scope,
    SharedClock, SharedRandom, Stage, Streams, SystemClock, SystemRandom,
};
use evenkeel_etcd::Operator;
use futures::future::join_all;
use kube::{Client, Config};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use crate::flags::{Flags, LogFormat};

/// Starts logging.
pub(crate) fn log(flags: &Flags) {
    let filter = EnvFilter::try_new(&flags.log).unwrap_or_else(|_| EnvFilter::new("info"));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match flags.log_format {
        LogFormat::Json => {
            logs.json().flatten_event(true).with_current_span(false).with_span_list(false).init();
        }
        LogFormat::Text => logs.with_ansi(false).init(),
    }
}

/// What every part is handed.
struct World {
    client: Client,
    clock: SharedClock,
    random: SharedRandom,
    metrics: Metrics,
    health: Health,
    identity: String,
    secrets_interval: Duration,
}

/// Runs until it is told to end, or has lost its lease.
pub(crate) async fn run(flags: Flags) -> Result<()> {
    let shutdown = evenkeel::shutdown().context("cannot listen to signals")?;
    let config =
        Config::infer().await.context("there is neither a cluster around this program nor a kubeconfig")?;
    let namespace = flags.lease_namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
    let (clock, metrics) = (SystemClock::shared(), Metrics::new());
    let requests = Requests::new(clock.clone(), metrics.clone());
    let client = evenkeel::client(config, &requests).context("cannot make a client for Kubernetes")?;
    let random = SystemRandom::shared();
    let identity = identity(&flags, &random);
    let health = Health::new(requests);
    let secrets_interval = flags.secrets_interval;
    let world = World { client, clock, random, metrics, health, identity, secrets_interval };

    let (address, serving) =
        evenkeel::serve(flags.listen, world.health.clone(), world.metrics.clone(), shutdown.clone())
            .await
            .with_context(|| format!("cannot listen on {}", flags.listen))?;
    tracing::info!(%address, version = env!("CARGO_PKG_VERSION"), "serving /livez, /readyz and /metrics");
    let serving = tokio::spawn(serving);
    let settings = LeaseSettings::new(&namespace, &flags.lease_name, &world.identity);
    let ended = lead(&world, settings, &flags.namespaces, &shutdown).await;
    shutdown.cancel();
    serving.await.context("the server has failed")?.context("the server has failed")?;
    ended
}

/// Waits for the lease, and works for as long as it is held.
async fn lead(
    world: &World,
    settings: LeaseSettings,
    namespaces: &[String],
    shutdown: &CancellationToken,
) -> Result<()> {
    tracing::info!(lease = %format!("{}/{}", settings.namespace, settings.name), "waiting for the lease");
    world.health.reached(Stage::StandingBy);
    let candidate = Candidate::new(world.client.clone(), settings, world.clock.clone());
    let Some(leadership) = shutdown.run_until_cancelled(candidate.acquire()).await else { return Ok(()) };
    world.health.reached(Stage::Starting);
    world.metrics.lease(true);
    // Loops end when told to, or when somebody else may act: whatever they wrote later would be refused or withheld.
    let stop = shutdown.child_token();
    let (lost, stopper) = (leadership.clone(), stop.clone());
    let watcher = tokio::spawn(async move {
        lost.lost().await;
        stopper.cancel();
    });
    // An empty variable of the environment is one empty name.
    let named: Vec<_> = namespaces.iter().map(|name| name.trim()).filter(|name| !name.is_empty()).collect();
    let scopes = if named.is_empty() {
        vec![Scope::All]
    } else {
        named.into_iter().map(|name| Scope::Namespace(name.to_owned())).collect()
    };
    let (loops, ready): (Vec<_>, Vec<_>) =
        scopes.into_iter().map(|scope| etcd(world, scope, &leadership, stop.clone())).unzip();
    let health = world.health.clone();
    let listed = tokio::spawn(async move {
        join_all(ready).await;
        health.reached(Stage::Running);
        tracing::info!("everything has been seen once");
    });
    join_all(loops).await;
    listed.abort();
    let told = shutdown.is_cancelled();
    leadership.release().await;
    watcher.abort();
    world.metrics.lease(false);
    if told {
        tracing::info!("ended");
        Ok(())
    } else {
        bail!("the lease is lost: another replica acts now, and this one starts anew")
    }
}

/// The loop of etcd in one scope, and what resolves when it has seen everything once.
fn etcd(
    world: &World,
    scope: Scope,
    leadership: &Leadership,
    stop: CancellationToken,
) -> (impl Future<Output = ()> + use<>, impl Future<Output = ()> + Send + use<>) {
    tracing::info!(?scope, "looking after etcd");
    let streams = Streams::new(world.client.clone(), scope, world.metrics.clone());
    let (stores, wakers) = evenkeel_etcd::watch(&streams);
    let ready = stores.listed.complete();
    let (client, clock, random) = (world.client.clone(), world.clock.clone(), world.random.clone());
    let operator = Operator::new(client, stores, world.secrets_interval, clock, random);
    let parts = Parts {
        operate: Arc::new(operator),
        client: world.client.clone(),
        leadership: leadership.clone(),
        events: Events::new(world.client.clone(), "evenkeel.dev/etcd", &world.identity, world.clock.clone()),
        metrics: world.metrics.clone(),
        clock: world.clock.clone(),
        random: world.random.clone(),
        rhythm: Rhythm::default(),
    };
    (evenkeel::run(parts, wakers, stop), ready)
}

/// Who this is: a name that no other replica has, nor this one after it was started anew.
fn identity(flags: &Flags, random: &SharedRandom) -> String {
    let host = || nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    let name = flags.identity.clone().or_else(host).unwrap_or_else(|| "evenkeel-operator".to_owned());
    format!("{name}-{:08x}", random.u64() >> 32)
}
