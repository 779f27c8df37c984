//! A member's pod. It passes the restricted Pod Security profile, has no token of its own, and starts only as it is told.

use evenkeel_api::{labels, options};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::service::{CLIENT_PORT, METRICS_PORT, PEER_PORT};
use super::{
    BuildError, MemberRef, common_labels, from_json, owner_reference, selector, start_mode,
};
use crate::desired::{DesiredCluster, DesiredStorage};
use crate::facts::StartMode;
use crate::names::{cluster_token, member_name, peer_host, peer_url};
use crate::versions;

/// The container that runs etcd.
pub const CONTAINER: &str = "etcd";
/// An ordinary user: distroless images call it `nonroot`.
const USER: i64 = 65532;
const DATA: &str = "/var/lib/etcd";
const PEER_TLS: &str = "/etc/etcd/peer";
/// Where the certificates are with which a member serves.
pub const SERVER_TLS: &str = "/etc/etcd/server";

/// What a member's pod is made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodParams {
    /// Whose it is.
    pub member: MemberRef,
    /// How it starts.
    pub start: StartMode,
    /// Whether it is the seed of an epoch that is not sealed: only its pod can be told to found a cluster.
    pub seed: bool,
}

/// The pod of a member.
pub fn pod(desired: &DesiredCluster, made: &PodParams) -> Result<Pod, BuildError> {
    let member = made.member;
    let name = member_name(&desired.name, member.lineage, member.serial);
    let mut annotations = member.annotations();
    for (key, value) in start_mode::annotations(desired, member.lineage, member.serial, &made.start)
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
        "spec": spec(desired, made, &name),
    });
    from_json("a pod", object)
}

fn spec(desired: &DesiredCluster, made: &PodParams, name: &str) -> Value {
    let mut spec = json!({
        "hostname": name,
        "subdomain": desired.names().peer_service(),
        "restartPolicy": "Always",
        // Time to hand leadership over and to close the database.
        "terminationGracePeriodSeconds": 30,
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "readinessGates": [{ "conditionType": labels::GATE_JOINED }],
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            // Large volumes are not walked through at every start.
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": { "type": "RuntimeDefault" },
        },
        "containers": [container(desired, made, name)],
        "volumes": volumes(desired, name),
        "topologySpreadConstraints": [spread(desired)],
        "affinity": { "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [{
            "weight": 100,
            "podAffinityTerm": {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": { "matchLabels": selector(desired) },
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
        "labelSelector": { "matchLabels": selector(desired) },
        "nodeTaintsPolicy": "Honor",
    });
    if desired.spread_required {
        // Else a skew of one lets the third member share one of two nodes (tried).
        spread["minDomains"] = json!(desired.members);
    }
    spread
}

fn container(desired: &DesiredCluster, made: &PodParams, name: &str) -> Value {
    let from_annotation = |variable: &str, key: &str| {
        let path = format!("metadata.annotations['{key}']");
        json!({ "name": variable, "valueFrom": { "fieldRef": { "fieldPath": path } } })
    };
    let mut env = vec![
        from_annotation("DATA", labels::DATA_SUB_PATH),
        from_annotation("INITIAL_CLUSTER", labels::INITIAL_CLUSTER),
    ];
    if made.seed {
        env.push(from_annotation(
            "INITIAL_CLUSTER_STATE",
            labels::INITIAL_CLUSTER_STATE,
        ));
    }
    let ask = |path: &str| json!({ "path": path, "port": METRICS_PORT, "scheme": "HTTP" });
    json!({
        "name": CONTAINER,
        "image": desired.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/usr/local/bin/etcd"],
        "args": args(desired, made, name),
        "env": env,
        "ports": [
            { "name": "client", "containerPort": CLIENT_PORT, "protocol": "TCP" },
            { "name": "peer", "containerPort": PEER_PORT, "protocol": "TCP" },
            { "name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP" },
        ],
        "resources": desired.resources,
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": { "drop": ["ALL"] },
        },
        // Both ask the metrics listener: without a quorum the client port refuses every probe, and a liveness probe there
        // kills a cluster that is recovering (tried).
        "livenessProbe": {
            "httpGet": ask("/livez"),
            "initialDelaySeconds": 30, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 6,
        },
        // A learner is ready once it follows: its pod's readiness says that the kubelet has seen the gate. Clients are
        // routed by the role label.
        "readinessProbe": {
            "httpGet": ask("/readyz?exclude=non_learner"),
            "periodSeconds": 1, "timeoutSeconds": 5, "failureThreshold": 3,
        },
        "volumeMounts": [
            { "name": "data", "mountPath": DATA, "subPathExpr": "$(DATA)" },
            { "name": "peer-tls", "mountPath": PEER_TLS, "readOnly": true },
            { "name": "server-tls", "mountPath": SERVER_TLS, "readOnly": true },
        ],
    })
}

fn args(desired: &DesiredCluster, made: &PodParams, name: &str) -> Vec<String> {
    let host = peer_host(&desired.name, &desired.namespace, name);
    // `new` can reach the seed of an unsealed epoch only; every other pod has `existing`, literally.
    let state = if made.seed {
        "$(INITIAL_CLUSTER_STATE)"
    } else {
        "existing"
    };
    let mut args = vec![
        format!("--name={name}"),
        format!("--data-dir={DATA}/data"),
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
            cluster_token(&desired.name, made.member.lineage, made.member.epoch)
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
