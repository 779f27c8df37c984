//! `kubectl evenkeel plan`: previews the effects and the steps of an edit with the operator's own rules, before the edit is
//! applied. The output names the assumptions, and the age of the data.

mod classes;
mod edit;
mod nodes;
mod report;
mod snapshot;
mod text;

use std::path::Path;
use std::time::Duration;

use evenkeel_api::{EtcdCluster, Rejection};
use evenkeel_etcd::effective_spec::{ClusterHistory, effective_spec};
use evenkeel_etcd::identity::RestoreOrigin;
use evenkeel_etcd::observe::objects::{self, ClusterObjects, parse_identity};
use evenkeel_etcd::observe::restore_request;
use evenkeel_etcd::observe::source::{self, RestoreSource};
use evenkeel_etcd::preview::{PreviewInput, preview_with_effects};
use evenkeel_runtime::ResourceKey;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::{Client, ResourceExt};

use crate::args::Target;
use crate::connection::{Connection, request};
use crate::decision_log::read_decisions;
use crate::error::{CliError, EXIT_FAILED};
use crate::operator_status::OperatorStatus;
use crate::output::OutputOptions;
use classes::ClassFacts;
use edit::DryRun;
use snapshot::{Present, Snapshot};

pub(crate) use report::PlanReport;

/// The note about an operator that is not running.
const NO_OPERATOR: &str = "no operator is running, so nothing of this happens until one is. `kubectl evenkeel status` \
     shows where to look";
/// The note about nodes that the user may not list.
const NO_NODES: &str =
    "your user cannot list nodes: the plan assumes that each new member gets a node of its own";

/// The input of `plan`.
pub(crate) struct PlanOptions<'a> {
    /// The manifest with the edit. `None` previews the current spec.
    pub(crate) file: Option<&'a Path>,
    /// Whether every action of each step is shown, bookkeeping included, and every deletion of a volume.
    pub(crate) include_bookkeeping: bool,
}

/// Prints the preview.
pub(crate) async fn run(
    connection: &Connection,
    target: &Target,
    options: PlanOptions<'_>,
    output: OutputOptions,
) -> Result<u8, CliError> {
    let DryRun {
        cluster: edited,
        warnings,
    } = match options.file {
        Some(file) => edit::dry_run(connection, file, target.cluster.as_deref())?,
        None => DryRun {
            cluster: connection.cluster(target.cluster.as_deref()).await?,
            warnings: Vec::new(),
        },
    };
    let namespace = edited
        .namespace()
        .unwrap_or_else(|| connection.namespace.clone());
    let key = ResourceKey {
        namespace,
        name: edited.name_any(),
    };
    let include_bookkeeping = options.include_bookkeeping;
    let client = &connection.client;
    let (operator, nodes) = tokio::join!(
        OperatorStatus::query(client, Some(&key.namespace), Timestamp::now()),
        nodes::list_nodes(client)
    );
    let planner = Planner {
        connection,
        reporter: Reporter {
            nodes,
            include_bookkeeping,
        },
    };
    let mut report = planner.plan_when_current(&key, &edited).await?;
    // The policy of the operator's chart repeats the warnings about the whole spec.
    let repeated = edited.spec.warnings();
    let others = warnings.into_iter();
    let others = others.filter(|warning| !repeated.contains(warning));
    add_notes(&mut report, others);
    if operator.is_not_running() {
        report.notes.insert(0, NO_OPERATOR.to_owned());
    }
    output.print(&report, |terminal| {
        text::text(&report, include_bookkeeping, terminal)
    })?;
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

/// Reads the inputs of a plan.
struct Planner<'c> {
    connection: &'c Connection,
    reporter: Reporter,
}

/// The inputs of a preview besides the decision log.
struct PlanInputs {
    /// The edited resource and its objects.
    objects: ClusterObjects,
    classes: ClassFacts,
    /// The backup that a new cluster begins with.
    source: Option<RestoreSource>,
    /// The fields that change.
    edits: Vec<String>,
    now: Timestamp,
}

/// Runs the preview.
struct Reporter {
    /// The nodes; `None` if the user cannot list them.
    nodes: Option<Vec<Node>>,
    include_bookkeeping: bool,
}

