//! `kubectl evenkeel status`: shows the state of a cluster on one screen.

use futures::future::join_all;
use jiff::Timestamp;
use kube::ResourceExt;

use crate::args::Target;
use crate::connection::Connection;
use crate::error::CliError;
use crate::member_metrics::ClusterMetrics;
use crate::operator_status::OperatorStatus;
use crate::output::OutputOptions;
use crate::report::{MemberReport, Report};
use crate::terminal::{Severity, Terminal, WIDTH, format_bytes, truncate, wrap};

/// The longest member name that is printed in full. Of longer names, the cluster's name is left out.
const MAX_NAME_LENGTH: usize = 24;

/// What is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatusOptions {
    /// Whether further columns are shown.
    #[expect(dead_code, reason = "the columns of `-o wide` do not exist yet")]
    pub(crate) is_wide: bool,
}

/// Shows one cluster.
pub(crate) async fn run(
    connection: &Connection,
    target: &Target,
    _options: StatusOptions,
    output: OutputOptions,
) -> Result<u8, CliError> {
    let (_, report) = Report::query(connection, target, Timestamp::now()).await?;
    output.print(&report, |terminal| text(&report, terminal))?;
    Ok(report.exit_code())
}

/// Shows the clusters of all namespaces, one line each. Returns the highest of their exit codes.
pub(crate) async fn run_all(
    connection: &Connection,
    _options: StatusOptions,
    output: OutputOptions,
) -> Result<u8, CliError> {
    let now = Timestamp::now();
    let mut clusters = connection.clusters_in_all_namespaces().await?;
    let operator = &OperatorStatus::query(&connection.client, None, now).await;
    clusters.sort_by_key(|cluster| (cluster.namespace(), cluster.name_any()));
    let metrics = join_all(
        clusters
            .iter()
            .map(|cluster| ClusterMetrics::query(&connection.client, cluster)),
    )
    .await;
    let reports: Vec<_> = clusters
        .iter()
        .zip(&metrics)
        .map(|(cluster, metrics)| Report::new(cluster, metrics, operator, now))
        .collect();
    output.print(&reports, |terminal| table(&reports, operator, terminal))?;
    let codes = reports.iter().map(Report::exit_code);
    Ok(codes.max().unwrap_or_default())
}

/// Renders the state of one cluster.
pub(crate) fn text(report: &Report, terminal: Terminal) -> String {
    let headline = format!("{}: {}", report.name, report.headline());
    let mut text = format!("{}\n", terminal.paint(report.severity(), &headline));
    let members_text = if report.ready.is_empty() {
        "members unknown".to_owned()
    } else {
        format!("{} members healthy", report.ready)
    };
    text.push_str(&format!(
        "etcd {}, {members_text}, namespace {}\n",
        report.version, report.namespace
    ));
    if !report.summary.is_empty() {
        text.push_str(&format!("{}\n", truncate(&report.summary, WIDTH)));
    }
    for note in &report.notes {
        text.push_str(&terminal.labelled("Note", note));
    }
    if !report.members.is_empty() {
        text.push('\n');
        text.push_str(&members(report, terminal));
    }
    text.push('\n');
    let action = match report.current_action.as_str() {
        "" if report.waiting_for.is_empty() => "none",
        "" => "waiting",
        action => action,
    };
    text.push_str(&terminal.labelled("Current action", action));
    text.push_str(&terminal.labelled("Reason", &reason(report)));
    for wait in &report.waiting_for {
        text.push_str(&terminal.labelled("Waiting for", wait));
    }
    if !report.next_action.is_empty() {
        text.push_str(&terminal.labelled("Next action", &report.next_action));
    }
    text.push_str(&terminal.labelled("Certificates", &report.certificate_summary()));
    text
}

