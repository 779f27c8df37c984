//! The effective spec of an etcd cluster: the kit's algorithm ([`evenkeel_kit::effective_spec`]) with the history that
//! limits etcd's versions, options and volumes. The accepted spec is recorded in the identity object.
//!
//! The CRD's schema rejects most bad values at `kubectl apply`. This module also rejects values
//! that an older schema accepted, and values that are invalid only for this cluster, such as a
//! downgrade or a smaller volume.

use std::collections::BTreeSet;

use evenkeel_api::{
    EtcdCluster, EtcdClusterSpec, Image, Maintenance, Rejection, VOLUMES_NEVER_SHRINK, Version,
    labels, quantity, releases,
};
use evenkeel_kit::effective_spec::{self as kit, SpecRules};
use evenkeel_kit::objects::has_annotation;
use evenkeel_kit::ownership::owned_by;
use evenkeel_kit::spec_fields::with_field;
use evenkeel_kit::{ClusterRef, OwnedBy, claims, pods};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;
use kube::api::ObjectMeta;

use crate::desired::DesiredCluster;
use crate::identity::Identity;
use crate::names::ENGINE;
use crate::observe::objects::{ClusterObjects, parse_identity};
use crate::observe::{has_joined, member_ref, version};

pub use evenkeel_kit::identity_object::recorded_spec;

/// The field of the maintenance windows. The schema cannot check the names of time zones.
const MAINTENANCE_WINDOWS: &str = "spec.maintenance.windows";

/// The desired state according to the effective spec.
pub type EffectiveSpec = kit::EffectiveSpec<DesiredCluster>;
/// The spec that was accepted last.
type AcceptedSpec = kit::AcceptedSpec<EtcdClusterSpec>;

/// The history of a cluster that limits which spec can be accepted.
#[derive(Clone, Debug, Default)]
pub struct ClusterHistory {
    /// The spec that was accepted last.
    accepted: Option<AcceptedSpec>,
    /// Whether the seed has formed the cluster and bootstrap is not finished.
    is_forming: bool,
    /// The lowest and the highest version of etcd that members last started with, if there is data to protect.
    started_versions: Option<VersionRange>,
    /// The version that all members ran when a snapshot was last forced.
    snapshotted_version: Option<Version>,
    /// The size of the data in bytes, from the resource's status.
    data_size: u64,
    /// Whether there are pods without a template hash, which an earlier operator created.
    has_unmarked_pods: bool,
    /// The size of the largest volume in bytes.
    volume_size: u64,
    /// A StorageClass of existing volumes that does not allow expansion.
    fixed_size_class: Option<String>,
    /// The desired StorageClass, if Kubernetes has none of that name.
    missing_class: Option<String>,
}

/// The lowest and the highest of a set of versions.
type VersionRange = (Version, Version);

/// A version that cannot be entered before a snapshot is forced.
struct HeldVersion {
    /// The version in the spec.
    desired: Version,
    /// The version to run until the snapshot is forced.
    current: Version,
}

impl ClusterHistory {
    /// Reads the history from the identity object, the PVCs, the pods and the status.
    pub fn of(objects: &ClusterObjects) -> Self {
        let identity = objects
            .identity
            .as_ref()
            .and_then(|object| parse_identity(object.clone()).ok());
        let accepted = identity
            .as_ref()
            .and_then(|(object, identity)| accepted_spec(object, identity, &objects.resource));
        // The versions of an unfinished bootstrap do not count: it can begin again.
        let has_data = accepted
            .as_ref()
            .is_none_or(|accepted| accepted.is_bootstrapped);
        let accepted_version = accepted
            .as_ref()
            .and_then(|accepted| accepted.spec.version.parse().ok());
        let started =
            started_versions(objects.pods.iter(), objects.claims.iter(), accepted_version);
        let status = objects.resource.status.as_ref();
        let identity = identity.map(|(_, identity)| identity);
        let is_forming = identity
            .as_ref()
            .is_some_and(|identity| identity.cluster_id.is_some() && !identity.bootstrapped);
        let is_unmarked = |pod: &Pod| {
            is_current_member(pod, identity.as_ref())
                && pod.metadata.deletion_timestamp.is_none()
                && !pods::is_finished(pod)
                && !has_annotation(&pod.metadata, labels::POD_TEMPLATE_HASH)
        };
        Self {
            accepted,
            is_forming,
            started_versions: started.filter(|_| has_data),
            snapshotted_version: identity
                .as_ref()
                .and_then(|identity| identity.snapshotted_version),
            data_size: status
                .and_then(|status| quantity::bytes(&Quantity(status.data_size.clone())).ok())
                .unwrap_or(0),
            has_unmarked_pods: objects.pods.iter().any(is_unmarked),
            volume_size: claims::largest_volume(objects.claims.iter()),
            fixed_size_class: None,
            missing_class: None,
        }
    }

