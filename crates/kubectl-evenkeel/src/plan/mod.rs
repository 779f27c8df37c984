//! `kubectl evenkeel plan`: previews the actions after an edit with the operator's own rules, before the edit is applied.
//! The output names the assumptions, and the age of the data.

mod edit;
mod snapshot;

use std::path::Path;
use std::time::Duration;

use evenkeel_api::{EtcdCluster, Rejection};
use evenkeel_etcd::effective_spec::{ClusterHistory, effective_spec};
use evenkeel_etcd::observe::objects::{self, ClusterObjects};
use evenkeel_etcd::preview::{Preview, preview};
use evenkeel_runtime::ResourceKey;
use jiff::Timestamp;
use kube::ResourceExt;
use serde::Serialize;

use crate::args::Target;
use crate::connection::{Connection, request};
use crate::decision_log::read_decisions;
use crate::error::{CliError, EXIT_FAILED};
use crate::output::OutputOptions;
use crate::terminal::{Terminal, WIDTH, format_duration, wrap};
use snapshot::Snapshot;

/// The output of `plan`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PlanReport {
    namespace: String,
    name: String,
    /// Whether the cluster exists already.
    exists: bool,
    /// The fields that change.
    edits: Vec<String>,
    /// The field that the operator would reject. Its old value stays in effect.
    rejection: Option<String>,
    steps: Vec<PlanStep>,
    /// The summary of the cluster at the end.
    final_summary: String,
    /// The waits at the end.
    waiting_for: Vec<String>,
    assumptions: Vec<String>,
    /// The age of the operator's facts in seconds, if there are any.
    facts_age_seconds: Option<i64>,
}

/// A predicted action.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PlanStep {
    /// The earliest time of the action, in seconds from now.
    after_seconds: i64,
    action: String,
    reason: String,
}

/// The input of `plan`.
pub(crate) struct PlanOptions<'a> {
    /// The manifest with the edit. `None` previews the current spec.
    pub(crate) file: Option<&'a Path>,
    /// Whether bookkeeping actions are shown.
    pub(crate) include_bookkeeping: bool,
}

/// Prints the preview.
pub(crate) async fn run(
    connection: &Connection,
    target: &Target,
    options: PlanOptions<'_>,
    output: OutputOptions,
) -> Result<u8, CliError> {
    let edited = match options.file {
        Some(file) => edit::dry_run(connection, file, target.cluster.as_deref())?,
        None => connection.cluster(target.cluster.as_deref()).await?,
    };
    let namespace = edited
        .namespace()
        .unwrap_or_else(|| connection.namespace.clone());
    let key = ResourceKey {
        namespace,
        name: edited.name_any(),
    };
    let report = plan_when_current(connection, &key, &edited, options.include_bookkeeping).await?;
    output.print(&report, |terminal| text(&report, terminal))?;
    Ok(if report.rejection.is_some() {
        EXIT_FAILED
    } else {
        0
    })
}

/// How often the decision log is read until it is current. The operator writes it after its actions and the status.
const MAX_READS: u32 = 20;
/// The time between two reads.
const READ_INTERVAL: Duration = Duration::from_millis(500);

/// Plans as soon as the decision log matches the objects.
async fn plan_when_current(
    connection: &Connection,
    key: &ResourceKey,
    edited: &EtcdCluster,
    include_bookkeeping: bool,
) -> Result<PlanReport, CliError> {
    for _ in 0..MAX_READS {
        let api = connection.api_in(&key.namespace);
        let current = request("read the EtcdCluster", api.get_opt(&key.name)).await?;
        let with_related = objects::read_live_related(&connection.client, key)
            .await
            .map_err(observe_error)?;
        let objects = with_related(edited.clone());
        if let Some(report) = plan(connection, current, objects, include_bookkeeping).await? {
            return Ok(report);
        }
        tokio::time::sleep(READ_INTERVAL).await;
    }
    Err(CliError::new(
        "the operator is changing the cluster, and its decision log is not up to date yet",
    )
    .help("try again in a few seconds; `kubectl evenkeel status` shows the current action"))
}

