//! The two Services of a cluster: the headless one gives members their host names, the other routes clients.

use evenkeel_api::labels;
use evenkeel_kit::objects::{self, from_json};
use evenkeel_kit::ownership::owned_metadata;
use k8s_openapi::api::core::v1::Service;
use kube::api::ObjectMeta;
use serde_json::{Value, json};

use super::{BuildError, member_selector, voter_selector};
use crate::desired::DesiredCluster;

/// The port for clients.
pub const CLIENT_PORT: u16 = 2379;
/// The port for members.
pub const PEER_PORT: u16 = 2380;
/// The port for probes and metrics. It is plain HTTP, because it serves nothing secret.
pub const METRICS_PORT: u16 = 2381;

/// Returns the headless Service that gives each member a host name that never changes. It publishes addresses that are not
/// Ready, because members must find each other before they are.
pub fn peer(desired: &DesiredCluster) -> Result<Service, BuildError> {
    let object = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": owned_metadata(desired.cluster_ref(), &desired.names().peer_service()),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": true,
            "selector": member_selector(desired),
            "ports": [
                { "name": "peer", "port": PEER_PORT, "targetPort": PEER_PORT, "protocol": "TCP" },
                { "name": "client", "port": CLIENT_PORT, "targetPort": CLIENT_PORT, "protocol": "TCP" },
                { "name": "metrics", "port": METRICS_PORT, "targetPort": METRICS_PORT, "protocol": "TCP" },
            ],
        },
    });
    from_json("peer Service", object)
}

/// Returns the Service for clients. It selects by the role label, which a member gets with its vote: readiness alone would
/// route clients to learners.
pub fn client(desired: &DesiredCluster) -> Result<Service, BuildError> {
    let mut metadata = owned_metadata(desired.cluster_ref(), &desired.names().client_service());
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
            "selector": voter_selector(desired),
            "ports": [
                { "name": "client", "port": CLIENT_PORT, "targetPort": CLIENT_PORT, "protocol": "TCP" },
            ],
        },
    });
    from_json("client Service", object)
}

/// Returns a patch that removes the annotations that an earlier spec set; `None` if there are none.
pub fn stale_annotations(observed: &ObjectMeta, desired: &ObjectMeta) -> Option<Value> {
    objects::stale_annotations(observed, desired, labels::SERVICE_ANNOTATIONS)
}
