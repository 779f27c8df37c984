//! The objects of a database, as JSON.

use evenkeel_runtime::OwnedObjects;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::KillerNewDb;
use crate::client::PORT;
use crate::facts::DbLedger;

/// The key of the ledger in its ConfigMap.
pub const LEDGER_KEY: &str = "ledger";

/// Returns the Service through which members find each other, Ready or not.
pub fn service(objects: &OwnedObjects<KillerNewDb>) -> Value {
    let metadata = objects.owned_metadata(&objects.resource.name_any());
    json!({ "metadata": metadata, "spec": {
        "clusterIP": "None", "publishNotReadyAddresses": true, "selector": metadata.labels,
        "ports": [{ "name": "database", "port": PORT }],
    } })
}

/// Returns the ConfigMap with the ledger.
pub fn ledger(objects: &OwnedObjects<KillerNewDb>, ledger: &DbLedger) -> Value {
    json!({ "metadata": objects.owned_metadata(&objects.resource.name_any()), "data": ledger_data(ledger) })
}

/// Returns the data of the ConfigMap with the ledger.
pub fn ledger_data(ledger: &DbLedger) -> Value {
    json!({ LEDGER_KEY: json!(ledger).to_string() })
}

/// Returns the PersistentVolumeClaim of a member.
pub fn claim(objects: &OwnedObjects<KillerNewDb>, name: &str) -> Value {
    json!({ "metadata": objects.owned_metadata(name), "spec": {
        "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": objects.resource.spec.size } },
    } })
}

/// Returns the Pod of a member. It has a short grace period: acknowledged writes are on disk.
pub fn pod(objects: &OwnedObjects<KillerNewDb>, name: &str) -> Value {
    let (database, metadata) = (objects.resource.name_any(), objects.owned_metadata(name));
    let spread = json!({ "labelSelector": { "matchLabels": metadata.labels },
        "topologyKey": "kubernetes.io/hostname", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway" });
    json!({ "metadata": metadata, "spec": {
        "hostname": name, "subdomain": database, "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": false, "enableServiceLinks": false,
        "topologySpreadConstraints": [spread],
        "securityContext": { "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532,
            "seccompProfile": { "type": "RuntimeDefault" } },
        "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": name } }],
        "containers": [{
            "name": "killernewdb", "image": objects.resource.spec.image, "imagePullPolicy": "IfNotPresent",
            "command": ["/usr/local/bin/killernewdb", "serve"],
            "env": [{ "name": "NAME", "value": name }, { "name": "DATA", "value": "/data" },
                { "name": "PEERS", "value": format!("{{}}.{database}:{PORT}") }],
            "ports": [{ "name": "database", "containerPort": PORT }],
            "readinessProbe": { "tcpSocket": { "port": PORT }, "periodSeconds": 1 },
            "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
            "securityContext": { "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                "capabilities": { "drop": ["ALL"] } },
        }],
    } })
}
