//! `kubectl evenkeel pause` and `resume`: whether a cluster is looked after.

use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::args::Which;
use crate::connection::Reached;
use crate::error::Trouble;

/// Sets `spec.paused`.
pub(crate) async fn run(reached: &Reached, which: &Which, paused: bool) -> Result<u8, Trouble> {
    let cluster = reached.cluster(which.cluster.as_deref()).await?;
    let name = cluster.name_any();
    let what = if paused {
        "paused: its members go on, and nothing is healed or changed"
    } else {
        "looked after again"
    };
    if cluster.spec.paused == paused {
        println!("{name} is already {what}.");
        return Ok(0);
    }
    let patch = Patch::Merge(json!({ "spec": { "paused": paused } }));
    let patched = reached
        .api()
        .patch(&name, &PatchParams::default(), &patch)
        .await;
    patched
        .map_err(|error| Trouble::kubernetes(&format!("change the etcdcluster {name}"), &error))?;
    println!("{name} is {what}.");
    Ok(0)
}
