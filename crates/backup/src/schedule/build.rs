//! The objects that a BackupSchedule creates: Backups, and pods of the agent.

use std::collections::BTreeMap;
use std::path::PathBuf;

use evenkeel_api::backup::labels;
use evenkeel_api::{Backup, BackupSchedule, BackupSpec};
use evenkeel_archive::tasks::{FetchTask, PruneTask, Request, Task};
use evenkeel_kit::BuildError;
use evenkeel_kit::objects::from_json;
use evenkeel_runtime::UnixTime;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use serde_json::{Value, json};

use super::drill_pod;
use super::facts::{drill_pod_name, prune_pod_name};
use crate::agent_pod::{
    self, AgentPod, REQUEST_FILE, StoreAccess, WORK_PATH, agent_container, owner_reference,
    pod_labels, pod_spec, request_mount, request_volume,
};
use crate::engine::DrillParts;

/// The label of pods that delete backups.
pub const PRUNE_TASK: &str = "prune";
/// The label of pods that restore a backup.
pub const DRILL_TASK: &str = "drill";
/// The file of the request of the container that compares the data.
const DRILL_REQUEST_FILE: &str = "drill.json";
/// How long a deletion may take.
const PRUNE_DEADLINE_SECONDS: u64 = 1_800;
/// The space of the volume of a drill, in percent of the size of the data: the download, the restored data, and its log.
const SPACE_PERCENT: u32 = 220;
/// The smallest space of the volume of a drill: etcd preallocates two log files of 64 MiB.
const MIN_SPACE_BYTES: u64 = 512 << 20;

/// Returns the Backup of a due time. The schedule does not own it: backups outlive their schedule.
pub fn backup(schedule: &BackupSchedule, name: &str, run: u32) -> Backup {
    let spec = &schedule.spec;
    let mut backup = Backup::new(
        name,
        BackupSpec {
            cluster: spec.cluster.clone(),
            store: spec.policy.store.clone(),
            deadline: spec.policy.deadline.clone(),
            existing: None,
        },
    );
    let labels = [
        (
            evenkeel_api::labels::APP_MANAGED_BY,
            evenkeel_api::labels::MANAGER.to_owned(),
        ),
        (labels::SCHEDULE, schedule.name_any()),
    ];
    backup.metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: schedule.namespace(),
        labels: Some(labels.map(|(key, value)| (key.to_owned(), value)).into()),
        annotations: Some([(labels::RUN.to_owned(), run.to_string())].into()),
        ..ObjectMeta::default()
    };
    backup
}

/// The parts that all pods of a schedule have.
#[derive(Clone, Copy, Debug)]
pub struct PodParams<'a> {
    /// The schedule.
    pub schedule: &'a BackupSchedule,
    /// The store.
    pub store: &'a StoreAccess,
    /// The image of the agent.
    pub image: &'a str,
}

impl PodParams<'_> {
    fn labels(&self) -> BTreeMap<String, String> {
        [(labels::SCHEDULE.to_owned(), self.schedule.name_any())].into()
    }
}

/// Returns the pod that deletes backups, with the placement of the cluster.
pub fn prune_pod(
    params: PodParams<'_>,
    task: PruneTask,
    placement: &Value,
) -> Result<Pod, BuildError> {
    let schedule = params.schedule;
    let request = Request {
        store: params.store.config.clone(),
        task: Task::Prune(task),
        deadline_seconds: PRUNE_DEADLINE_SECONDS,
    };
    let pod = AgentPod {
        name: &prune_pod_name(&schedule.name_any()),
        namespace: &schedule.namespace().unwrap_or_default(),
        owner: owner_reference(schedule),
        task: PRUNE_TASK,
        labels: params.labels(),
        annotations: BTreeMap::new(),
        image: params.image,
        store: params.store,
        request: &request,
        tls_secret: None,
        spool_bytes: None,
        placement,
    };
    pod.build()
}

