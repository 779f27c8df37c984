//! `kubectl evenkeel restart`: restarts the members one by one.

use evenkeel_api::{EtcdCluster, labels};
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::args::Target;
use crate::connection::{Connection, request};
use crate::error::CliError;

/// Requests a restart by a new value of an annotation.
pub(crate) async fn run(connection: &Connection, target: &Target) -> Result<u8, CliError> {
    let cluster = connection.cluster(target.cluster.as_deref()).await?;
    let name = cluster.name_any();
    let now = Timestamp::now().to_string();
    let patch =
        Patch::Merge(json!({ "metadata": { "annotations": { labels::RESTARTED_AT: now } } }));
    request(
        &format!("patch EtcdCluster {name}"),
        connection
            .api()
            .patch(&name, &PatchParams::default(), &patch),
    )
    .await?;
    println!("{}", effect(&cluster));
    Ok(0)
}

/// Describes the effect of the restart.
fn effect(cluster: &EtcdCluster) -> String {
    let name = cluster.name_any();
    let effect = match cluster.spec.members {
        1 => "its only member. Clients cannot write during the restart",
        2 => {
            "both members, one after the other, the leader last. Clients cannot write during each restart"
        }
        _ => "the members one by one, the leader last",
    };
    let when = if cluster.spec.paused {
        "After the cluster is resumed, the operator restarts"
    } else {
        "The operator restarts"
    };
    format!(
        "{name}: restart requested. {when} {effect}. `kubectl evenkeel status {name}` shows the progress."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effect_of_a_restart_depends_on_the_members() {
        let effect_on = |members: i32, paused: bool| {
            let spec = json!({ "version": "3.6.16", "members": members, "paused": paused });
            let resource = json!({ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "EtcdCluster",
                "metadata": { "name": "orders" }, "spec": spec });
            effect(&serde_json::from_value(resource).unwrap())
        };
        assert!(
            effect_on(3, false)
                .starts_with("orders: restart requested. The operator restarts the members one by one, the leader last.")
        );
        assert!(effect_on(1, false).contains("Clients cannot write during the restart."));
        assert!(
            effect_on(2, true).contains("After the cluster is resumed, the operator restarts both")
        );
    }
}
