//! `kubectl evenkeel pause` and `resume`: set `spec.paused`.

use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::args::Target;
use crate::connection::{Connection, request};
use crate::error::CliError;

/// Sets `spec.paused`.
pub(crate) async fn run(
    connection: &Connection,
    target: &Target,
    paused: bool,
) -> Result<u8, CliError> {
    let cluster = connection.cluster(target.cluster.as_deref()).await?;
    let name = cluster.name_any();
    if cluster.spec.paused == paused {
        let state = if paused {
            "already paused"
        } else {
            "not paused"
        };
        println!("{name}: {state}. Nothing was changed.");
        return Ok(0);
    }
    let patch = Patch::Merge(json!({ "spec": { "paused": paused } }));
    request(
        &format!("patch EtcdCluster {name}"),
        connection
            .api()
            .patch(&name, &PatchParams::default(), &patch),
    )
    .await?;
    let effect = if paused {
        "paused. The operator neither heals nor changes the cluster; its members keep running"
    } else {
        "resumed. The operator manages the cluster again"
    };
    println!("{name}: {effect}.");
    Ok(0)
}
