//! Drills: the containers that restore a backup with the version of etcd that the cluster runs, and serve the restored data on
//! loopback. No revision is skipped, so that the data can be compared with the backup.

use std::path::PathBuf;

use evenkeel_archive::tasks::{EtcdDrillTask, Task};
use evenkeel_backup::agent_pod::{WORK_PATH, container_security, placement};
use evenkeel_backup::schedule::drill_pod::{RESTORE, SERVE};
use evenkeel_backup::{DrillParts, DrillSource};
use evenkeel_runtime::{Error, ResourceKey};
use kube::Client;
use serde_json::{Value, json};

use crate::desired::DesiredCluster;
use crate::effective_spec::{ClusterHistory, effective_spec};
use crate::observe::objects;

/// The name of the restored member.
const MEMBER: &str = "drill";
/// The URLs of the restored member. Other pods cannot reach them.
const CLIENT_URL: &str = "https://127.0.0.1:2379";
const PEER_URL: &str = "http://127.0.0.1:2380";

/// Reads a cluster, and returns the containers of a drill. Returns `None` if the cluster does not exist.
pub(crate) async fn read(
    client: &Client,
    key: &ResourceKey,
    source: DrillSource,
) -> Result<Option<DrillParts>, Error> {
    let Some(objects) = objects::read_live(client, key).await? else {
        return Ok(None);
    };
    let history = ClusterHistory::of(&objects);
    let effective = effective_spec(&objects.resource, &history).map_err(Error::invalid_spec)?;
    Ok(Some(drill_parts(&effective.desired, source)))
}

/// Returns the containers of a drill.
pub fn drill_parts(desired: &DesiredCluster, source: DrillSource) -> DrillParts {
    let DrillSource {
        location,
        file,
        directory,
        started_at,
    } = source;
    let data = directory.display().to_string();
    let certificates = PathBuf::from(WORK_PATH).join("tls");
    let tls = |name: &str| certificates.join(name).display().to_string();
    let restore = [
        "snapshot".to_owned(),
        "restore".to_owned(),
        file.display().to_string(),
        format!("--data-dir={data}"),
        format!("--name={MEMBER}"),
        format!("--initial-cluster={MEMBER}={PEER_URL}"),
        format!("--initial-advertise-peer-urls={PEER_URL}"),
        format!("--initial-cluster-token={MEMBER}"),
    ];
    let serve = [
        format!("--name={MEMBER}"),
        format!("--data-dir={data}"),
        format!("--listen-client-urls={CLIENT_URL}"),
        format!("--advertise-client-urls={CLIENT_URL}"),
        format!("--listen-peer-urls={PEER_URL}"),
        format!("--initial-advertise-peer-urls={PEER_URL}"),
        format!("--initial-cluster={MEMBER}={PEER_URL}"),
        format!("--initial-cluster-token={MEMBER}"),
        // The agent is the user root of the restored data, by its certificate: the data may require authentication.
        format!("--cert-file={}", tls("tls.crt")),
        format!("--key-file={}", tls("tls.key")),
        format!("--trusted-ca-file={}", tls("ca.crt")),
        "--client-cert-auth".to_owned(),
        // As the members', so that a large backup raises no alarm.
        format!("--quota-backend-bytes={}", desired.quota),
    ];
    DrillParts {
        version: desired.version.to_string(),
        restore: container(desired, RESTORE, "/usr/local/bin/etcdutl", &restore),
        serve: container(desired, SERVE, "/usr/local/bin/etcd", &serve),
        certificates: Some(certificates.clone()),
        compare: Task::DrillEtcd(EtcdDrillTask {
            location,
            endpoint: CLIENT_URL.to_owned(),
            tls: Some(certificates.clone()),
            started_at,
        }),
        placement: placement(
            &desired.pull_secrets,
            &desired.node_selector,
            &desired.tolerations,
        ),
    }
}

fn container(desired: &DesiredCluster, name: &str, program: &str, args: &[String]) -> Value {
    let mut resources = json!({ "requests": { "cpu": "50m", "memory": "128Mi" } });
    // The same memory as a member has: it maps the same database.
    if let Some(memory) = desired.resources.pointer("/limits/memory") {
        resources["limits"] = json!({ "memory": memory });
    }
    json!({
        "name": name,
        "image": desired.image,
        "imagePullPolicy": "IfNotPresent",
        "command": [program],
        "args": args,
        "resources": resources,
        // The end of the log names the damage.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": container_security(),
        // Neither the store nor its credentials.
        "volumeMounts": [{ "name": "work", "mountPath": WORK_PATH }],
    })
}

#[cfg(test)]
#[path = "backup_drill_tests.rs"]
mod tests;
