//! `kubectl evenkeel backup`: creates a `Backup`, and waits until it is complete or has failed.

use std::time::Duration;

use evenkeel_api::backup::labels;
use evenkeel_api::{
    Backup, BackupPhase, BackupSchedule, BackupSpec, BackupStore, ClusterKind, ClusterReference,
    EtcdCluster,
};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, LogParams, PostParams};
use kube::{Api, ResourceExt};
use tokio::time::{Instant, sleep};

use super::objects::{self, known_kind};
use super::progress::{AgentProgress, ProgressDisplay, ProgressStep};
use super::report::{BackupReport, BackupResult};
use super::store_choice::{StoreChoices, StoreReadiness, readiness, require_possible};
use crate::args::{NamedTarget, OutputFormat};
use crate::connection::{Connection, request};
use crate::effect::require_not_deleted;
use crate::error::{CliError, EXIT_FAILED, EXIT_UNREACHABLE};
use crate::live::LiveScope;
use crate::output::OutputOptions;
use crate::report::{API_VERSION, ClusterReport};
use crate::terminal::{Terminal, format_elapsed};

/// The deadline of a backup of a cluster without a schedule, as in the CRD.
const DEFAULT_DEADLINE: &str = "30m";
/// The name under which the API server records who created an object.
pub(super) const FIELD_MANAGER: &str = "kubectl-evenkeel";
/// How many lines of the agent's log are read.
const LOG_LINES: i64 = 20;

/// How a backup is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BackupOptions<'a> {
    /// The name of the store. `None` for the one of the cluster's schedule, or the only one.
    pub(crate) store: Option<&'a str>,
    /// The name of the Backup. `None` for a name with the time.
    pub(crate) name: Option<&'a str>,
    /// How long the backup may take. `None` for the deadline of the cluster's schedule.
    pub(crate) deadline: Option<&'a str>,
    /// Whether the command waits until the backup has ended.
    pub(crate) waits: bool,
}

/// The times of a wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitTimes {
    /// The time between two reads.
    pub(super) interval: Duration,
    /// How long the operator may take to report the end after the deadline of a backup.
    pub(super) grace: Duration,
    /// How long the Kubernetes API may not respond.
    pub(super) outage: Duration,
}

impl WaitTimes {
    pub(super) const DEFAULT: Self = Self {
        interval: Duration::from_secs(1),
        grace: Duration::from_secs(60),
        outage: Duration::from_secs(60),
    };
}

/// Takes a backup.
pub(crate) async fn run(
    connection: &Connection,
    target: &NamedTarget,
    options: BackupOptions<'_>,
    output: OutputOptions,
) -> Result<u8, CliError> {
    let created = create(connection, target, options).await?;
    let name = created.name_any();
    let cluster = &created.spec.cluster.name;
    if !options.waits {
        let report = BackupReport::new(&created);
        print(&report, output, |terminal| {
            terminal.paragraphs(&format!(
                "{cluster}: Backup {name} was created. `kubectl evenkeel backups {cluster}` shows its progress.\n"
            ))
        })?;
        return Ok(0);
    }
    let ended = tokio::select! {
        ended = wait(connection, &created, WaitTimes::DEFAULT) => ended?,
        _ = tokio::signal::ctrl_c() => {
            let text = interrupted(&name, cluster);
            eprint!("{}", output.terminal.paragraphs(&text));
            return Ok(EXIT_FAILED);
        }
    };
    let report = BackupReport::new(&ended);
    if report.is_complete() {
        print(&report, output, |terminal| complete(&report, terminal))?;
        return Ok(0);
    }
    if output.format != OutputFormat::Text {
        print(&report, output, |_| String::new())?;
        return Ok(EXIT_FAILED);
    }
    Err(failed(&report))
}

