//! `kubectl evenkeel backups`: lists the `Backup` objects and the schedules.

use evenkeel_api::{Backup, BackupSchedule};
use jiff::Timestamp;

use super::objects;
use super::report::{BackupReport, BackupReportList, DrillReport, ScheduleReport};
use super::{list_text, state};
use crate::connection::Connection;
use crate::error::CliError;
use crate::output::OutputOptions;
use crate::report::API_VERSION;

/// Which backups are listed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BackupsOptions<'a> {
    /// The name of the cluster. `None` for all clusters.
    pub(crate) cluster: Option<&'a str>,
    /// Whether the backups of all namespaces are listed.
    pub(crate) all_namespaces: bool,
    /// The name of the store. `None` for all stores.
    pub(crate) store: Option<&'a str>,
    /// Whether further columns are shown.
    pub(crate) is_wide: bool,
}

/// Lists the backups.
pub(crate) async fn run(
    connection: &Connection,
    options: BackupsOptions<'_>,
    output: OutputOptions,
) -> Result<u8, CliError> {
    let namespace = (!options.all_namespaces).then_some(connection.namespace.as_str());
    let (backups, schedules) = futures::join!(
        objects::list::<Backup>(connection, namespace),
        objects::list::<BackupSchedule>(connection, namespace),
    );
    let list = report(&backups?, &schedules?, options, Timestamp::now());
    if list.items.is_empty()
        && list.schedules.is_empty()
        && let Some(cluster) = options.cluster
    {
        // A name without backups may be a typing error.
        connection.cluster(Some(cluster)).await?;
    }
    output.print(&list, |terminal| {
        list_text::text(&list, namespace, options, terminal)
    })?;
    Ok(0)
}

/// Reports about the chosen backups, the newest first.
pub(super) fn report(
    backups: &[Backup],
    schedules: &[BackupSchedule],
    options: BackupsOptions<'_>,
    now: Timestamp,
) -> BackupReportList {
    let is_chosen = |cluster: &str, store: &str| {
        options.cluster.is_none_or(|wanted| wanted == cluster)
            && options.store.is_none_or(|wanted| wanted == store)
    };
    let mut schedules: Vec<_> = schedules.iter().map(ScheduleReport::new).collect();
    schedules
        .sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
    let mut items: Vec<_> = backups.iter().map(BackupReport::new).collect();
    for backup in &mut items {
        backup.damage = damage(backup, &schedules);
    }
    items.retain(|backup| is_chosen(&backup.cluster, &backup.store));
    schedules.retain(|schedule| is_chosen(&schedule.cluster, &schedule.store));
    state::sort(&mut items);
    BackupReportList {
        api_version: API_VERSION,
        kind: "BackupReportList",
        time: now.to_string(),
        schedules,
        items,
    }
}

/// Returns the damage that the last drill of a schedule has found in a backup.
fn damage(backup: &BackupReport, schedules: &[ScheduleReport]) -> String {
    let is_damage = |drill: &&DrillReport| drill.result == "Damaged" && drill.backup == backup.name;
    let drill = schedules
        .iter()
        .filter(|schedule| schedule.namespace == backup.namespace)
        .filter_map(|schedule| schedule.last_drill.as_ref())
        .find(is_damage);
    match drill {
        None => String::new(),
        Some(drill) if drill.message.is_empty() => "damaged".to_owned(),
        Some(drill) => drill.message.clone(),
    }
}
