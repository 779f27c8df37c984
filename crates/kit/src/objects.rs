//! Helpers for Kubernetes objects of any kind: building them from JSON, comparing them with the desired state, reading
//! annotations, and a fingerprint of a set of objects.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use evenkeel_runtime::Error;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::ownership::owned_metadata;
use crate::{ClusterRef, Uid};

/// An object that could not be built: a bug in the engine, never a mistake in a resource.
#[derive(Debug, thiserror::Error)]
#[error("failed to build {what}: {source}")]
pub struct BuildError {
    what: &'static str,
    source: serde_json::Error,
}

impl BuildError {
    /// Wraps an error that occurred while `what` was serialized.
    pub fn new(what: &'static str, source: serde_json::Error) -> Self {
        Self { what, source }
    }
}

impl From<BuildError> for Error {
    fn from(error: BuildError) -> Self {
        Self::other(format!("build {}", error.what), error.source)
    }
}

/// Returns the typed object that `object` describes. `what` names the object in errors.
pub fn from_json<K: DeserializeOwned>(what: &'static str, object: Value) -> Result<K, BuildError> {
    serde_json::from_value(object).map_err(|source| BuildError { what, source })
}

/// Returns true if `observed` contains everything that `desired` contains. Fields that users or Kubernetes add are ignored.
/// Lists must have the same length and are compared element by element: an additional port or owner is a difference.
pub fn is_superset(observed: &Value, desired: &Value) -> bool {
    match (observed, desired) {
        (Value::Object(observed), Value::Object(desired)) => desired.iter().all(|(key, value)| {
            observed
                .get(key)
                .is_some_and(|observed| is_superset(observed, value))
        }),
        (Value::Array(observed), Value::Array(desired)) => {
            observed.len() == desired.len()
                && observed
                    .iter()
                    .zip(desired)
                    .all(|(observed, desired)| is_superset(observed, desired))
        }
        (observed, desired) => observed == desired,
    }
}

/// Returns true if an observed object contains everything that the desired one contains.
pub fn is_as_built<K: Serialize>(observed: &K, desired: &K) -> bool {
    match (
        serde_json::to_value(observed),
        serde_json::to_value(desired),
    ) {
        (Ok(observed), Ok(desired)) => is_superset(&observed, &desired),
        _ => false,
    }
}

/// Returns the value of an annotation.
pub fn annotation<'m>(metadata: &'m ObjectMeta, key: &str) -> Option<&'m str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Returns true if the object has this annotation, with any value.
pub fn has_annotation(metadata: &ObjectMeta, key: &str) -> bool {
    annotation(metadata, key).is_some()
}

/// Returns a merge patch for `metadata.annotations` that removes the annotations that an earlier spec set and the desired
/// object no longer has; `None` if there are none. The annotation `list_key` holds the keys that the spec set, separated by
/// commas. Server-side apply does not remove them, because the object was created with them by another request.
pub fn stale_annotations(
    observed: &ObjectMeta,
    desired: &ObjectMeta,
    list_key: &str,
) -> Option<Value> {
    let stale_keys = annotation(observed, list_key)?
        .split(',')
        .filter(|key| annotation(observed, key).is_some() && annotation(desired, key).is_none());
    let mut patch: serde_json::Map<String, Value> = stale_keys
        .map(|key| (key.to_owned(), Value::Null))
        .collect();
    let desired_list = annotation(desired, list_key);
    if patch.is_empty() && desired_list.is_some() {
        return None;
    }
    patch.insert(list_key.to_owned(), json!(desired_list));
    Some(Value::Object(patch))
}

/// Returns objects by uid. Objects without a uid are left out.
pub fn by_uid<K: Resource>(objects: Vec<K>) -> BTreeMap<Uid, K> {
    objects
        .into_iter()
        .filter_map(|object| Some((Uid::of(object.meta())?, object)))
        .collect()
}