    /// Returns the history with facts about StorageClasses: one whose volumes cannot grow, and the desired one if it does
    /// not exist.
    #[must_use]
    pub fn with_classes(self, fixed_size: Option<String>, missing: Option<String>) -> Self {
        Self {
            fixed_size_class: fixed_size,
            missing_class: missing,
            ..self
        }
    }

    /// Returns the spec with the fields that unmarked pods were built from as they were accepted last; `None` if all pods
    /// have a template hash. The operator that created unmarked pods used the accepted spec. It stays in force until the
    /// hash is recorded on them, so that they are not restarted.
    fn spec_of_unmarked_pods(&self, spec: &EtcdClusterSpec) -> Option<EtcdClusterSpec> {
        let accepted = self
            .accepted
            .as_ref()
            .filter(|accepted| self.has_unmarked_pods && accepted.has_data())?;
        let EtcdClusterSpec {
            version,
            image,
            storage,
            resources,
            scheduling,
            etcd,
            ..
        } = accepted.spec.clone();
        Some(EtcdClusterSpec {
            version,
            image,
            storage,
            resources,
            scheduling,
            etcd,
            ..spec.clone()
        })
    }

    /// Returns the desired version if it cannot read the log entries of the current one, and no snapshot was forced since
    /// all members run the current one.
    fn held_version(&self, spec: &EtcdClusterSpec) -> Option<HeldVersion> {
        let (lowest, highest) = self.started_versions?;
        let desired = spec.version.parse::<Version>().ok()?;
        let is_snapshotted = self
            .snapshotted_version
            .is_some_and(|version| version.minor == lowest.minor);
        let accepted = self
            .accepted
            .as_ref()
            .and_then(|accepted| accepted.spec.version.parse::<Version>().ok());
        let current = accepted
            .filter(|accepted| accepted.minor == lowest.minor)
            .unwrap_or(lowest);
        let is_held = releases::check_upgrade(lowest, highest, desired).is_ok()
            && releases::needs_fresh_snapshot(lowest, desired)
            && !is_snapshotted;
        is_held.then_some(HeldVersion { desired, current })
    }

    /// Returns the first field whose change is rejected because of the cluster's history.
    fn rejected_change(&self, spec: &EtcdClusterSpec) -> Option<Rejection> {
        let version = spec.version.parse::<Version>().ok();
        if let (Some((lowest, highest)), Some(version)) = (self.started_versions, version)
            && let Err(why) = releases::check_upgrade(lowest, highest, version)
        {
            return rejection("spec.version", why);
        }
        match &self.accepted {
            Some(accepted)
                if self.is_forming
                    && !accepted.is_previous_resource
                    && accepted.spec.version != spec.version =>
            {
                let why = format!(
                    "the cluster is being created with {}. The operator upgrades it to {} when bootstrap is finished",
                    accepted.spec.version, spec.version
                );
                rejection("spec.version", why)
            }
            Some(accepted) if accepted.is_bootstrapped => {
                self.rejected_change_with_data(accepted, spec)
            }
            _ => None,
        }
    }

    /// Returns the first field, apart from the version, whose change is rejected because there is data to protect.
    fn rejected_change_with_data(
        &self,
        accepted: &AcceptedSpec,
        spec: &EtcdClusterSpec,
    ) -> Option<Rejection> {
        let (before, after) = (&accepted.spec.storage, &spec.storage);
        if let Some(class) = &self.missing_class
            && before.class != after.class
            && Some(class) == after.class.as_ref()
        {
            let why = format!("StorageClass {class} does not exist. Create it, or set another one");
            return rejection("spec.storage.class", why);
        }
        if !accepted.is_previous_resource && before.class.is_some() && after.class.is_none() {
            let why = "the field cannot be removed. Set it to the StorageClass that members should move to";
            return rejection("spec.storage.class", why.to_owned());
        }
        let checked = accepted.spec.validate().ok().zip(spec.validate().ok());
        if checked.as_ref().is_some_and(|(before, after)| {
            after.quota < before.quota && after.quota < self.data_size
        }) {
            let why = format!(
                "members have up to {} of data and would reject writes. Compact and defragment etcd first",
                quantity::binary(self.data_size)
            );
            return rejection("spec.etcd.quota", why);
        }
        if !before.ephemeral
            && let Some(why) = self.resize_error(&accepted.spec, spec)
        {
            return rejection("spec.storage.size", why);
        }
        // During a rolling restart, members with old and new options run in one cluster.
        if let Some(why) = checked
            .and_then(|(before, after)| before.options.check_compatible(&after.options).err())
        {
            return rejection("spec.etcd.options", why);
        }
        if before.ephemeral != after.ephemeral {
            let why = "the field cannot be changed: the data would be lost. Create another cluster and copy the data";
            return rejection("spec.storage.ephemeral", why.to_owned());
        }
        None
    }