impl Planner<'_> {
    /// Plans as soon as the decision log matches the objects.
    async fn plan_when_current(
        &self,
        key: &ResourceKey,
        edited: &EtcdCluster,
    ) -> Result<PlanReport, CliError> {
        let connection = self.connection;
        for _ in 0..MAX_READS {
            let api = connection.api_in(&key.namespace);
            let current = request("read the EtcdCluster", api.get_opt(&key.name)).await?;
            let with_related = objects::read_live_related(&connection.client, key)
                .await
                .map_err(observe_error)?;
            let objects = with_related(edited.clone());
            if let Some(report) = self.plan(current, objects).await? {
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
        &self,
        current: Option<EtcdCluster>,
        objects: ClusterObjects,
    ) -> Result<Option<PlanReport>, CliError> {
        let edited = objects.resource.clone();
        let decisions = match &current {
            Some(cluster) => read_decisions(self.connection, cluster)
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
        let now = Timestamp::now();
        let edits = current
            .as_ref()
            .map(|current| edit::changes(current, &edited))
            .unwrap_or_default();
        let classes = ClassFacts::read(&self.connection.client, &objects)
            .await
            .map_err(observe_error)?;
        let source = read_source(&self.connection.client, &objects).await;
        let inputs = PlanInputs {
            objects,
            classes,
            source,
            edits,
            now,
        };
        let mut report = self.reporter.report(&snapshot, inputs)?;
        let known = current.as_ref().map(|current| current.spec.warnings());
        add_notes(
            &mut report,
            new_warnings(&edited, &known.unwrap_or_default()),
        );
        Ok(Some(PlanReport {
            exists: current.is_some(),
            facts_age_seconds: snapshot.at.map(|at| now.as_second() - at.as_second()),
            ..report
        }))
    }
}

/// Reads the backup that a cluster begins with, or that replaces its data.
async fn read_source(client: &Client, objects: &ClusterObjects) -> Option<RestoreSource> {
    let resource = &objects.resource;
    let version = resource.spec.version.parse().ok()?;
    let identity = objects.identity.clone();
    let identity = identity.and_then(|object| parse_identity(object).ok());
    let identity = identity.map(|(_, identity)| identity);
    let restores = &objects.restores;
    let request = identity
        .as_ref()
        .and_then(|identity| restore_request::select(restores, identity));
    let from = resource.spec.bootstrap.from.as_ref();
    let bootstrap = from.map(|from| RestoreOrigin::bootstrap(&from.backup));
    let origin = source::needed(identity.as_ref(), request.as_ref(), bootstrap.as_ref())?;
    let key = ResourceKey {
        namespace: resource.namespace().unwrap_or_default(),
        name: resource.name_any(),
    };
    Some(RestoreSource::read(client, &key, origin, version).await)
}

impl Reporter {
    fn report(&self, snapshot: &Snapshot, inputs: PlanInputs) -> Result<PlanReport, CliError> {
        let PlanInputs {
            objects,
            classes,
            source,
            edits,
            now,
        } = inputs;
        let edited = objects.resource.clone();
        let history = classes.add_to(ClusterHistory::of(&objects));
        let effective = effective_spec(&edited, &history).map_err(rejected)?;
        let class_note = classes.note(effective.rejection.as_ref());
        let nodes = self.nodes.as_deref();
        let present = Present {
            now,
            nodes,
            missing_class: classes.missing,
            source,
        };
        let (observed, facts) = snapshot.apply_to(objects, effective, present)?;
        let input = PreviewInput {
            remembered: snapshot.membership.clone(),
            nodes: nodes.map(|nodes| nodes::available_nodes(nodes, &observed.desired)),
        };
        let mut preview = preview_with_effects(&observed, facts, input);
        preview.notes.extend(class_note);
        if nodes.is_none() && preview.effects.members_added > 0 {
            preview.notes.push(NO_NODES.to_owned());
        }
        let report = PlanReport::new(&edited, preview, edits, now, self.include_bookkeeping);
        Ok(PlanReport {
            rejection: observed.rejection.as_ref().map(rejection_text),
            ..report
        })
    }
}

/// Returns the warnings about the edited spec that the present spec does not cause.
fn new_warnings(edited: &EtcdCluster, known: &[String]) -> Vec<String> {
    let warnings = edited.spec.warnings().into_iter();
    warnings
        .filter(|warning| !known.contains(warning))
        .collect()
}

/// Adds notes that the report does not have.
fn add_notes(report: &mut PlanReport, notes: impl IntoIterator<Item = String>) {
    for note in notes {
        if !report.notes.contains(&note) {
            report.notes.push(note);
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

/// Returns a rejected field, the reason, and what the operator does until the field is corrected.
fn rejection_text(rejection: &Rejection) -> String {
    format!("{rejection}. {}", rejection.effect.sentence())
}

fn rejected(rejection: Rejection) -> CliError {
    CliError::new(format!("the operator would reject the spec: {rejection}"))
        .help(rejection.effect.sentence())
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
