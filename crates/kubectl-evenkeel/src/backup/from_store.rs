//! `kubectl evenkeel backups --from-store`: lists the backups in a store itself, also of deleted clusters, and creates `Backup`
//! objects for them. The operator starts a pod that lists the store, because only pods have its credentials.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use evenkeel_api::backup::labels;
use evenkeel_api::{Backup, BackupStore};
use evenkeel_kit::pods;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use kube::api::{ListParams, LogParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::create::{FIELD_MANAGER, api, main_container, submit};
use super::objects;
use super::progress::{ProgressDisplay, ProgressStep};
use super::report::{StoredBackupList, reason_text};
use super::store_choice::{StoreReadiness, find, missing_operator, readiness};
use super::{stored, stored_text};
use crate::connection::{Connection, request};
use crate::error::CliError;
use crate::operator_status::OperatorStatus;
use crate::output::OutputOptions;
use crate::report::API_VERSION;
use crate::terminal::format_elapsed;

/// The task of the pods that list a store.
const LIST_TASK: &str = "list";

/// What is listed and imported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FromStoreOptions<'a> {
    /// The name of the BackupStore.
    pub(crate) store: &'a str,
    /// The name of the cluster. `None` for all clusters.
    pub(crate) cluster: Option<&'a str>,
    /// The locations or names of the backups to import.
    pub(crate) import: &'a [String],
    /// Whether all complete backups are imported.
    pub(crate) import_all: bool,
    /// Whether further columns are shown.
    pub(crate) is_wide: bool,
}

/// The times of a listing.
#[derive(Clone, Copy, Debug)]
struct ListTimes {
    /// The time between two reads.
    interval: Duration,
    /// How long the operator may take to create the pod.
    start: Duration,
    /// How long the whole listing may take.
    total: Duration,
}

impl ListTimes {
    const DEFAULT: Self = Self {
        interval: Duration::from_secs(1),
        start: Duration::from_secs(30),
        total: Duration::from_secs(300),
    };
}

/// Lists a store and imports the chosen backups.
pub(crate) async fn run(
    connection: &Connection,
    options: FromStoreOptions<'_>,
    output: OutputOptions,
) -> Result<u8, CliError> {
    let list = list_and_import(connection, options, ListTimes::DEFAULT).await?;
    output.print(&list, |terminal| {
        stored_text::text(&list, options.is_wide, terminal)
    })?;
    Ok(0)
}

async fn list_and_import(
    connection: &Connection,
    options: FromStoreOptions<'_>,
    times: ListTimes,
) -> Result<StoredBackupList, CliError> {
    let now = Timestamp::now();
    let namespace = connection.namespace.as_str();
    let (stores, backups, operator) = futures::join!(
        objects::list::<BackupStore>(connection, Some(namespace)),
        objects::list::<Backup>(connection, Some(namespace)),
        OperatorStatus::query(&connection.client, Some(namespace), now),
    );
    let (stores, backups) = (stores?, backups?);
    let store = find(&stores, options.store, namespace)?;
    if let OperatorStatus::NotRunning { namespace, lease } = &operator {
        return Err(missing_operator(
            namespace.as_deref().unwrap_or_default(),
            lease,
        ));
    }
    if let StoreReadiness::NotReady(reason) = readiness(store) {
        // The store may still be readable, for example if only writes are denied.
        eprintln!("note: BackupStore {} is not Ready: {reason}", options.store);
    }
    let listing = read_listing(connection, options.store, times).await?;
    let mut items = stored::parse(&listing.log);
    items.retain(|item| {
        options
            .cluster
            .is_none_or(|cluster| item.cluster == cluster)
    });
    stored::mark(&mut items, options.store, &backups);
    let imports = stored::choose(&items, options.import, options.import_all)?;
    let mut imported = Vec::new();
    for index in imports.chosen {
        let item = &mut items[index];
        import(connection, &stored::object(item, options.store)).await?;
        item.has_object = true;
        imported.push(item.name.clone());
    }
    Ok(StoredBackupList {
        api_version: API_VERSION,
        kind: "StoredBackupList",
        time: now.to_string(),
        namespace: namespace.to_owned(),
        store: options.store.to_owned(),
        items,
        imported,
        not_imported: imports.skipped,
        omitted: listing.omitted,
    })
}

