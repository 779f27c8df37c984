//! The pod of a member. It passes the restricted Pod Security profile, has no service account token, and starts etcd only
//! in the mode that its annotations name.

use evenkeel_api::{labels, options};
use evenkeel_kit::objects::from_json;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::service::{CLIENT_PORT, METRICS_PORT, PEER_PORT};
use super::{BuildError, MemberRef, common_labels, member_selector, owner_reference, start_mode};
use crate::desired::{DesiredCluster, DesiredStorage};
use crate::facts::StartMode;
use crate::names::{cluster_token, member_name, peer_host, peer_url};
use crate::versions;

/// The name of the container that runs etcd.
pub const CONTAINER: &str = "etcd";
/// The uid and gid of etcd: `nonroot` in distroless images.
const USER: i64 = 65532;
/// The mount path of the data volume.
const DATA_PATH: &str = "/var/lib/etcd";
/// The name of the data directory on the data volume.
pub(super) const DATA_DIRECTORY: &str = "data";
/// The mount path of the certificate for the peer port.
const PEER_TLS: &str = "/etc/etcd/peer";
/// The mount path of the certificate for the client port.
pub const SERVER_TLS: &str = "/etc/etcd/server";

/// The parameters of a member's pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodParams {
    /// The member.
    pub member: MemberRef,
    /// The start mode.
    pub start: StartMode,
    /// Whether the pod is for the seed of an epoch that begins empty and whose bootstrap is not finished. Only such a pod can
    /// start a new cluster.
    pub seed: bool,
}

/// Returns the pod of a member.
pub fn pod(desired: &DesiredCluster, params: &PodParams) -> Result<Pod, BuildError> {
    let member = params.member;
    let name = member_name(&desired.name, member.lineage, member.serial);
    let mut annotations = member.annotations();
    for (key, value) in
        start_mode::annotations(desired, member.lineage, member.serial, &params.start)
    {
        annotations[key] = json!(value);
    }
    annotations[labels::VERSION] = json!(desired.version);
    annotations[labels::POD_TEMPLATE_HASH] = json!(desired.inputs);
    if let Some(restart) = &desired.restart {
        annotations[labels::RESTARTED_AT] = json!(restart);
    }
    let mut labels = common_labels(desired);
    labels["app.kubernetes.io/version"] = json!(desired.version.to_string());
    let object = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": desired.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner_reference(desired)],
        },
        "spec": spec(desired, params, &name),
    });
    from_json("Pod", object)
}

fn spec(desired: &DesiredCluster, params: &PodParams, name: &str) -> Value {
    let mut spec = json!({
        "hostname": name,
        "subdomain": desired.names().peer_service(),
        "restartPolicy": "Always",
        // Time to transfer leadership and to close the database.
        "terminationGracePeriodSeconds": 30,
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "readinessGates": [{ "conditionType": labels::GATE_JOINED }],
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            // Changing the owner of every file of a large volume would delay each start.
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": { "type": "RuntimeDefault" },
        },
        "containers": [container(desired, params, name)],
        "volumes": volumes(desired, name),
    });
    if let (Some(spec), Value::Object(placement)) = (spec.as_object_mut(), placement(desired)) {
        spec.extend(placement);
    }
    spec
}

/// Returns the fields of a pod's spec that decide on which node the pod runs, and from which registries its images come. The
/// pod that fills a member's volume has them as well: the volume decides on which node the member runs.
pub(super) fn placement(desired: &DesiredCluster) -> Value {
    let mut spec = json!({
        "topologySpreadConstraints": [spread(desired)],
        "affinity": { "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [{
            "weight": 100,
            "podAffinityTerm": {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": { "matchLabels": member_selector(desired) },
            },
        }] } },
    });
    if !desired.pull_secrets.is_empty() {
        let secrets: Vec<_> = desired
            .pull_secrets
            .iter()
            .map(|name| json!({ "name": name }))
            .collect();
        spec["imagePullSecrets"] = json!(secrets);
    }
    if !desired.node_selector.is_empty() {
        spec["nodeSelector"] = json!(desired.node_selector);
    }
    if !desired.tolerations.is_empty() {
        spec["tolerations"] = json!(desired.tolerations);
    }
    if let Some(class) = &desired.priority_class {
        spec["priorityClassName"] = json!(class);
    }
    spec
}

fn spread(desired: &DesiredCluster) -> Value {
    let mut spread = json!({
        "maxSkew": 1,
        "topologyKey": desired.spread_across,
        "whenUnsatisfiable": if desired.spread_required { "DoNotSchedule" } else { "ScheduleAnyway" },
        "labelSelector": { "matchLabels": member_selector(desired) },
        "nodeTaintsPolicy": "Honor",
    });
    if desired.spread_required {
        // Without it, a skew of one lets the third member share one of two nodes (tried).
        spread["minDomains"] = json!(desired.members);
    }
    spread
}

