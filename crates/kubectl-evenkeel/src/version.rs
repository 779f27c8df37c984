//! `kubectl evenkeel version`: the versions of the plugin and of the operator, and whether the installed CRD has the fields that
//! the plugin expects.

use std::collections::BTreeSet;

use evenkeel_api::{EtcdCluster, labels};
use http::Request;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::ListParams;
use kube::{Api, CustomResourceExt, Resource, ResourceExt};
use serde::Serialize;
use serde_json::Value;

use crate::args::ConnectionArgs;
use crate::connection::{Connection, request};
use crate::error::{CliError, EXIT_FORBIDDEN, EXIT_NOT_FOUND};
use crate::operator_status::OperatorStatus;
use crate::output::OutputOptions;
use crate::terminal::Terminal;

/// The labels of the operator's Deployment.
const OPERATOR_LABELS: &str =
    "app.kubernetes.io/name=evenkeel,app.kubernetes.io/component=operator";
/// The default namespace of the operator.
const OPERATOR_NAMESPACE: &str = "evenkeel-system";
/// The number of fields that the text names.
const MAX_FIELDS: usize = 5;

/// The output of `version`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct VersionReport {
    api_version: &'static str,
    kind: &'static str,
    client: ClientVersion,
    #[serde(skip_serializing_if = "Option::is_none")]
    operator: Option<OperatorReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    crd: Option<CrdReport>,
}

/// The version of the plugin.
#[derive(Debug, Serialize)]
struct ClientVersion {
    version: &'static str,
    platform: String,
}

/// The installed operators.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct OperatorReport {
    deployments: Vec<OperatorDeployment>,
    /// Whether an operator renews its Lease. `None` if unknown.
    running: Option<bool>,
    /// What is unknown, and why.
    notes: Vec<String>,
    /// Whether Deployments may exist that the user may not list.
    #[serde(skip)]
    is_forbidden: bool,
}

/// A Deployment of the operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct OperatorDeployment {
    namespace: String,
    name: String,
    /// The value of the label `app.kubernetes.io/version`.
    version: Option<String>,
    image: String,
    ready_replicas: i32,
    replicas: i32,
}

/// The CRD in comparison with the plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct CrdReport {
    /// Whether the API server serves the kind in the version that the plugin uses. `None` if unknown.
    installed: Option<bool>,
    /// The group and version that the plugin uses.
    version: String,
    /// The fields that the plugin knows and the CRD lacks: the CRD is older.
    missing_fields: Vec<String>,
    /// The fields that the CRD has and the plugin does not know: the CRD is newer.
    unknown_fields: Vec<String>,
    /// Why the CRD cannot be compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Prints the versions. The version of the plugin is printed even if Kubernetes does not respond.
pub(crate) async fn run(
    args: &ConnectionArgs,
    client_only: bool,
    output: OutputOptions,
) -> Result<u8, CliError> {
    let mut report = VersionReport {
        api_version: "plugin.evenkeel.dev/v1alpha1",
        kind: "VersionReport",
        client: ClientVersion {
            version: env!("CARGO_PKG_VERSION"),
            platform: platform(),
        },
        operator: None,
        crd: None,
    };
    let result = if client_only {
        Ok(())
    } else {
        query(args, &mut report).await
    };
    output.print(&report, |terminal| text(&report, terminal))?;
    result?;
    let is_missing = report.crd.is_some_and(|crd| crd.installed == Some(false));
    Ok(if is_missing { EXIT_NOT_FOUND } else { 0 })
}

/// Returns the platform that the plugin was built for, as archives name it.
fn platform() -> String {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{}/{arch}", std::env::consts::OS)
}

async fn query(args: &ConnectionArgs, report: &mut VersionReport) -> Result<(), CliError> {
    let connection = Connection::open(args).await?;
    report.crd = Some(query_crd(&connection).await?);
    report.operator = Some(query_operator(&connection).await?);
    Ok(())
}

