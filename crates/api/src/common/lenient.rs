//! Decoding of a status that another version of the operator may have written.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Decodes a field of a status. A value that this version cannot decode counts as absent: the operator writes it again. An
/// error would hide the whole resource, and nothing would be healed.
pub(crate) fn field<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    let value = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}
