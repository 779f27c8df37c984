//! `kubectl evenkeel restore CLUSTER`: shows what a restore does, or creates the `Restore` and waits for its end.

use std::time::Duration;

use evenkeel_api::{
    Backup, ClusterKind, ClusterReference, EtcdCluster, Restore, RestoreSource, RestoreSpec,
};
use futures::future::join_all;
use jiff::Timestamp;
use kube::Api;
use kube::api::PostParams;

use super::super::create::{FIELD_MANAGER, WaitTimes};
use super::super::objects::{self, known_kind};
use super::super::store_choice::require_operator;
use super::plan::{self, PlanInput};
use super::report::{RestorePlanReport, RestoreReport, RestoreResult};
use super::wait::{self, Goal};
use crate::connection::{Connection, request};
use crate::effect::require_not_deleted;
use crate::error::{CliError, EXIT_FAILED, EXIT_NOT_FOUND};
use crate::live::LiveScope;
use crate::member_metrics;
use crate::output::OutputOptions;
use crate::report::ClusterReport;
use crate::terminal::Terminal;

/// How a cluster is restored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RestoreOptions<'a> {
    /// The name of the Backup.
    pub(crate) backup: &'a str,
    /// The name of the Restore. `None` for one of cluster, backup and cluster ID.
    pub(crate) name: Option<&'a str>,
    /// How long the old data is kept.
    pub(crate) keep_old_data_for: &'a str,
    /// How the command acts on the Restore.
    pub(crate) request: RequestOptions,
}

/// Whether something is changed, and how the command waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestOptions {
    /// Whether the restore or the undo is requested. Otherwise, only its effects are shown.
    pub(crate) is_confirmed: bool,
    /// Whether the command waits for the end.
    pub(crate) waits: bool,
    /// How long the command waits.
    pub(crate) timeout: Duration,
}

/// Shows the effects of a restore, or requests it.
pub(crate) async fn run(
    connection: &Connection,
    cluster: &str,
    options: RestoreOptions<'_>,
    output: OutputOptions,
) -> Result<u8, CliError> {
    let (plan, report) = plan(connection, cluster, options).await?;
    if !options.request.is_confirmed {
        output.print(&RestoreResult::of_plan(&plan), |terminal| {
            plan::text(&plan, Timestamp::now(), terminal)
        })?;
        return Ok(0);
    }
    require_operator(&report)?;
    let created = submit(connection, &plan).await?;
    finish(
        connection,
        &created,
        Goal::Complete,
        options.request,
        output,
    )
    .await
}

/// Waits for the goal if the user wants that, and prints the Restore.
pub(super) async fn finish(
    connection: &Connection,
    restore: &Restore,
    goal: Goal,
    options: RequestOptions,
    output: OutputOptions,
) -> Result<u8, CliError> {
    let ended = if options.waits {
        tokio::select! {
            ended = wait::wait(connection, restore, goal, options.timeout, WaitTimes::DEFAULT) => Some(ended?),
            _ = tokio::signal::ctrl_c() => {
                let text = wait::interrupted(restore);
                eprint!("{}", output.terminal.paragraphs(&text));
                return Ok(EXIT_FAILED);
            }
        }
    } else {
        None
    };
    let has_ended = ended.is_some();
    let report = ended.unwrap_or_else(|| RestoreReport::new(restore));
    let result = RestoreResult::new(Some(report.clone()));
    output.print(&result, |terminal| match has_ended {
        true => ended_text(&report, goal, terminal),
        false => requested_text(&report, goal, terminal),
    })?;
    Ok(0)
}

/// Reads the objects and makes the plan.
async fn plan(
    connection: &Connection,
    cluster: &str,
    options: RestoreOptions<'_>,
) -> Result<(RestorePlanReport, ClusterReport), CliError> {
    let cluster = connection.cluster(Some(cluster)).await?;
    require_not_deleted(&cluster)?;
    let (report, backup, restores, revision) = futures::join!(
        ClusterReport::of(connection, &cluster, LiveScope::Members, Timestamp::now()),
        backup(connection, options.backup),
        objects::list::<Restore>(connection, Some(&connection.namespace)),
        revision(connection, &cluster),
    );
    let input = PlanInput {
        cluster: &cluster,
        report: &report,
        revision,
        backup: &backup?,
        restores: &restores?,
        name: options.name,
        keep_old_data_for: options.keep_old_data_for,
    };
    Ok((input.plan()?, report))
}

