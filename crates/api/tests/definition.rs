//! Checks the CustomResourceDefinition: the committed files match the types, and the schema is documented and bounded.

use std::error::Error;
use std::fs;
use std::path::Path;

use evenkeel_api::{EtcdCluster, validate_name};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::core::CustomResourceExt;
use kube_cel::apply_defaults;
use serde_json::Value;

#[path = "../examples/crds.rs"]
#[expect(
    dead_code,
    unreachable_pub,
    reason = "an example is a crate of its own, and its main is used on the command line only"
)]
mod crds;

#[path = "../examples/reference.rs"]
#[expect(
    dead_code,
    unreachable_pub,
    reason = "an example is a crate of its own, and its main is used on the command line only"
)]
mod reference;

#[path = "../examples/warnings.rs"]
#[expect(
    dead_code,
    unreachable_pub,
    reason = "an example is a crate of its own, and its main is used on the command line only"
)]
mod warnings;

#[test]
fn the_committed_reference_matches_the_types() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    for (name, text) in reference::files().unwrap() {
        let committed = fs::read_to_string(directory.join(&name)).unwrap_or_default();
        assert!(
            committed == text,
            "docs/reference/{name} is outdated: run make generate"
        );
    }
}

#[test]
fn the_committed_definitions_match_the_types() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
    for (name, text) in crds::files().unwrap() {
        let committed = fs::read_to_string(directory.join(&name)).unwrap_or_default();
        assert!(
            committed == text,
            "deploy/crds/{name} is outdated: run make generate"
        );
    }
}

#[test]
fn the_committed_admission_warnings_match_the_releases() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../deploy/helm/evenkeel/files/warnings.yaml");
    let committed = fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == warnings::file().unwrap(),
        "deploy/helm/evenkeel/files/warnings.yaml is outdated: run make generate"
    );
}

#[test]
fn every_field_of_the_spec_is_documented_and_none_is_nullable() {
    each_field_of_the_spec(|path, field| {
        assert!(
            field
                .description
                .as_ref()
                .is_some_and(|it| it.ends_with('.')),
            "{path} has no description that ends with a period"
        );
        assert!(
            !field
                .description
                .as_ref()
                .is_some_and(|it| it.contains('\n')),
            "{path} has a line break"
        );
        assert_ne!(field.nullable, Some(true), "{path}");
    });
}

#[test]
fn every_field_of_the_spec_is_bounded_so_that_rules_are_cheap() {
    each_field_of_the_spec(|path, field| {
        let is_bounded = match field.type_.as_deref() {
            Some("string") => field.max_length.is_some() || field.enum_.is_some(),
            Some("array") => field.max_items.is_some(),
            Some("object") => {
                field.additional_properties.is_none() || field.max_properties.is_some()
            }
            _ => true,
        };
        assert!(is_bounded, "{path} has no bound");
    });
}

#[test]
fn no_field_of_the_status_has_a_default() {
    for definition in crds::definitions() {
        let status = part(&definition, "status");
        for (name, field) in status.properties.iter().flatten() {
            // The operator always writes the phase.
            assert!(field.default.is_none() || name == "phase", "{name}");
        }
        assert!(status.required.is_none());
    }
}

/// Returns the schema of `spec` or `status`.
fn part(definition: &CustomResourceDefinition, name: &str) -> JSONSchemaProps {
    let version = definition.spec.versions.first();
    let schema = version
        .and_then(|it| it.schema.as_ref())
        .and_then(|it| it.open_api_v3_schema.as_ref());
    let properties = schema.and_then(|it| it.properties.as_ref());
    properties
        .and_then(|it| it.get(name).cloned())
        .unwrap_or_default()
}

/// Calls `check` for each field of the spec of each resource. The fields of tolerations are skipped, since their type is
/// Kubernetes' own.
fn each_field_of_the_spec(check: impl Fn(&str, &JSONSchemaProps)) {
    let specs = crds::definitions().into_iter().map(|definition| {
        let kind = &definition.spec.names.kind;
        (format!("{kind}.spec"), part(&definition, "spec"))
    });
    let mut rest: Vec<_> = specs.collect();
    let mut count = 0;
    while let Some((path, schema)) = rest.pop() {
        for (name, field) in schema.properties.into_iter().flatten() {
            let path = format!("{path}.{name}");
            check(&path, &field);
            count += 1;
            if let Some(JSONSchemaPropsOrArray::Schema(items)) = &field.items
                && name != "tolerations"
            {
                let is_bounded = items.max_length.is_some()
                    || items.enum_.is_some()
                    || items.properties.is_some();
                assert!(is_bounded, "{path} has items without a bound");
                rest.push((format!("{path}[]"), (**items).clone()));
            }
            if let Some(JSONSchemaPropsOrBool::Schema(values)) = &field.additional_properties {
                assert!(
                    values.max_length.is_some(),
                    "{path} has values without a bound"
                );
            }
            rest.push((path, field));
        }
    }
    assert!(count > 80, "only {count} fields were checked");
}

/// Messages of checks that only the API server makes. Versions with a known defect are rejected for new clusters only,
/// and accepted by the operator for existing ones.
const SCHEMA_ONLY: [&str; 5] = [
    "RFC 1123",
    "unknown field",
    "Duplicate value",
    "must have at most",
    "known defect",
];

/// Compares the validation in Rust and its messages with each case, except for rules about changes. An end-to-end test
/// applies the same cases to an API server.
#[test]
fn the_validation_in_rust_agrees_with_every_case() -> Result<(), Box<dyn Error>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let version = EtcdCluster::crd().spec.versions.remove(0);
    let schema = version.schema.and_then(|it| it.open_api_v3_schema);
    let schema = serde_json::to_value(schema)?;
    let mut cases = 0;
    for file in fs::read_dir(directory)? {
        let path = file?.path();
        let (case, text) = (path.display(), fs::read_to_string(&path)?);
        let (expected, documents) = text.split_once('\n').unwrap_or_default();
        let rejected = expected.strip_prefix("# rejected: ");
        assert!(
            rejected.is_some() || expected == "# accepted",
            "{case}: begin with `# accepted` or `# rejected: <part of the message>`"
        );
        let documents: Vec<_> = documents.split("---\n").collect();
        for document in &documents {
            // The API server replaces nulls by defaults.
            if document.contains("null") {
                continue;
            }
            // The API server fills in defaults before it validates.
            let object = apply_defaults(&schema, &serde_saphyr::from_str::<Value>(document)?);
            // A resource without a version cannot be deserialized.
            let Ok(cluster) = serde_json::from_value::<EtcdCluster>(object) else {
                assert!(rejected.is_some(), "{case} cannot be deserialized");
                continue;
            };
            let name = cluster.metadata.name.unwrap_or_default();
            let result = validate_name(&name).and_then(|()| cluster.spec.validate().map(drop));
            match (rejected, &documents[..]) {
                (None, _) => assert_eq!(result, Ok(()), "{case}"),
                (Some(message), [_]) if !SCHEMA_ONLY.iter().any(|it| message.contains(it)) => {
                    let error = result.expect_err(&format!("{case} passes")).to_string();
                    // The API server adds `Invalid value: `, and the schema names metadata.name in the message.
                    let message = message
                        .replace("Invalid value: ", "")
                        .replace("metadata.name ", "metadata.name: ");
                    assert!(error.contains(&message), "{case}: {error}");
                }
                _ => {}
            }
        }
        cases += 1;
    }
    assert!(cases >= 35, "only {cases} cases were found");
    Ok(())
}