    /// Returns the reason why volumes cannot get the size in the spec.
    fn resize_error(&self, accepted: &EtcdClusterSpec, spec: &EtcdClusterSpec) -> Option<String> {
        let accepted_size = quantity::bytes(&accepted.storage.size).ok()?;
        let desired_size = quantity::bytes(&spec.storage.size).ok()?;
        if desired_size < accepted_size && desired_size < self.volume_size {
            return Some(VOLUMES_NEVER_SHRINK.to_owned());
        }
        let is_larger = desired_size > self.volume_size && desired_size > accepted_size;
        // Volumes of another class than the desired one are replaced, and need not grow.
        let stays = |class: &&String| {
            let desired_class = spec.storage.class.as_ref();
            desired_class.is_none_or(|desired| desired == *class)
        };
        let class = self
            .fixed_size_class
            .as_ref()
            .filter(|_| is_larger)
            .filter(stays)?;
        Some(format!(
            "StorageClass {class} does not set allowVolumeExpansion, so its volumes cannot grow. Set another \
             spec.storage.class, or keep the size"
        ))
    }

    /// Returns the spec with one field as it was accepted last; `None` if the field has that value already. Without an
    /// accepted spec, the version is the lowest that members started with.
    fn with_accepted_field(&self, spec: &EtcdClusterSpec, field: &str) -> Option<EtcdClusterSpec> {
        let accepted = self.accepted.as_ref().map(|accepted| &accepted.spec);
        if field == "spec.version" {
            let lowest = self.started_versions.map(|(lowest, _)| lowest.to_string());
            let candidates = [accepted.map(|accepted| accepted.version.clone()), lowest];
            let other = candidates
                .into_iter()
                .flatten()
                .find(|version| *version != spec.version);
            return other.map(|version| self.with_version(spec, &version));
        }
        with_field(spec, accepted?, field)
    }

    /// Returns the spec with another version. An image digest belongs to a version: the accepted version keeps its digest,
    /// and another version has none.
    fn with_version(&self, spec: &EtcdClusterSpec, version: &str) -> EtcdClusterSpec {
        let accepted = self
            .accepted
            .as_ref()
            .filter(|accepted| accepted.spec.version == version);
        let digest = accepted.and_then(|accepted| accepted.spec.image.digest.clone());
        let image = Image {
            digest,
            ..spec.image.clone()
        };
        EtcdClusterSpec {
            version: version.to_owned(),
            image,
            ..spec.clone()
        }
    }
}

/// Reads the accepted spec from the identity object; `None` if the object is not this cluster's, or about to be deleted with
/// a previous resource.
fn accepted_spec(
    object: &ConfigMap,
    identity: &Identity,
    resource: &EtcdCluster,
) -> Option<AcceptedSpec> {
    let cluster = ClusterRef::of(&ENGINE, resource);
    if object.labels().get(labels::CLUSTER).map(String::as_str) != Some(cluster.name)
        || owned_by(cluster, &object.metadata) == OwnedBy::PreviousResource
    {
        return None;
    }
    Some(AcceptedSpec {
        spec: serde_json::from_str(recorded_spec(object)?).ok()?,
        is_previous_resource: identity.resource_uid != cluster.uid,
        is_bootstrapped: identity.bootstrapped,
    })
}

fn rejection(field: &'static str, why: String) -> Option<Rejection> {
    Some(Rejection::new(field, why))
}

fn is_current_member(pod: &Pod, identity: Option<&Identity>) -> bool {
    let member = member_ref(&pod.metadata);
    member.zip(identity).is_some_and(|(member, identity)| {
        (member.lineage, member.epoch) == (identity.lineage, identity.epoch)
    })
}

