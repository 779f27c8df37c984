//! A member's pod. It passes the restricted Pod Security profile, has no token of its own, and starts only as it is told.

use evenkeel_api::{labels, options};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::service::{CLIENT_PORT, METRICS_PORT, PEER_PORT};
use super::{BuildError, Member, common_labels, owner, selector, start, typed};
use crate::facts::Start;
use crate::names::{member_name, peer_host, peer_url, token};
use crate::versions;
use crate::wanted::{Data, Wanted};

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
pub struct Made {
    /// Whose it is.
    pub member: Member,
    /// How it starts.
    pub start: Start,
    /// Whether it is the seed of an epoch that is not sealed: only its pod can be told to found a cluster.
    pub seed: bool,
}

/// The pod of a member.
pub fn pod(wanted: &Wanted, made: &Made) -> Result<Pod, BuildError> {
    let member = made.member;
    let name = member_name(&wanted.name, member.lineage, member.serial);
    let mut annotations = member.annotations();
    for (key, value) in start::annotations(wanted, member.lineage, member.serial, &made.start) {
        annotations[key] = json!(value);
    }
    annotations[labels::VERSION] = json!(wanted.version);
    annotations[labels::INPUTS] = json!(wanted.inputs);
    if let Some(restart) = &wanted.restart {
        annotations[labels::RESTART] = json!(restart);
    }
    let mut labels = common_labels(wanted);
    labels["app.kubernetes.io/version"] = json!(wanted.version.to_string());
    let object = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": wanted.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner(wanted)],
        },
        "spec": spec(wanted, made, &name),
    });
    typed("a pod", object)
}

fn spec(wanted: &Wanted, made: &Made, name: &str) -> Value {
    let mut spec = json!({
        "hostname": name,
        "subdomain": wanted.names().peer_service(),
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
        "containers": [container(wanted, made, name)],
        "volumes": volumes(wanted, name),
        "topologySpreadConstraints": [spread(wanted)],
        "affinity": { "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [{
            "weight": 100,
            "podAffinityTerm": {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": { "matchLabels": selector(wanted) },
            },
        }] } },
    });
    if !wanted.pull_secrets.is_empty() {
        let secrets: Vec<_> = wanted.pull_secrets.iter().map(|name| json!({ "name": name })).collect();
        spec["imagePullSecrets"] = json!(secrets);
    }
    if !wanted.node_selector.is_empty() {
        spec["nodeSelector"] = json!(wanted.node_selector);
    }
    if !wanted.tolerations.is_empty() {
        spec["tolerations"] = json!(wanted.tolerations);
    }
    if let Some(class) = &wanted.priority_class {
        spec["priorityClassName"] = json!(class);
    }
    spec
}

fn spread(wanted: &Wanted) -> Value {
    let mut spread = json!({
        "maxSkew": 1,
        "topologyKey": wanted.spread_across,
        "whenUnsatisfiable": if wanted.spread_required { "DoNotSchedule" } else { "ScheduleAnyway" },
        "labelSelector": { "matchLabels": selector(wanted) },
        "nodeTaintsPolicy": "Honor",
    });
    if wanted.spread_required {
        // Else a skew of one lets the third member share one of two nodes (tried).
        spread["minDomains"] = json!(wanted.members);
    }
    spread
}

fn container(wanted: &Wanted, made: &Made, name: &str) -> Value {
    let from_annotation = |variable: &str, key: &str| {
        let path = format!("metadata.annotations['{key}']");
        json!({ "name": variable, "valueFrom": { "fieldRef": { "fieldPath": path } } })
    };
    let mut env = vec![
        from_annotation("DATA", labels::DATA),
        from_annotation("INITIAL_CLUSTER", labels::INITIAL_CLUSTER),
    ];
    if made.seed {
        env.push(from_annotation("INITIAL_CLUSTER_STATE", labels::INITIAL_CLUSTER_STATE));
    }
    let ask = |path: &str| json!({ "path": path, "port": METRICS_PORT, "scheme": "HTTP" });
    json!({
        "name": CONTAINER,
        "image": wanted.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/usr/local/bin/etcd"],
        "args": args(wanted, made, name),
        "env": env,
        "ports": [
            { "name": "client", "containerPort": CLIENT_PORT, "protocol": "TCP" },
            { "name": "peer", "containerPort": PEER_PORT, "protocol": "TCP" },
            { "name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP" },
        ],
        "resources": wanted.resources,
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

fn args(wanted: &Wanted, made: &Made, name: &str) -> Vec<String> {
    let host = peer_host(&wanted.name, &wanted.namespace, name);
    // `new` can reach the seed of an unsealed epoch only; every other pod has `existing`, literally.
    let state = if made.seed { "$(INITIAL_CLUSTER_STATE)" } else { "existing" };
    let mut args = vec![
        format!("--name={name}"),
        format!("--data-dir={DATA}/data"),
        format!("--listen-peer-urls=https://0.0.0.0:{PEER_PORT}"),
        format!("--listen-client-urls=https://0.0.0.0:{CLIENT_PORT}"),
        format!("--listen-metrics-urls=http://0.0.0.0:{METRICS_PORT}"),
        format!("--initial-advertise-peer-urls={}", peer_url(&wanted.name, &wanted.namespace, name)),
        format!("--advertise-client-urls=https://{host}:{CLIENT_PORT}"),
        "--initial-cluster=$(INITIAL_CLUSTER)".to_owned(),
        format!("--initial-cluster-state={state}"),
        format!("--initial-cluster-token={}", token(&wanted.name, made.member.lineage, made.member.epoch)),
        "--client-cert-auth=true".to_owned(),
        format!("--trusted-ca-file={SERVER_TLS}/ca.crt"),
        format!("--cert-file={SERVER_TLS}/tls.crt"),
        format!("--key-file={SERVER_TLS}/tls.key"),
        "--peer-client-cert-auth=true".to_owned(),
        format!("--peer-trusted-ca-file={PEER_TLS}/ca.crt"),
        format!("--peer-cert-file={PEER_TLS}/tls.crt"),
        format!("--peer-key-file={PEER_TLS}/tls.key"),
        format!("--quota-backend-bytes={}", wanted.quota),
    ];
    if let Some(retention) = &wanted.compaction {
        args.push("--auto-compaction-mode=periodic".to_owned());
        args.push(format!("--auto-compaction-retention={retention}"));
    }
    args.extend(versions::minor(wanted.version).map(versions::Minor::flags).unwrap_or_default());
    args.extend(options::flags(wanted.version, &wanted.options));
    args
}

fn volumes(wanted: &Wanted, name: &str) -> Value {
    let secret = |volume: &str, secret: String| json!({ "name": volume, "secret": { "secretName": secret, "defaultMode": 0o440 } });
    let data = match &wanted.data {
        Data::Persistent { .. } => {
            json!({ "name": "data", "persistentVolumeClaim": { "claimName": name } })
        }
        Data::Ephemeral { limit } => json!({ "name": "data", "emptyDir": { "sizeLimit": limit } }),
    };
    json!([
        data,
        secret("peer-tls", wanted.names().peer_tls()),
        secret("server-tls", wanted.names().server_tls())
    ])
}
