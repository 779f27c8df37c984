//! Compares `docs/reference/helm-values.md` with the values of the charts.

use std::path::Path;

use serde_json::Value;

/// Returns the keys of all leaves with their values; an empty object or list is a leaf.
fn leaves(prefix: &str, value: &Value, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, value) in fields {
                let dot = if prefix.is_empty() { "" } else { "." };
                leaves(&format!("{prefix}{dot}{key}"), value, found);
            }
        }
        Value::String(text) if !text.is_empty() => found.push((prefix.to_owned(), text.clone())),
        other => found.push((prefix.to_owned(), other.to_string())),
    }
}

#[test]
fn the_reference_lists_every_helm_value_with_its_default() {
    let checkout = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let read = |path: &str| std::fs::read_to_string(checkout.join(path)).unwrap();
    let page = read("docs/reference/helm-values.md");
    for chart in ["evenkeel", "etcd-cluster"] {
        let text = read(&format!("deploy/helm/{chart}/values.yaml"));
        let values: Value = serde_saphyr::from_str(&text).unwrap();
        let mut found = Vec::new();
        leaves("", &values, &mut found);
        assert!(
            found.len() > 4,
            "only {found:?} were found in chart {chart}"
        );
        let missing: Vec<_> = found
            .iter()
            .map(|(key, default)| format!("| `{key}` | `{default}` |"))
            .filter(|row| !page.lines().any(|line| line.starts_with(row)))
            .collect();
        assert!(
            missing.is_empty(),
            "docs/reference/helm-values.md has no rows {missing:?}"
        );
    }
}