/// Compares the schema that the API server publishes with the plugin's. Every authenticated user may read it.
async fn query_crd(connection: &Connection) -> Result<CrdReport, CliError> {
    let version = EtcdCluster::api_version(&()).into_owned();
    let path = Request::get(format!("/openapi/v3/apis/{version}")).body(Vec::new());
    let path = path.map_err(|error| CliError::new(error.to_string()))?;
    let report = CrdReport {
        installed: Some(true),
        version,
        missing_fields: Vec::new(),
        unknown_fields: Vec::new(),
        error: None,
    };
    match connection.client.request::<Value>(path).await {
        Ok(document) => Ok(match published_schema(&document) {
            Some(schema) => report.compare(schema),
            None => CrdReport {
                installed: Some(false),
                ..report
            },
        }),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(CrdReport {
            installed: Some(false),
            error: connection.other_versions().await.map(|error| error.message),
            ..report
        }),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(CrdReport {
            installed: None,
            error: Some(format!("cannot read its schema: {}", status.message)),
            ..report
        }),
        Err(error) => Err(CliError::kubernetes("read the schema of the CRD", &error)),
    }
}

impl CrdReport {
    fn compare(self, installed: &Value) -> Self {
        let expected = serde_json::to_value(EtcdCluster::crd()).unwrap_or_default();
        let expected = fields(&expected["spec"]["versions"][0]["schema"]["openAPIV3Schema"]);
        let installed = fields(installed);
        Self {
            missing_fields: topmost_difference(&expected, &installed),
            unknown_fields: topmost_difference(&installed, &expected),
            ..self
        }
    }
}

/// Returns the schema of the kind in a document of the API server.
fn published_schema(document: &Value) -> Option<&Value> {
    let schemas = document["components"]["schemas"].as_object()?;
    let is_cluster = |schema: &&Value| {
        let kinds = schema["x-kubernetes-group-version-kind"].as_array();
        kinds.is_some_and(|kinds| {
            kinds
                .iter()
                .any(|kind| kind["kind"] == EtcdCluster::kind(&()).as_ref())
        })
    };
    schemas.values().find(is_cluster)
}

/// Returns the paths of all fields below `spec` and `status`.
fn fields(schema: &Value) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    for part in ["spec", "status"] {
        if let Some(schema) = schema["properties"].get(part) {
            add_fields(schema, part, &mut paths);
        }
    }
    paths
}

fn add_fields(schema: &Value, path: &str, paths: &mut BTreeSet<String>) {
    paths.insert(path.to_owned());
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        add_fields(field, &format!("{path}.{name}"), paths);
    }
    for nested in ["items", "additionalProperties"] {
        if schema[nested].is_object() {
            add_fields(&schema[nested], path, paths);
        }
    }
}

/// Returns the paths of `one` that `other` lacks, without those below another missing path.
fn topmost_difference(one: &BTreeSet<String>, other: &BTreeSet<String>) -> Vec<String> {
    let missing: BTreeSet<_> = one.difference(other).collect();
    let has_missing_parent = |path: &str| {
        path.rsplit_once('.')
            .is_some_and(|(parent, _)| missing.contains(&parent.to_owned()))
    };
    missing
        .iter()
        .filter(|path| !has_missing_parent(path))
        .map(|path| (*path).clone())
        .collect()
}

/// Finds the operator's Deployments: in all namespaces, or else in those that the user may read.
async fn query_operator(connection: &Connection) -> Result<OperatorReport, CliError> {
    let mut report = OperatorReport::default();
    let namespace = connection.namespace.as_str();
    let lease = OperatorStatus::query(&connection.client, Some(namespace), Timestamp::now()).await;
    match &lease {
        OperatorStatus::Running(_) => report.running = Some(true),
        OperatorStatus::NotRunning { namespace, .. } => {
            report.running = namespace.as_ref().map(|_| false);
            report.notes.extend(lease.missing_text());
        }
        OperatorStatus::Unknown(reason) => report.notes.push(format!(
            "it is unknown whether an operator is running: {reason}"
        )),
    }
    match deployments(Api::all(connection.client.clone())).await {
        Ok(found) => report.deployments = found,
        Err(error) if error.exit_code == EXIT_FORBIDDEN => {
            report.is_forbidden = true;
            let namespaces: BTreeSet<_> = [OPERATOR_NAMESPACE, namespace].into();
            for namespace in namespaces {
                let api = Api::namespaced(connection.client.clone(), namespace);
                match deployments(api).await {
                    Ok(found) => report.deployments.extend(found),
                    Err(error) => report.notes.push(error.message),
                }
            }
        }
        Err(error) => return Err(error),
    }
    Ok(report)
}