/// Returns the reason for the current action or state.
fn reason(report: &Report) -> String {
    match &report.degraded {
        _ if !report.action_reason.is_empty() => report.action_reason.clone(),
        Some(degraded) => degraded.message.clone(),
        None if report.available != Some(true) && !report.not_ready_messages.is_empty() => {
            report.not_ready_messages.join("; ")
        }
        None if report.current_action.is_empty()
            && report.waiting_for.is_empty()
            && report.available == Some(true) =>
        {
            "the cluster matches its spec".to_owned()
        }
        None => "no problem is known".to_owned(),
    }
}

fn members(report: &Report, terminal: Terminal) -> String {
    let heading = [
        "MEMBER", "ROLE", "HEALTH", "RAFT LAG", "DB SIZE", "VERSION", "NODE",
    ]
    .map(str::to_owned);
    let mut rows = vec![heading.to_vec()];
    let abbreviate = report
        .members
        .iter()
        .any(|member| member.name.chars().count() > MAX_NAME_LENGTH);
    rows.extend(
        report
            .members
            .iter()
            .map(|member| row(member, &report.name, abbreviate)),
    );
    let mut lines = terminal.table(&rows).into_iter();
    let mut text = format!("{}\n", terminal.bold(&lines.next().unwrap_or_default()));
    for (line, member) in lines.zip(&report.members) {
        let severity = if member.healthy {
            Severity::Neutral
        } else {
            Severity::Warning
        };
        text.push_str(&format!("{}\n", terminal.paint(severity, &line)));
    }
    // Messages that the lines below the table repeat are left out.
    let below = format!("{} {}", reason(report), report.waiting_for.join(" "));
    let is_new =
        |member: &&MemberReport| !member.message.is_empty() && !below.contains(&member.message);
    for member in report.members.iter().filter(is_new) {
        for line in wrap(&format!("{}: {}", member.name, member.message), WIDTH - 2) {
            text.push_str(&format!("  {line}\n"));
        }
    }
    text
}

fn row(member: &MemberReport, cluster: &str, abbreviate: bool) -> Vec<String> {
    let unknown = || "-".to_owned();
    let or_unknown = |text: &str| {
        if text.is_empty() {
            unknown()
        } else {
            text.to_owned()
        }
    };
    let name = match member.name.strip_prefix(cluster) {
        Some(rest) if abbreviate => format!("…{rest}"),
        _ => member.name.clone(),
    };
    vec![
        name,
        member.role.clone(),
        if member.healthy {
            "healthy"
        } else {
            "unhealthy"
        }
        .to_owned(),
        member.raft_lag.map_or_else(unknown, |lag| lag.to_string()),
        member.db_size_bytes.map_or_else(unknown, format_bytes),
        or_unknown(&member.version),
        or_unknown(&member.node),
    ]
}

/// Renders the table of all clusters.
fn table(reports: &[Report], operator: &OperatorStatus, terminal: Terminal) -> String {
    if reports.is_empty() {
        return "No EtcdClusters found.\n".to_owned();
    }
    let heading = [
        "NAMESPACE",
        "NAME",
        "VERSION",
        "MEMBERS",
        "AVAILABLE",
        "TOLERATES",
        "STATUS",
    ];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    for report in reports {
        let available = report
            .available
            .map_or("unknown", |available| if available { "yes" } else { "NO" });
        rows.push(vec![
            report.namespace.clone(),
            report.name.clone(),
            report.version.clone(),
            report.ready.clone(),
            available.to_owned(),
            report
                .failure_tolerance
                .map_or_else(|| "-".to_owned(), |tolerance| tolerance.to_string()),
            report.summary.clone(),
        ]);
    }
    let mut lines = terminal.table(&rows).into_iter();
    let mut text = String::new();
    if let Some(note) = operator.note() {
        text.push_str(&terminal.labelled("Note", &note));
    }
    text.push_str(&format!(
        "{}\n",
        terminal.bold(&lines.next().unwrap_or_default())
    ));
    for (line, report) in lines.zip(reports) {
        let severity = if report.exit_code() == 0 {
            Severity::Neutral
        } else {
            report.severity()
        };
        text.push_str(&format!("{}\n", terminal.paint(severity, &line)));
    }
    text
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
