//! Ownership of objects: the labels and owner references that an engine writes, and the decision whether an observed object
//! belongs to the resource, to a deleted resource of the same name, or to another owner.

use evenkeel_api::labels;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::ClusterRef;

/// The owner of an object that the engine would otherwise create or update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// The resource controls the object.
    ThisResource,
    /// A deleted resource of the same name controls the object, or no controller does: the engine adopts it.
    PreviousResource,
    /// The object is not the engine's. It is never changed.
    Other,
}

/// The resource that an object is deleted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum OwnedBy {
    /// The resource.
    Resource,
    /// A deleted resource of the same name: Kubernetes is about to delete the object.
    PreviousResource,
    /// No resource of this kind and name.
    Unowned,
}

/// Returns the owner of an object by its cluster label and its controller reference.
pub fn ownership(cluster: ClusterRef<'_>, metadata: &ObjectMeta) -> Ownership {
    let label = metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(cluster.engine.cluster_label));
    if label.map(String::as_str) != Some(cluster.name) {
        return Ownership::Other;
    }
    let mut references = metadata.owner_references.iter().flatten();
    match references.find(|reference| reference.controller == Some(true)) {
        None => Ownership::PreviousResource,
        Some(reference) if reference.uid.parse() == Ok(cluster.uid) => Ownership::ThisResource,
        Some(reference) if has_same_name(cluster, reference) => Ownership::PreviousResource,
        Some(_) => Ownership::Other,
    }
}

/// Returns the resource that an object is deleted with. Kubernetes deletes an object when none of its owners exists any
/// longer. An orphaned object has no owner.
pub fn owned_by(cluster: ClusterRef<'_>, metadata: &ObjectMeta) -> OwnedBy {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    if owners
        .iter()
        .any(|owner| owner.uid.parse() == Ok(cluster.uid))
    {
        OwnedBy::Resource
    } else if !owners.is_empty() && owners.iter().all(|owner| has_same_name(cluster, owner)) {
        OwnedBy::PreviousResource
    } else {
        OwnedBy::Unowned
    }
}

/// Returns true if an object is Terminating, or about to be because its owner was deleted.
pub fn is_terminating(cluster: ClusterRef<'_>, metadata: &ObjectMeta) -> bool {
    metadata.deletion_timestamp.is_some()
        || owned_by(cluster, metadata) == OwnedBy::PreviousResource
}

fn has_same_name(cluster: ClusterRef<'_>, reference: &OwnerReference) -> bool {
    reference.kind == cluster.engine.kind && reference.name == cluster.name
}

/// Returns the controller reference to the resource. It has no `blockOwnerDeletion`, which would need permission to update
/// the resource's finalizers.
pub fn owner_reference(cluster: ClusterRef<'_>) -> Value {
    json!({
        "apiVersion": cluster.engine.api_version,
        "kind": cluster.engine.kind,
        "name": cluster.name,
        "uid": cluster.uid.to_string(),
        "controller": true,
    })
}

/// Returns the labels that every object of a cluster carries.
pub fn common_labels(cluster: ClusterRef<'_>) -> Value {
    json!({
        labels::APP_NAME: cluster.engine.engine,
        labels::APP_INSTANCE: cluster.name,
        labels::APP_COMPONENT: "database",
        labels::APP_PART_OF: cluster.name,
        labels::APP_MANAGED_BY: labels::MANAGER,
        cluster.engine.cluster_label: cluster.name,
    })
}

/// Returns the labels that select all pods of a cluster.
pub fn selector(cluster: ClusterRef<'_>) -> Value {
    json!({ cluster.engine.cluster_label: cluster.name })
}