async fn deployments(api: Api<Deployment>) -> Result<Vec<OperatorDeployment>, CliError> {
    let of_operator = ListParams::default().labels(OPERATOR_LABELS);
    let list = request("find the operator's Deployment", api.list(&of_operator)).await?;
    Ok(list.items.iter().map(OperatorDeployment::new).collect())
}

impl OperatorDeployment {
    fn new(deployment: &Deployment) -> Self {
        let pod = deployment.spec.as_ref().map(|spec| &spec.template);
        let pod = pod.and_then(|template| template.spec.as_ref());
        let image = pod.and_then(|pod| pod.containers.first()?.image.clone());
        let status = deployment.status.clone().unwrap_or_default();
        Self {
            namespace: deployment.namespace().unwrap_or_default(),
            name: deployment.name_any(),
            version: deployment.labels().get(labels::APP_VERSION).cloned(),
            image: image.unwrap_or_default(),
            ready_replicas: status.ready_replicas.unwrap_or_default(),
            replicas: status.replicas.unwrap_or_default(),
        }
    }
}

fn text(report: &VersionReport, terminal: Terminal) -> String {
    let client = &report.client;
    let mut text = terminal.labelled(
        "Client",
        &format!("{} ({})", client.version, client.platform),
    );
    if let Some(operator) = &report.operator {
        for line in operator_lines(operator) {
            text.push_str(&terminal.labelled("Operator", &line));
        }
        let differs = |deployment: &OperatorDeployment| {
            deployment
                .version
                .as_deref()
                .is_some_and(|version| version != client.version)
        };
        let mut notes = operator.notes.clone();
        if operator.deployments.iter().any(differs) {
            notes.push("the plugin and the operator are of different releases".to_owned());
        }
        for note in notes {
            text.push_str(&terminal.labelled("Note", &note));
        }
    }
    if let Some(crd) = &report.crd {
        text.push_str(&terminal.labelled("CRD", &crd_line(crd)));
    }
    text
}

fn operator_lines(operator: &OperatorReport) -> Vec<String> {
    if operator.deployments.is_empty() {
        let reason = if operator.is_forbidden {
            "your user cannot list Deployments in all namespaces"
        } else {
            "no Deployment of the operator was found"
        };
        return vec![match operator.running {
            Some(true) => format!("running, version unknown: {reason}"),
            Some(false) | None if operator.is_forbidden => format!("version unknown: {reason}"),
            Some(false) | None => reason.to_owned(),
        }];
    }
    let line = |deployment: &OperatorDeployment| {
        format!(
            "{}, Deployment {}/{}, image {}, {}/{} replicas ready",
            deployment.version.as_deref().unwrap_or("version unknown"),
            deployment.namespace,
            deployment.name,
            deployment.image,
            deployment.ready_replicas,
            deployment.replicas
        )
    };
    operator.deployments.iter().map(line).collect()
}

fn crd_line(crd: &CrdReport) -> String {
    let kind = EtcdCluster::crd_name();
    let state = match (
        crd.installed,
        crd.missing_fields.as_slice(),
        crd.unknown_fields.as_slice(),
    ) {
        (Some(false), ..) => crd
            .error
            .clone()
            .unwrap_or_else(|| "not installed".to_owned()),
        (None, ..) => format!("unknown: {}", crd.error.as_deref().unwrap_or_default()),
        (Some(true), [], []) => "has the fields that the plugin expects".to_owned(),
        (Some(true), missing, []) => {
            format!("older than the plugin: it lacks {}", some(missing))
        }
        (Some(true), [], unknown) => {
            format!("newer than the plugin: it has also {}", some(unknown))
        }
        (Some(true), missing, unknown) => format!(
            "of another release than the plugin: it lacks {}, and has also {}",
            some(missing),
            some(unknown)
        ),
    };
    format!("{kind} ({}): {state}", crd.version)
}

