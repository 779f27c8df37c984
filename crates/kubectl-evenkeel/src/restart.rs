//! `kubectl evenkeel restart`: restarts the members one by one.

use evenkeel_api::{EtcdCluster, labels};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::args::NamedTarget;
use crate::connection::{Connection, request};
use crate::effect::{RestartProgress, Situation, require_not_deleted};
use crate::error::CliError;
use crate::operator_status::OperatorStatus;
use crate::terminal::Terminal;

/// Requests a restart by a new value of an annotation, and says when it happens.
pub(crate) async fn run(
    connection: &Connection,
    target: &NamedTarget,
    terminal: Terminal,
) -> Result<u8, CliError> {
    let cluster = connection.cluster(Some(&target.cluster)).await?;
    require_not_deleted(&cluster)?;
    let name = cluster.name_any();
    let now = Timestamp::now();
    let value = now.to_string();
    let pods = pods(connection, &name).await;
    let patch =
        Patch::Merge(json!({ "metadata": { "annotations": { labels::RESTARTED_AT: value } } }));
    request(
        &format!("restart EtcdCluster {name}"),
        connection
            .api()
            .patch(&name, &PatchParams::default(), &patch),
    )
    .await?;
    let namespace = cluster.namespace();
    let situation = Situation {
        cluster: &cluster,
        operator: &OperatorStatus::query(&connection.client, namespace.as_deref(), now).await,
        restart: unfinished_restart(&cluster, &pods),
        now,
    };
    print!("{}", terminal.paragraphs(&situation.restart()));
    Ok(0)
}

/// Lists the pods of a cluster. They only add a note, so an error counts as none.
async fn pods(connection: &Connection, cluster: &str) -> Vec<Pod> {
    let api: Api<Pod> = Api::namespaced(connection.client.clone(), &connection.namespace);
    let of_cluster = ListParams::default().labels(&labels::selector(cluster));
    let pods = request("list pods", api.list(&of_cluster)).await;
    pods.map(|list| list.items).unwrap_or_default()
}

/// Returns the progress of the last restart. `None` if there was none or all members were restarted.
pub(crate) fn unfinished_restart<'p>(
    cluster: &EtcdCluster,
    pods: impl IntoIterator<Item = &'p Pod>,
) -> Option<RestartProgress> {
    let requested = cluster.annotations().get(labels::RESTARTED_AT)?;
    let is_restarted = |pod: &&Pod| pod.annotations().get(labels::RESTARTED_AT) == Some(requested);
    let pods: Vec<_> = pods.into_iter().collect();
    let progress = RestartProgress {
        completed: pods.iter().copied().filter(is_restarted).count(),
        total: pods.len(),
    };
    (progress.completed < progress.total).then_some(progress)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::operator_status::LeaseHolder;

    fn cluster(members: i32, annotations: Value) -> EtcdCluster {
        serde_json::from_value(json!({
            "apiVersion": "evenkeel.dev/v1alpha1", "kind": "EtcdCluster",
            "metadata": { "name": "orders", "annotations": annotations },
            "spec": { "version": "3.6.16", "members": members },
        }))
        .unwrap()
    }

    #[test]
    fn the_effect_of_a_restart_depends_on_the_members() {
        let effect_on = |members| {
            Situation {
                cluster: &cluster(members, json!({})),
                operator: &OperatorStatus::Running(LeaseHolder::default()),
                restart: None,
                now: Timestamp::UNIX_EPOCH,
            }
            .restart()
        };
        assert!(
            effect_on(3)
                .starts_with("orders: restart requested. The operator restarts the members one by one, the leader last.")
        );
        assert!(effect_on(1).contains("Clients cannot write during the restart."));
        assert!(effect_on(2).contains("Clients cannot write during each restart."));
    }

    #[test]
    fn a_restart_is_finished_when_every_pod_has_its_annotation() {
        let pod = |value: &str| -> Pod {
            let annotations = json!({ labels::RESTARTED_AT: value });
            serde_json::from_value(json!({ "metadata": { "annotations": annotations } })).unwrap()
        };
        let requested = cluster(3, json!({ labels::RESTARTED_AT: "new" }));
        let progress = |pods: &[Pod]| unfinished_restart(&requested, pods);
        assert_eq!(progress(&[pod("new"), pod("new")]), None);
        let unfinished = RestartProgress {
            completed: 1,
            total: 2,
        };
        assert_eq!(progress(&[pod("new"), pod("old")]), Some(unfinished));
        assert_eq!(
            unfinished_restart(&cluster(3, json!({})), &[pod("old")]),
            None
        );
    }
}
