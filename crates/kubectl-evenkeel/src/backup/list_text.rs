//! The table of backups, with a line about each schedule above and the reasons of failures below.

use jiff::Timestamp;

use super::list::BackupsOptions;
use super::report::{BackupReport, BackupReportList, ScheduleReport};
use crate::terminal::{
    Severity, Terminal, format_duration, format_elapsed, format_time, full_table,
};

/// The number of failed backups whose reasons are shown.
const MAX_FAILURES: usize = 3;
/// The space between two columns.
const COLUMN_GAP: usize = 2;
/// The columns that are left out if a terminal is too narrow, in this order.
const OPTIONAL_COLUMNS: [&str; 3] = ["SIZE", "POSITION", "CLUSTER"];

/// A column: its title, then a cell for each row.
pub(super) type Column = Vec<String>;

/// Renders the list. `namespace` is `None` if the backups of all namespaces are listed.
pub(super) fn text(
    list: &BackupReportList,
    namespace: Option<&str>,
    options: BackupsOptions<'_>,
    terminal: Terminal,
) -> String {
    let now: Timestamp = list.time.parse().unwrap_or_default();
    let mut text = String::new();
    for schedule in &list.schedules {
        text.push_str(&terminal.field("Schedule", &schedule_text(schedule, namespace, now)));
    }
    if list.items.is_empty() {
        text.push_str(&terminal.paragraphs(&empty(list, namespace, options)));
        return text;
    }
    if !list.schedules.is_empty() {
        text.push('\n');
    }
    let columns = columns(list, namespace, options.is_wide, now);
    let severities: Vec<_> = list.items.iter().map(severity).collect();
    text.push_str(&table(
        columns,
        &severities,
        &OPTIONAL_COLUMNS,
        options.is_wide,
        terminal,
    ));
    text.push_str(&failures(list, namespace, options, terminal));
    text
}

/// Renders columns. Without `is_wide`, columns are left out until the others fit.
pub(super) fn table(
    mut columns: Vec<Column>,
    severities: &[Severity],
    optional: &[&str],
    is_wide: bool,
    terminal: Terminal,
) -> String {
    if !is_wide {
        fit(&mut columns, optional, terminal.table_width());
    }
    let row = |index: usize| columns.iter().map(|column| column[index].clone()).collect();
    let rows: Vec<Vec<_>> = (0..=severities.len()).map(row).collect();
    // A name that is cut cannot be copied, so a line may be too long for the terminal.
    let mut lines = full_table(&rows).into_iter();
    let heading = lines.next().unwrap_or_default();
    let mut text = format!("{}\n", terminal.bold(&heading));
    for (line, severity) in lines.zip(severities) {
        text.push_str(&format!("{}\n", terminal.paint(*severity, &line)));
    }
    text
}

fn fit(columns: &mut Vec<Column>, optional: &[&str], limit: usize) {
    let width = |column: &Column| {
        let cells = column.iter().map(|cell| cell.chars().count());
        cells.max().unwrap_or_default() + COLUMN_GAP
    };
    for title in optional {
        if columns.iter().map(width).sum::<usize>() <= limit + COLUMN_GAP {
            return;
        }
        columns.retain(|column| column[0] != *title);
    }
}

fn columns(
    list: &BackupReportList,
    namespace: Option<&str>,
    is_wide: bool,
    now: Timestamp,
) -> Vec<Column> {
    let column = |title: &str, cell: &dyn Fn(&BackupReport) -> String| -> Column {
        let cells = list.items.iter().map(|backup| or_dash(cell(backup)));
        std::iter::once(title.to_owned()).chain(cells).collect()
    };
    let mut columns = Vec::new();
    if namespace.is_none() {
        columns.push(column("NAMESPACE", &|backup| backup.namespace.clone()));
    }
    columns.extend([
        column("NAME", &|backup| backup.name.clone()),
        column("CLUSTER", &|backup| backup.cluster.clone()),
        column("AGE", &|backup| {
            let age = backup.time().map(|time| now.as_second() - time.as_second());
            age.map(format_duration).unwrap_or_default()
        }),
        column("PHASE", &|backup| backup.phase.clone()),
        column("POSITION", &|backup| backup.position.clone()),
        column("SIZE", &|backup| backup.size.clone()),
        column("PROVEN", &|backup| proven(backup, is_wide, now)),
    ]);
    if is_wide {
        columns.extend([
            column("STORE", &|backup| backup.store.clone()),
            column("LOCATION", &|backup| backup.location.clone()),
            column("DURATION", &|backup| {
                backup
                    .duration_seconds
                    .map(format_elapsed)
                    .unwrap_or_default()
            }),
            column("ENGINE VERSION", &|backup| backup.engine_version.clone()),
        ]);
    }
    columns
}

/// Returns a cell that is not empty.
pub(super) fn or_dash(cell: String) -> String {
    if cell.is_empty() {
        "-".to_owned()
    } else {
        cell
    }
}