/// Creates a Backup. The same Backup may have been created meanwhile.
async fn import(connection: &Connection, backup: &Backup) -> Result<(), CliError> {
    let name = backup.name_any();
    let Err(error) = submit(connection, backup).await else {
        return Ok(());
    };
    let existing = api(connection).get_opt(&name).await;
    let is_same = |existing: &Backup| {
        existing.spec.store == backup.spec.store && existing.spec.existing == backup.spec.existing
    };
    match existing {
        Ok(Some(existing)) if is_same(&existing) => Ok(()),
        _ => Err(error),
    }
}

/// The log of a pod that has listed a store.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listing {
    log: String,
    /// The number of older backups that are not in the log.
    omitted: u64,
}

/// Asks the operator for a listing, and returns the log of the pod that made it.
async fn read_listing(
    connection: &Connection,
    store: &str,
    times: ListTimes,
) -> Result<Listing, CliError> {
    let id = request_id();
    let stores: Api<BackupStore> =
        Api::namespaced(connection.client.clone(), &connection.namespace);
    let patch =
        Patch::Merge(json!({ "metadata": { "annotations": { labels::LIST_REQUEST: id } } }));
    let params = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    request(
        &format!("request a listing of BackupStore {store}"),
        stores.patch(store, &params, &patch),
    )
    .await?;
    wait_for_log(connection, store, &id, times).await
}

/// Waits until the pod of a request has succeeded, and returns its log.
async fn wait_for_log(
    connection: &Connection,
    store: &str,
    id: &str,
    times: ListTimes,
) -> Result<Listing, CliError> {
    let pods: Api<Pod> = Api::namespaced(connection.client.clone(), &connection.namespace);
    let of_store = ListParams::default().labels(&format!(
        "{}={store},{}={LIST_TASK}",
        labels::STORE,
        labels::TASK
    ));
    let started = Instant::now();
    let mut display = ProgressDisplay::start(&format!("Listing store {store}"));
    loop {
        let found = request("list pods", pods.list(&of_store)).await?.items;
        let is_own = |pod: &Pod| {
            pod.annotations()
                .get(labels::LIST_REQUEST)
                .is_some_and(|it| it == id)
        };
        let pod = found.into_iter().find(is_own);
        let elapsed = started.elapsed();
        let text = match &pod {
            None if elapsed > times.start => return Err(not_started(store, elapsed)),
            None => "waiting for the operator to start the agent".to_owned(),
            Some(pod) => match phase(pod) {
                "Succeeded" => {
                    let log = read_log(&pods, pod).await?;
                    let omitted = verified(store, pod, &log)?;
                    return Ok(Listing { log, omitted });
                }
                "Failed" => return Err(failed(store, pod)),
                "Running" => "the agent reads the store".to_owned(),
                _ => pending_text(pod),
            },
        };
        if elapsed > times.total {
            return Err(timed_out(store, &text, elapsed));
        }
        display.show(&ProgressStep { text, agent: None });
        sleep(times.interval).await;
    }
}

/// Returns a random identifier of 16 hexadecimal digits.
fn request_id() -> String {
    // The keys of a new `RandomState` are random.
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_i128(Timestamp::now().as_nanosecond());
    format!("{:016x}", hasher.finish())
}

fn phase(pod: &Pod) -> &str {
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    phase.unwrap_or_default()
}

fn pending_text(pod: &Pod) -> String {
    match pods::problem(pod, "the agent") {
        Some(problem) => format!("the agent does not start: {problem}"),
        None => "the agent starts".to_owned(),
    }
}

