//! The resource as it would be: Kubernetes itself applies the file and checks it, and changes nothing.

use std::path::Path;

use evenkeel_api::EtcdCluster;
use kube::ResourceExt;
use serde_json::Value;

use crate::connection::Reached;
use crate::error::{FORBIDDEN, NO_ANSWER, Trouble};

/// What `kubectl apply` would make of the file, defaults and all.
pub(super) fn applied(
    reached: &Reached,
    file: &Path,
    named: Option<&str>,
) -> Result<EtcdCluster, Trouble> {
    let mut kubectl = reached.kubectl();
    kubectl
        .args(["apply", "--dry-run=server", "--output=json", "--filename"])
        .arg(file);
    kubectl.stdin(std::process::Stdio::inherit());
    let said = kubectl.output().map_err(|why| {
        Trouble::new(format!("kubectl cannot be run: {why}"))
            .help("the plugin has kubectl read and apply the file, without keeping what comes of it: put it on the PATH")
    })?;
    if !said.status.success() {
        let why = String::from_utf8_lossy(&said.stderr);
        return Err(not_applied(&why));
    }
    let read = serde_json::from_slice(&said.stdout);
    let all: Value =
        read.map_err(|why| Trouble::new(format!("what kubectl says cannot be read: {why}")))?;
    chosen(&all, named)
}

/// Why kubectl did not apply it, by the words that it has for that.
pub(super) fn not_applied(why: &str) -> Trouble {
    if why.contains("(Forbidden)") || why.contains("(Unauthorized)") {
        return Trouble::new(format!("you are not allowed to: {}", why.trim()))
            .help("`plan` needs the rights of who would apply the file: to create and to patch etcdclusters")
            .code(FORBIDDEN);
    }
    if why.contains("nable to connect to the server") || why.contains("connection to the server") {
        return Trouble::new(format!("Kubernetes does not answer: {}", why.trim())).code(NO_ANSWER);
    }
    if why.contains("does not exist") {
        return Trouble::new(format!("kubectl: {}", why.trim()));
    }
    Trouble::new(format!("it would not be accepted: {}", pointedly(why)))
}

/// What is wrong with a file: of a field that is unknown Kubernetes first repeats all the others.
fn pointedly(why: &str) -> &str {
    const POINT: &str = "strict decoding error: ";
    why.split_once(POINT).map_or(why, |(_, point)| point).trim()
}

/// The cluster among what was applied; by its name, if there are several.
fn chosen(all: &Value, named: Option<&str>) -> Result<EtcdCluster, Trouble> {
    let items = all["items"]
        .as_array()
        .map_or_else(|| vec![all], |items| items.iter().collect());
    let clusters = items
        .into_iter()
        .filter(|item| item["kind"] == "EtcdCluster");
    let mut clusters: Vec<EtcdCluster> = clusters
        .map(|item| serde_json::from_value(item.clone()))
        .collect::<Result<_, _>>()
        .map_err(|why| Trouble::new(format!("the cluster in the file cannot be read: {why}")))?;
    if let Some(name) = named {
        clusters.retain(|cluster| cluster.name_any() == name);
    }
    match (clusters.len(), named) {
        (1, _) => Ok(clusters.remove(0)),
        (0, Some(name)) => Err(Trouble::new(format!(
            "there is no EtcdCluster {name} in the file"
        ))),
        (0, None) => Err(Trouble::new("there is no EtcdCluster in the file")),
        _ => {
            let names: Vec<_> = clusters.iter().map(|cluster| cluster.name_any()).collect();
            Err(
                Trouble::new(format!("which one? The file has {}", names.join(", ")))
                    .help("name one of them"),
            )
        }
    }
}

/// The fields of the spec that change, each with both values.
pub(super) fn changes(before: &EtcdCluster, after: &EtcdCluster) -> Vec<String> {
    let (Ok(before), Ok(after)) = (
        serde_json::to_value(&before.spec),
        serde_json::to_value(&after.spec),
    ) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    compare("spec", &before, &after, &mut all);
    all
}

fn compare(path: &str, before: &Value, after: &Value, all: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(one), Value::Object(other)) => {
            let mut keys: Vec<_> = one.keys().chain(other.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                let (before, after) = (&before[key.as_str()], &after[key.as_str()]);
                compare(&format!("{path}.{key}"), before, after, all);
            }
        }
        (before, after) if before != after => {
            all.push(format!("{path}: {} → {}", shown(before), shown(after)));
        }
        _ => {}
    }
}

fn shown(value: &Value) -> String {
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
    fn the_fields_that_change_are_told_with_both_values() {
        let before = cluster("a", &json!({ "version": "3.6.16", "members": 3 }));
        let after = cluster(
            "a",
            &json!({ "version": "3.6.16", "members": 5, "storage": { "class": "fast" } }),
        );
        let [before, after] =
            [before, after].map(|one| serde_json::from_value::<EtcdCluster>(one).unwrap());
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
    fn of_several_clusters_in_a_file_one_must_be_named() {
        let spec = json!({ "version": "3.6.16" });
        let others =
            json!({ "kind": "ConfigMap", "apiVersion": "v1", "metadata": { "name": "c" } });
        let one = json!({ "kind": "List", "items": [others, cluster("a", &spec)] });
        assert_eq!(chosen(&one, None).unwrap().name_any(), "a");
        let two = json!({ "kind": "List", "items": [cluster("a", &spec), cluster("b", &spec)] });
        assert!(chosen(&two, None).unwrap_err().what.contains("a, b"));
        assert_eq!(chosen(&two, Some("b")).unwrap().name_any(), "b");
        assert!(
            chosen(&two, Some("c"))
                .unwrap_err()
                .what
                .contains("no EtcdCluster c")
        );
        assert!(
            chosen(&others, None)
                .unwrap_err()
                .what
                .contains("no EtcdCluster in the file")
        );
    }
}