fn proven(backup: &BackupReport, is_wide: bool, now: Timestamp) -> String {
    if !backup.damage.is_empty() {
        return "DAMAGED".to_owned();
    }
    let Some(proven) = &backup.proven else {
        return String::new();
    };
    let age = ago(&proven.at, now);
    if is_wide {
        format!("{age} in {}", format_elapsed(proven.restore_seconds))
    } else {
        age
    }
}

/// Returns how long ago a time of a report is.
pub(super) fn ago(time: &str, now: Timestamp) -> String {
    match time.parse::<Timestamp>() {
        Ok(time) => format!(
            "{} ago",
            format_duration(now.as_second() - time.as_second())
        ),
        Err(_) => time.to_owned(),
    }
}

fn severity(backup: &BackupReport) -> Severity {
    if !backup.damage.is_empty() || backup.is_failed() {
        Severity::Critical
    } else {
        Severity::Neutral
    }
}

/// Describes a schedule: the last success, the next backup, and whether a restore was proven.
fn schedule_text(schedule: &ScheduleReport, namespace: Option<&str>, now: Timestamp) -> String {
    let name = match namespace {
        Some(_) => schedule.name.clone(),
        None => format!("{}/{}", schedule.namespace, schedule.name),
    };
    let mut parts = Vec::new();
    if let Some(ready) = &schedule.ready
        && ready.status == "False"
    {
        parts.push(format!("NOT READY ({})", ready.reason));
    }
    parts.push(match &schedule.last_success {
        Some(success) => format!("last success {}", ago(&success.at, now)),
        None => "no success yet".to_owned(),
    });
    parts.push(match (&schedule.next_backup, schedule.is_suspended) {
        (_, true) => "suspended".to_owned(),
        (Some(next), false) => format!("next {}", time_text(next, now)),
        (None, false) => "next unknown".to_owned(),
    });
    if let Some(recoverable) = &schedule.recoverable {
        parts.push(match recoverable.status.as_str() {
            "True" => "recoverable".to_owned(),
            "False" => format!("NOT RECOVERABLE ({})", recoverable.reason),
            _ => format!("recoverable unknown ({})", recoverable.reason),
        });
    }
    if let Some(drill) = &schedule.last_drill {
        let age = ago(&drill.at, now);
        parts.push(match drill.result.as_str() {
            "Proven" => format!(
                "last drill {age}: restored in {}",
                format_elapsed(drill.restore_seconds)
            ),
            "NotRun" => format!("last drill {age}: could not run"),
            result => format!("last drill {age}: {}", result.to_uppercase()),
        });
    }
    format!("{name}: {}", parts.join(", "))
}

/// Formats a time of a report.
pub(super) fn time_text(time: &str, now: Timestamp) -> String {
    match time.parse() {
        Ok(time) => format_time(time, now),
        Err(_) => time.to_owned(),
    }
}

/// Returns the reasons of the newest failures, and of damage.
fn failures(
    list: &BackupReportList,
    namespace: Option<&str>,
    options: BackupsOptions<'_>,
    terminal: Terminal,
) -> String {
    let name = |backup: &BackupReport| match namespace {
        Some(_) => backup.name.clone(),
        None => format!("{}/{}", backup.namespace, backup.name),
    };
    let damaged = list.items.iter().filter(|backup| !backup.damage.is_empty());
    let damaged = damaged.map(|backup| ("Damaged", name(backup), backup.damage.clone()));
    let failed = list.items.iter().filter(|backup| backup.is_failed());
    let failed = failed.map(|backup| ("Failed", name(backup), backup.reason_text()));
    let all: Vec<_> = damaged.chain(failed).collect();
    let shown = if options.is_wide {
        all.len()
    } else {
        MAX_FAILURES
    };
    let mut text = String::new();
    if !all.is_empty() {
        text.push('\n');
    }
    for (label, name, reason) in all.iter().take(shown) {
        text.push_str(&terminal.field(label, &format!("{name}: {reason}")));
    }
    let hidden = all.len().saturating_sub(shown);
    if hidden > 0 {
        text.push_str(&terminal.field("", &format!("{hidden} more: -o wide shows all")));
    }
    text
}

fn empty(list: &BackupReportList, namespace: Option<&str>, options: BackupsOptions<'_>) -> String {
    let for_cluster = options.cluster.map(|cluster| format!(" for {cluster}"));
    let in_store = options.store.map(|store| format!(" in store {store}"));
    let in_namespace = namespace.map(|namespace| format!(" in namespace {namespace}"));
    let what = [for_cluster, in_store, in_namespace].map(Option::unwrap_or_default);
    let mut text = format!("No Backups found{}.", what.concat());
    if list.schedules.is_empty() {
        let cluster = options.cluster.unwrap_or("CLUSTER");
        text.push_str(&format!(
            " `kubectl evenkeel backup {cluster}` takes one. A BackupSchedule takes them regularly."
        ));
    }
    text.push('\n');
    text
}

#[cfg(test)]
#[path = "list_tests.rs"]
mod tests;
