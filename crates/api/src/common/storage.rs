//! `spec.storage`: the volumes of members.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::cel::{duration_or_zero, quantity, quantity_at_least};

/// The volumes that members store their data on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!self.ephemeral || !has(self.class)")
    .message(NO_CLASS_IF_EPHEMERAL)
    .field_path(".class"))]
#[x_kube(validation = Rule::new("has(self.class) || !has(oldSelf.class)")
    .message("cannot be removed. Keep the StorageClass, or name the one that members should move to")
    .field_path(".class"))]
pub struct Storage {
    /// The size of each member's volume. Minimum 1Gi. Volumes grow online if their StorageClass allows it, and never
    /// shrink. If ephemeral is true, the disk space that a member may use on its node.
    #[serde(default = "default_size")]
    #[x_kube(
        validation = quantity(),
        validation = quantity_at_least("1Gi", SIZE_TOO_SMALL),
    )]
    pub size: Quantity,
    /// The StorageClass of the volumes. If unset, the default StorageClass of the Kubernetes cluster is used. A change
    /// replaces members one by one, each on a new volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 253))]
    pub class: Option<String>,
    /// What happens to the volumes when this resource is deleted. Keep retains them, and a new resource of the same
    /// name adopts them. Delete deletes them together with the resource.
    #[serde(default)]
    pub on_delete: OnDelete,
    /// How long the volume of a removed member is kept after a scale-in or a replacement, such as 24h or 30m. "0" (a
    /// string) deletes it at once.
    #[serde(default = "default_keep_removed_for")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = duration_or_zero(INVALID_KEEP_REMOVED_FOR))]
    pub keep_removed_for: String,
    /// If true, store the data in the pods instead of on volumes. A member whose pod is deleted loses its data and is
    /// replaced; if a majority of pods is lost at once, all data is lost. For caches and tests only. Immutable.
    #[serde(default)]
    #[x_kube(validation = Rule::new("self == oldSelf")
        .message("field is immutable: the operator does not move data between pods and volumes. Keep the value, or \
            create a new cluster and copy the data"))]
    pub ephemeral: bool,
}

/// The message for a smaller volume size.
pub const VOLUMES_NEVER_SHRINK: &str = "cannot be decreased: volumes never shrink. Keep the size, \
    or create a new cluster with smaller volumes and copy the data";
/// The message for a volume that is too small for etcd.
pub(crate) const SIZE_TOO_SMALL: &str =
    "must be at least 1Gi: the volume also stores the write-ahead log and snapshots";
/// The message for a StorageClass of data that is not on volumes.
pub(crate) const NO_CLASS_IF_EPHEMERAL: &str =
    "must not be set if ephemeral is true: ephemeral data has no volume. Remove class or ephemeral";
/// The message for an invalid retention time.
pub(crate) const INVALID_KEEP_REMOVED_FOR: &str =
    "must be a duration such as 1h, 30m or 1h30m, or \"0\" to delete the volume at once";

/// What happens to the volumes when the resource is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnDelete {
    /// The volumes are retained until a user deletes them.
    #[default]
    Keep,
    /// The volumes are deleted together with the resource.
    Delete,
}

impl Default for Storage {
    fn default() -> Self {
        Self {
            size: default_size(),
            class: None,
            on_delete: OnDelete::Keep,
            keep_removed_for: default_keep_removed_for(),
            ephemeral: false,
        }
    }
}

fn default_size() -> Quantity {
    Quantity("4Gi".to_owned())
}

fn default_keep_removed_for() -> String {
    "24h".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_storage_is_a_persistent_volume_of_4gi_that_is_kept() {
        let storage: Storage = serde_json::from_str("{}").unwrap();
        assert_eq!(storage, Storage::default());
        assert_eq!(storage.size.0, "4Gi");
        assert_eq!(storage.on_delete, OnDelete::Keep);
        assert!(!storage.ephemeral);
    }
}