/// Creates the Backup, unless it could not be taken.
async fn create(
    connection: &Connection,
    target: &NamedTarget,
    options: BackupOptions<'_>,
) -> Result<Backup, CliError> {
    let cluster = connection.cluster(Some(&target.cluster)).await?;
    require_not_deleted(&cluster)?;
    let now = Timestamp::now();
    let namespace = Some(connection.namespace.as_str());
    let (report, stores, schedules) = futures::join!(
        ClusterReport::of(connection, &cluster, LiveScope::Members, now),
        objects::list::<BackupStore>(connection, namespace),
        objects::list::<BackupSchedule>(connection, namespace),
    );
    let stores = stores?;
    // With a named store, the schedule only tells the deadline.
    let schedules = match schedules {
        Err(_) if options.store.is_some() => Vec::new(),
        schedules => schedules?,
    };
    let name = cluster.name_any();
    let choices = StoreChoices {
        cluster: &name,
        namespace: &connection.namespace,
        schedules: schedules
            .iter()
            .filter(|schedule| is_of(&schedule.spec.cluster, &name))
            .collect(),
        stores: &stores,
    };
    let store = choices.choose(options.store)?;
    require_possible(&report, store)?;
    let store_name = store.name_any();
    let deadline = options
        .deadline
        .or_else(|| choices.deadline(&store_name))
        .unwrap_or(DEFAULT_DEADLINE);
    let backup_name = options
        .name
        .map_or_else(|| default_name(&cluster, now), str::to_owned);
    if readiness(store) == StoreReadiness::NotChecked {
        eprintln!(
            "note: the operator has not checked BackupStore {store_name} yet. The backup waits for that."
        );
    }
    let spec = BackupSpec {
        cluster: ClusterReference {
            kind: ClusterKind::EtcdCluster,
            name: name.clone(),
        },
        store: store_name,
        deadline: deadline.to_owned(),
        existing: None,
    };
    submit(connection, &Backup::new(&backup_name, spec)).await
}

/// Creates a Backup object.
pub(super) async fn submit(connection: &Connection, backup: &Backup) -> Result<Backup, CliError> {
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    let action = format!("create Backup {}", backup.name_any());
    let created = request(&action, api(connection).create(&params, backup)).await;
    created.map_err(known_kind::<Backup>)
}

/// Returns the API of the namespace's Backups.
pub(super) fn api(connection: &Connection) -> Api<Backup> {
    Api::namespaced(connection.client.clone(), &connection.namespace)
}

/// Returns whether a reference names an EtcdCluster.
pub(super) fn is_of(reference: &ClusterReference, cluster: &str) -> bool {
    reference.kind == ClusterKind::EtcdCluster && reference.name == cluster
}

/// Returns a name with the time, such as orders-20261118-114000. The name of a cluster has at most 40 characters.
fn default_name(cluster: &EtcdCluster, now: Timestamp) -> String {
    let time = now.to_zoned(TimeZone::UTC);
    format!("{}-{}", cluster.name_any(), time.strftime("%Y%m%d-%H%M%S"))
}

/// Waits until a Backup is complete or has failed, and shows its progress.
async fn wait(
    connection: &Connection,
    created: &Backup,
    times: WaitTimes,
) -> Result<Backup, CliError> {
    let name = created.name_any();
    let deadline = evenkeel_api::duration::parse(&created.spec.deadline);
    let limit = deadline.ok().flatten().unwrap_or_default() + times.grace;
    let started = Instant::now();
    let mut last_answer = started;
    let mut agent = AgentLog::new(connection, &name);
    let mut display = ProgressDisplay::start(&name);
    let mut last = created.clone();
    loop {
        match request(
            &format!("read Backup {name}"),
            api(connection).get_opt(&name),
        )
        .await
        {
            Ok(Some(backup)) => {
                last_answer = Instant::now();
                last = backup;
            }
            Ok(None) => return Err(deleted(&name)),
            Err(error) => {
                let is_outage = error.exit_code == EXIT_UNREACHABLE;
                if !is_outage || last_answer.elapsed() > times.outage {
                    return Err(error);
                }
            }
        }
        let status = last.status.clone().unwrap_or_default();
        if status.phase.is_final() {
            return Ok(last);
        }
        if started.elapsed() > limit {
            return Err(timed_out(&BackupReport::new(&last), limit));
        }
        let is_running = status.phase == BackupPhase::Running;
        display.show(&ProgressStep {
            text: step_text(&BackupReport::new(&last)),
            agent: if is_running { agent.read().await } else { None },
        });
        sleep(times.interval).await;
    }
}

/// Returns the phase of a backup that has not ended, and the operator's message.
fn step_text(backup: &BackupReport) -> String {
    match (backup.phase.as_str(), backup.message.as_str()) {
        (phase, "") => phase.to_owned(),
        (phase, message) => format!("{phase}: {message}"),
    }
}

/// The log of a backup's agent. The first error ends the reading: the user may not have the permission.
struct AgentLog {
    pods: Option<Api<Pod>>,
    params: ListParams,
}

impl AgentLog {
    fn new(connection: &Connection, backup: &str) -> Self {
        Self {
            pods: Some(Api::namespaced(
                connection.client.clone(),
                &connection.namespace,
            )),
            params: ListParams::default().labels(&format!("{}={backup}", labels::BACKUP)),
        }
    }