fn container(desired: &DesiredCluster, params: &PodParams, name: &str) -> Value {
    let from_annotation = |variable: &str, key: &str| {
        let path = format!("metadata.annotations['{key}']");
        json!({ "name": variable, "valueFrom": { "fieldRef": { "fieldPath": path } } })
    };
    let mut env = vec![
        from_annotation("DATA", labels::DATA_SUB_PATH),
        from_annotation("INITIAL_CLUSTER", labels::INITIAL_CLUSTER),
    ];
    if params.seed {
        env.push(from_annotation(
            "INITIAL_CLUSTER_STATE",
            labels::INITIAL_CLUSTER_STATE,
        ));
    }
    let probe = |path: &str| json!({ "path": path, "port": METRICS_PORT, "scheme": "HTTP" });
    json!({
        "name": CONTAINER,
        "image": desired.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/usr/local/bin/etcd"],
        "args": args(desired, params, name),
        "env": env,
        "ports": [
            { "name": "client", "containerPort": CLIENT_PORT, "protocol": "TCP" },
            { "name": "peer", "containerPort": PEER_PORT, "protocol": "TCP" },
            { "name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP" },
        ],
        "resources": desired.resources,
        // The end of the log of a crashed etcd names the reason.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": { "drop": ["ALL"] },
        },
        // Both probes use the metrics port: without a quorum the client port rejects every probe, and a liveness probe there
        // kills a cluster that is recovering (tried).
        "livenessProbe": {
            "httpGet": probe("/livez"),
            "initialDelaySeconds": 30, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 6,
        },
        // A learner is Ready once it follows the leader: Ready shows that the kubelet has seen the readiness gate. Clients are
        // routed by the role label.
        "readinessProbe": {
            "httpGet": probe("/readyz?exclude=non_learner"),
            "periodSeconds": 1, "timeoutSeconds": 5, "failureThreshold": 3,
        },
        "volumeMounts": [
            { "name": "data", "mountPath": DATA_PATH, "subPathExpr": "$(DATA)" },
            { "name": "peer-tls", "mountPath": PEER_TLS, "readOnly": true },
            { "name": "server-tls", "mountPath": SERVER_TLS, "readOnly": true },
        ],
    })
}

fn args(desired: &DesiredCluster, params: &PodParams, name: &str) -> Vec<String> {
    let host = peer_host(&desired.name, &desired.namespace, name);
    // Only the seed can get `new`, and only until bootstrap is finished. Every other pod has the literal `existing`.
    let state = if params.seed {
        "$(INITIAL_CLUSTER_STATE)"
    } else {
        "existing"
    };
    let mut args = vec![
        format!("--name={name}"),
        format!("--data-dir={DATA_PATH}/{DATA_DIRECTORY}"),
        format!("--listen-peer-urls=https://0.0.0.0:{PEER_PORT}"),
        format!("--listen-client-urls=https://0.0.0.0:{CLIENT_PORT}"),
        format!("--listen-metrics-urls=http://0.0.0.0:{METRICS_PORT}"),
        format!(
            "--initial-advertise-peer-urls={}",
            peer_url(&desired.name, &desired.namespace, name)
        ),
        format!("--advertise-client-urls=https://{host}:{CLIENT_PORT}"),
        "--initial-cluster=$(INITIAL_CLUSTER)".to_owned(),
        format!("--initial-cluster-state={state}"),
        format!(
            "--initial-cluster-token={}",
            cluster_token(&desired.name, params.member.lineage, params.member.epoch)
        ),
        "--client-cert-auth=true".to_owned(),
        format!("--trusted-ca-file={SERVER_TLS}/ca.crt"),
        format!("--cert-file={SERVER_TLS}/tls.crt"),
        format!("--key-file={SERVER_TLS}/tls.key"),
        "--peer-client-cert-auth=true".to_owned(),
        format!("--peer-trusted-ca-file={PEER_TLS}/ca.crt"),
        format!("--peer-cert-file={PEER_TLS}/tls.crt"),
        format!("--peer-key-file={PEER_TLS}/tls.key"),
        format!("--quota-backend-bytes={}", desired.quota),
    ];
    if let Some(retention) = &desired.compaction {
        args.push("--auto-compaction-mode=periodic".to_owned());
        args.push(format!("--auto-compaction-retention={retention}"));
    }
    args.extend(
        versions::minor(desired.version)
            .map(versions::Minor::flags)
            .unwrap_or_default(),
    );
    args.extend(options::flags(desired.version, &desired.options));
    args
}

fn volumes(desired: &DesiredCluster, name: &str) -> Value {
    let secret = |volume: &str, secret: String| json!({ "name": volume, "secret": { "secretName": secret, "defaultMode": 0o440 } });
    let data = match &desired.data {
        DesiredStorage::Persistent { .. } => {
            json!({ "name": "data", "persistentVolumeClaim": { "claimName": name } })
        }
        DesiredStorage::Ephemeral { limit } => {
            json!({ "name": "data", "emptyDir": { "sizeLimit": limit } })
        }
    };
    json!([
        data,
        secret("peer-tls", desired.names().peer_tls()),
        secret("server-tls", desired.names().server_tls())
    ])
}
