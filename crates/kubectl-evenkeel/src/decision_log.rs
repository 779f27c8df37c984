//! Reads the operator's decision log.

use evenkeel_api::EtcdCluster;
use evenkeel_etcd::names::ObjectNames;
use evenkeel_runtime::Decision;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, ResourceExt};

use crate::connection::{Connection, request};

/// Reads the decisions about a cluster, oldest first. The error says why the log cannot be shown.
pub(crate) async fn read_decisions(
    connection: &Connection,
    cluster: &EtcdCluster,
) -> Result<Vec<Decision>, String> {
    let namespace = cluster.namespace().unwrap_or_default();
    let api: Api<ConfigMap> = Api::namespaced(connection.client.clone(), &namespace);
    let name = ObjectNames(&cluster.name_any()).decision_log();
    let action = format!("read ConfigMap {name}");
    let log = request(&action, api.get_opt(&name))
        .await
        .map_err(|error| error.message)?;
    let Some(log) = log else {
        return Ok(Vec::new());
    };
    let is_owned = log
        .owner_references()
        .iter()
        .any(|owner| Some(&owner.uid) == cluster.uid().as_ref());
    if !is_owned {
        return Err(format!(
            "ConfigMap {name} does not belong to this cluster, so its decisions are not shown"
        ));
    }
    Ok(Decision::read(&log))
}
