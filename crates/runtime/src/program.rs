//! A program that runs loops in a cluster: flags, logs, client, health, metrics, the lease, and an orderly end. What an
//! operator's own `main` has left to say is which loops.

use std::future::Future;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use futures::future::{BoxFuture, join_all};
use kube::{Client, Config};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use crate::client::{ClientLayer, client};
use crate::clock::{SharedClock, SystemClock};
use crate::controller::{ControllerParts, Triggers, run_controller};
use crate::events::EventRecorder;
use crate::lease::{LeaderElector, Leadership, LeaseSettings};
use crate::metrics::Metrics;
use crate::prober::ProbeIntervals;
use crate::random::{SharedRandom, SystemRandom};
use crate::reconciler::Reconciler;
use crate::serve::{Health, Stage, serve};
use crate::watches::{Scope, Watches};

/// What every such program can be told: by flags, or by variables of the environment.
#[derive(Clone, Debug, Args)]
#[group(skip)]
pub struct Flags {
    /// The namespaces to look after, separated by commas; all of them if not given
    #[arg(
        long,
        env = "EVENKEEL_NAMESPACES",
        value_delimiter = ',',
        value_name = "NAMES"
    )]
    pub namespaces: Vec<String>,
    /// Where the lease is that tells which of several replicas acts; by default the namespace that the program runs in
    #[arg(long, env = "EVENKEEL_LEASE_NAMESPACE", value_name = "NAME")]
    pub lease_namespace: Option<String>,
    /// What the lease is called; by default as the program. Operators that look after different namespaces need leases of
    /// different names or places
    #[arg(long, env = "EVENKEEL_LEASE_NAME", value_name = "NAME")]
    pub lease_name: Option<String>,
    /// Where /livez, /readyz and /metrics are served
    #[arg(
        long,
        env = "EVENKEEL_LISTEN",
        default_value = "0.0.0.0:8080",
        value_name = "ADDRESS:PORT"
    )]
    pub listen: SocketAddr,
    /// What is logged: a level, or levels by module, such as info,evenkeel=debug
    #[arg(
        long,
        env = "EVENKEEL_LOG",
        default_value = "info",
        value_name = "FILTER"
    )]
    pub log: String,
    /// How it is logged
    #[arg(long, env = "EVENKEEL_LOG_FORMAT", value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,
    /// Who this is, among its replicas; by default the name of the machine, which is the pod's
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub identity: Option<String>,
}

/// How lines of the log look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// An object a line, for machines
    Json,
    /// Text, for people
    Text,
}

/// What every loop is handed.
pub struct Context {
    /// The client.
    pub client: Client,
    /// Time.
    pub clock: SharedClock,
    /// Chance.
    pub random: SharedRandom,
    /// What is counted.
    pub metrics: Metrics,
    /// Who this is.
    pub identity: String,
    /// Who may act.
    pub leadership: Leadership,
    stop: CancellationToken,
}

/// A loop in one scope, and what resolves when it has seen everything once.
pub struct ControllerTask {
    run: BoxFuture<'static, ()>,
    ready: BoxFuture<'static, ()>,
}

impl Context {
    /// Starts watches in a scope.
    pub fn streams(&self, scope: Scope) -> Watches {
        Watches::new(self.client.clone(), scope, self.metrics.clone())
    }

    /// The loop of one engine over these watches, which tells people in the name of `controller`.
    pub fn looping<O: Reconciler>(
        &self,
        controller: &str,
        operate: O,
        (streams, wakers): (&Watches, Triggers<O::Resource>),
    ) -> ControllerTask {
        let parts = ControllerParts {
            reconciler: Arc::new(operate),
            client: self.client.clone(),
            leadership: self.leadership.clone(),
            events: EventRecorder::new(
                self.client.clone(),
                controller,
                &self.identity,
                self.clock.clone(),
            ),
            metrics: self.metrics.clone(),
            clock: self.clock.clone(),
            random: self.random.clone(),
            probe_intervals: ProbeIntervals::default(),
        };
        let ready = streams.listed().complete();
        ControllerTask {
            run: Box::pin(run_controller(parts, wakers, self.stop.clone())),
            ready: Box::pin(ready),
        }
    }
}

/// What the program is called, and its version.
#[derive(Clone, Copy, Debug)]
pub struct ProgramInfo {
    /// What it is called: its lease, too, unless it is told otherwise.
    pub program: &'static str,
    /// Its version.
    pub version: &'static str,
}

/// Runs the program until it is told to end, or has lost its lease. `start` starts the loop of a scope.
pub fn main(
    name: ProgramInfo,
    flags: Flags,
    start: impl Fn(&Context, Scope) -> ControllerTask,
) -> ExitCode {
    log(&flags);
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "no runtime");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run_program(name, flags, start)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Starts logging.
fn log(flags: &Flags) {
    let filter = EnvFilter::try_new(&flags.log).unwrap_or_else(|_| EnvFilter::new("info"));
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match flags.log_format {
        LogFormat::Json => {
            logs.json()
                .flatten_event(true)
                .with_current_span(false)
                .with_span_list(false)
                .init();
        }
        LogFormat::Text => logs.with_ansi(false).init(),
    }
}

