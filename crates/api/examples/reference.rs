//! Writes the reference of each resource as Markdown into the directory in the first argument, generated from its schema.

use std::error::Error;
use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

use evenkeel_api::{Backup, BackupSchedule, BackupStore, EtcdCluster, Restore};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::core::CustomResourceExt;

/// Fields with types of Kubernetes, whose own fields are documented elsewhere.
const KUBERNETES_TYPES: [&str; 2] = ["tolerations", "conditions"];

/// Returns the file name and content of each reference.
pub fn files() -> Result<Vec<(String, String)>, Box<dyn Error>> {
    let definitions = [
        Backup::crd(),
        BackupSchedule::crd(),
        BackupStore::crd(),
        EtcdCluster::crd(),
        Restore::crd(),
    ];
    let file = |definition: CustomResourceDefinition| {
        let name = format!("{}.md", definition.spec.names.kind.to_lowercase());
        Ok((name, markdown(definition)?))
    };
    definitions.into_iter().map(file).collect()
}

/// Returns the reference of a resource.
fn markdown(definition: CustomResourceDefinition) -> Result<String, Box<dyn Error>> {
    let version = definition
        .spec
        .versions
        .into_iter()
        .next()
        .ok_or("there is no version")?;
    let has_scale = version.subresources.is_some_and(|it| it.scale.is_some());
    let schema = version
        .schema
        .and_then(|it| it.open_api_v3_schema)
        .ok_or("there is no schema")?;
    let names = definition.spec.names;
    let mut text = format!(
        "# {kind}\n\n<!-- Generated from crates/api by `make generate`. -->\n\n{about}\n\n`apiVersion: {group}/{version}`, `kind: {kind}`; \
         short name `{short}`, {categories}.{scale}\n",
        kind = names.kind,
        about = schema.description.as_deref().unwrap_or_default(),
        group = definition.spec.group,
        version = version.name,
        short = names.short_names.unwrap_or_default().join("`, `"),
        categories = categories(&names.categories.unwrap_or_default()),
        scale = if has_scale {
            " `kubectl scale` sets `spec.members`."
        } else {
            ""
        },
    );
    text.push_str("\n## Spec\n\n| field | type | default | description |\n|---|---|---|---|\n");
    let mut rules = String::new();
    let root = JSONSchemaProps {
        properties: None,
        ..schema.clone()
    };
    add_rules("", &root, &mut rules);
    for part in ["spec", "status"] {
        let field = schema
            .properties
            .as_ref()
            .and_then(|it| it.get(part))
            .ok_or("a part is missing")?;
        if part == "status" {
            let intro = "\n## Validation rules\n\n`kubectl apply` rejects a violation with the message of the rule. Rules \
                about a change apply to updates only.\n\n";
            let _ = write!(text, "{intro}| field | message |\n|---|---|\n{rules}");
            text.push_str("\n## Status\n\n| field | type | description |\n|---|---|---|\n");
        } else {
            add_rules(part, field, &mut rules);
        }
        add_fields(part, field, part == "spec", &mut text, &mut rules);
    }
    Ok(text)
}

fn categories(names: &[String]) -> String {
    let quoted: Vec<_> = names.iter().map(|it| format!("`{it}`")).collect();
    let noun = if names.len() == 1 {
        "category"
    } else {
        "categories"
    };
    format!("{noun} {}", quoted.join(", "))
}

/// Adds a row for each field of an object, recursively. Fields of the spec have a default and rules.
fn add_fields(
    parent: &str,
    schema: &JSONSchemaProps,
    is_spec: bool,
    text: &mut String,
    rules: &mut String,
) {
    let required = schema.required.clone().unwrap_or_default();
    for (name, field) in schema.properties.iter().flatten() {
        let path = format!("{parent}.{name}");
        let description = cell(field.description.as_deref().unwrap_or_default());
        // Writing to a string cannot fail.
        if is_spec {
            let default = if required.contains(name) {
                "required".to_owned()
            } else {
                default(field)
            };
            let _ = writeln!(
                text,
                "| `{path}` | {} | {default} | {description} |",
                type_name(field)
            );
            add_rules(&path, field, rules);
        } else {
            let _ = writeln!(text, "| `{path}` | {} | {description} |", type_name(field));
        }
        if KUBERNETES_TYPES.contains(&name.as_str()) {
            continue;
        }
        add_fields(&path, field, is_spec, text, rules);
        if let Some(JSONSchemaPropsOrArray::Schema(items)) = &field.items {
            add_fields(&format!("{path}[]"), items, is_spec, text, rules);
        }
    }
}

