//! Restore pods: the parts that do not depend on the application. The agent downloads a backup onto the volume of a member, a
//! program of the application writes its data directory under a temporary name, and the agent renames that directory.
//!
//! The pod is created held: the volume is mounted with a sub-path that the operator sets when the pod may start.

use std::collections::BTreeMap;
use std::path::PathBuf;

use evenkeel_api::backup::labels as backup_labels;
use evenkeel_api::labels;
use evenkeel_archive::tasks::{FetchTask, InstallTask, Request, Task};
use evenkeel_kit::objects::from_json;
use evenkeel_kit::{BuildError, pods};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::agent_pod::{self, StoreAccess};

/// The init container that downloads and verifies the backup.
pub const FETCH: &str = "fetch";
/// The init container that writes the data directory with a program of the application.
pub const RESTORE: &str = "restore";
/// The container that moves the data directory into place.
pub const INSTALL: &str = "install";
/// The value of the label for the task of an agent's pod.
pub const TASK: &str = "restore";
/// The mount path of the volume in all containers.
pub const DATA_PATH: &str = "/var/lib/evenkeel/data";
/// The downloaded backup.
pub const BACKUP_FILE: &str = "/var/lib/evenkeel/data/restore.backup";
/// The directory that the program of the application writes.
pub const TEMPORARY_PATH: &str = "/var/lib/evenkeel/data/restore.tmp";

/// The annotation with the request of the last step.
const INSTALL_REQUEST: &str = "backup.evenkeel.dev/install-request";
const FETCH_FILE: &str = "fetch.json";
const INSTALL_FILE: &str = "install.json";

/// The parameters of a restore pod.
#[derive(Clone, Debug)]
pub struct RestorePod<'a> {
    /// The metadata: name, namespace, labels, annotations, owner.
    pub metadata: Value,
    /// The fields of the pod's spec that depend on the cluster: scheduling, pull Secrets, priority.
    pub placement: Value,
    /// The image of the agent.
    pub agent_image: &'a str,
    /// The store.
    pub store: &'a StoreAccess,
    /// The place of the backup in the store.
    pub location: &'a str,
    /// The engine that the backup must be of.
    pub engine: &'a str,
    /// The version of the application that will read the data.
    pub version: String,
    /// The name of the PVC that is filled.
    pub claim: &'a str,
    /// The name of the data directory on the volume that the application reads.
    pub data_directory: &'a str,
    /// The free space that the restore needs, in percent of the size of the backup.
    pub space_percent: u32,
    /// The container that writes [`TEMPORARY_PATH`] from [`BACKUP_FILE`]: image, command, args, resources.
    pub restore: Value,
    /// How many seconds each step of the agent may take.
    pub deadline_seconds: u64,
}

impl RestorePod<'_> {
    /// Returns the pod.
    pub fn build(&self) -> Result<Pod, BuildError> {
        let fetch = self.request(Task::Fetch(FetchTask {
            location: self.location.to_owned(),
            file: BACKUP_FILE.into(),
            engine: self.engine.to_owned(),
            version: self.version.clone(),
            space_percent: self.space_percent,
            certificates: None,
        }))?;
        let install = self.request(Task::Install(InstallTask {
            from: TEMPORARY_PATH.into(),
            to: PathBuf::from(DATA_PATH).join(self.data_directory),
            remove: vec![BACKUP_FILE.into()],
        }))?;
        let mut metadata = self.metadata.clone();
        metadata["annotations"][backup_labels::REQUEST] = json!(fetch);
        metadata["annotations"][INSTALL_REQUEST] = json!(install);
        metadata["annotations"][labels::DATA_SUB_PATH] = json!(pods::data_sub_path(true));
        for (key, value) in agent_pod::pod_labels(TASK, &BTreeMap::new()) {
            metadata["labels"][key] = json!(value);
        }
        let mut volumes = self.store.volumes.clone();
        volumes.push(agent_pod::request_volume(&[
            (backup_labels::REQUEST, FETCH_FILE),
            (INSTALL_REQUEST, INSTALL_FILE),
        ]));
        volumes.push(agent_pod::work_volume(None));
        volumes
            .push(json!({ "name": "data", "persistentVolumeClaim": { "claimName": self.claim } }));
        let mut spec = agent_pod::pod_spec(self.store.service_account.as_deref());
        agent_pod::place(&mut spec, &self.placement);
        spec["initContainers"] = json!([self.agent(FETCH, FETCH_FILE), self.restore_container()]);
        spec["containers"] = json!([self.agent(INSTALL, INSTALL_FILE)]);
        spec["volumes"] = json!(volumes);
        from_json(
            "a restore Pod",
            json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec }),
        )
    }

    fn request(&self, task: Task) -> Result<String, BuildError> {
        let request = Request {
            store: self.store.config.clone(),
            task,
            deadline_seconds: self.deadline_seconds,
        };
        serde_json::to_string(&request).map_err(|source| BuildError::new("a request", source))
    }

    /// Returns a container of the agent. It has the volume of the member.
    fn agent(&self, name: &str, request_file: &str) -> Value {
        let mut mounts = self.store.mounts.clone();
        mounts.push(agent_pod::request_mount());
        mounts.push(json!({ "name": "work", "mountPath": agent_pod::WORK_PATH }));
        mounts.push(data_mount());
        let mut container =
            agent_pod::agent_container(name, self.agent_image, request_file, &mounts);
        container["env"] = data_env();
        container
    }

    /// Returns the container of the application. It has no access to the store.
    fn restore_container(&self) -> Value {
        let mut container = self.restore.clone();
        container["name"] = json!(RESTORE);
        container["imagePullPolicy"] = json!("IfNotPresent");
        // The end of the log names the reason of a failure.
        container["terminationMessagePolicy"] = json!("FallbackToLogsOnError");
        container["securityContext"] = agent_pod::container_security();
        container["env"] = data_env();
        container["volumeMounts"] = json!([data_mount()]);
        container
    }
}

/// Returns the mount of the member's volume, whose sub-path is that of the member's pod once the restore may start.
fn data_mount() -> Value {
    json!({ "name": "data", "mountPath": DATA_PATH, "subPathExpr": "$(DATA)" })
}

fn data_env() -> Value {
    let path = format!("metadata.annotations['{}']", labels::DATA_SUB_PATH);
    json!([{ "name": "DATA", "valueFrom": { "fieldRef": { "fieldPath": path } } }])
}

#[cfg(test)]
#[path = "restore_tests.rs"]
mod tests;
