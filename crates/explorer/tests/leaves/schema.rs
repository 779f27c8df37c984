//! The API server's part in admitting a manifest: defaults, structural validation and CEL rules. Also lists the
//! leaves of the schema.

use std::collections::BTreeSet;

use evenkeel_api::EtcdCluster;
use kube::core::CustomResourceExt;
use kube_cel::{CompiledSchema, Validator, apply_defaults, compile_schema};
use serde_json::{Map, Value};

/// The schema of the CustomResourceDefinition.
pub(crate) struct Schema {
    whole: Value,
    compiled: CompiledSchema,
}

/// The answer of an API server to a manifest.
#[derive(Debug)]
pub(crate) enum ApiServerAnswer {
    /// Stored.
    Stored,
    /// Rejected by the structural schema. Only Kubernetes checks this.
    Malformed(Vec<String>),
    /// Rejected by CEL rules, each of which also exists in Rust.
    Rejected(Vec<String>),
}

impl Schema {
    /// Builds the schema without rules that have `optionalOldSelf`, which kube-cel does not support.
    pub(crate) fn from_crd() -> Self {
        let version = EtcdCluster::crd().spec.versions.remove(0);
        let mut whole =
            serde_json::to_value(version.schema.unwrap().open_api_v3_schema.unwrap()).unwrap();
        let rules = whole["x-kubernetes-validations"].as_array_mut().unwrap();
        rules.retain(|rule| rule["optionalOldSelf"] != true);
        let compiled = compile_schema(&whole);
        assert!(
            !compiled.has_errors(),
            "{:?}",
            compiled.compilation_errors()
        );
        Self { whole, compiled }
    }

    /// Returns the path of every leaf of the spec: `[]` stands for the elements of a list.
    pub(crate) fn leaves(&self) -> BTreeSet<String> {
        let mut leaves = BTreeSet::new();
        collect(&self.whole["properties"]["spec"], "spec", &mut leaves);
        leaves
    }

    /// Returns a manifest with its defaults.
    pub(crate) fn defaulted(&self, manifest: &Value) -> Value {
        apply_defaults(&self.whole, manifest)
    }

    /// Returns the answer to a manifest that is created, or that replaces `old`.
    pub(crate) fn api_answer(&self, new: &Value, old: Option<&Value>) -> ApiServerAnswer {
        let mut wrong = Vec::new();
        validate(
            &self.whole["properties"]["spec"],
            &new["spec"],
            "spec",
            &mut wrong,
        );
        if !wrong.is_empty() {
            return ApiServerAnswer::Malformed(wrong);
        }
        match Validator::new().validate_compiled(&self.compiled, new, old) {
            Ok(()) => ApiServerAnswer::Stored,
            Err(errors) => ApiServerAnswer::Rejected(
                errors
                    .into_vec()
                    .into_iter()
                    .map(|error| error.message)
                    .collect(),
            ),
        }
    }
}

fn collect(schema: &Value, path: &str, leaves: &mut BTreeSet<String>) {
    if let Some(fields) = schema["properties"].as_object() {
        fields
            .iter()
            .for_each(|(name, field)| collect(field, &format!("{path}.{name}"), leaves));
    } else if schema["items"]["properties"].is_object() {
        collect(&schema["items"], &format!("{path}[]"), leaves);
    } else {
        leaves.insert(path.to_owned());
    }
}

/// Validates a value against the parts of structural schemas that our schema uses.
fn validate(schema: &Value, value: &Value, path: &str, wrong: &mut Vec<String>) {
    let length = |value: &str| u64::try_from(value.chars().count()).unwrap_or(u64::MAX);
    let mut say = |what: String| wrong.push(format!("{path}: {what}"));
    let limit = |key: &str| schema[key].as_u64();
    match value {
        _ if schema["x-kubernetes-int-or-string"] == true => {
            if !value.is_string() && !value.is_i64() {
                say("Invalid value: must be a string or an integer".to_owned());
            }
            return;
        }
        _ if schema["type"] != type_of(value) => {
            say(format!("Invalid value: must be of type {}", schema["type"]));
            return;
        }
        Value::String(text) => {
            if limit("maxLength").is_some_and(|most| length(text) > most) {
                say("Too long".to_owned());
            }
            if limit("minLength").is_some_and(|least| length(text) < least) {
                say("too short".to_owned());
            }
        }
        Value::Array(list) => {
            if limit("maxItems").is_some_and(|most| list.len() as u64 > most) {
                say("Too many".to_owned());
            }
            let twice = |(at, one): (usize, &Value)| list[..at].contains(one);
            if schema["x-kubernetes-list-type"] == "set" && list.iter().enumerate().any(twice) {
                say("Duplicate value".to_owned());
            }
        }
        Value::Object(fields) => {
            if limit("maxProperties").is_some_and(|most| fields.len() as u64 > most) {
                say("Too many".to_owned());
            }
            let required = schema["required"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str);
            for name in required.filter(|name| !fields.contains_key(*name)) {
                say(format!("Required value: {name}"));
            }
        }
        _ => {}
    }
    if let Some(supported) = schema["enum"]
        .as_array()
        .filter(|supported| !supported.contains(value))
    {
        say(format!(
            "Unsupported value: {value}: supported values: {supported:?}"
        ));
    }
    match value {
        Value::Array(list) => {
            list.iter()
                .for_each(|one| validate(&schema["items"], one, &format!("{path}[]"), wrong));
        }
        Value::Object(fields) => validate_fields(schema, fields, path, wrong),
        _ => {}
    }
}

fn validate_fields(
    schema: &Value,
    fields: &Map<String, Value>,
    path: &str,
    wrong: &mut Vec<String>,
) {
    for (name, value) in fields {
        let path = format!("{path}.{name}");
        match (&schema["properties"][name], &schema["additionalProperties"]) {
            (Value::Null, Value::Null) => wrong.push(format!("unknown field {path:?}")),
            (Value::Null, values) => validate(values, value, &path, wrong),
            (field, _) => validate(field, value, &path, wrong),
        }
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
