//! The table of the backups in a store, and the result of an import.

use jiff::Timestamp;

use super::list_text::{Column, or_dash, table};
use super::report::{StoredBackupList, StoredBackupReport};
use super::stored;
use crate::terminal::{Severity, Terminal, format_bytes, format_duration};

/// The columns that are left out if a terminal is too narrow, in this order.
const OPTIONAL_COLUMNS: [&str; 3] = ["SIZE", "POSITION", "OBJECT"];
/// The number of problems that are shown.
const MAX_PROBLEMS: usize = 3;

/// Renders the list.
pub(super) fn text(list: &StoredBackupList, is_wide: bool, terminal: Terminal) -> String {
    let now: Timestamp = list.time.parse().unwrap_or_default();
    if list.items.is_empty() {
        return format!("BackupStore {} has no backups.\n", list.store);
    }
    let severities: Vec<_> = list.items.iter().map(severity).collect();
    let columns = columns(list, is_wide, now);
    let mut text = table(columns, &severities, &OPTIONAL_COLUMNS, is_wide, terminal);
    let mut more = problems(list, is_wide, terminal);
    if list.omitted > 0 {
        let omitted = format!(
            "{} older backups in the store are not listed: a listing has at most 8 MiB",
            list.omitted
        );
        more.push_str(&terminal.field("Note", &omitted));
    }
    for skipped in &list.not_imported {
        more.push_str(&terminal.field("Note", skipped));
    }
    more.push_str(&imports(list, terminal));
    if !more.is_empty() {
        text.push('\n');
        text.push_str(&more);
    }
    text
}

fn columns(list: &StoredBackupList, is_wide: bool, now: Timestamp) -> Vec<Column> {
    let column = |title: &str, cell: &dyn Fn(&StoredBackupReport) -> String| -> Column {
        let cells = list.items.iter().map(|backup| or_dash(cell(backup)));
        std::iter::once(title.to_owned()).chain(cells).collect()
    };
    let is_foreign = |backup: &StoredBackupReport| backup.namespace != list.namespace;
    let has_foreign = list.items.iter().any(is_foreign);
    let bytes = |bytes: Option<u64>| bytes.map(format_bytes).unwrap_or_default();
    let mut columns = vec![
        column("NAME", &|backup| backup.name.clone()),
        column("CLUSTER", &|backup| match has_foreign {
            true => format!("{}/{}", backup.namespace, backup.cluster),
            false => backup.cluster.clone(),
        }),
        column("AGE", &|backup| {
            let age = stored::time(backup).map(|time| now.as_second() - time.as_second());
            age.map(format_duration).unwrap_or_default()
        }),
        column("STATE", &|backup| backup.state.clone()),
        column("POSITION", &|backup| backup.position.clone()),
        column("SIZE", &|backup| bytes(backup.size_bytes)),
        column("OBJECT", &|backup| {
            if backup.has_object { "yes" } else { "no" }.to_owned()
        }),
    ];
    if is_wide {
        columns.extend([
            column("STORED SIZE", &|backup| bytes(backup.stored_bytes)),
            column("ENGINE VERSION", &|backup| backup.engine_version.clone()),
            column("LOCATION", &|backup| backup.location.clone()),
        ]);
    }
    columns
}

fn severity(backup: &StoredBackupReport) -> Severity {
    match backup.state.as_str() {
        "Damaged" => Severity::Critical,
        "NotSupported" => Severity::Warning,
        _ => Severity::Neutral,
    }
}

fn problems(list: &StoredBackupList, is_wide: bool, terminal: Terminal) -> String {
    let with_problem = list.items.iter().filter(|item| !item.problem.is_empty());
    let all: Vec<_> = with_problem.collect();
    let shown = if is_wide { all.len() } else { MAX_PROBLEMS };
    let mut text = String::new();
    for item in all.iter().take(shown) {
        let line = format!("{}: {}", item.name, item.problem);
        text.push_str(&terminal.field("Problem", &line));
    }
    let hidden = all.len().saturating_sub(shown);
    if hidden > 0 {
        text.push_str(&terminal.field("", &format!("{hidden} more: -o wide shows all")));
    }
    text
}

/// Describes the result of an import and its next step, or how to import.
fn imports(list: &StoredBackupList, terminal: Terminal) -> String {
    let store = &list.store;
    let Some(first) = list.imported.first() else {
        let is_importable =
            |item: &StoredBackupReport| item.state == "Complete" && !item.has_object;
        if !list.not_imported.is_empty() || !list.items.iter().any(is_importable) {
            return String::new();
        }
        let text = format!(
            "`kubectl evenkeel backups --from-store {store} --import NAME` creates a Backup object for a backup, and --import-all \
             for all that are complete. New clusters can begin with them"
        );
        return terminal.field("Import", &text);
    };
    let mut text = String::new();
    for name in &list.imported {
        text.push_str(&terminal.field("Imported", name));
    }
    text.push_str(&terminal.field(
        "Next",
        "a new cluster begins with a backup if its manifest has:",
    ));
    text.push_str(&format!(
        "\n  spec:\n    bootstrap: {{from: {{backup: {first}}}}}\n"
    ));
    text
}
