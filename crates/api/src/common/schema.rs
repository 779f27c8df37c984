//! What the derived schemas lack for users.

use schemars::Schema;
use schemars::transform::transform_subschemas;
use serde_json::{Value, json};

const AMOUNT: &str = "x-kubernetes-int-or-string";

/// Descriptions without the line breaks of our source, which `kubectl explain` would print. And no amount is
/// nullable, as kube takes each to be that may be left out: one that is set to null gets its default like any other
/// field.
pub(crate) fn as_users_meet_it(schema: &mut Schema) {
    if let Some(Value::String(description)) = schema.get_mut("description") {
        let paragraphs: Vec<_> = description
            .split("\n\n")
            .map(|it| it.replace('\n', " "))
            .collect();
        *description = paragraphs.join("\n\n");
    }
    if schema.get(AMOUNT).is_some() {
        schema.insert("nullable".to_owned(), false.into());
    }
    transform_subschemas(&mut as_users_meet_it, schema);
}

/// The values of a map: text of so many characters at most.
pub(crate) fn bounded_text(longest: u32) -> Value {
    json!({"type": "string", "maxLength": longest})
}
