//! The log of decisions, as far as the user may read it.

use evenkeel_api::EtcdCluster;
use evenkeel_etcd::names::ObjectNames;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, ResourceExt};

use crate::connection::{Reached, asked};

/// The log of a cluster's decisions; or why it cannot be told.
pub(crate) async fn log_of(
    reached: &Reached,
    cluster: &EtcdCluster,
) -> (Option<ConfigMap>, Option<String>) {
    let namespace = cluster.namespace().unwrap_or_default();
    let api: Api<ConfigMap> = Api::namespaced(reached.client.clone(), &namespace);
    let name = ObjectNames(&cluster.name_any()).decision_log();
    let owned = |log: &ConfigMap| {
        log.owner_references()
            .iter()
            .any(|owner| Some(&owner.uid) == cluster.uid().as_ref())
    };
    match asked(&format!("read the ConfigMap {name}"), api.get_opt(&name)).await {
        Ok(Some(log)) if !owned(&log) => (
            None,
            Some(format!(
                "the ConfigMap {name} is not this cluster's: what it tells is not shown"
            )),
        ),
        Ok(log) => (log, None),
        Err(trouble) => (None, Some(trouble.what)),
    }
}
