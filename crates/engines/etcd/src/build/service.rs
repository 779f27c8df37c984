//! The two services: one gives members their names, the other is for clients.

use evenkeel_api::labels;
use k8s_openapi::api::core::v1::Service;
use kube::api::ObjectMeta;
use serde_json::{Value, json};

use super::{BuildError, from_json, owned_metadata, selector};
use crate::desired::DesiredCluster;

/// Where clients connect.
pub const CLIENT_PORT: u16 = 2379;
/// Where members connect to each other.
pub const PEER_PORT: u16 = 2380;
/// Where probes ask, and metrics are read: in plain text, so it says nothing secret.
pub const METRICS_PORT: u16 = 2381;

/// Gives each member a name that never changes, also while it is not ready: members find each other before they are.
pub fn peer(desired: &DesiredCluster) -> Result<Service, BuildError> {
    let object = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": owned_metadata(desired, &desired.names().peer_service()),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": true,
            "selector": selector(desired),
            "ports": [
                { "name": "peer", "port": PEER_PORT, "targetPort": PEER_PORT, "protocol": "TCP" },
                { "name": "client", "port": CLIENT_PORT, "targetPort": CLIENT_PORT, "protocol": "TCP" },
                { "name": "metrics", "port": METRICS_PORT, "targetPort": METRICS_PORT, "protocol": "TCP" },
            ],
        },
    });
    from_json("the peer service", object)
}

/// Routes clients to the voters that are ready: by a label that is set when a member has its vote, since readiness alone
/// would route them to learners.
pub fn client(desired: &DesiredCluster) -> Result<Service, BuildError> {
    let mut chosen = selector(desired);
    chosen[labels::ROLE] = json!(labels::ROLE_VOTER);
    let mut metadata = owned_metadata(desired, &desired.names().client_service());
    if !desired.service_annotations.is_empty() {
        let keys: Vec<_> = desired
            .service_annotations
            .keys()
            .map(String::as_str)
            .collect();
        metadata["annotations"] = json!(desired.service_annotations);
        metadata["annotations"][labels::SERVICE_ANNOTATIONS] = json!(keys.join(","));
    }
    let object = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "type": desired.service_type,
            "selector": chosen,
            "ports": [
                { "name": "client", "port": CLIENT_PORT, "targetPort": CLIENT_PORT, "protocol": "TCP" },
            ],
        },
    });
    from_json("the client service", object)
}

/// A change that takes off annotations that the spec had once, and no longer has; nothing if there are none.
pub fn stale_annotations(there: &ObjectMeta, desired: &ObjectMeta) -> Option<Value> {
    let of = |metadata: &ObjectMeta, key: &str| metadata.annotations.as_ref()?.get(key).cloned();
    let ours = of(there, labels::SERVICE_ANNOTATIONS)?;
    let gone = ours
        .split(',')
        .filter(|key| of(there, key).is_some() && of(desired, key).is_none());
    let mut without: serde_json::Map<String, Value> =
        gone.map(|key| (key.to_owned(), Value::Null)).collect();
    if without.is_empty() && of(desired, labels::SERVICE_ANNOTATIONS).is_some() {
        return None;
    }
    without.insert(
        labels::SERVICE_ANNOTATIONS.to_owned(),
        json!(of(desired, labels::SERVICE_ANNOTATIONS)),
    );
    Some(Value::Object(without))
}
