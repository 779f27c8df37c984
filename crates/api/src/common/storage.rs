//! Where members keep their data.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::KubeSchema;
use kube::core::Rule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::cel::{amount, at_least, duration_or_nought};

/// One gibibyte.
const GI: u64 = 1 << 30;

/// Where members keep their data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!self.ephemeral || !has(self.class)")
    .message("ephemeral data has no volume, so it cannot have a storage class: leave out class, or ephemeral")
    .field_path(".class"))]
#[x_kube(validation = Rule::new("has(self.class) || !has(oldSelf.class)")
    .message("spec.storage.class cannot be left out again: name the class that members should move to, or leave it as it is")
    .field_path(".class"))]
pub struct Storage {
    /// How large each member's volume is, at least 1Gi; with ephemeral, how much of its node's disk a member may
    /// take. Volumes grow while members run, if their class allows it; they never shrink.
    #[serde(default = "default_size")]
    #[x_kube(
        validation = amount(),
        validation = at_least("1Gi", "at least 1Gi: etcd keeps its log and snapshots beside the data"),
    )]
    pub size: Quantity,
    /// The StorageClass of the volumes; without one, the default class of the Kubernetes cluster. A change replaces
    /// members one by one, each on a new volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 253))]
    pub class: Option<String>,
    /// What happens to the volumes when this resource is deleted. With Keep they stay, and a resource of the same
    /// name takes them up again; with Delete they go with it.
    #[serde(default)]
    pub on_delete: OnDelete,
    /// For how long the volume of a member that was removed is kept, when the cluster is made smaller or a member is
    /// replaced: 24h, 30m. "0" (a string) deletes it at once.
    #[serde(default = "default_keep_removed_for")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = duration_or_nought("to delete it at once"))]
    pub keep_removed_for: String,
    /// Keep the data in the pods instead of on volumes. A member whose pod is gone has lost its data and is replaced;
    /// if most are gone at once, everything is lost. For caches and tests. It cannot be changed.
    #[serde(default)]
    #[x_kube(validation = Rule::new("self == oldSelf")
        .message("spec.storage.ephemeral cannot be changed: the data would not move along. Create another cluster \
            and copy the data"))]
    pub ephemeral: bool,
}

/// For the resource: volumes do not shrink. What was asked for, and not yet given, may be taken back, and anything before there is
/// a cluster.
pub(crate) fn no_shrinking() -> Rule {
    let size = |of: &str| format!("quantity(string({of}))");
    let (wanted, before) = ("self.spec.storage.size", "oldSelf.spec.storage.size");
    let given = "oldSelf.status.volumeSize";
    Rule::new(format!(
        "self.spec.storage.ephemeral || !isQuantity(string({wanted})) || !isQuantity(string({before})) || {}.compareTo({}) >= 0 || \
         !has(oldSelf.status) || !has(oldSelf.status.clusterId) || has({given}) && isQuantity({given}) && {}.compareTo(quantity({given})) >= 0",
        size(wanted),
        size(before),
        size(wanted)
    ))
    .message(SHRINKS)
    .field_path(".spec.storage.size")
}

/// What is said of a size that is less than there is.
pub const SHRINKS: &str =
    "volumes never shrink: create another cluster with smaller ones, and copy the data";

/// What happens to the volumes when the resource is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnDelete {
    /// They stay, until someone deletes them.
    #[default]
    Keep,
    /// They go with the resource, and the data with them.
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

/// How large etcd may let its data grow on a volume of `size` bytes, unless the user says otherwise: three quarters,
/// since the log, snapshots and a defragmentation need room as well; at most 8Gi, beyond which etcd's authors advise
/// against.
pub fn default_quota(size: u64) -> u64 {
    (size / 4 * 3).min(8 * GI)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_three_quarters_of_the_volume_and_at_most_eight_gibibytes() {
        assert_eq!(default_quota(4 * GI), 3 * GI);
        assert_eq!(default_quota(10 * GI), 10 * GI / 4 * 3);
        assert_eq!(default_quota(100 * GI), 8 * GI);
        assert_eq!(default_quota(u64::MAX), 8 * GI);
    }

    #[test]
    fn nothing_said_about_storage_is_four_gibibytes_that_are_kept() {
        let storage: Storage = serde_json::from_str("{}").unwrap();
        assert_eq!(storage, Storage::default());
        assert_eq!(storage.size.0, "4Gi");
        assert_eq!(storage.on_delete, OnDelete::Keep);
        assert!(!storage.ephemeral);
    }
}
