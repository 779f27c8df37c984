//! `kubectl evenkeel status`: shows the state of a cluster on one screen, or of all clusters in a table.

use evenkeel_api::EtcdCluster;
use futures::{StreamExt, stream};
use jiff::Timestamp;

use crate::args::Target;
use crate::cluster_table;
use crate::connection::Connection;
use crate::error::CliError;
use crate::live::LiveScope;
use crate::output::OutputOptions;
use crate::report::{API_VERSION, ClusterReport, ClusterReportList};
use crate::status_text;

/// The number of clusters that are queried at the same time.
const MAX_CONCURRENT_QUERIES: usize = 16;

/// What is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatusOptions {
    /// Whether further columns are shown.
    pub(crate) is_wide: bool,
}

/// Shows one cluster.
pub(crate) async fn run(
    connection: &Connection,
    target: &Target,
    options: StatusOptions,
    output: OutputOptions,
) -> Result<u8, CliError> {
    let (_, report) = ClusterReport::query(connection, target, Timestamp::now()).await?;
    output.print(&report, |terminal| {
        status_text::text(&report, options.is_wide, terminal)
    })?;
    Ok(report.exit_code)
}

/// Shows the clusters of all namespaces, one line each. Returns the highest of their exit codes.
pub(crate) async fn run_all(
    connection: &Connection,
    options: StatusOptions,
    output: OutputOptions,
) -> Result<u8, CliError> {
    let items: Vec<_> = report_all(connection, Timestamp::now())
        .await?
        .into_iter()
        .map(|(_, report)| report)
        .collect();
    let list = ClusterReportList {
        api_version: API_VERSION,
        kind: "ClusterReportList",
        items,
    };
    output.print(&list, |terminal| {
        cluster_table::text(&list.items, options.is_wide, terminal)
    })?;
    let codes = list.items.iter().map(|report| report.exit_code);
    Ok(codes.max().unwrap_or_default())
}

/// Reports about the clusters of all namespaces, the worst first.
pub(crate) async fn report_all(
    connection: &Connection,
    now: Timestamp,
) -> Result<Vec<(EtcdCluster, ClusterReport)>, CliError> {
    let clusters = connection.clusters_in_all_namespaces().await?;
    let reports = clusters.into_iter().map(|cluster| async move {
        let report = ClusterReport::of(connection, &cluster, LiveScope::Members, now).await;
        (cluster, report)
    });
    let mut reports: Vec<_> = stream::iter(reports)
        .buffer_unordered(MAX_CONCURRENT_QUERIES)
        .collect()
        .await;
    reports.sort_by_key(|(_, report)| {
        let rank = report.health.state.rank();
        (rank, report.namespace.clone(), report.name.clone())
    });
    Ok(reports)
}
