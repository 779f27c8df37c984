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
    let state = if paused {
        "paused: its members go on, and nothing is healed or changed"
    } else {
        "looked after again"
    };
    if cluster.spec.paused == paused {
        println!("{name} is already {state}.");
        return Ok(0);
    }
    let patch = Patch::Merge(json!({ "spec": { "paused": paused } }));
    request(
        &format!("change the etcdcluster {name}"),
        connection
            .api()
            .patch(&name, &PatchParams::default(), &patch),
    )
    .await?;
    println!("{name} is {state}.");
    Ok(0)
}