/// Returns the lowest and the highest version of etcd that members last started with; `None` if none has joined. The
/// version is an annotation of the PVC, or of the pod if the storage is ephemeral. An earlier operator did not write it:
/// such a member started with the version that was `accepted` last.
pub fn started_versions<'o>(
    pods: impl Iterator<Item = &'o Pod>,
    claims: impl Iterator<Item = &'o PersistentVolumeClaim>,
    accepted: Option<Version>,
) -> Option<VersionRange> {
    let started_version = |metadata: &ObjectMeta| version(metadata).or(accepted);
    let has_data = |claim: &&PersistentVolumeClaim| {
        claims::read_joined_on(claim).is_some()
            && !has_annotation(&claim.metadata, labels::REMOVED_AT)
            && !has_annotation(&claim.metadata, labels::REPLACED_UNTIL)
    };
    let mut claims = claims.peekable();
    let versions: BTreeSet<_> = match claims.peek() {
        Some(_) => claims
            .filter(has_data)
            .filter_map(|claim| started_version(&claim.metadata))
            .collect(),
        None => pods
            .filter(|pod| has_joined(pod))
            .filter_map(|pod| started_version(&pod.metadata))
            .collect(),
    };
    Some((*versions.first()?, *versions.last()?))
}

/// The rules by which a spec of a resource is accepted.
struct EtcdSpecRules<'r> {
    resource: &'r EtcdCluster,
    history: &'r ClusterHistory,
    /// The version that follows once a snapshot is forced.
    next: Option<Version>,
}

impl SpecRules for EtcdSpecRules<'_> {
    type Spec = EtcdClusterSpec;
    type Desired = DesiredCluster;

    fn accepted(&self) -> Option<&AcceptedSpec> {
        self.history.accepted.as_ref()
    }

    fn rejected_change(&self, spec: &EtcdClusterSpec) -> Option<Rejection> {
        self.history.rejected_change(spec)
    }

    fn validate(&self, spec: &EtcdClusterSpec) -> Result<DesiredCluster, Rejection> {
        let desired = self.validate_accepted(spec)?;
        Ok(DesiredCluster {
            next: self.next,
            ..desired
        })
    }

    /// The accepted spec has no next version: the desired one is rejected with the rest of the resource's spec.
    fn validate_accepted(&self, spec: &EtcdClusterSpec) -> Result<DesiredCluster, Rejection> {
        DesiredCluster::of(&EtcdCluster {
            spec: spec.clone(),
            ..self.resource.clone()
        })
    }

    /// A cluster runs without maintenance windows, but no edit restarts its members. The recorded spec keeps the invalid
    /// windows: an empty list would read as accepted, and allow restarts at any time.
    fn validate_without(&self, spec: &EtcdClusterSpec, field: &str) -> Option<DesiredCluster> {
        if field != MAINTENANCE_WINDOWS {
            return None;
        }
        let without_windows = EtcdClusterSpec {
            maintenance: Maintenance::default(),
            ..spec.clone()
        };
        let desired = self.validate(&without_windows).ok()?;
        Some(DesiredCluster {
            windows: None,
            spec: serde_json::to_string(spec).unwrap_or_default(),
            ..desired
        })
    }

    fn with_accepted_field(&self, spec: &EtcdClusterSpec, field: &str) -> Option<EtcdClusterSpec> {
        self.history.with_accepted_field(spec, field)
    }
}

/// Returns the effective spec and the first rejected field, or the rejection if no spec can be in force. Before the kit's
/// algorithm:
/// 1. If pods lack a template hash, the accepted values of the pods' inputs stay in force; nothing is rejected.
/// 2. If the version must wait for a forced snapshot, the current version stays in force, and the desired one becomes
///    [`DesiredCluster::next`].
pub fn effective_spec(
    resource: &EtcdCluster,
    history: &ClusterHistory,
) -> Result<EffectiveSpec, Rejection> {
    let held = history.held_version(&resource.spec);
    let rules = EtcdSpecRules {
        resource,
        history,
        next: held.as_ref().map(|held| held.desired),
    };
    if let Some(spec) = history.spec_of_unmarked_pods(&resource.spec)
        && let Ok(desired) = rules.validate_accepted(&spec)
    {
        return Ok(EffectiveSpec {
            desired,
            rejection: None,
        });
    }
    match held {
        None => kit::effective_spec(&rules, &resource.spec),
        Some(held) => {
            let spec = history.with_version(&resource.spec, &held.current.to_string());
            kit::effective_spec(&rules, &spec)
        }
    }
}

#[cfg(test)]
#[path = "effective_spec_tests.rs"]
mod tests;