/// Plans for the edited resource in `objects`. Returns `None` if the decision log does not match the objects yet.
async fn plan(
    connection: &Connection,
    current: Option<EtcdCluster>,
    objects: ClusterObjects,
    include_bookkeeping: bool,
) -> Result<Option<PlanReport>, CliError> {
    let edited = objects.resource.clone();
    let decisions = match &current {
        Some(cluster) => read_decisions(connection, cluster)
            .await
            .unwrap_or_default(),
        None => Vec::new(),
    };
    let snapshot = Snapshot::from_decisions(&decisions)?;
    if !snapshot.matches(&objects) {
        return Ok(None);
    }
    let has_status = current
        .as_ref()
        .is_some_and(|cluster| cluster.status.is_some());
    if has_status && snapshot.facts.is_none() {
        return Err(CliError::new("the decision log of this cluster has no facts, or cannot be read").help(
            "`kubectl evenkeel why` shows the decision log or the error. Reading it requires permission to get ConfigMaps",
        ));
    }
    let effective = effective_spec(&edited, &ClusterHistory::of(&objects)).map_err(rejected)?;
    let now = Timestamp::now();
    let (observed, facts) = snapshot.apply_to(objects, effective, now)?;
    let edits = current
        .as_ref()
        .map(|current| edit::changes(current, &edited))
        .unwrap_or_default();
    let report = PlanReport {
        exists: current.is_some(),
        edits,
        rejection: observed.rejection.as_ref().map(ToString::to_string),
        facts_age_seconds: snapshot.at.map(|at| now.as_second() - at.as_second()),
        ..PlanReport::from_preview(
            &edited,
            preview(&observed, facts, snapshot.membership.clone()),
            include_bookkeeping,
        )
    };
    Ok(Some(report))
}

impl PlanReport {
    /// Creates a report from a preview, for a cluster that does not exist yet.
    fn from_preview(cluster: &EtcdCluster, preview: Preview, include_bookkeeping: bool) -> Self {
        let steps = preview
            .steps
            .into_iter()
            .filter(|step| include_bookkeeping || !step.is_note)
            .map(|step| PlanStep {
                after_seconds: step.after,
                action: step.does,
                reason: step.reason,
            });
        Self {
            namespace: cluster.namespace().unwrap_or_default(),
            name: cluster.name_any(),
            exists: false,
            edits: Vec::new(),
            rejection: None,
            steps: steps.collect(),
            final_summary: preview.ends,
            waiting_for: preview.waits_for,
            assumptions: preview.assumes,
            facts_age_seconds: None,
        }
    }
}

fn observe_error(error: evenkeel_runtime::Error) -> CliError {
    match error {
        evenkeel_runtime::Error::Kubernetes { action, source } => {
            CliError::kubernetes(&action, &source)
        }
        other => CliError::new(other.to_string()),
    }
}

fn rejected(rejection: Rejection) -> CliError {
    CliError::new(format!("the operator would reject the spec: {rejection}"))
        .help("the operator changes nothing until the field is fixed")
}

fn text(report: &PlanReport, terminal: Terminal) -> String {
    let mut text = String::new();
    let mut add = |label: &str, content: &str| text.push_str(&terminal.labelled(label, content));
    match (&report.edits[..], report.exists) {
        (_, false) => add("Edit", &format!("create EtcdCluster {}", report.name)),
        ([], true) => add("Edit", "none"),
        (edits, true) => edits.iter().for_each(|edit| add("Edit", edit)),
    }
    if let Some(rejection) = &report.rejection {
        add(
            "Rejected",
            &format!("{rejection}. The last accepted value stays in effect"),
        );
    }
    if report.steps.is_empty() {
        add("Plan", "no action");
    } else {
        text.push_str(&steps_text(&report.steps, terminal));
    }
    let mut add = |label: &str, content: &str| text.push_str(&terminal.labelled(label, content));
    add("Final state", &report.final_summary);
    for wait in &report.waiting_for {
        add("Waiting for", wait);
    }
    for assumption in &report.assumptions {
        add("Assumption", assumption);
    }
    let sources = report.facts_age_seconds.map_or_else(
        || "live Kubernetes objects; etcd state unknown".to_owned(),
        |seconds| {
            format!(
                "live Kubernetes objects and status; etcd state observed {} ago",
                format_duration(seconds)
            )
        },
    );
    add("Based on", &sources);
    text
}

fn steps_text(steps: &[PlanStep], terminal: Terminal) -> String {
    let mut text = format!("{}\n", terminal.bold("Plan:"));
    let mut after_seconds = 0;
    for (index, step) in steps.iter().enumerate() {
        if step.after_seconds != after_seconds {
            after_seconds = step.after_seconds;
            let heading = format!("{} from now:", format_duration(after_seconds));
            text.push_str(&format!("  {}\n", terminal.bold(&heading)));
        }
        text.push_str(&step_text(index + 1, step));
    }
    text
}

fn step_text(number: usize, step: &PlanStep) -> String {
    let mut text = String::new();
    for (index, line) in wrap(&step.action, WIDTH - 6).into_iter().enumerate() {
        let label = if index == 0 {
            format!("{number:>3}.")
        } else {
            String::new()
        };
        text.push_str(&format!("{label:<4}  {line}\n"));
    }
    if !step.reason.is_empty() {
        for line in wrap(&format!("reason: {}", step.reason), WIDTH - 8) {
            text.push_str(&format!("        {line}\n"));
        }
    }
    text
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
