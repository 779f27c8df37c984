//! The identity object: a ConfigMap that holds the facts about a cluster that no other object shows, and the spec that was
//! accepted last. It is changed only by compare-and-swap. The engine defines the identity's content.

use evenkeel_runtime::{Error, ObjectWriter, Outcome};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::ClusterRef;
use crate::objects::{BuildError, from_json};
use crate::ownership::owned_metadata;

/// The data key of the identity, as JSON.
pub const IDENTITY_KEY: &str = "identity";
/// The data key of the spec that was accepted last, as JSON.
pub const SPEC_KEY: &str = "spec";

/// Returns the identity object. `is_owned` says whether it is deleted with the resource.
pub fn build<I: Serialize>(
    cluster: ClusterRef<'_>,
    name: &str,
    identity: &I,
    spec: &str,
    is_owned: bool,
) -> Result<ConfigMap, BuildError> {
    let what = "identity ConfigMap";
    let text = serde_json::to_string(identity).map_err(|error| BuildError::new(what, error))?;
    let mut metadata = owned_metadata(cluster, name);
    if !is_owned {
        metadata["ownerReferences"] = json!([]);
    }
    let object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": { IDENTITY_KEY: text, SPEC_KEY: spec },
    });
    from_json(what, object)
}

/// An identity object whose content is not an identity.
#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub struct UnreadableIdentity {
    /// The name of the ConfigMap.
    pub config_map: String,
    /// The reason.
    #[source]
    source: serde_json::Error,
}

/// Returns the identity in an object. An unreadable identity is an error and not absent: the engine must not create another.
pub fn parse<I: DeserializeOwned>(object: &ConfigMap) -> Result<I, Error> {
    let data = object.data.as_ref();
    let text = data.and_then(|data| data.get(IDENTITY_KEY));
    serde_json::from_str(text.map(String::as_str).unwrap_or_default()).map_err(|error| {
        let config_map = object.name_any();
        let action = format!("read the identity in ConfigMap {config_map}");
        let source = error;
        Error::other(action, UnreadableIdentity { config_map, source })
    })
}

/// Returns the spec that was accepted last, as JSON text.
pub fn recorded_spec(object: &ConfigMap) -> Option<&str> {
    Some(object.data.as_ref()?.get(SPEC_KEY)?.as_str())
}

/// Replaces the identity by `to`, with the resourceVersion of the observed object as precondition. The spec is recorded in
/// the same write.
pub async fn replace<I: Serialize>(
    writer: &ObjectWriter<'_>,
    observed: &ConfigMap,
    to: &I,
    spec: &str,
) -> Result<Outcome, Error> {
    let mut object = observed.clone();
    let text =
        serde_json::to_string(to).map_err(|error| Error::other("serialize the identity", error))?;
    let data = object.data.get_or_insert_default();
    data.insert(IDENTITY_KEY.to_owned(), text);
    data.insert(SPEC_KEY.to_owned(), spec.to_owned());
    writer.replace(&object).await
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::testing::CLUSTER;

    #[test]
    fn an_identity_is_parsed_as_it_was_built() {
        let identity = json!({ "lineage": 7, "epoch": 1 });
        let object = build(CLUSTER, "orders-identity", &identity, "{}", false).unwrap();
        assert_eq!(parse::<Value>(&object).unwrap(), identity);
        assert_eq!(recorded_spec(&object), Some("{}"));
        assert_eq!(object.metadata.owner_references, Some(Vec::new()));
        let owned = build(CLUSTER, "orders-identity", &identity, "{}", true).unwrap();
        assert_eq!(owned.metadata.owner_references.unwrap().len(), 1);
    }

    #[test]
    fn an_unreadable_identity_is_an_error_that_names_the_object() {
        let mut object = build(CLUSTER, "orders-identity", &json!({}), "{}", false).unwrap();
        for data in [
            json!(null),
            json!({ IDENTITY_KEY: "" }),
            json!({ IDENTITY_KEY: "{" }),
        ] {
            object.data = serde_json::from_value(data).unwrap();
            let error = parse::<Value>(&object).unwrap_err().to_string();
            assert!(
                error.contains("the identity in ConfigMap orders-identity"),
                "{error}"
            );
        }
    }
}
