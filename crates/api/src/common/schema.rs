//! Corrections of the derived schemas.

use schemars::Schema;
use schemars::transform::transform_subschemas;
use serde_json::{Value, json};

const INT_OR_STRING: &str = "x-kubernetes-int-or-string";

/// Joins the lines of each description, since `kubectl explain` would print the line breaks of the source. Makes no
/// quantity nullable (kube makes every optional one so): a quantity that is set to null then gets its default, like any
/// other field.
pub(crate) fn for_users(schema: &mut Schema) {
    if let Some(Value::String(description)) = schema.get_mut("description") {
        let paragraphs: Vec<_> = description
            .split("\n\n")
            .map(|paragraph| paragraph.replace('\n', " "))
            .collect();
        *description = paragraphs.join("\n\n");
    }
    if schema.get(INT_OR_STRING).is_some() {
        schema.insert("nullable".to_owned(), false.into());
    }
    transform_subschemas(&mut for_users, schema);
}

/// Returns the schema of a string of at most `max_length` characters, for the values of a map.
pub(crate) fn bounded_string(max_length: u32) -> Value {
    json!({"type": "string", "maxLength": max_length})
}
