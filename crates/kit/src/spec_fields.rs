//! Field-wise access to a spec, for the effective spec: a rejected field keeps the value that was accepted last.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Returns `spec` with one field replaced by the value that `other` has, or without the field if `other` does not have it.
/// `field` is a path from the root of the resource, such as `spec.storage.size`. Returns `None` if the path does not start
/// with `spec.`, if the result is not a valid spec, or if it equals `spec`.
pub fn with_field<S>(spec: &S, other: &S, field: &str) -> Option<S>
where
    S: Serialize + DeserializeOwned + PartialEq,
{
    let mut changed = serde_json::to_value(spec).ok()?;
    let other = serde_json::to_value(other).ok()?;
    let mut parents: Vec<&str> = field.strip_prefix("spec.")?.split('.').collect();
    let last = parents.pop()?;
    let value = parents
        .iter()
        .try_fold(&other, |object, key| object.get(key))
        .and_then(|object| object.get(last));
    let mut object = &mut changed;
    for key in parents {
        object = object
            .as_object_mut()?
            .entry(key)
            .or_insert_with(|| Value::Object(Map::new()));
    }
    let object = object.as_object_mut()?;
    match value {
        Some(value) => object.insert(last.to_owned(), value.clone()),
        None => object.remove(last),
    };
    serde_json::from_value(changed)
        .ok()
        .filter(|changed| changed != spec)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_field_is_replaced_added_or_removed() {
        let spec = json!({ "members": 5, "storage": { "size": "2Gi", "class": "fast" } });
        let other =
            json!({ "members": 3, "storage": { "size": "4Gi" }, "heal": { "after": "5m" } });
        let replaced = with_field(&spec, &other, "spec.storage.size").unwrap();
        assert_eq!(
            replaced,
            json!({ "members": 5, "storage": { "size": "4Gi", "class": "fast" } })
        );
        let removed = with_field(&spec, &other, "spec.storage.class").unwrap();
        assert_eq!(removed["storage"], json!({ "size": "2Gi" }));
        let added = with_field(&spec, &other, "spec.heal.after").unwrap();
        assert_eq!(added["heal"], json!({ "after": "5m" }));
    }

    #[test]
    fn nothing_is_returned_for_an_equal_field_or_a_path_outside_the_spec() {
        let spec = json!({ "members": 5 });
        assert_eq!(with_field(&spec, &spec, "spec.members"), None);
        assert_eq!(with_field(&spec, &json!({}), "status.members"), None);
    }
}
