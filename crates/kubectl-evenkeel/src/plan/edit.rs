//! The edited resource: the API server applies the manifest as a dry run, with defaults and validation. Also compares the
//! fields before and after.

use std::path::Path;

use evenkeel_api::EtcdCluster;
use kube::ResourceExt;
use serde_json::Value;

use crate::connection::Connection;
use crate::error::{CliError, EXIT_FORBIDDEN};
use crate::kubectl_error::{connection_error, without_prefix};

/// The edited cluster, and the warnings of the API server.
pub(super) struct DryRun {
    pub(super) cluster: EtcdCluster,
    pub(super) warnings: Vec<String>,
}

/// Returns the cluster as `kubectl apply` would store it. `name` selects one of several in the file.
pub(super) fn dry_run(
    connection: &Connection,
    file: &Path,
    name: Option<&str>,
) -> Result<DryRun, CliError> {
    let mut kubectl = connection.kubectl();
    kubectl
        .args(["apply", "--dry-run=server", "--output=json", "--filename"])
        .arg(file);
    kubectl.stdin(std::process::Stdio::inherit());
    let output = connection.output_of(&mut kubectl).map_err(|error| {
        CliError::new(format!("failed to run kubectl: {error}"))
            .help("`plan -f` runs `kubectl apply --dry-run=server`: kubectl must be on the PATH")
    })?;
    if !output.status.success() {
        return Err(apply_error(&String::from_utf8_lossy(&output.stderr)));
    }
    let applied: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| CliError::new(format!("cannot parse the output of kubectl: {error}")))?;
    Ok(DryRun {
        cluster: select_cluster(&applied, name)?,
        warnings: warnings(&String::from_utf8_lossy(&output.stderr)),
    })
}

/// Returns the warnings in the output of kubectl. A missing annotation of `kubectl apply` is not about the edit.
fn warnings(stderr: &str) -> Vec<String> {
    let warnings = stderr
        .lines()
        .filter_map(|line| line.strip_prefix("Warning: "))
        .filter(|warning| !warning.contains("last-applied-configuration"));
    let message = |warning: &str| match warning.split_once("' with binding '") {
        // Kubernetes names the policy before the message.
        Some((_, rest)) => rest
            .split_once("': ")
            .map_or(warning, |(_, message)| message)
            .to_owned(),
        None => warning.to_owned(),
    };
    warnings.map(message).collect()
}

/// Classifies the error output of kubectl.
pub(super) fn apply_error(stderr: &str) -> CliError {
    if let Some(error) = connection_error("apply the manifest as a dry run", stderr) {
        return error;
    }
    if stderr.contains("(Forbidden)") {
        return CliError::new(format!("the manifest is forbidden: {}", stderr.trim()))
            .exit_code(EXIT_FORBIDDEN);
    }
    if stderr.contains("does not exist") {
        return CliError::new(format!("kubectl: {}", stderr.trim()));
    }
    CliError::new(format!(
        "the manifest would be rejected: {}",
        without_prefixes(stderr)
    ))
}

/// Removes kubectl's prefixes and its advice to skip validation, and the manifest that the API server repeats in front of the
/// error about an unknown field.
fn without_prefixes(stderr: &str) -> String {
    let after = |text: &str, marker: &str| {
        let rest = text.split_once(marker).map(|(_, rest)| rest.to_owned());
        rest.unwrap_or_else(|| text.to_owned())
    };
    let error = after(stderr, "strict decoding error: ");
    let error = after(&without_prefix(&error), "error validating data: ");
    match error.split_once("; if you choose to ignore these errors") {
        Some((error, _)) => error.to_owned(),
        None => error,
    }
}

