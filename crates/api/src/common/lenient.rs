//! Decoding of a status that another version of the operator may have written.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// Decodes a status with `strict`. A field that this version cannot decode counts as absent: the operator writes it again. An
/// error would hide the whole resource, and nothing would be healed. Every field must be optional.
pub(crate) fn decode<'de, D, T>(
    deserializer: D,
    strict: impl Fn(Value) -> Result<T, serde_json::Error>,
) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
{
    let fields = Map::<String, Value>::deserialize(deserializer)?;
    if let Ok(status) = strict(Value::Object(fields.clone())) {
        return Ok(status);
    }
    let is_readable = |(key, value): &(String, Value)| {
        let field = Map::from_iter([(key.clone(), value.clone())]);
        strict(Value::Object(field)).is_ok()
    };
    let readable = fields.into_iter().filter(is_readable).collect();
    strict(Value::Object(readable)).map_err(D::Error::custom)
}