async fn run_program(
    name: ProgramInfo,
    flags: Flags,
    start: impl Fn(&Context, Scope) -> ControllerTask,
) -> Result<()> {
    let shutdown = crate::shutdown().context("cannot listen to signals")?;
    let config = Config::infer()
        .await
        .context("there is neither a cluster around this program nor a kubeconfig")?;
    let namespace = flags
        .lease_namespace
        .clone()
        .unwrap_or_else(|| config.default_namespace.clone());
    let (clock, metrics) = (SystemClock::shared(), Metrics::new());
    let requests = ClientLayer::new(clock.clone(), metrics.clone());
    let client = client(config, &requests).context("cannot make a client for Kubernetes")?;
    let random = SystemRandom::shared();
    let identity = identity(name, &flags, &random);
    let health = Health::new(requests);
    let (address, serving) = serve(
        flags.listen,
        health.clone(),
        metrics.clone(),
        shutdown.clone(),
    )
    .await
    .with_context(|| format!("cannot listen on {}", flags.listen))?;
    tracing::info!(%address, version = name.version, "serving /livez, /readyz and /metrics");
    let serving = tokio::spawn(serving);
    let lease = flags.lease_name.as_deref().unwrap_or(name.program);
    let settings = LeaseSettings::new(&namespace, lease, &identity);
    tracing::info!(lease = %format!("{namespace}/{lease}"), "waiting for the lease");
    health.set_stage(Stage::StandingBy);
    let candidate = LeaderElector::new(client.clone(), settings, clock.clone());
    let ended = match shutdown.run_until_cancelled(candidate.acquire()).await {
        None => Ok(()),
        Some(leadership) => {
            let stop = shutdown.child_token();
            let means = Context {
                client,
                clock,
                random,
                metrics,
                identity,
                leadership,
                stop,
            };
            run_as_leader(
                &means,
                &health,
                &shutdown,
                scopes(&flags.namespaces).map(|scope| start(&means, scope)),
            )
            .await
        }
    };
    shutdown.cancel();
    serving
        .await
        .context("the server has failed")?
        .context("the server has failed")?;
    ended
}

/// Works for as long as the lease is held.
async fn run_as_leader(
    means: &Context,
    health: &Health,
    shutdown: &CancellationToken,
    loops: impl Iterator<Item = ControllerTask>,
) -> Result<()> {
    health.set_stage(Stage::Starting);
    means.metrics.lease(true);
    // Loops end when told to, or when somebody else may act: whatever they wrote later would be refused or withheld.
    let (lost, stopper) = (means.leadership.clone(), means.stop.clone());
    let watcher = tokio::spawn(async move {
        lost.lost().await;
        stopper.cancel();
    });
    let (loops, ready): (Vec<_>, Vec<_>) = loops.map(|one| (one.run, one.ready)).unzip();
    let listed = tokio::spawn(seen(ready, health.clone()));
    join_all(loops).await;
    listed.abort();
    let told = shutdown.is_cancelled();
    means.leadership.release().await;
    watcher.abort();
    means.metrics.lease(false);
    if told {
        tracing::info!("ended");
        Ok(())
    } else {
        bail!("the lease is lost: another replica acts now, and this one starts anew")
    }
}

async fn seen(ready: Vec<impl Future<Output = ()>>, health: Health) {
    join_all(ready).await;
    health.set_stage(Stage::Running);
    tracing::info!("everything has been seen once");
}

/// All namespaces, or those that are named. An empty variable of the environment is one empty name.
fn scopes(namespaces: &[String]) -> impl Iterator<Item = Scope> {
    let named: Vec<_> = namespaces
        .iter()
        .map(|name| name.trim())
        .filter(|name| !name.is_empty())
        .collect();
    let scopes = if named.is_empty() {
        vec![Scope::All]
    } else {
        named
            .into_iter()
            .map(|name| Scope::Namespace(name.to_owned()))
            .collect()
    };
    scopes.into_iter()
}

/// Who this is: a name that no other replica has, nor this one after it was started anew.
fn identity(name: ProgramInfo, flags: &Flags, random: &SharedRandom) -> String {
    let host = || {
        nix::unistd::gethostname()
            .ok()
            .and_then(|name| name.into_string().ok())
    };
    let host = flags
        .identity
        .clone()
        .or_else(host)
        .unwrap_or_else(|| name.program.to_owned());
    format!("{host}-{:08x}", random.u64() >> 32)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        flags: Flags,
    }

    fn flags(args: &[&str]) -> Flags {
        Program::parse_from([&["program"], args].concat()).flags
    }

    #[test]
    fn the_flags_are_consistent() {
        Program::command().debug_assert();
    }

    #[test]
    fn namespaces_are_separated_by_commas_and_none_means_all() {
        let read = |args: &[&str]| scopes(&flags(args).namespaces).collect::<Vec<_>>();
        let two = ["shop", "bank"].map(|name| Scope::Namespace(name.to_owned()));
        assert_eq!(read(&["--namespaces", "shop, bank"]), two);
        assert_eq!(read(&["--namespaces", ""]), [Scope::All]);
        assert_eq!(read(&[]), [Scope::All]);
    }

    #[test]
    fn no_two_lives_of_a_replica_have_one_identity() {
        let (name, flags) = (
            ProgramInfo {
                program: "p",
                version: "1",
            },
            flags(&["--identity", "pod-1"]),
        );
        let random = SystemRandom::shared();
        let [one, other] = [
            identity(name, &flags, &random),
            identity(name, &flags, &random),
        ];
        assert!(one.starts_with("pod-1-") && one != other);
    }
}