/// Returns the cluster of this name among the applied objects, or the only one.
fn select_cluster(applied: &Value, name: Option<&str>) -> Result<EtcdCluster, CliError> {
    let objects = applied["items"]
        .as_array()
        .map_or_else(|| vec![applied], |items| items.iter().collect());
    let mut clusters: Vec<EtcdCluster> = objects
        .into_iter()
        .filter(|object| object["kind"] == "EtcdCluster")
        .map(|object| serde_json::from_value(object.clone()))
        .collect::<Result<_, _>>()
        .map_err(|error| {
            CliError::new(format!("cannot parse the EtcdCluster in the file: {error}"))
        })?;
    if let Some(name) = name {
        clusters.retain(|cluster| cluster.name_any() == name);
    }
    match (clusters.len(), name) {
        (1, _) => Ok(clusters.remove(0)),
        (0, Some(name)) => Err(CliError::new(format!("no EtcdCluster {name} in the file"))),
        (0, None) => Err(CliError::new("no EtcdCluster in the file")),
        _ => {
            let names: Vec<_> = clusters.iter().map(|cluster| cluster.name_any()).collect();
            Err(CliError::new(format!(
                "the file contains several EtcdClusters: {}",
                names.join(", ")
            ))
            .help("specify one by name"))
        }
    }
}

/// Returns the fields of the spec that change, each with its old and new value.
pub(super) fn changes(before: &EtcdCluster, after: &EtcdCluster) -> Vec<String> {
    let (Ok(before), Ok(after)) = (
        serde_json::to_value(&before.spec),
        serde_json::to_value(&after.spec),
    ) else {
        return Vec::new();
    };
    let mut changes = Vec::new();
    compare("spec", &before, &after, &mut changes);
    changes
}

fn compare(path: &str, before: &Value, after: &Value, changes: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(old), Value::Object(new)) => {
            let mut keys: Vec<_> = old.keys().chain(new.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                let (before, after) = (&before[key.as_str()], &after[key.as_str()]);
                compare(&format!("{path}.{key}"), before, after, changes);
            }
        }
        (before, after) if before != after => {
            changes.push(format!(
                "{path}: {} → {}",
                value_text(before),
                value_text(after)
            ));
        }
        _ => {}
    }
}

fn value_text(value: &Value) -> String {
    match value {
        Value::Null => "(not set)".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cluster(name: &str, spec: &Value) -> Value {
        json!({ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "EtcdCluster", "metadata": { "name": name }, "spec": spec })
    }

    #[test]
    fn changed_fields_are_listed_with_both_values() {
        let before = cluster("a", &json!({ "version": "3.6.16", "members": 3 }));
        let after = cluster(
            "a",
            &json!({ "version": "3.6.16", "members": 5, "storage": { "class": "fast" } }),
        );
        let [before, after] =
            [before, after].map(|object| serde_json::from_value::<EtcdCluster>(object).unwrap());
        assert_eq!(
            changes(&before, &after),
            [
                "spec.members: 3 → 5",
                "spec.storage.class: (not set) → fast"
            ]
        );
        assert!(changes(&before, &before).is_empty());
    }

    #[test]
    fn warnings_of_the_api_server_are_returned_without_the_name_of_the_policy() {
        let stderr = "Warning: resource etcdclusters/orders is missing the kubectl.kubernetes.io/last-applied-configuration \
             annotation which is required by kubectl apply\n\
             Warning: Validation failed for ValidatingAdmissionPolicy 'evenkeel' with binding 'evenkeel': 3.6.99 is not known\n\
             Warning: unknown field \"spec.x\"\nother output\n";
        assert_eq!(
            warnings(stderr),
            ["3.6.99 is not known", "unknown field \"spec.x\""]
        );
    }

    #[test]
    fn of_several_clusters_in_a_file_one_must_be_named() {
        let spec = json!({ "version": "3.6.16" });
        let others =
            json!({ "kind": "ConfigMap", "apiVersion": "v1", "metadata": { "name": "c" } });
        let one = json!({ "kind": "List", "items": [others, cluster("a", &spec)] });
        assert_eq!(select_cluster(&one, None).unwrap().name_any(), "a");
        let two = json!({ "kind": "List", "items": [cluster("a", &spec), cluster("b", &spec)] });
        assert!(
            select_cluster(&two, None)
                .unwrap_err()
                .message
                .contains("a, b")
        );
        assert_eq!(select_cluster(&two, Some("b")).unwrap().name_any(), "b");
        assert!(
            select_cluster(&two, Some("c"))
                .unwrap_err()
                .message
                .contains("no EtcdCluster c")
        );
        assert!(
            select_cluster(&others, None)
                .unwrap_err()
                .message
                .contains("no EtcdCluster in the file")
        );
    }
}
