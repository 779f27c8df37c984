//! `kubectl evenkeel pause` and `resume`: set `spec.paused`.

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::args::NamedTarget;
use crate::connection::{Connection, request};
use crate::effect::{Situation, require_not_deleted};
use crate::error::CliError;
use crate::operator_status::OperatorStatus;
use crate::terminal::Terminal;

/// Sets `spec.paused`, and says what follows.
pub(crate) async fn run(
    connection: &Connection,
    target: &NamedTarget,
    paused: bool,
    terminal: Terminal,
) -> Result<u8, CliError> {
    let cluster = connection.cluster(Some(&target.cluster)).await?;
    require_not_deleted(&cluster)?;
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
    let verb = if paused { "pause" } else { "resume" };
    let patched = request(
        &format!("{verb} EtcdCluster {name}"),
        connection
            .api()
            .patch(&name, &PatchParams::default(), &patch),
    )
    .await?;
    if patched.spec.paused != paused {
        // The API server drops fields that the CRD lacks.
        return Err(CliError::other_release(format!(
            "cannot {verb} EtcdCluster {name}: the API server did not store spec.paused"
        )));
    }
    let now = Timestamp::now();
    let namespace = cluster.namespace();
    let situation = Situation {
        cluster: &cluster,
        operator: &OperatorStatus::query(&connection.client, namespace.as_deref(), now).await,
        restart: None,
        now,
    };
    if paused {
        print!("{}", terminal.paragraphs(&situation.pause()));
    } else {
        print!("{}", terminal.paragraphs(&situation.resume()));
    }
    Ok(0)
}