/// A drill.
#[derive(Clone, Copy, Debug)]
pub struct DrillParams<'a> {
    /// The Backup.
    pub backup: &'a Backup,
    /// The bytes of its data.
    pub size: u64,
    /// When the drill was due.
    pub due: UnixTime,
    /// How long the drill may take, in seconds.
    pub deadline_seconds: u64,
    /// The name of the engine.
    pub engine: &'a str,
}

/// Returns the file that the backup is downloaded to.
pub fn fetched_file() -> PathBuf {
    PathBuf::from(WORK_PATH).join("backup")
}

/// Returns the directory for the restored data.
pub fn restored_directory() -> PathBuf {
    PathBuf::from(WORK_PATH).join("restored")
}

/// Returns the pod that restores a backup, serves it on loopback and compares it. No container of the application has access
/// to the store or to the network of the cluster's members: it has none of their certificates.
pub fn drill_pod(
    params: PodParams<'_>,
    drill: DrillParams<'_>,
    parts: &DrillParts,
) -> Result<Pod, BuildError> {
    let schedule = params.schedule;
    let name = schedule.name_any();
    let request = |task: Task| {
        let request = Request {
            store: params.store.config.clone(),
            task,
            deadline_seconds: drill.deadline_seconds,
        };
        serde_json::to_string(&request).map_err(|source| BuildError::new("a request", source))
    };
    let location = drill
        .backup
        .status
        .as_ref()
        .map(|status| status.location.clone());
    let fetch = Task::Fetch(FetchTask {
        location: location.unwrap_or_default(),
        file: fetched_file(),
        engine: drill.engine.to_owned(),
        version: parts.version.clone(),
        space_percent: SPACE_PERCENT,
        certificates: parts.certificates.clone(),
    });
    let annotations: BTreeMap<String, String> = [
        (labels::REQUEST, request(fetch)?),
        (labels::DRILL_REQUEST, request(parts.compare.clone())?),
        (labels::DRILL_OF, drill.backup.name_any()),
        (labels::DRILL_OF_UID, drill.backup.uid().unwrap_or_default()),
        (labels::DUE, drill.due.0.to_string()),
        (labels::VERSION, parts.version.clone()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into();
    let work = json!({ "name": "work", "mountPath": WORK_PATH });
    let mut mounts = params.store.mounts.clone();
    mounts.push(request_mount());
    mounts.push(work);
    let mut volumes = params.store.volumes.clone();
    volumes.push(request_volume(&[
        (labels::REQUEST, REQUEST_FILE),
        (labels::DRILL_REQUEST, DRILL_REQUEST_FILE),
    ]));
    volumes.push(agent_pod::work_volume(Some(space(drill.size))));
    let agent =
        |container: &str, file: &str| agent_container(container, params.image, file, &mounts);
    let mut spec = pod_spec(params.store.service_account.as_deref());
    spec["activeDeadlineSeconds"] = json!(drill.deadline_seconds.saturating_add(30));
    spec["initContainers"] = json!([agent(drill_pod::FETCH, REQUEST_FILE), parts.restore]);
    spec["containers"] = json!([parts.serve, agent(drill_pod::DRILL, DRILL_REQUEST_FILE)]);
    spec["volumes"] = json!(volumes);
    agent_pod::place(&mut spec, &parts.placement);
    from_json(
        "the Pod of a drill",
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": drill_pod_name(&name),
                "namespace": schedule.namespace(),
                "labels": pod_labels(DRILL_TASK, &params.labels()),
                "annotations": annotations,
                "ownerReferences": [owner_reference(schedule)],
            },
            "spec": spec,
        }),
    )
}

/// Returns the bytes that a drill may write.
fn space(size: u64) -> u64 {
    let space = size.saturating_mul(u64::from(SPACE_PERCENT)) / 100;
    space.saturating_add(MIN_SPACE_BYTES)
}

#[cfg(test)]
#[path = "build_tests.rs"]
mod tests;
