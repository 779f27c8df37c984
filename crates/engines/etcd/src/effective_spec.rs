//! Which spec is in force. A field that cannot be accepted keeps the value that was accepted last, as it is noted beside the
//! identity, and everything else goes on: a spec may come by an older schema, which let it pass.

use std::collections::BTreeSet;

use evenkeel_api::{
    EtcdCluster, EtcdClusterSpec, Image, Rejection, VOLUMES_NEVER_SHRINK as SHRINKS, Version,
    labels, quantity, releases,
};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use serde_json::Value;

use crate::build::{SPEC_KEY, claim};
use crate::desired::{self, DesiredCluster};
use crate::facts::OwnedBy;
use crate::identity::Identity;
use crate::observe::objects::ClusterObjects;
use crate::observe::{has_joined, member_ref, objects, owned_by, version};

/// How many fields may be refused at once.
const MAX_REJECTED_FIELDS: usize = 16;

/// What is known of a cluster before a spec is accepted.
#[derive(Clone, Debug, Default)]
pub struct ClusterHistory {
    /// What was accepted last.
    accepted: Option<AcceptedSpec>,
    /// The versions of etcd that members were last started with, the lowest and the highest, where there is data that matters.
    started_versions: Option<(Version, Version)>,
    /// The version that all ran when their logs were renewed.
    snapshotted_version: Option<Version>,
    /// How large the data is, in bytes, as the status says.
    data_size: u64,
    /// Whether there are pods that do not say from what they were built.
    has_unmarked_pods: bool,
    /// How large the largest volume of a member is, in bytes.
    volume_size: u64,
    /// A class of which there are volumes that cannot grow.
    fixed_size_class: Option<String>,
    /// The class that is wanted, if Kubernetes has none of that name.
    missing_class: Option<String>,
}

/// What was accepted last.
#[derive(Clone, Debug)]
struct AcceptedSpec {
    spec: EtcdClusterSpec,
    /// Whether a resource that is no more said so.
    is_previous_resource: bool,
    /// Whether there is data that it stands for.
    is_bootstrapped: bool,
    /// Whether there is a cluster already, though nobody was let in yet.
    is_forming: bool,
}

impl ClusterHistory {
    /// By what is written beside the identity, and on volumes and pods.
    pub fn of(objects: &ClusterObjects) -> Self {
        let identity = objects.identity.as_ref();
        let identity = identity.and_then(|object| objects::parse_identity(object.clone()).ok());
        let noted = identity
            .as_ref()
            .and_then(|of| AcceptedSpec::of_identity(of, &objects.resource));
        // What a bootstrap that may yet begin again has written binds nobody.
        let matters = noted.as_ref().is_none_or(|noted| noted.is_bootstrapped);
        let version = noted
            .as_ref()
            .and_then(|noted| noted.spec.version.parse().ok());
        let started = started_versions(objects.pods.iter(), objects.claims.iter(), version)
            .filter(|_| matters);
        let status = objects.resource.status.as_ref();
        let ours = |pod: &Pod| {
            let (member, identity) = (
                member_ref(&pod.metadata),
                identity.as_ref().map(|(_, identity)| identity),
            );
            member.zip(identity).is_some_and(|(member, identity)| {
                (member.lineage, member.epoch) == (identity.lineage, identity.epoch)
            })
        };
        let ended = |pod: &Pod| {
            let phase = pod
                .status
                .as_ref()
                .and_then(|status| status.phase.as_deref());
            pod.metadata.deletion_timestamp.is_some()
                || matches!(phase, Some("Succeeded" | "Failed"))
        };
        let unmarked = |pod: &Pod| {
            ours(pod) && !ended(pod) && !has_annotation(&pod.metadata, labels::POD_TEMPLATE_HASH)
        };
        Self {
            accepted: noted,
            started_versions: started,
            snapshotted_version: identity
                .as_ref()
                .and_then(|(_, identity)| identity.snapshotted_version),
            data_size: status
                .and_then(|status| quantity::bytes(&Quantity(status.data_size.clone())).ok())
                .unwrap_or(0),
            has_unmarked_pods: objects.pods.iter().any(unmarked),
            volume_size: largest_volume(objects.claims.iter()),
            fixed_size_class: None,
            missing_class: None,
        }
    }