async fn backup(connection: &Connection, name: &str) -> Result<Backup, CliError> {
    let api: Api<Backup> = Api::namespaced(connection.client.clone(), &connection.namespace);
    let found = request(&format!("read Backup {name}"), api.get_opt(name)).await;
    found.map_err(known_kind::<Backup>)?.ok_or_else(|| {
        CliError::new(format!(
            "Backup {name} not found in namespace {}",
            connection.namespace
        ))
        .help(
            "`kubectl evenkeel backups` lists the backups. For one that is only in a store, see \
             `kubectl evenkeel backups --from-store NAME`",
        )
        .exit_code(EXIT_NOT_FOUND)
    })
}

/// Returns the highest revision that a member reports. The user may not have the permission to ask members.
async fn revision(connection: &Connection, cluster: &EtcdCluster) -> Option<u64> {
    let status = cluster.status.as_ref()?;
    let answers = status.member_list.iter().map(|member| {
        member_metrics::query(&connection.client, &connection.namespace, &member.name)
    });
    let answers = join_all(answers).await;
    answers
        .into_iter()
        .filter_map(|it| it.metrics.revision)
        .max()
}

/// Creates the Restore. One of the same name and content that has not ended is continued.
async fn submit(connection: &Connection, plan: &RestorePlanReport) -> Result<Restore, CliError> {
    let spec = RestoreSpec {
        cluster: ClusterReference {
            kind: ClusterKind::EtcdCluster,
            name: plan.cluster.clone(),
        },
        from: RestoreSource {
            backup: plan.backup.clone(),
        },
        replaces: plan.replaces.clone(),
        keep_old_data_for: plan.keep_old_data_for.clone(),
        undo: false,
    };
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    let api = wait::api(connection);
    let restore = Restore::new(&plan.name, spec);
    match api.create(&params, &restore).await {
        Ok(created) => Ok(created),
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let action = format!("read Restore {}", plan.name);
            let found = request(&action, api.get_opt(&plan.name)).await?;
            let same = found.filter(|found| found.spec == restore.spec);
            same.ok_or_else(|| {
                CliError::new(format!(
                    "Restore {} exists and restores something else. Nothing was changed",
                    plan.name
                ))
                .help("choose another name with --name")
            })
        }
        Err(error) => {
            let action = format!("create Restore {}", plan.name);
            Err(known_kind::<Restore>(CliError::kubernetes(&action, &error)))
        }
    }
}

/// Describes a request that the command does not wait for.
fn requested_text(restore: &RestoreReport, goal: Goal, terminal: Terminal) -> String {
    let RestoreReport { cluster, name, .. } = restore;
    let requested = match goal {
        Goal::Complete => format!("Restore {name} was created"),
        Goal::Undone => format!("the undo of Restore {name} was requested"),
    };
    terminal.paragraphs(&format!(
        "{cluster}: {requested}. `kubectl evenkeel restores {cluster}` shows its state.\n"
    ))
}

/// Describes the end of a restore or of its undo.
fn ended_text(restore: &RestoreReport, goal: Goal, terminal: Terminal) -> String {
    let RestoreReport {
        cluster,
        name,
        backup,
        ..
    } = restore;
    let mut text = match goal {
        Goal::Complete => {
            format!("{cluster}: restored. Clients are served the data of Backup {backup}.\n")
        }
        Goal::Undone => format!("{cluster}: undone. Clients are served the old data again.\n"),
    };
    if goal == Goal::Complete {
        text.push_str(&terminal.field("Cluster ID", &restore.cluster_id));
        if let Some(until) = &restore.undo_until {
            text.push_str(&terminal.field("Old data", &format!("kept until {until}")));
            let undo = format!("`kubectl evenkeel restore undo {name}`");
            text.push_str(&terminal.field("Undo", &undo));
        }
    }
    text
}

#[cfg(test)]
#[path = "create_tests.rs"]
mod tests;
