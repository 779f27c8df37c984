//! A program that runs controllers in a cluster: flags, logs, client, health, metrics, leader election, shutdown. The
//! `main` of an operator only names its controllers.

use std::future::Future;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Args, Command, CommandFactory, FromArgMatches, ValueEnum};
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
use crate::shutdown::shutdown;
use crate::watches::{Scope, Watches};

/// The time that controllers have to finish their reconciles after the shutdown signal. The rest of the 30 s that
/// Kubernetes grants a pod by default is for the release of the lease.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// The name of a program and the prefixes of its settings.
#[derive(Clone, Copy, Debug)]
pub struct ProgramInfo {
    /// The name of the program, and the default name of its lease.
    pub name: &'static str,
    /// The version of the program.
    pub version: &'static str,
    /// The prefix of environment variables, such as `EVENKEEL` for `EVENKEEL_LISTEN`.
    pub env_prefix: &'static str,
    /// The prefix of metrics, such as `evenkeel` for `evenkeel_lease_held`.
    pub metrics_prefix: &'static str,
}

/// The flags of every program. [`parse`] adds the environment variables.
#[derive(Clone, Debug, Args)]
#[group(skip)]
pub struct Flags {
    /// The namespaces to watch, separated by commas; all namespaces if not given
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub namespaces: Vec<String>,
    /// The namespace of the lease for leader election; by default the namespace of the program
    #[arg(long, value_name = "NAME")]
    pub lease_namespace: Option<String>,
    /// The name of the lease for leader election; by default the name of the program. Operators that watch different
    /// namespaces need different leases
    #[arg(long, value_name = "NAME")]
    pub lease_name: Option<String>,
    /// The address of /livez, /readyz and /metrics
    #[arg(long, default_value = "0.0.0.0:8080", value_name = "ADDRESS:PORT")]
    pub listen: SocketAddr,
    /// The log filter: a level, or levels by module, such as info,evenkeel_runtime=debug
    #[arg(long, default_value = "info", value_name = "FILTER")]
    pub log: String,
    /// The log format
    #[arg(long, value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,
    /// The identity of this replica; by default the host name, which is the name of the pod
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub identity: Option<String>,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object per line
    Json,
    /// Plain text
    Text,
}

