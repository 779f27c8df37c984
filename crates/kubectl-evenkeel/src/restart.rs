//! `kubectl evenkeel restart`: members are restarted one by one.

use evenkeel_api::{EtcdCluster, labels};
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::args::Which;
use crate::connection::Reached;
use crate::error::Trouble;

/// Asks for a restart, by an annotation that has not been there before.
pub(crate) async fn run(reached: &Reached, which: &Which) -> Result<u8, Trouble> {
    let cluster = reached.cluster(which.cluster.as_deref()).await?;
    let name = cluster.name_any();
    let asked = Timestamp::now().to_string();
    let patch =
        Patch::Merge(json!({ "metadata": { "annotations": { labels::RESTARTED_AT: asked } } }));
    let patched = reached
        .api()
        .patch(&name, &PatchParams::default(), &patch)
        .await;
    patched
        .map_err(|error| Trouble::kubernetes(&format!("change the etcdcluster {name}"), &error))?;
    println!("{}", told(&cluster));
    Ok(0)
}

/// What comes of it.
fn told(cluster: &EtcdCluster) -> String {
    let name = cluster.name_any();
    let how = match cluster.spec.members {
        1 => "its one member is restarted. Clients cannot write meanwhile",
        2 => "both members are restarted, one after the other. Clients cannot write meanwhile",
        _ => "members are restarted one by one, whoever leads last",
    };
    let paused = if cluster.spec.paused {
        ", once it is no longer paused"
    } else {
        ""
    };
    format!("{name}: {how}{paused}. `kubectl evenkeel status {name}` tells how far it is.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_restart_costs_is_told() {
        let cluster = |members: i32, paused: bool| {
            let spec = json!({ "version": "3.6.16", "members": members, "paused": paused });
            let resource = json!({ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "EtcdCluster",
                "metadata": { "name": "orders" }, "spec": spec });
            told(&serde_json::from_value(resource).unwrap())
        };
        assert!(
            cluster(3, false)
                .starts_with("orders: members are restarted one by one, whoever leads last.")
        );
        assert!(cluster(1, false).contains("Clients cannot write meanwhile."));
        assert!(cluster(2, true).contains("meanwhile, once it is no longer paused."));
    }
}