fn default(field: &JSONSchemaProps) -> String {
    match &field.default {
        Some(JSON(value)) if !value.is_object() => format!("`{value}`"),
        _ => "–".to_owned(),
    }
}

/// Adds a row for each message of a field's CEL rules.
fn add_rules(path: &str, field: &JSONSchemaProps, rules: &mut String) {
    for rule in field.x_kubernetes_validations.iter().flatten() {
        let expression = rule
            .message_expression
            .as_deref()
            .map(messages_of)
            .unwrap_or_default();
        let messages = rule
            .message
            .clone()
            .map_or(expression, |message| vec![message]);
        let rejected_path = match &rule.field_path {
            Some(child) => format!("{path}{child}").trim_start_matches('.').to_owned(),
            // The name is the only field of the metadata that rules can read.
            None if path.is_empty() => "metadata.name".to_owned(),
            None => path.to_owned(),
        };
        for message in messages {
            let _ = writeln!(rules, "| `{rejected_path}` | {} |", cell(&message));
        }
    }
}

/// Returns the messages of a message expression.
fn messages_of(expression: &str) -> Vec<String> {
    // Once escaped quotes are replaced, every second piece between quotes is a literal.
    let unescaped = expression.replace("\\'", "’");
    let pieces: Vec<_> = unescaped.split('\'').collect();
    if expression.contains("self.filter(name, ") {
        return vec![option_message(&pieces)];
    }
    let sentences = pieces.iter().skip(1).step_by(2);
    sentences
        .filter(|text| text.matches(' ').count() > 2)
        .map(|text| {
            // A value that is not known here precedes or follows the literal.
            let prefix = if text.starts_with(' ') { "…" } else { "" };
            let suffix = if text.ends_with(' ') { "…" } else { "" };
            format!("{prefix}{text}{suffix}").replace('’', "'")
        })
        .collect()
}

/// Returns the message of a rule that rejects options by their names. `pieces` are the expressions and literals of the
/// message expression: `'option "' + self.filter(name, name in ['a'] || name.startsWith('b'))[0] + '" is not supported'`.
fn option_message(pieces: &[&str]) -> String {
    let [first, names @ .., last, _] = pieces.get(1..).unwrap_or_default() else {
        return pieces.concat();
    };
    let is_list = !names.iter().any(|piece| piece.contains("!(name in "));
    let literals = names.windows(2).step_by(2).filter_map(|pair| match pair {
        [expression, literal] if expression.ends_with("startsWith(") => Some(format!("{literal}…")),
        [_, literal] => Some((*literal).to_owned()),
        _ => None,
    });
    let names = if is_list {
        literals.collect::<Vec<_>>().join("\", \"")
    } else {
        "…".to_owned()
    };
    format!("{first}{names}{last}").replace('’', "'")
}

/// Returns the type of a field, or its values if it is an enum.
fn type_name(field: &JSONSchemaProps) -> String {
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
            format!("list of {}", type_name(items))
        }
        (Some("object"), _, Some(JSONSchemaPropsOrBool::Schema(values))) => {
            format!("map of {}", type_name(values))
        }
        (Some("string"), ..) if field.format.as_deref() == Some("date-time") => "time".to_owned(),
        (Some(type_), ..) => type_.to_owned(),
        (None, ..) => "any".to_owned(),
    }
}

/// Escapes a text for a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('|', "\\|")
        .replace('<', "&lt;")
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = env::args().nth(1).ok_or("name the directory")?;
    for (name, text) in files()? {
        fs::write(Path::new(&directory).join(name), text)?;
    }
    Ok(())
}