/// Returns a number that changes when the generation of the resource or any of its objects changes. The order of the
/// objects does not matter. The resource's resourceVersion is left out, because status writes change it.
pub fn fingerprint<'m>(
    generation: Option<i64>,
    objects: impl Iterator<Item = &'m ObjectMeta>,
) -> u64 {
    let mut hasher = DefaultHasher::new();
    generation.hash(&mut hasher);
    let mut versions: Vec<_> = objects
        .map(|metadata| (&metadata.uid, &metadata.resource_version))
        .collect();
    versions.sort();
    versions.hash(&mut hasher);
    hasher.finish()
}

/// Returns the PodDisruptionBudget of a cluster. `selector` are the labels of the pods that count, and `min_available` the
/// number of them that evictions must leave. The number is an integer and not a percentage or `maxUnavailable`: those are
/// computed from the scale subresource, and allowed three evictions at once after an edit from 5 to 3 (tried).
pub fn pod_disruption_budget(
    cluster: ClusterRef<'_>,
    name: &str,
    selector: &Value,
    min_available: u8,
) -> Result<PodDisruptionBudget, BuildError> {
    let object = json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": owned_metadata(cluster, name),
        "spec": {
            "minAvailable": min_available,
            "selector": { "matchLabels": selector },
            // A pod that is not Ready contributes nothing to availability: it may always be evicted.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    });
    from_json("PodDisruptionBudget", object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_fields_are_ignored_and_changed_fields_are_a_difference() {
        let desired = json!({"spec": {"ports": [{"port": 2379}], "type": "ClusterIP"}});
        let defaulted = json!({"spec": {"ports": [{"port": 2379, "nodePort": 0}], "type": "ClusterIP", "clusterIP": "x"}});
        assert!(is_superset(&defaulted, &desired));
        let edited = json!({"spec": {"ports": [{"port": 80}], "type": "ClusterIP"}});
        let additional_port =
            json!({"spec": {"ports": [{"port": 2379}, {"port": 80}], "type": "ClusterIP"}});
        assert!(
            !is_superset(&edited, &desired)
                && !is_superset(&additional_port, &desired)
                && !is_superset(&json!({}), &desired)
        );
    }

    fn metadata(annotations: Value) -> ObjectMeta {
        serde_json::from_value(json!({ "annotations": annotations })).unwrap()
    }

    #[test]
    fn annotations_that_the_spec_no_longer_has_are_removed_and_foreign_ones_stay() {
        let observed = metadata(json!({ "a": "1", "b": "2", "foreign": "x", "list": "a,b" }));
        let desired = metadata(json!({ "b": "2", "list": "b" }));
        assert_eq!(
            stale_annotations(&observed, &desired, "list"),
            Some(json!({ "a": null, "list": "b" }))
        );
        assert_eq!(
            stale_annotations(&observed, &metadata(json!({})), "list"),
            Some(json!({ "a": null, "b": null, "list": null }))
        );
        assert_eq!(stale_annotations(&observed, &observed, "list"), None);
        assert_eq!(
            stale_annotations(&metadata(json!({ "foreign": "x" })), &desired, "list"),
            None
        );
    }

    #[test]
    fn a_fingerprint_changes_with_any_object_and_not_with_their_order() {
        let object = |uid: &str, version: &str| ObjectMeta {
            uid: Some(uid.to_owned()),
            resource_version: Some(version.to_owned()),
            ..ObjectMeta::default()
        };
        let (first, second) = (object("a", "1"), object("b", "1"));
        let before = fingerprint(Some(1), [&first, &second].into_iter());
        assert_eq!(before, fingerprint(Some(1), [&second, &first].into_iter()));
        assert_ne!(before, fingerprint(Some(2), [&first, &second].into_iter()));
        assert_ne!(
            before,
            fingerprint(Some(1), [&first, &object("b", "2")].into_iter())
        );
    }
}