async fn read_log(pods: &Api<Pod>, pod: &Pod) -> Result<String, CliError> {
    let params = LogParams {
        container: main_container(pod),
        ..LogParams::default()
    };
    let name = pod.name_any();
    request(
        &format!("read the log of pod {name}, which lists the store"),
        pods.logs(&name, &params),
    )
    .await
}

/// Compares a log with the outcome of the agent: the kubelet may have rotated its beginning away. Returns the number of backups
/// that the agent has left out. An agent of an older release reports nothing.
fn verified(store: &str, pod: &Pod, log: &str) -> Result<u64, CliError> {
    let message = terminated(pod).and_then(|it| it.message.as_deref());
    let outcome: Option<Value> = message.and_then(|it| serde_json::from_str(it).ok());
    let listed = outcome
        .as_ref()
        .and_then(|it| it.pointer("/succeeded/listed"));
    let Some(listed) = listed else {
        return Ok(0);
    };
    let (count, digest) = stored::checksum(log);
    let expected = listed["listed"].as_u64();
    if expected == Some(count) && listed["sha256"] == digest.as_str() {
        return Ok(listed["omitted"].as_u64().unwrap_or_default());
    }
    Err(CliError::new(format!(
        "cannot list BackupStore {store}: the agent has listed {} backups, and its log has {count} of them or others",
        expected.unwrap_or_default()
    ))
    .help(
        "the kubelet may have rotated the log: try again, raise containerLogMaxSize of the kubelet, or use a store or a prefix of \
         its own for each cluster",
    ))
}

fn not_started(store: &str, elapsed: Duration) -> CliError {
    CliError::new(format!(
        "the operator has started no pod that lists BackupStore {store} within {}",
        seconds_text(elapsed)
    ))
    .help(format!(
        "`kubectl describe backupstore {store}` shows its conditions. An operator of an older release lists no stores: \
         `kubectl evenkeel version` compares the releases"
    ))
}

fn timed_out(store: &str, step: &str, elapsed: Duration) -> CliError {
    CliError::new(format!(
        "BackupStore {store} was not listed within {}: {step}",
        seconds_text(elapsed)
    ))
    .help(format!(
        "`kubectl get pods -l {}={store}` shows the pod",
        labels::STORE
    ))
}

fn seconds_text(elapsed: Duration) -> String {
    format_elapsed(i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX))
}

/// Returns the error of a pod that has failed: the outcome in its termination message, or else how it ended.
fn failed(store: &str, pod: &Pod) -> CliError {
    let terminated = terminated(pod);
    let outcome = terminated.and_then(|it| failure(it.message.as_deref()?));
    let reason = outcome.unwrap_or_else(|| {
        let status = pod.status.as_ref();
        let reason = status.and_then(|status| status.reason.as_deref());
        let message = status.and_then(|status| status.message.as_deref());
        match (terminated, reason) {
            (Some(ended), None) => format!(
                "the agent ended with exit code {} and without a report",
                ended.exit_code
            ),
            (_, reason) => format!(
                "the pod ended without a report: {}",
                reason_text(reason.unwrap_or_default(), message.unwrap_or_default())
            ),
        }
    });
    CliError::new(format!("cannot list BackupStore {store}: {reason}")).help(format!(
        "`kubectl logs {}` shows the log of the agent, until the operator deletes the pod",
        pod.name_any()
    ))
}

/// Returns the state in which the agent's container ended.
fn terminated(pod: &Pod) -> Option<&ContainerStateTerminated> {
    let name = main_container(pod)?;
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    let status = statuses.iter().find(|status| status.name == name)?;
    status.state.as_ref()?.terminated.as_ref()
}

/// Returns the reason and the message of a failed outcome. A newer agent may have further reasons, so they are not parsed.
fn failure(message: &str) -> Option<String> {
    let outcome: Value = serde_json::from_str(message).ok()?;
    let failed = outcome.get("failed")?;
    let text = |field: &str| {
        failed
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    Some(reason_text(text("reason"), text("message")))
}

#[cfg(test)]
#[path = "from_store_tests.rs"]
mod tests;
