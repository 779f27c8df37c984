//! The table of all clusters, the worst first.

use std::collections::BTreeSet;

use crate::operation_text;
use crate::report::{ClusterReport, HealthState};
use crate::terminal::{Severity, Terminal, full_table};

/// Renders the table of all clusters.
pub(crate) fn text(reports: &[ClusterReport], is_wide: bool, terminal: Terminal) -> String {
    if reports.is_empty() {
        return "No EtcdClusters found.\n".to_owned();
    }
    let mut text = String::new();
    for note in notes(reports) {
        text.push_str(&terminal.field("Note", &note));
    }
    let mut columns = columns(reports, terminal);
    if !is_wide {
        fit(&mut columns, terminal.table_width());
    }
    let row = |index: usize| columns.iter().map(|column| column[index].clone()).collect();
    let rows: Vec<Vec<_>> = (0..=reports.len()).map(row).collect();
    let lines = if is_wide {
        full_table(&rows)
    } else {
        terminal.table(&rows)
    };
    let mut lines = lines.into_iter();
    let heading = lines.next().unwrap_or_default();
    text.push_str(&format!("{}\n", terminal.bold(&heading)));
    for (line, report) in lines.zip(reports) {
        let severity = match report.health.state {
            HealthState::Ok => Severity::Neutral,
            state => state.severity(),
        };
        text.push_str(&format!("{}\n", terminal.paint(severity, &line)));
    }
    text
}

/// A column: its title, then a cell for each cluster.
type Column = Vec<String>;

/// The columns that are left out if a terminal is too narrow, in this order.
const OPTIONAL_COLUMNS: [&str; 4] = ["VERSION", "OPERATION", "TOLERATES", "MEMBERS"];
/// The least width of the problem, which is truncated.
const MIN_PROBLEM_WIDTH: usize = 16;
/// The space between two columns.
const COLUMN_GAP: usize = 2;

fn columns(reports: &[ClusterReport], terminal: Terminal) -> Vec<Column> {
    let column = |title: &str, cell: &dyn Fn(&ClusterReport) -> String| -> Column {
        let cells = reports.iter().map(cell);
        std::iter::once(title.to_owned()).chain(cells).collect()
    };
    let mut columns = vec![
        column("NAMESPACE", &|report| report.namespace.clone()),
        column("NAME", &|report| report.name.clone()),
        column("HEALTH", &|report| report.health.state.word().to_owned()),
        column("MEMBERS", &members),
        column("TOLERATES", &tolerance),
        column("VERSION", &ClusterReport::version_text),
    ];
    if reports.iter().any(|report| report.operation.is_some()) {
        columns.push(column("OPERATION", &operation));
    }
    columns.push(column("PROBLEM", &|report| {
        terminal.commands_in(&report.namespace, &problem(report))
    }));
    columns
}

/// Leaves out columns until the others and the beginning of each problem fit.
fn fit(columns: &mut Vec<Column>, limit: usize) {
    let width = |column: &Column| column.iter().map(|cell| cell.chars().count()).max();
    for title in OPTIONAL_COLUMNS {
        let Some((problem, others)) = columns.split_last() else {
            return;
        };
        let others = others
            .iter()
            .filter_map(width)
            .map(|width| width + COLUMN_GAP);
        let problem = width(problem).unwrap_or_default().min(MIN_PROBLEM_WIDTH);
        if others.sum::<usize>() + problem <= limit {
            return;
        }
        columns.retain(|column| column[0] != title);
    }
}

/// Returns the notes about more than one cluster.
fn notes(reports: &[ClusterReport]) -> Vec<String> {
    let stopped = reports
        .iter()
        .filter(|report| report.operator.running == Some(false));
    let facts: BTreeSet<_> = stopped
        .map(|report| match report.operator.namespace.as_str() {
            "" => format!("no operator watches namespace {}", report.namespace),
            _ => format!("no operator is running: {}", report.operator.message),
        })
        .collect();
    let mut notes: Vec<_> = facts
        .into_iter()
        .map(|fact| format!("{fact}. Failed members are not recovered, and edits are not applied"))
        .collect();
    let unknown = |report: &ClusterReport| report.health.state == HealthState::Unknown;
    if reports.iter().any(unknown) {
        notes.push(
            "members of clusters whose HEALTH is unknown could not be queried (needs get on pods/proxy); their MEMBERS and \
             TOLERATES are the operator's last report"
                .to_owned(),
        );
    }
    notes
}