/// Returns the metadata of an object that is deleted with the resource.
pub fn owned_metadata(cluster: ClusterRef<'_>, name: &str) -> Value {
    json!({
        "name": name,
        "namespace": cluster.namespace,
        "labels": common_labels(cluster),
        "ownerReferences": [owner_reference(cluster)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Uid;
    use crate::testing::{CLUSTER, change};

    const LABEL: &str = CLUSTER.engine.cluster_label;

    fn metadata(with: Value) -> ObjectMeta {
        let mut metadata =
            serde_json::from_value(json!({ "name": "orders-peer", "labels": { LABEL: "orders" } }))
                .unwrap();
        change(&mut metadata, with);
        metadata
    }

    fn reference(kind: &str, name: &str, uid: Uid, controller: Value) -> Value {
        json!({ "ownerReferences": [{ "apiVersion": "v1", "kind": kind, "name": name, "uid": uid.to_string(),
            "controller": controller }] })
    }

    #[test]
    fn label_and_controller_reference_determine_the_owner() {
        let owner = |with: Value| ownership(CLUSTER, &metadata(with));
        let kind = CLUSTER.engine.kind;
        assert_eq!(
            owner(reference(kind, "orders", CLUSTER.uid, json!(true))),
            Ownership::ThisResource
        );
        assert_eq!(
            owner(reference(kind, "orders", Uid(9), json!(true))),
            Ownership::PreviousResource
        );
        assert_eq!(
            owner(json!({})),
            Ownership::PreviousResource,
            "an orphan of a deleted resource"
        );
        assert_eq!(
            owner(reference("ConfigMap", "x", Uid(9), json!(null))),
            Ownership::PreviousResource,
            "an owner that is not a controller"
        );
        assert_eq!(
            owner(reference(kind, "billing", Uid(9), json!(true))),
            Ownership::Other
        );
        assert_eq!(
            owner(reference("Deployment", "orders", Uid(9), json!(true))),
            Ownership::Other
        );
        let mut labelled = reference(kind, "orders", CLUSTER.uid, json!(true));
        labelled["labels"] = json!({ LABEL: "billing" });
        assert_eq!(
            owner(labelled),
            Ownership::Other,
            "the label of another cluster"
        );
        assert_eq!(
            owner(json!({ "labels": null })),
            Ownership::Other,
            "no label at all"
        );
    }

    #[test]
    fn the_label_of_another_engine_does_not_count() {
        let foreign = json!({ "labels": { LABEL: null, "other.example/cluster": "orders" } });
        assert_eq!(ownership(CLUSTER, &metadata(foreign)), Ownership::Other);
        let kind = "OtherCluster";
        let controlled = metadata(reference(kind, "orders", Uid(9), json!(true)));
        assert_eq!(ownership(CLUSTER, &controlled), Ownership::Other);
        assert_eq!(owned_by(CLUSTER, &controlled), OwnedBy::Unowned);
    }

    #[test]
    fn any_reference_to_the_resource_makes_it_the_owner() {
        let owner = |with: Value| owned_by(CLUSTER, &metadata(with));
        let kind = CLUSTER.engine.kind;
        assert_eq!(
            owner(reference(kind, "orders", CLUSTER.uid, json!(null))),
            OwnedBy::Resource
        );
        assert_eq!(
            owner(reference(kind, "orders", Uid(9), json!(true))),
            OwnedBy::PreviousResource
        );
        assert_eq!(
            owner(reference(kind, "billing", Uid(9), json!(true))),
            OwnedBy::Unowned
        );
        assert_eq!(owner(json!({})), OwnedBy::Unowned, "an orphan");
    }

    #[test]
    fn an_object_of_a_deleted_resource_counts_as_terminating() {
        let kind = CLUSTER.engine.kind;
        let terminating = |with: Value| is_terminating(CLUSTER, &metadata(with));
        assert!(terminating(reference(kind, "orders", Uid(9), json!(true))));
        assert!(!terminating(reference(
            kind,
            "orders",
            CLUSTER.uid,
            json!(true)
        )));
        assert!(terminating(
            json!({ "deletionTimestamp": "2027-01-15T07:59:00Z" })
        ));
    }
}
