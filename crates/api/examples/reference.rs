//! Writes the reference of the resources as Markdown, from their definitions: to the terminal.

use std::error::Error;
use std::fmt::Write;

use evenkeel_api::EtcdCluster;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::core::CustomResourceExt;

/// Kubernetes' own: what is in them is told elsewhere.
const NOT_OURS: [&str; 2] = ["tolerations", "conditions"];

/// The reference of EtcdCluster.
pub fn markdown() -> Result<String, Box<dyn Error>> {
    let definition = EtcdCluster::crd();
    let version = definition
        .spec
        .versions
        .into_iter()
        .next()
        .ok_or("there is no version")?;
    let schema = version
        .schema
        .and_then(|it| it.open_api_v3_schema)
        .ok_or("there is no schema")?;
    let names = definition.spec.names;
    let mut text = format!(
        "# {kind}\n\n<!-- Generated from crates/api by `make generate`. -->\n\n{about}\n\n`apiVersion: {group}/{version}`, `kind: {kind}`; \
         short name `{short}`, categories {categories}. `kubectl scale` sets `spec.members`.\n",
        kind = names.kind,
        about = schema.description.as_deref().unwrap_or_default(),
        group = definition.spec.group,
        version = version.name,
        short = names.short_names.unwrap_or_default().join("`, `"),
        categories = names
            .categories
            .unwrap_or_default()
            .iter()
            .map(|it| format!("`{it}`"))
            .collect::<Vec<_>>()
            .join(", "),
    );
    text.push_str(
        "\n## What you write\n\n| field | type | default | what it is |\n|---|---|---|---|\n",
    );
    let mut refusals = String::new();
    let root = JSONSchemaProps {
        properties: None,
        ..schema.clone()
    };
    refused("", &root, &mut refusals);
    for part in ["spec", "status"] {
        let field = schema
            .properties
            .as_ref()
            .and_then(|it| it.get(part))
            .ok_or("a part is missing")?;
        if part == "status" {
            let head = "\n## What is refused\n\nBy `kubectl apply`, with these words. *To have changed* is refused of an edit only.\n\n";
            let _ = write!(
                text,
                "{head}| field | refused with |\n|---|---|\n{refusals}"
            );
            text.push_str("\n## What you read\n\n| field | type | what it is |\n|---|---|---|\n");
        } else {
            refused(part, field, &mut refusals);
        }
        fields(part, field, part == "spec", &mut text, &mut refusals);
    }
    Ok(text)
}

/// A row for each field, and for those in it.
fn fields(
    above: &str,
    schema: &JSONSchemaProps,
    written: bool,
    text: &mut String,
    refusals: &mut String,
) {
    let required = schema.required.clone().unwrap_or_default();
    for (name, field) in schema.properties.iter().flatten() {
        let path = format!("{above}.{name}");
        let about = cell(field.description.as_deref().unwrap_or_default());
        // Writing to a string cannot fail.
        if written {
            let default = if required.contains(name) {
                "required".to_owned()
            } else {
                default(field)
            };
            let _ = writeln!(text, "| `{path}` | {} | {default} | {about} |", kind(field));
            refused(&path, field, refusals);
        } else {
            let _ = writeln!(text, "| `{path}` | {} | {about} |", kind(field));
        }
        if NOT_OURS.contains(&name.as_str()) {
            continue;
        }
        fields(&path, field, written, text, refusals);
        if let Some(JSONSchemaPropsOrArray::Schema(items)) = &field.items {
            fields(&format!("{path}[]"), items, written, text, refusals);
        }
    }
}

fn default(field: &JSONSchemaProps) -> String {
    match &field.default {
        Some(JSON(value)) if !value.is_object() => format!("`{value}`"),
        _ => "–".to_owned(),
    }
}

/// A row for each thing that is refused.
fn refused(path: &str, field: &JSONSchemaProps, refusals: &mut String) {
    for rule in field.x_kubernetes_validations.iter().flatten() {
        let expression = rule
            .message_expression
            .as_deref()
            .map(sentences)
            .unwrap_or_default();
        let messages = rule
            .message
            .clone()
            .map_or(expression, |message| vec![message]);
        let place = match &rule.field_path {
            Some(below) => format!("{path}{below}").trim_start_matches('.').to_owned(),
            // Of the metadata rules can see the name alone.
            None if path.is_empty() => "metadata.name".to_owned(),
            None => path.to_owned(),
        };
        for message in messages {
            let _ = writeln!(refusals, "| `{place}` | {} |", cell(&message));
        }
    }
}

/// The sentences in an expression that chooses between them; the whole of it if there are none.
fn sentences(expression: &str) -> Vec<String> {
    // Without escaped quotes, every other piece is a text.
    let plain = expression.replace("\\'", "’");
    let quoted = plain.split('\'').skip(1).step_by(2);
    let said = quoted
        .filter(|text| text.matches(' ').count() > 2)
        .map(|text| {
            // What stands before it is not known here.
            if text.starts_with(' ') {
                format!("…{text}")
            } else {
                text.to_owned()
            }
        });
    let said: Vec<_> = said.map(|text| text.replace('’', "'")).collect();
    if said.is_empty() {
        vec![expression.to_owned()]
    } else {
        said
    }
}

/// What one writes there.
fn kind(field: &JSONSchemaProps) -> String {
    if let Some(words) = &field.enum_ {
        let words: Vec<_> = words
            .iter()
            .map(|JSON(it)| format!("`{}`", it.as_str().unwrap_or_default()))
            .collect();
        return words.join(", ");
    }
    if field.x_kubernetes_int_or_string == Some(true) {
        return "quantity".to_owned();
    }
    match (
        field.type_.as_deref(),
        &field.items,
        &field.additional_properties,
    ) {
        (Some("array"), Some(JSONSchemaPropsOrArray::Schema(items)), _) => {
            format!("list of {}", kind(items))
        }
        (Some("object"), _, Some(JSONSchemaPropsOrBool::Schema(values))) => {
            format!("map of {}", kind(values))
        }
        (Some("string"), ..) if field.format.as_deref() == Some("date-time") => "time".to_owned(),
        (Some(kind), ..) => kind.to_owned(),
        (None, ..) => "any".to_owned(),
    }
}

/// A text that fits into a table.
fn cell(text: &str) -> String {
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('|', "\\|")
        .replace('<', "&lt;")
}

fn main() -> Result<(), Box<dyn Error>> {
    print!("{}", markdown()?);
    Ok(())
}