/// Joins the first fields.
fn some(fields: &[String]) -> String {
    let mut text = fields
        .iter()
        .take(MAX_FIELDS)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    if let Some(more) = fields
        .len()
        .checked_sub(MAX_FIELDS)
        .filter(|more| *more > 0)
    {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn expected_schema() -> Value {
        let crd = serde_json::to_value(EtcdCluster::crd()).unwrap();
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
    }

    fn compare(installed: &Value) -> CrdReport {
        let report = CrdReport {
            installed: Some(true),
            version: "evenkeel.dev/v1alpha1".to_owned(),
            missing_fields: Vec::new(),
            unknown_fields: Vec::new(),
            error: None,
        };
        report.compare(installed)
    }

    #[test]
    fn a_crd_of_the_same_release_has_the_expected_fields() {
        let report = compare(&expected_schema());
        assert_eq!(
            crd_line(&report),
            "etcdclusters.evenkeel.dev (evenkeel.dev/v1alpha1): has the fields that the plugin expects"
        );
    }

    #[test]
    fn the_committed_crd_has_the_expected_fields() {
        let crd = include_str!("../../../deploy/crds/etcdclusters.evenkeel.dev.yaml");
        let crd: Value = serde_saphyr::from_str(crd).unwrap();
        let report = compare(&crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]);
        assert_eq!(report.missing_fields, [""; 0]);
        assert_eq!(report.unknown_fields, [""; 0]);
    }

    #[test]
    fn an_older_crd_lacks_fields() {
        let mut schema = expected_schema();
        let spec = schema["properties"]["spec"]["properties"]
            .as_object_mut()
            .unwrap();
        spec.remove("maintenance").unwrap();
        let report = compare(&schema);
        assert_eq!(report.missing_fields, ["spec.maintenance"]);
        assert!(
            crd_line(&report).ends_with("older than the plugin: it lacks spec.maintenance"),
            "{}",
            crd_line(&report)
        );
    }

    #[test]
    fn a_newer_crd_has_further_fields() {
        let mut schema = expected_schema();
        schema["properties"]["spec"]["properties"]["autopilot"] =
            json!({ "properties": { "space": { "type": "string" } } });
        let report = compare(&schema);
        assert_eq!(report.unknown_fields, ["spec.autopilot"]);
        assert!(report.missing_fields.is_empty());
        assert!(
            crd_line(&report).contains("newer than the plugin"),
            "{}",
            crd_line(&report)
        );
    }

    #[test]
    fn the_schema_is_found_in_the_servers_document() {
        let kind =
            json!([{ "group": "evenkeel.dev", "kind": "EtcdCluster", "version": "v1alpha1" }]);
        let list =
            json!([{ "group": "evenkeel.dev", "kind": "EtcdClusterList", "version": "v1alpha1" }]);
        let mut schema = expected_schema();
        schema["x-kubernetes-group-version-kind"] = kind;
        let document = json!({ "components": { "schemas": {
            "dev.evenkeel.v1alpha1.EtcdClusterList": { "x-kubernetes-group-version-kind": list },
            "dev.evenkeel.v1alpha1.EtcdCluster": schema,
        } } });
        let found = published_schema(&document).unwrap();
        assert!(fields(found).contains("spec.maintenance.windows.start"));
        assert_eq!(published_schema(&json!({})), None);
    }

    #[test]
    fn the_operators_version_is_that_of_its_deployment() {
        let deployment: Deployment = serde_json::from_value(json!({
            "metadata": { "namespace": "evenkeel-system", "name": "evenkeel-operator",
                "labels": { "app.kubernetes.io/version": "0.0.9" } },
            "spec": { "selector": {}, "template": { "spec": { "containers": [{ "name": "operator", "image": "evenkeel-operator:0.0.9" }] } } },
            "status": { "replicas": 2, "readyReplicas": 1 },
        }))
        .unwrap();
        let operator = OperatorReport {
            deployments: vec![OperatorDeployment::new(&deployment)],
            running: Some(true),
            notes: Vec::new(),
            is_forbidden: false,
        };
        assert_eq!(
            operator_lines(&operator),
            [
                "0.0.9, Deployment evenkeel-system/evenkeel-operator, image evenkeel-operator:0.0.9, 1/2 replicas ready"
            ]
        );
        let unknown = OperatorReport {
            running: Some(true),
            ..OperatorReport::default()
        };
        assert!(operator_lines(&unknown)[0].contains("version unknown"));
        let forbidden = OperatorReport {
            is_forbidden: true,
            ..OperatorReport::default()
        };
        assert_eq!(
            operator_lines(&forbidden),
            ["version unknown: your user cannot list Deployments in all namespaces"]
        );
    }

    #[test]
    fn long_lists_of_fields_are_cut() {
        let fields: Vec<_> = (1..8).map(|number| format!("f{number}")).collect();
        assert_eq!(some(&fields), "f1, f2, f3, f4, f5 and 2 more");
        assert_eq!(some(&fields[..1]), "f1");
    }
}