    /// The same, where volumes of a class cannot grow, and one that is wanted does not exist.
    #[must_use]
    pub fn with_classes(self, cannot_grow: Option<String>, missing: Option<String>) -> Self {
        Self {
            fixed_size_class: cannot_grow,
            missing_class: missing,
            ..self
        }
    }

    /// What pods that do not say so were built from: what was accepted last, for an operator that did not write it on pods took no
    /// other. Until they say so it stays in force.
    fn spec_of_unmarked_pods(&self, spec: &EtcdClusterSpec) -> Option<EtcdClusterSpec> {
        let noted = self.accepted.as_ref().filter(|noted| {
            self.has_unmarked_pods && noted.is_bootstrapped && !noted.is_previous_resource
        })?;
        let EtcdClusterSpec {
            version,
            image,
            storage,
            resources,
            scheduling,
            etcd,
            ..
        } = noted.spec.clone();
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

    /// The version that is to be entered, and the one to stay with until the members' logs are renewed; nothing if nothing keeps
    /// the one that is wanted from being entered.
    fn version_awaiting_snapshot(&self, spec: &EtcdClusterSpec) -> Option<(Version, Version)> {
        let (lowest, highest) = self.started_versions?;
        let desired = spec.version.parse::<Version>().ok()?;
        let renewed = self
            .snapshotted_version
            .is_some_and(|renewed| renewed.minor == lowest.minor);
        let noted = self
            .accepted
            .as_ref()
            .and_then(|noted| noted.spec.version.parse::<Version>().ok());
        let stays = noted
            .filter(|noted| noted.minor == lowest.minor)
            .unwrap_or(lowest);
        let waits = releases::check_upgrade(lowest, highest, desired).is_ok()
            && releases::needs_fresh_snapshot(lowest, desired)
            && !renewed;
        waits.then_some((desired, stays))
    }

    /// A field that cannot be changed while there is data: etcd would not start on what another version wrote, or on nothing.
    fn immutable_field(&self, spec: &EtcdClusterSpec) -> Option<Rejection> {
        let refusal = |field, why| Some(Rejection { field, reason: why });
        let version = spec.version.parse::<Version>().ok();
        if let (Some((lowest, highest)), Some(version)) = (self.started_versions, version)
            && let Err(why) = releases::check_upgrade(lowest, highest, version)
        {
            return refusal("spec.version", why);
        }
        match &self.accepted {
            Some(noted)
                if noted.is_forming
                    && !noted.is_previous_resource
                    && noted.spec.version != spec.version =>
            {
                let why = format!(
                    "the cluster is being created with {}; it is brought to {} when that is done",
                    noted.spec.version, spec.version
                );
                refusal("spec.version", why)
            }
            Some(noted) if noted.is_bootstrapped => self.immutable_field_with_data(noted, spec),
            _ => None,
        }
    }

    /// The same of the fields that data hangs on, but for the version.
    fn immutable_field_with_data(
        &self,
        noted: &AcceptedSpec,
        spec: &EtcdClusterSpec,
    ) -> Option<Rejection> {
        let refusal = |field, why| Some(Rejection { field, reason: why });
        let (was, wants) = (&noted.spec.storage, &spec.storage);
        if let Some(class) = self
            .missing_class
            .as_ref()
            .filter(|_| was.class != wants.class && self.missing_class == wants.class)
        {
            let why = format!("there is no StorageClass {class}: create it first, or name another");
            return refusal("spec.storage.class", why);
        }
        if !noted.is_previous_resource && was.class.is_some() && wants.class.is_none() {
            let why = "it cannot be left out again: name the class that members should move to";
            return refusal("spec.storage.class", why.to_owned());
        }
        let checked = noted.spec.validate().ok().zip(spec.validate().ok());
        if checked
            .as_ref()
            .is_some_and(|(was, wants)| wants.quota < was.quota && wants.quota < self.data_size)
        {
            let why = format!(
                "members have up to {} of data, and would take no more writes: compact and defragment first",
                quantity::binary(self.data_size)
            );
            return refusal("spec.etcd.quota", why);
        }
        if let Some(why) = self
            .resize_error(&noted.spec, spec)
            .filter(|_| !was.ephemeral)
        {
            return refusal("spec.storage.size", why);
        }
        // Members that are restarted one by one must get along meanwhile.
        if let Some(why) =
            checked.and_then(|(was, wants)| was.options.check_compatible(&wants.options).err())
        {
            return refusal("spec.etcd.options", why);
        }
        let moves = was.ephemeral != wants.ephemeral;
        moves.then(|| Rejection {
            field: "spec.storage.ephemeral",
            reason: "data cannot be moved".to_owned(),
        })
    }

    /// Why volumes cannot be made as large as is wanted.
    fn resize_error(&self, noted: &EtcdClusterSpec, spec: &EtcdClusterSpec) -> Option<String> {
        let size = |spec: &EtcdClusterSpec| quantity::bytes(&spec.storage.size).ok();
        let (noted, desired, of) = (size(noted)?, size(spec)?, spec.storage.class.as_ref());
        if desired < noted && desired < self.volume_size {
            return Some(SHRINKS.to_owned());
        }
        // Those of another class than is wanted are left, and need not grow.
        let stays = |class: &&String| of.is_none_or(|desired| desired == *class);
        let class = self
            .fixed_size_class
            .as_ref()
            .filter(|_| desired > self.volume_size && desired > noted)
            .filter(stays)?;
        Some(format!(
            "the StorageClass {class} does not let volumes grow (allowVolumeExpansion): name another in spec.storage.class, or leave \
             the size as it is"
        ))
    }

    /// A spec with a field as it was accepted last. What version that is, members know, too, and how large volumes are, claims.
    fn with_accepted_field(&self, spec: &EtcdClusterSpec, field: &str) -> Option<EtcdClusterSpec> {
        let noted = self.accepted.as_ref().map(|noted| &noted.spec);
        if field == "spec.version" {
            let lowest = self.started_versions.map(|(lowest, _)| lowest.to_string());
            let versions = [noted.map(|noted| noted.version.clone()), lowest];
            let other = versions
                .into_iter()
                .flatten()
                .find(|version| *version != spec.version);
            return other.map(|version| self.with_version(spec, &version));
        }
        with_field(spec, noted?, field)
    }

    /// A spec with another version in force than it says: an image that it names by its digest is the one of that other version, too.
    fn with_version(&self, spec: &EtcdClusterSpec, version: &str) -> EtcdClusterSpec {
        let noted = self
            .accepted
            .as_ref()
            .filter(|noted| noted.spec.version == version);
        let digest = noted.and_then(|noted| noted.spec.image.digest.clone());
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

impl AcceptedSpec {
    /// As it stands beside the identity, if that is this cluster's and stays.
    fn of_identity(
        (object, identity): &(ConfigMap, Identity),
        resource: &EtcdCluster,
    ) -> Option<Self> {
        let (name, uid) = (resource.name_any(), desired::uid(resource));
        if object.labels().get(labels::CLUSTER) != Some(&name)
            || owned_by(&name, uid, &object.metadata) == OwnedBy::PreviousResource
        {
            return None;
        }
        let spec = serde_json::from_str(recorded_spec(object)?).ok()?;
        let (sealed, formed) = (
            identity.bootstrapped,
            identity.cluster_id.is_some() && !identity.bootstrapped,
        );
        Some(Self {
            spec,
            is_previous_resource: identity.resource_uid != uid,
            is_bootstrapped: sealed,
            is_forming: formed,
        })
    }
}

fn has_annotation(metadata: &ObjectMeta, key: &str) -> bool {
    metadata
        .annotations
        .as_ref()
        .is_some_and(|annotations| annotations.contains_key(key))
}

/// The lowest and the highest version of etcd that members were last started with: it is written on their volumes, or, where
/// data is in the pods, on those. What an earlier operator has not written it on was started with what was `noted` last.
pub fn started_versions<'o>(
    pods: impl Iterator<Item = &'o Pod>,
    claims: impl Iterator<Item = &'o PersistentVolumeClaim>,
    noted: Option<Version>,
) -> Option<(Version, Version)> {
    let of = |metadata: &ObjectMeta| version(metadata).or(noted);
    let joined = |claim: &&PersistentVolumeClaim| {
        has_annotation(&claim.metadata, labels::JOINED_VOLUME)
            && !has_annotation(&claim.metadata, labels::REMOVED_AT)
    };
    let mut claims = claims.peekable();
    let all: BTreeSet<_> = match claims.peek() {
        Some(_) => claims
            .filter(joined)
            .filter_map(|claim| of(&claim.metadata))
            .collect(),
        None => pods
            .filter(|pod| has_joined(pod))
            .filter_map(|pod| of(&pod.metadata))
            .collect(),
    };
    Some((*all.first()?, *all.last()?))
}

/// How large the largest volume of a member is.
pub fn largest_volume<'o>(claims: impl Iterator<Item = &'o PersistentVolumeClaim>) -> u64 {
    let kept = claims.filter(|claim| !has_annotation(&claim.metadata, labels::REMOVED_AT));
    kept.map(claim::granted_size).max().unwrap_or_default()
}

/// The spec that is noted beside the identity, as text.
pub fn recorded_spec(identity: &ConfigMap) -> Option<&str> {
    Some(identity.data.as_ref()?.get(SPEC_KEY)?.as_str())
}

/// What is in force, and the first field of the resource that is not, if there is one. Nothing is in force if a field cannot be
/// accepted of which no value is noted.
pub fn effective_spec(
    resource: &EtcdCluster,
    before: &ClusterHistory,
) -> Result<(DesiredCluster, Option<Rejection>), Rejection> {
    let mut tried = resource.clone();
    if let Some(spec) = before.spec_of_unmarked_pods(&resource.spec) {
        tried.spec = spec;
        if let Ok(desired) = DesiredCluster::of(&tried) {
            return Ok((desired, None));
        }
        tried.spec = resource.spec.clone();
    }
    let held_back = before.version_awaiting_snapshot(&tried.spec);
    if let Some((_, stays)) = held_back {
        tried.spec = before.with_version(&tried.spec, &stays.to_string());
    }
    let next = held_back.map(|(desired, _)| desired);
    let mut first: Option<Rejection> = None;
    for _ in 0..MAX_REJECTED_FIELDS {
        let refusal = match (
            before.immutable_field(&tried.spec),
            DesiredCluster::of(&tried),
        ) {
            (None, Ok(desired)) => return Ok((DesiredCluster { next, ..desired }, first)),
            (Some(refusal), _) => refusal,
            // What a former resource wanted stands nowhere that people could see.
            (None, Err(refusal))
                if before
                    .accepted
                    .as_ref()
                    .is_none_or(|noted| noted.is_previous_resource) =>
            {
                return Err(refusal);
            }
            (None, Err(refusal)) => refusal,
        };
        let field = refusal.field;
        first.get_or_insert(refusal);
        match before.with_accepted_field(&tried.spec, field) {
            Some(spec) => tried.spec = spec,
            None => break,
        }
    }
    // What was accepted last as a whole: where several fields hang together, taking back one of them does not help.
    if let Some(noted) = before
        .accepted
        .as_ref()
        .filter(|noted| noted.is_bootstrapped && !noted.is_previous_resource)
    {
        let EtcdClusterSpec { paused, .. } = resource.spec;
        tried.spec = EtcdClusterSpec {
            paused,
            ..noted.spec.clone()
        };
        if let Ok(desired) = DesiredCluster::of(&tried) {
            return Ok((desired, first));
        }
    }
    Err(first.unwrap_or_else(|| Rejection {
        field: "spec",
        reason: "it cannot be accepted".to_owned(),
    }))
}

/// A spec with one field as another has it; nothing if it has it so already.
fn with_field(
    spec: &EtcdClusterSpec,
    other: &EtcdClusterSpec,
    field: &str,
) -> Option<EtcdClusterSpec> {
    let (mut changed, other) = (
        serde_json::to_value(spec).ok()?,
        serde_json::to_value(other).ok()?,
    );
    let mut path: Vec<&str> = field.strip_prefix("spec.")?.split('.').collect();
    let last = path.pop()?;
    let from = path
        .iter()
        .try_fold(&other, |at, key| at.get(key))
        .and_then(|at| at.get(last));
    let mut into = &mut changed;
    for key in path {
        into = into
            .as_object_mut()?
            .entry(key)
            .or_insert_with(|| Value::Object(serde_json::Map::new()));
    }
    let into = into.as_object_mut()?;
    match from {
        Some(from) => into.insert(last.to_owned(), from.clone()),
        None => into.remove(last),
    };
    serde_json::from_value(changed)
        .ok()
        .filter(|changed| changed != spec)
}

#[cfg(test)]
#[path = "effective_spec_tests.rs"]
mod tests;