fn members(report: &ClusterReport) -> String {
    let count = &report.member_count;
    match count.serving {
        Some(serving) => format!("{serving}/{}", count.desired),
        None => count.reported.clone(),
    }
}

fn tolerance(report: &ClusterReport) -> String {
    match (&report.failure_tolerance, report.member_count.serving) {
        (Some(tolerance), _) => tolerance.summary.clone(),
        (None, Some(_)) if report.health.state == HealthState::Unavailable => "nothing".to_owned(),
        (None, _) => "-".to_owned(),
    }
}

fn operation(report: &ClusterReport) -> String {
    let Some(operation) = &report.operation else {
        return "-".to_owned();
    };
    let progress = operation_text::progress(operation).unwrap_or_default();
    format!("{}{progress}", operation.r#type.to_lowercase())
}

fn problem(report: &ClusterReport) -> String {
    match report.problems.as_slice() {
        [] if report.paused => "spec.paused is set".to_owned(),
        [] => "-".to_owned(),
        [problem] => problem.message.clone(),
        [problem, others @ ..] => format!("{} (and {} more)", problem.message, others.len()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::args::ColorMode;
    use crate::scene::{Scene, names};

    fn render(scenes: &[&Scene]) -> String {
        let reports: Vec<_> = scenes.iter().map(|scene| scene.report()).collect();
        text(&reports, true, Terminal::new(ColorMode::Never))
    }

    #[test]
    fn a_table_for_80_columns_cuts_problems_and_leaves_out_columns() {
        let mut broken = Scene::healthy();
        broken.no_answer(names()[0]);
        let table = |scenes: &[&Scene]| {
            let reports: Vec<_> = scenes.iter().map(|scene| scene.report()).collect();
            let table = text(&reports, false, Terminal::new(ColorMode::Never));
            for line in table.lines() {
                assert!(line.chars().count() <= 80, "{line}\n{table}");
            }
            table
        };
        assert_eq!(
            table(&[&broken]),
            "NAMESPACE  NAME    HEALTH    MEMBERS  TOLERATES  VERSION  PROBLEM\n\
             shop       orders  DEGRADED  2/3      nothing    3.6.16   Member orders-gv2z5 d…\n"
        );
        broken.resource["metadata"]["namespace"] = json!("a-namespace-with-a-long-name");
        let text = table(&[&broken]);
        assert!(
            text.starts_with("NAMESPACE                     NAME    HEALTH    MEMBERS  PROBLEM\n"),
            "{text}"
        );
        broken.resource["metadata"]["name"] = json!("a".repeat(63));
        table(&[&broken]);
    }

    #[test]
    fn each_cluster_has_a_line_with_its_operation_and_its_problem() {
        let mut broken = Scene::healthy();
        broken.no_answer(names()[0]);
        let mut paused = Scene::healthy();
        paused.resource["spec"]["paused"] = json!(true);
        let mut upgrading = Scene::healthy();
        upgrading.resource["spec"]["version"] = json!("3.7.3");
        upgrading.status(
            "operation",
            json!({ "type": "Upgrade", "completed": 0, "total": 3, "startTime": "2026-11-16T11:59:40Z",
                "message": "restarting member orders-gv2z5" }),
        );
        assert_eq!(
            render(&[&broken, &paused, &upgrading]),
            "NAMESPACE  NAME    HEALTH    MEMBERS  TOLERATES  VERSION         OPERATION       PROBLEM\n\
             shop       orders  DEGRADED  2/3      nothing    3.6.16          -               \
             Member orders-gv2z5 does not answer. The operator has not reported it yet.\n\
             shop       orders  PAUSED    3/3      1 node     3.6.16          -               spec.paused is set\n\
             shop       orders  OK        3/3      1 node     3.6.16 → 3.7.3  upgrade 0 of 3  -\n"
        );
    }

    #[test]
    fn a_missing_operator_and_missing_permissions_are_noted_once() {
        let mut first = Scene::healthy();
        first.stop_operator();
        let mut second = Scene::healthy();
        second.view_only();
        second.stop_operator();
        let text = render(&[&second, &first]);
        assert_eq!(text.matches("no operator is running").count(), 1, "{text}");
        assert!(text.contains("needs get on pods/proxy"), "{text}");
        assert!(
            text.contains("shop       orders  unknown    3/3      1 node"),
            "{text}"
        );
        assert_eq!(render(&[]), "No EtcdClusters found.\n");
    }
}
