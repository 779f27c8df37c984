//! The CustomResourceDefinition as it is installed: the file is what the types say, and it is fit for users and the
//! API server.

use std::error::Error;
use std::fs;
use std::path::Path;

use evenkeel_api::{EtcdCluster, checked_name};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::core::CustomResourceExt;

#[path = "../examples/crds.rs"]
#[expect(
    dead_code,
    unreachable_pub,
    reason = "its main is for the command line, and there it is a crate of its own"
)]
mod crds;

#[path = "../examples/reference.rs"]
#[expect(
    dead_code,
    unreachable_pub,
    reason = "its main is for the command line, and there it is a crate of its own"
)]
mod reference;

#[test]
fn the_reference_in_the_docs_is_that_of_the_types() {
    let written = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/etcdcluster.md");
    let written = fs::read_to_string(written).unwrap_or_default();
    assert!(
        written == reference::markdown().unwrap(),
        "docs/reference/etcdcluster.md is old: run make generate"
    );
}

#[test]
fn the_committed_definitions_are_those_of_the_types() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
    for (name, text) in crds::files().unwrap() {
        let committed = fs::read_to_string(directory.join(&name)).unwrap_or_default();
        assert!(
            committed == text,
            "deploy/crds/{name} is not what the types say: run make generate"
        );
    }
}

#[test]
fn every_field_of_the_spec_is_explained_and_none_is_nullable() {
    each_field_of_the_spec(|path, field| {
        assert!(
            field
                .description
                .as_ref()
                .is_some_and(|it| it.ends_with('.')),
            "{path} has no sentence"
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
fn everything_in_the_spec_has_a_bound_so_that_rules_stay_cheap() {
    each_field_of_the_spec(|path, field| {
        let bounded = match field.type_.as_deref() {
            Some("string") => field.max_length.is_some() || field.enum_.is_some(),
            Some("array") => field.max_items.is_some(),
            Some("object") => {
                field.additional_properties.is_none() || field.max_properties.is_some()
            }
            _ => true,
        };
        assert!(bounded, "{path} has no bound");
    });
}

#[test]
fn nothing_in_a_status_has_a_default_so_that_what_is_not_known_is_not_there() {
    let status = part("status");
    for (name, field) in status.properties.iter().flatten() {
        assert!(field.default.is_none(), "{name}");
    }
    assert!(status.required.is_none());
}

/// The schema of `spec` or `status`.
fn part(name: &str) -> JSONSchemaProps {
    let versions = EtcdCluster::crd().spec.versions;
    let schema = versions
        .into_iter()
        .next()
        .and_then(|it| it.schema)
        .and_then(|it| it.open_api_v3_schema);
    schema
        .and_then(|it| it.properties)
        .and_then(|mut it| it.remove(name))
        .unwrap_or_default()
}

/// Calls `check` for each field of the spec. Tolerations are Kubernetes' own, and left out.
fn each_field_of_the_spec(check: impl Fn(&str, &JSONSchemaProps)) {
    let mut rest = vec![("spec".to_owned(), part("spec"))];
    let mut seen = 0;
    while let Some((path, schema)) = rest.pop() {
        for (name, field) in schema.properties.into_iter().flatten() {
            let path = format!("{path}.{name}");
            check(&path, &field);
            seen += 1;
            if let Some(JSONSchemaPropsOrArray::Schema(items)) = &field.items
                && name != "tolerations"
            {
                let bounded = items.max_length.is_some()
                    || items.enum_.is_some()
                    || items.properties.is_some();
                assert!(bounded, "{path} has items without a bound");
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
    assert!(seen > 25, "only {seen} fields were found");
}

/// What only the API server sees to: what is known to be bad is not begun with, but goes on where it is.
const NOT_OURS: [&str; 4] = [
    "unknown field",
    "Duplicate value",
    "must have at most",
    "known to be bad",
];

/// The story that applies them to an API server is among the end-to-end tests. Here: that each can be read, and that
/// the rules in Rust agree with it, changes apart.
#[test]
fn the_rules_in_rust_agree_with_every_case() -> Result<(), Box<dyn Error>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut cases = 0;
    for file in fs::read_dir(directory)? {
        let path = file?.path();
        let (case, text) = (path.display(), fs::read_to_string(&path)?);
        let (expected, documents) = text.split_once('\n').unwrap_or_default();
        let refused = expected.strip_prefix("# refused: ");
        assert!(
            refused.is_some() || expected == "# accepted",
            "{case}: begin with `# accepted` or `# refused: <part of the message>`"
        );
        let documents: Vec<_> = documents.split("---\n").collect();
        for document in &documents {
            // Nulls never get past the API server.
            if document.contains("null") {
                continue;
            }
            // One without a version cannot even be read.
            let Ok(cluster) = serde_saphyr::from_str::<EtcdCluster>(document) else {
                assert!(refused.is_some(), "{case} cannot be read");
                continue;
            };
            let name = cluster.metadata.name.unwrap_or_default();
            let checked = checked_name(&name).and_then(|()| cluster.spec.checked().map(drop));
            match (refused, &documents[..]) {
                (None, _) => assert_eq!(checked, Ok(()), "{case}"),
                (Some(why), [_]) if !NOT_OURS.iter().any(|it| why.contains(it)) => {
                    assert!(checked.is_err(), "{case} passes");
                }
                _ => {}
            }
        }
        cases += 1;
    }
    assert!(cases >= 35, "only {cases} cases were found");
    Ok(())
}
