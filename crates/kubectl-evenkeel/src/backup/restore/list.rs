//! `kubectl evenkeel restores`: lists the `Restore` objects.

use std::cmp::Reverse;

use evenkeel_api::{Restore, RestorePhase};
use jiff::Timestamp;

use super::super::list_text::{Column, ago, or_dash, table, time_text};
use super::super::objects;
use super::report::{RestoreReport, RestoreReportList};
use crate::connection::Connection;
use crate::error::CliError;
use crate::output::OutputOptions;
use crate::report::API_VERSION;
use crate::terminal::{Severity, Terminal};

/// The columns that are left out if a terminal is too narrow, in this order.
const OPTIONAL_COLUMNS: [&str; 2] = ["AGE", "CLUSTER"];

/// Which restores are listed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RestoresOptions<'a> {
    /// The name of the cluster. `None` for all clusters.
    pub(crate) cluster: Option<&'a str>,
    /// Whether the restores of all namespaces are listed.
    pub(crate) all_namespaces: bool,
}

/// Lists the restores.
pub(crate) async fn run(
    connection: &Connection,
    options: RestoresOptions<'_>,
    output: OutputOptions,
) -> Result<u8, CliError> {
    let namespace = (!options.all_namespaces).then_some(connection.namespace.as_str());
    let restores = objects::list::<Restore>(connection, namespace).await?;
    let list = report(&restores, options, Timestamp::now());
    if list.items.is_empty()
        && let Some(cluster) = options.cluster
    {
        // A name without restores may be a typing error.
        connection.cluster(Some(cluster)).await?;
    }
    output.print(&list, |terminal| text(&list, namespace, options, terminal))?;
    Ok(0)
}

/// Reports about the chosen restores, the newest first.
fn report(restores: &[Restore], options: RestoresOptions<'_>, now: Timestamp) -> RestoreReportList {
    let is_chosen = |restore: &RestoreReport| {
        options
            .cluster
            .is_none_or(|wanted| wanted == restore.cluster)
    };
    let reports = restores.iter().map(RestoreReport::new);
    let mut items: Vec<_> = reports.filter(is_chosen).collect();
    items.sort_by_key(|it| Reverse((it.created_at.clone(), it.name.clone())));
    RestoreReportList {
        api_version: API_VERSION,
        kind: "RestoreReportList",
        time: now.to_string(),
        items,
    }
}

/// Renders the list: a table, and the message of each restore that has not ended.
fn text(
    list: &RestoreReportList,
    namespace: Option<&str>,
    options: RestoresOptions<'_>,
    terminal: Terminal,
) -> String {
    let now: Timestamp = list.time.parse().unwrap_or_default();
    if list.items.is_empty() {
        let of = options.cluster.map(|cluster| format!(" for {cluster}"));
        let within = namespace.map(|namespace| format!(" in namespace {namespace}"));
        let cluster = options.cluster.unwrap_or("CLUSTER");
        return terminal.paragraphs(&format!(
            "No Restores found{}{}. `kubectl evenkeel restore {cluster} --from BACKUP` shows what a restore does.\n",
            of.unwrap_or_default(),
            within.unwrap_or_default()
        ));
    }
    let column = |title: &str, cell: &dyn Fn(&RestoreReport) -> String| -> Column {
        let cells = list.items.iter().map(|restore| or_dash(cell(restore)));
        std::iter::once(title.to_owned()).chain(cells).collect()
    };
    let mut columns = Vec::new();
    if namespace.is_none() {
        columns.push(column("NAMESPACE", &|it| it.namespace.clone()));
    }
    columns.extend([
        column("NAME", &|it| it.name.clone()),
        column("CLUSTER", &|it| it.cluster.clone()),
        column("BACKUP", &|it| it.backup.clone()),
        column("AGE", &|it| {
            let age = it.created_at.as_ref().map(|at| ago(at, now));
            age.unwrap_or_default().trim_end_matches(" ago").to_owned()
        }),
        column("PHASE", &|it| it.phase.clone()),
        column("UNDO UNTIL", &|it| {
            let until = it.undo_until.as_ref().filter(|_| can_be_undone(it, now));
            until.map(|it| time_text(it, now)).unwrap_or_default()
        }),
    ]);
    let severities: Vec<_> = list.items.iter().map(severity).collect();
    let mut text = table(columns, &severities, &OPTIONAL_COLUMNS, false, terminal);
    let with_message = list
        .items
        .iter()
        .filter(|restore| !restore.message.is_empty() && is_interesting(restore));
    for (index, restore) in with_message.enumerate() {
        if index == 0 {
            text.push('\n');
        }
        let message = format!("{}: {}", restore.name, restore.message);
        text.push_str(&terminal.field(&restore.phase, &message));
    }
    text
}

fn is(restore: &RestoreReport, phase: RestorePhase) -> bool {
    restore.phase == phase.to_string()
}

/// Returns whether the message tells more than the phase: the restore has not ended, or cannot be undone.
fn is_interesting(restore: &RestoreReport) -> bool {
    let has_ended = [
        RestorePhase::Complete,
        RestorePhase::Undone,
        RestorePhase::NotNeeded,
    ];
    restore.reason == "UndoNotPossible" || !has_ended.into_iter().any(|phase| is(restore, phase))
}

fn can_be_undone(restore: &RestoreReport, now: Timestamp) -> bool {
    let until = restore.undo_until.as_ref();
    let until = until.and_then(|it| it.parse::<Timestamp>().ok());
    is(restore, RestorePhase::Complete) && until.is_some_and(|until| now < until)
}

fn severity(restore: &RestoreReport) -> Severity {
    match restore.phase.as_str() {
        "Complete" => Severity::Good,
        "Preparing" | "Replacing" | "Starting" | "Undoing" => Severity::Warning,
        _ => Severity::Neutral,
    }
}

#[cfg(test)]
#[path = "list_tests.rs"]
mod tests;