/// Returns the flags of the process, from its arguments and environment. Every long flag that names
/// no environment variable gets one: `--lease-name` is `<PREFIX>_LEASE_NAME`. Exits with a message
/// if the flags are invalid.
pub fn parse<F: CommandFactory + FromArgMatches>(info: &ProgramInfo) -> F {
    let matches = command::<F>(info).get_matches();
    F::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// Returns the command with the name, version and environment variables of a program.
fn command<F: CommandFactory>(info: &ProgramInfo) -> Command {
    let command = F::command().name(info.name).version(info.version);
    command.mut_args(|arg| match arg.get_long() {
        Some(long) if arg.get_env().is_none() => {
            let variable = long.replace('-', "_").to_uppercase();
            arg.env(format!("{}_{variable}", info.env_prefix))
        }
        _ => arg,
    })
}

/// The parts that all controllers of a program share.
pub struct Context {
    /// The client.
    pub client: Client,
    /// The clock.
    pub clock: SharedClock,
    /// The source of random numbers.
    pub random: SharedRandom,
    /// The metrics.
    pub metrics: Metrics,
    /// The identity of this process.
    pub identity: String,
    /// The leadership.
    pub leadership: Leadership,
    stop: CancellationToken,
}

/// A controller in one scope.
pub struct ControllerTask {
    /// Runs the controller until it is stopped.
    run: BoxFuture<'static, ()>,
    /// Resolves when its caches have synced.
    synced: BoxFuture<'static, ()>,
}

impl Context {
    /// Returns the watches of a scope.
    pub fn watches(&self, scope: Scope) -> Watches {
        Watches::new(self.client.clone(), scope, self.metrics.clone())
    }

    /// Returns the controller of one engine over these watches. Its events are reported by `controller_name`, a qualified
    /// name such as `evenkeel.dev/etcd`.
    pub fn controller<R: Reconciler>(
        &self,
        controller_name: &str,
        reconciler: R,
        watches: &Watches,
        triggers: Triggers<R::Resource>,
    ) -> ControllerTask {
        let parts = ControllerParts {
            reconciler: Arc::new(reconciler),
            client: self.client.clone(),
            leadership: self.leadership.clone(),
            events: EventRecorder::new(
                self.client.clone(),
                controller_name,
                &self.identity,
                self.clock.clone(),
            ),
            metrics: self.metrics.clone(),
            clock: self.clock.clone(),
            random: self.random.clone(),
            probe_intervals: ProbeIntervals::default(),
        };
        let synced = watches.cache_sync().complete();
        ControllerTask {
            run: Box::pin(run_controller(parts, triggers, self.stop.clone())),
            synced: Box::pin(synced),
        }
    }
}

/// Runs the program until it receives a termination signal or has lost its lease. `start` returns
/// the controllers of a scope, one for each engine.
pub fn main(
    info: ProgramInfo,
    flags: Flags,
    start: impl Fn(&Context, Scope) -> Vec<ControllerTask>,
) -> ExitCode {
    init_logs(&flags);
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "failed to start the async runtime");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run_program(info, flags, start)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn init_logs(flags: &Flags) {
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
    info: ProgramInfo,
    flags: Flags,
    start: impl Fn(&Context, Scope) -> Vec<ControllerTask>,
) -> Result<()> {
    let shutdown = shutdown().context("failed to install signal handlers")?;
    let config = Config::infer().await.context(
        "failed to find the API server: run the program in a cluster, or provide a kubeconfig",
    )?;
    let namespace = flags
        .lease_namespace
        .clone()
        .unwrap_or_else(|| config.default_namespace.clone());
    let (clock, metrics) = (SystemClock::shared(), Metrics::new(info.metrics_prefix));
    let requests = ClientLayer::new(clock.clone(), metrics.clone());
    let client = client(config, &requests).context("failed to create the Kubernetes client")?;
    let random = SystemRandom::shared();
    let identity = identity(info, &flags, &random);
    let health = Health::new(requests);
    let (address, server) = serve(
        flags.listen,
        health.clone(),
        metrics.clone(),
        shutdown.clone(),
    )
    .await
    .with_context(|| format!("failed to listen on {}", flags.listen))?;
    tracing::info!(%address, version = info.version, "serving /livez, /readyz and /metrics");
    let server = tokio::spawn(server);
    let lease = flags.lease_name.as_deref().unwrap_or(info.name);
    let watched = watched_namespaces(&flags.namespaces);
    let settings = LeaseSettings::new(&namespace, lease, &identity).of_program(info.name, &watched);
    tracing::info!(lease = %format!("{namespace}/{lease}"), "waiting for the lease");
    health.set_stage(Stage::StandingBy);
    let elector = LeaderElector::new(client.clone(), settings, clock.clone());
    let result = match shutdown.run_until_cancelled(elector.acquire()).await {
        None => Ok(()),
        Some(leadership) => {
            let context = Context {
                client,
                clock,
                random,
                metrics,
                identity,
                leadership,
                stop: shutdown.child_token(),
            };
            let scopes = scopes(watched).into_iter();
            let tasks = scopes.flat_map(|scope| start(&context, scope)).collect();
            run_as_leader(&context, &health, &shutdown, tasks).await
        }
    };
    shutdown.cancel();
    server
        .await
        .context("the HTTP server failed")?
        .context("the HTTP server failed")?;
    result
}

/// Runs the controllers for as long as the lease is held.
async fn run_as_leader(
    context: &Context,
    health: &Health,
    shutdown: &CancellationToken,
    tasks: Vec<ControllerTask>,
) -> Result<()> {
    health.set_stage(Stage::Starting);
    context.metrics.lease(true);
    // Without the lease another replica may write: controllers stop.
    let (leadership, stop) = (context.leadership.clone(), context.stop.clone());
    let lease_watch = tokio::spawn(async move {
        leadership.lost().await;
        stop.cancel();
    });
    let (controllers, synced): (Vec<_>, Vec<_>) = tasks
        .into_iter()
        .map(|task| (task.run, task.synced))
        .unzip();
    let sync_watch = tokio::spawn(report_synced(synced, health.clone()));
    // A controller whose first list has not arrived does not stop by itself: kube waits for its store.
    let stop_timeout = async {
        context.stop.cancelled().await;
        context.clock.sleep(STOP_TIMEOUT).await;
    };
    tokio::select! {
        _ = join_all(controllers) => {}
        () = stop_timeout => tracing::warn!("controllers did not stop in time"),
    }
    sync_watch.abort();
    let is_shutdown = shutdown.is_cancelled();
    context.leadership.release().await;
    lease_watch.abort();
    context.metrics.lease(false);
    if is_shutdown {
        tracing::info!("stopped");
        Ok(())
    } else {
        bail!("lost the lease to another replica: restart this process to become a candidate again")
    }
}

async fn report_synced(synced: Vec<impl Future<Output = ()>>, health: Health) {
    join_all(synced).await;
    health.set_stage(Stage::Running);
    tracing::info!("caches synced");
}

/// Returns the namespaces that the flag names; none if the program watches all. An empty environment variable is one empty
/// name.
fn watched_namespaces(flag: &[String]) -> Vec<String> {
    let names = flag.iter().map(|name| name.trim());
    names
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Returns one scope per namespace, or the scope of all namespaces.
fn scopes(namespaces: Vec<String>) -> Vec<Scope> {
    if namespaces.is_empty() {
        return vec![Scope::All];
    }
    namespaces.into_iter().map(Scope::Namespace).collect()
}

/// Returns an identity that no other process has, including earlier processes of the same pod.
fn identity(info: ProgramInfo, flags: &Flags, random: &SharedRandom) -> String {
    let hostname = || {
        nix::unistd::gethostname()
            .ok()
            .and_then(|name| name.into_string().ok())
    };
    let host = flags
        .identity
        .clone()
        .or_else(hostname)
        .unwrap_or_else(|| info.name.to_owned());
    format!("{host}-{:08x}", random.u64() >> 32)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use futures::FutureExt;

    use super::*;
    use crate::clock::TestClock;
    use crate::fake;
    use crate::random::TestRandom;
    use crate::simple::SimpleReconciler;
    use crate::simple::tests::Greeter;

    const INFO: ProgramInfo = ProgramInfo {
        name: "greeter",
        version: "1.2.3",
        env_prefix: "GREETER",
        metrics_prefix: "greeter",
    };

    #[derive(Parser)]
    struct TestFlags {
        #[command(flatten)]
        program: Flags,
        #[arg(long, env = "GREETING")]
        text: Option<String>,
    }

    fn parse_args(args: &[&str]) -> Flags {
        TestFlags::parse_from([&["greeter"], args].concat()).program
    }

    #[test]
    fn the_flags_are_consistent() {
        command::<TestFlags>(&INFO).debug_assert();
    }

    #[test]
    fn environment_variables_have_the_prefix_of_the_program() {
        let command = command::<TestFlags>(&INFO);
        let variable = |id: &str| {
            let arg = command.get_arguments().find(|arg| arg.get_id() == id);
            arg.unwrap().get_env().unwrap().to_str().unwrap().to_owned()
        };
        assert_eq!(variable("namespaces"), "GREETER_NAMESPACES");
        assert_eq!(variable("lease_namespace"), "GREETER_LEASE_NAMESPACE");
        assert_eq!(variable("lease_name"), "GREETER_LEASE_NAME");
        assert_eq!(variable("listen"), "GREETER_LISTEN");
        assert_eq!(variable("log"), "GREETER_LOG");
        assert_eq!(variable("log_format"), "GREETER_LOG_FORMAT");
        assert_eq!(variable("identity"), "POD_NAME", "an explicit variable");
        assert_eq!(variable("text"), "GREETING", "an explicit variable");
        assert_eq!(command.get_version(), Some("1.2.3"));
    }

    #[test]
    fn namespaces_are_separated_by_commas_and_none_means_all() {
        let read = |args: &[&str]| scopes(watched_namespaces(&parse_args(args).namespaces));
        let two = ["shop", "bank"].map(|name| Scope::Namespace(name.to_owned()));
        assert_eq!(read(&["--namespaces", "shop, bank"]), two);
        assert_eq!(read(&["--namespaces", ""]), [Scope::All]);
        assert_eq!(read(&[]), [Scope::All]);
        // The Lease names them, too.
        let none: [String; 0] = [];
        assert_eq!(watched_namespaces(&[String::new()]), none);
    }

    #[test]
    fn two_processes_of_one_pod_have_different_identities() {
        let flags = parse_args(&["--identity", "pod-1"]);
        let random = SystemRandom::shared();
        let [one, other] = [(); 2].map(|()| identity(INFO, &flags, &random));
        assert!(one.starts_with("pod-1-") && one != other);
    }

    /// A leader whose API server does not answer.
    struct Leader {
        clock: TestClock,
        context: Arc<Context>,
        shutdown: CancellationToken,
        running: tokio::task::JoinHandle<Result<()>>,
    }

    impl Leader {
        async fn start() -> Self {
            let clock = TestClock::default();
            let client = fake::client(|_, _| std::future::pending());
            let shutdown = CancellationToken::new();
            let metrics = Metrics::new("greeter");
            let context = Arc::new(Context {
                client: client.clone(),
                clock: clock.shared(),
                random: TestRandom::shared(1),
                metrics: metrics.clone(),
                identity: "pod-1".to_owned(),
                leadership: Leadership::always(clock.shared()),
                stop: shutdown.child_token(),
            });
            let watches = context.watches(Scope::All);
            let controller = || {
                let (reconciler, triggers) =
                    SimpleReconciler::new(Greeter, client.clone(), clock.shared(), &watches);
                context.controller("greeter.example/operator", reconciler, &watches, triggers)
            };
            let tasks = vec![controller(), controller()];
            let health = Health::new(ClientLayer::new(clock.shared(), metrics));
            let (leading, end) = (context.clone(), shutdown.clone());
            let running =
                tokio::spawn(async move { run_as_leader(&leading, &health, &end, tasks).await });
            clock.run_for(Duration::from_secs(1)).await;
            Self {
                clock,
                context,
                shutdown,
                running,
            }
        }
    }

    #[tokio::test]
    async fn a_lease_lost_before_the_first_list_ends_the_program() {
        let mut leader = Leader::start().await;
        assert!((&mut leader.running).now_or_never().is_none());
        leader.context.leadership.release().await;
        leader.clock.run_for(STOP_TIMEOUT).await;
        let result = leader.running.now_or_never().expect("still running");
        let error = result.unwrap().unwrap_err().to_string();
        assert!(error.starts_with("lost the lease"), "{error}");
    }

    #[tokio::test]
    async fn a_shutdown_before_the_first_list_ends_the_program() {
        let leader = Leader::start().await;
        leader.shutdown.cancel();
        leader.clock.run_for(STOP_TIMEOUT).await;
        let result = leader.running.now_or_never().expect("still running");
        assert!(result.unwrap().is_ok());
    }
}