    async fn read(&mut self) -> Option<AgentProgress> {
        let log = self.last_lines(self.pods.as_ref()?).await;
        match log {
            Ok(log) => AgentProgress::of_log(&log?),
            Err(_) => {
                self.pods = None;
                None
            }
        }
    }

    async fn last_lines(&self, pods: &Api<Pod>) -> Result<Option<String>, kube::Error> {
        let mut found = pods.list(&self.params).await?.items;
        found.sort_by_key(|pod| pod.creation_timestamp().map(|time| time.0));
        let is_running = |pod: &&Pod| {
            let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
            phase == Some("Running")
        };
        let Some(pod) = found.iter().rev().find(is_running) else {
            return Ok(None);
        };
        let params = LogParams {
            container: main_container(pod),
            tail_lines: Some(LOG_LINES),
            ..LogParams::default()
        };
        pods.logs(&pod.name_any(), &params).await.map(Some)
    }
}

/// Returns the name of the agent's container. Webhooks may have added others.
pub(super) fn main_container(pod: &Pod) -> Option<String> {
    const AGENT: &str = "agent";
    let containers = &pod.spec.as_ref()?.containers;
    let agent = containers.iter().find(|container| container.name == AGENT);
    let container = agent.or(containers.first())?;
    Some(container.name.clone())
}

fn print(
    backup: &BackupReport,
    output: OutputOptions,
    text: impl FnOnce(Terminal) -> String,
) -> Result<(), CliError> {
    let result = BackupResult {
        api_version: API_VERSION,
        kind: "BackupResult",
        time: Timestamp::now().to_string(),
        backup: backup.clone(),
    };
    output.print(&result, text)
}

/// Describes a complete backup, and what can be done with it.
fn complete(backup: &BackupReport, terminal: Terminal) -> String {
    let (name, cluster) = (&backup.name, &backup.cluster);
    let mut text = format!("{cluster}: Backup {name} is complete.\n");
    let mut position = vec![backup.position.clone()];
    if !backup.engine_version.is_empty() {
        position.push(format!("etcd {}", backup.engine_version));
    }
    if !backup.member.is_empty() {
        position.push(format!("read from {}", backup.member));
    }
    let mut size = vec![backup.size.clone()];
    if !backup.stored_size.is_empty() {
        size.push(format!("{} in the store", backup.stored_size));
    }
    size.extend(backup.keys.map(|keys| format!("{keys} keys")));
    let next = format!(
        "`kubectl evenkeel backups {cluster}` lists all backups. A new cluster begins with this one if its manifest has \
         spec.bootstrap.from.backup: {name}"
    );
    let fields = [
        ("Store", backup.store.clone()),
        ("Location", backup.location.clone()),
        ("Position", join(position)),
        ("Size", join(size)),
        (
            "Duration",
            backup
                .duration_seconds
                .map(format_elapsed)
                .unwrap_or_default(),
        ),
        ("Next", next),
    ];
    for (label, value) in fields {
        if !value.is_empty() {
            text.push_str(&terminal.field(label, &value));
        }
    }
    text
}

fn join(parts: Vec<String>) -> String {
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("; ")
}

fn failed(backup: &BackupReport) -> CliError {
    let (name, cluster) = (&backup.name, &backup.cluster);
    CliError::new(format!(
        "Backup {name} has failed: {}",
        backup.reason_text()
    ))
    .help(format!(
        "the operator does not try it again. Resolve the problem, then take another backup: `kubectl evenkeel backup {cluster}`"
    ))
}

fn deleted(name: &str) -> CliError {
    CliError::new(format!("Backup {name} was deleted before it was complete"))
}

fn timed_out(backup: &BackupReport, limit: Duration) -> CliError {
    let seconds = i64::try_from(limit.as_secs()).unwrap_or(i64::MAX);
    CliError::new(format!(
        "Backup {} has not ended within {}, which is more than its deadline: {}",
        backup.name,
        format_elapsed(seconds),
        step_text(backup)
    ))
    .help(format!(
        "check that an operator is running: `kubectl evenkeel status {}`",
        backup.cluster
    ))
}

fn interrupted(name: &str, cluster: &str) -> String {
    format!(
        "Backup {name} continues without this command. `kubectl evenkeel backups {cluster}` shows its progress.\n"
    )
}

#[cfg(test)]
#[path = "create_tests.rs"]
mod tests;
