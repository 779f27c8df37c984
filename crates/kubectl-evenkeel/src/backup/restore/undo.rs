//! `kubectl evenkeel restore undo`: shows what the undo of a restore does, or requests it.

use evenkeel_api::{EtcdCluster, Restore, RestorePhase};
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::super::list_text::ago;
use super::super::objects::{self, known_kind};
use super::create::{RequestOptions, finish};
use super::report::{RestoreReport, RestoreResult, phase};
use super::wait::{self, Goal};
use crate::connection::{Connection, request};
use crate::effect::at;
use crate::error::{CliError, EXIT_NOT_FOUND};
use crate::output::OutputOptions;
use crate::terminal::Terminal;

/// Shows the effects of an undo, or requests it.
pub(crate) async fn run(
    connection: &Connection,
    name: &str,
    options: RequestOptions,
    output: OutputOptions,
) -> Result<u8, CliError> {
    let restore = find(connection, name).await?;
    let cluster = connection.cluster(Some(&restore.spec.cluster.name)).await?;
    let now = Timestamp::now();
    require_possible(&restore, &cluster, now)?;
    if !options.is_confirmed {
        let report = RestoreReport::new(&restore);
        let result = RestoreResult::new(Some(report.clone()));
        output.print(&result, |terminal| {
            text(&report, cluster.spec.paused, now, terminal)
        })?;
        return Ok(0);
    }
    let restore = if restore.spec.undo {
        restore
    } else {
        let patch = Patch::Merge(json!({ "spec": { "undo": true } }));
        let action = format!("undo Restore {name}");
        let api = wait::api(connection);
        request(&action, api.patch(name, &PatchParams::default(), &patch)).await?
    };
    finish(connection, &restore, Goal::Undone, options, output).await
}

async fn find(connection: &Connection, name: &str) -> Result<Restore, CliError> {
    let action = format!("read Restore {name}");
    let found = request(&action, wait::api(connection).get_opt(name)).await;
    if let Some(restore) = found.map_err(known_kind::<Restore>)? {
        return Ok(restore);
    }
    let namespace = &connection.namespace;
    let restores = objects::list::<Restore>(connection, Some(namespace)).await?;
    let names: Vec<_> = restores.iter().map(ResourceExt::name_any).collect();
    let help = match names.is_empty() {
        true => format!("namespace {namespace} has no Restores"),
        false => format!("existing restores: {}", names.join(", ")),
    };
    Err(
        CliError::new(format!("Restore {name} not found in namespace {namespace}"))
            .help(help)
            .exit_code(EXIT_NOT_FOUND),
    )
}

/// Returns an error if an undo would have no effect.
fn require_possible(
    restore: &Restore,
    cluster: &EtcdCluster,
    now: Timestamp,
) -> Result<(), CliError> {
    let report = RestoreReport::new(restore);
    let name = &report.name;
    let error = |text: String| {
        Err(
            CliError::new(format!("{text}. Nothing was changed")).help(format!(
                "`kubectl evenkeel restores {}` shows all restores",
                report.cluster
            )),
        )
    };
    match phase(restore) {
        RestorePhase::Complete => {}
        RestorePhase::Undoing => return Ok(()),
        RestorePhase::Undone => return error(format!("Restore {name} was undone already")),
        RestorePhase::Pending
        | RestorePhase::Preparing
        | RestorePhase::Replacing
        | RestorePhase::Starting
        | RestorePhase::NotNeeded
        | RestorePhase::Unknown => {
            return error(format!(
                "Restore {name} is not complete, so there is nothing to undo: its phase is {}",
                report.phase
            ));
        }
    }
    let status = cluster.status.as_ref();
    let last = status.and_then(|status| status.restore.as_ref());
    if let Some(last) = last.filter(|last| last.name != *name) {
        return error(format!(
            "Restore {} has replaced the data since, so Restore {name} cannot be undone any more",
            last.name
        ));
    }
    match report.undo_until.as_ref().map(|it| it.parse::<Timestamp>()) {
        Some(Ok(until)) if now < until => Ok(()),
        Some(_) => error(format!(
            "the old data was kept until {} only, so Restore {name} cannot be undone any more",
            report.undo_until.as_deref().unwrap_or_default()
        )),
        None => error(format!(
            "the old data is not kept any more, so Restore {name} cannot be undone"
        )),
    }
}

/// Describes the effects of an undo.
fn text(restore: &RestoreReport, is_paused: bool, now: Timestamp, terminal: Terminal) -> String {
    let RestoreReport { cluster, name, .. } = restore;
    let mut text = terminal.paragraphs(&format!(
        "{cluster}: the undo of Restore {name} brings the old data back. Nothing was changed yet.\n"
    ));
    let lost = restore.finished_at.as_ref().map_or_else(
        || "all writes since the restore".to_owned(),
        |at| format!("all writes since the restore, which ended {}", ago(at, now)),
    );
    let until = restore.undo_until.as_ref().and_then(|it| it.parse().ok());
    let fields = [
        (
            "Gives up",
            format!(
                "cluster ID {}, the data of Backup {}",
                restore.cluster_id, restore.backup
            ),
        ),
        ("Brings back", format!("cluster ID {}", restore.replaces)),
        ("Lost", lost),
        (
            "Clients",
            // Tried on 3.6.16: a read at such a revision is an error, a watch waits.
            "are not served while the members are exchanged. Revisions fall back to those of the old data. A watch from a \
             revision of the restored data gets no error and no events: restart clients that watch"
                .to_owned(),
        ),
        (
            "Possible",
            until
                .map(|until| format!("until {}", at(until, now)))
                .unwrap_or_default(),
        ),
    ];
    for (label, value) in fields.iter().filter(|(_, value)| !value.is_empty()) {
        text.push_str(&terminal.field(label, value));
    }
    if is_paused {
        let note = format!(
            "the cluster is paused. The undo begins when it is resumed: `kubectl evenkeel resume {cluster}`"
        );
        text.push_str(&terminal.field("Note", &note));
    }
    text.push_str(&terminal.field("Next", "the same command with --yes undoes the restore"));
    text
}

#[cfg(test)]
#[path = "undo_tests.rs"]
mod tests;
