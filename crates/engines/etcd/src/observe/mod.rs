//! What was found, as facts. Reading is in [`find`], asking etcd in [`ask`], [`heard`] and [`peers`], and what an operator
//! remembers of the answers in [`since`]; here is only the translation, and it is pure.

pub mod etcd;
mod leader_metrics;
mod member_status;
mod nudge;
pub mod objects;
mod pod;
pub mod secrets;
pub mod unreachable;
pub mod volumes;

#[cfg(test)]
#[path = "observe_tests.rs"]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_api::{EtcdCluster, Rejection as Refusal, Version, labels};
use evenkeel_runtime::{Error, Observed, UnixTime};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;

use crate::build::{self, MemberRef, claim, service, superset::is_superset};
use crate::desired::{self, DesiredCluster};
use crate::effective_spec::recorded_spec;
use crate::facts::{
    ClaimFacts, Drift, EtcdFacts, ListedMember, MemberDetails, OwnedBy, OwnedObject, VolumeTopology,
};
use crate::identity::{Identity, Uid};
use crate::names::{Lineage, Serial, member_name, peer_url};
use etcd::EtcdState;
use objects::ClusterObjects;
use secrets::TlsState;
use volumes::VolumeLocation;

pub use pod::{has_joined, node};

/// The objects of a cluster as they were found.
#[derive(Debug)]
pub struct ObservedCluster {
    /// The resource.
    pub resource: EtcdCluster,
    /// What it wants, or what it wanted last that could be accepted.
    pub desired: DesiredCluster,
    /// Why what it wants now cannot be accepted.
    pub rejection: Option<Refusal>,
    /// The identity object, and what is in it.
    pub identity: Option<(ConfigMap, Identity)>,
    /// Whether there is something else in the identity object's place.
    pub identity_taken: bool,
    /// Pods of members, by uid.
    pub pods: BTreeMap<Uid, Pod>,
    /// Claims of members, by uid.
    pub claims: BTreeMap<Uid, PersistentVolumeClaim>,
    /// Where the volumes of claims are, by the claims' names, as far as that is known.
    pub volume_locations: BTreeMap<String, VolumeLocation>,
    /// The claims whose volumes none of the nodes reaches that the spec allows.
    pub misplaced: BTreeSet<String>,
    /// The class that the spec names, if Kubernetes has none of that name.
    pub missing_class: Option<String>,
    /// What volumes call the nodes of the pods, by the nodes' names.
    pub hostnames: BTreeMap<String, String>,
    /// The service that gives members their names.
    pub peer_service: Option<Service>,
    /// The service for clients.
    pub client_service: Option<Service>,
    /// The disruption budget.
    pub pdb: Option<PodDisruptionBudget>,
    /// The certificates.
    pub tls: TlsState,
    /// When it was looked at.
    pub now: UnixTime,
    /// Randomness, for a cluster that is yet to have an identity.
    pub lineage: Lineage,
}

/// What is known of a cluster beside its objects.
#[derive(Debug)]
pub struct ClusterExtras {
    /// Where the volumes of claims are, by the claims' names, as far as that is known.
    pub places: BTreeMap<String, VolumeLocation>,
    /// The claims whose volumes none of the nodes reaches that the spec allows.
    pub misplaced: BTreeSet<String>,
    /// The class that the spec names, if Kubernetes has none of that name.
    pub missing_class: Option<String>,
    /// What volumes call the nodes of the pods, by the nodes' names.
    pub hostnames: BTreeMap<String, String>,
    /// The certificates.
    pub tls: TlsState,
    /// When it was looked at.
    pub now: UnixTime,
    /// Randomness, for a cluster that is yet to have an identity.
    pub lineage: Lineage,
}

/// Whose an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// This resource's.
    ThisResource,
    /// That of a resource of this name that is no more, or nobody's any longer: it is taken over.
    PreviousResource,
    /// Somebody else's: it is never touched.
    Other,
}

/// Whose an object is that goes with the resource.
pub fn ownership(desired: &DesiredCluster, metadata: &ObjectMeta) -> Ownership {
    let label = metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(labels::CLUSTER));
    if label != Some(&desired.name) {
        return Ownership::Other;
    }
    let mut references = metadata.owner_references.iter().flatten();
    match references.find(|reference| reference.controller == Some(true)) {
        None => Ownership::PreviousResource,
        Some(reference) if reference.uid.parse() == Ok(desired.uid) => Ownership::ThisResource,
        Some(reference) if reference.kind == "EtcdCluster" && reference.name == desired.name => {
            Ownership::PreviousResource
        }
        Some(_) => Ownership::Other,
    }
}

/// What an object goes with. Kubernetes deletes it when none of its owners is left; orphaned, it has none.
pub fn owned_by(name: &str, uid: Uid, metadata: &ObjectMeta) -> OwnedBy {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    if owners.iter().any(|owner| owner.uid.parse() == Ok(uid)) {
        OwnedBy::Resource
    } else if !owners.is_empty()
        && owners
            .iter()
            .all(|owner| owner.kind == "EtcdCluster" && owner.name == name)
    {
        OwnedBy::PreviousResource
    } else {
        OwnedBy::Nobody
    }
}

/// Whether an object is on its way out, or will be in a moment.
fn is_terminating(desired: &DesiredCluster, metadata: &ObjectMeta) -> bool {
    metadata.deletion_timestamp.is_some()
        || owned_by(&desired.name, desired.uid, metadata) == OwnedBy::PreviousResource
}

/// A uid as facts carry it.
pub fn uid(metadata: &ObjectMeta) -> Option<Uid> {
    metadata.uid.as_ref()?.parse().ok()
}

/// Who an object's member is, by what is written on it.
pub fn member_ref(metadata: &ObjectMeta) -> Option<MemberRef> {
    MemberRef::read(metadata.annotations.as_ref()?)
}

/// Which of a lineage's members a name or a peer URL belongs to.
#[derive(Debug)]
pub struct MemberIndex {
    pub(super) by_name: BTreeMap<String, Serial>,
    pub(super) by_url: BTreeMap<String, Serial>,
}

impl MemberIndex {
    /// Of all members that there ever were.
    pub fn of(desired: &DesiredCluster, identity: &Identity) -> Self {
        let (mut by_name, mut by_url) = (BTreeMap::new(), BTreeMap::new());
        for serial in (0..identity.next_serial.0).map(Serial) {
            let name = member_name(&desired.name, identity.lineage, serial);
            by_url.insert(peer_url(&desired.name, &desired.namespace, &name), serial);
            by_name.insert(name, serial);
        }
        Self { by_name, by_url }
    }

    /// By name.
    pub fn by_name(&self, name: &str) -> Option<Serial> {
        self.by_name.get(name).copied()
    }

    /// By peer URL.
    pub fn by_peer_url(&self, url: &str) -> Option<Serial> {
        self.by_url.get(url).copied()
    }
}

impl ObservedCluster {
    /// A cluster's objects, and what is in force of what its resource wants.
    pub fn of(
        objects: ClusterObjects,
        (desired, refused): (DesiredCluster, Option<Refusal>),
        beside: ClusterExtras,
    ) -> Result<Self, Error> {
        let identity_taken = objects
            .identity
            .as_ref()
            .is_some_and(|object| !is_ours(&desired, &objects, object));
        let identity = objects.identity.filter(|_| !identity_taken);
        Ok(Self {
            identity: identity.map(objects::parse_identity).transpose()?,
            identity_taken,
            desired,
            rejection: refused,
            pods: objects::by_uid(objects.pods),
            claims: objects::by_uid(objects.claims),
            volume_locations: beside.places,
            misplaced: beside.misplaced,
            missing_class: beside.missing_class,
            hostnames: beside.hostnames,
            peer_service: objects.peer_service,
            client_service: objects.client_service,
            pdb: objects.budget,
            tls: beside.tls,
            now: beside.now,
            lineage: beside.lineage,
            resource: objects.resource,
        })
    }

    /// Who is who.
    pub fn member_index(&self) -> Option<MemberIndex> {
        self.identity
            .as_ref()
            .map(|(_, identity)| MemberIndex::of(&self.desired, identity))
    }

    /// Who an object's member is, if it is of this cluster's history: objects of another one under its name are none of ours.
    fn member_of(&self, metadata: &ObjectMeta) -> Option<MemberRef> {
        let lineage = self.identity.as_ref().map(|(_, identity)| identity.lineage);
        member_ref(metadata)
            .filter(|member| lineage.is_none_or(|lineage| lineage == member.lineage))
    }

    /// The facts, with what etcd says.
    pub fn facts(&self, state: &EtcdState) -> EtcdFacts {
        let register = self.member_index();
        let named = |name: &str| {
            register
                .as_ref()
                .and_then(|register| register.by_name(name))
        };
        let pods = self.pods.iter().filter_map(|(uid, pod)| {
            let member = self.member_of(&pod.metadata)?;
            let node = node(pod).map(|name| self.hostnames.get(name).map_or(name, String::as_str));
            let fact = pod::fact(&self.desired, *uid, pod, member, named, self.now);
            Some(crate::facts::PodFacts {
                node: node.map(Uid::of_name),
                ..fact
            })
        });
        let claims = self.claims.iter().filter_map(|(uid, claim)| {
            let member = self.member_of(&claim.metadata)?;
            Some(self.claim_fact(*uid, claim, member))
        });
        let (pods, claims): (Vec<_>, Vec<_>) = (pods.collect(), claims.collect());
        EtcdFacts {
            now: self.now,
            new_lineage: self.lineage,
            cluster: self.desired.facts(self.now),
            identity: match &self.identity {
                Some((_, identity)) => Observed::Present(identity.clone()),
                None if self.identity_taken => Observed::Unknown,
                None => Observed::Absent,
            },
            details: self.member_details(state),
            lineages: self.lineages(),
            pods: Observed::Present(pods),
            claims: Observed::Present(claims),
            membership: state.membership.clone(),
            health: state.health.clone(),
            unreachable_since: state.unreachable_since.clone(),
            drift: self.drift(),
            recheck_secrets_at: self.tls.recheck_at,
            pdb_min_available: self.budget_fact(),
            spec_recorded: self.identity.as_ref().is_none_or(|(object, _)| {
                recorded_spec(object) == Some(self.desired.spec.as_str())
            }),
            identity_owner: self.identity_owner(),
            client_read: state.client_read,
        }
    }

    fn identity_owner(&self) -> OwnedBy {
        match &self.identity {
            Some((object, _)) => owned_by(&self.desired.name, self.desired.uid, &object.metadata),
            None => OwnedBy::Nobody,
        }
    }

    /// Whether what there is went with a resource that is no more.
    pub fn belongs_to_previous_resource(&self) -> bool {
        self.identity_owner() == OwnedBy::PreviousResource
    }

    /// The lineages that are written on what is labelled for this cluster.
    fn lineages(&self) -> BTreeSet<Option<Lineage>> {
        let pods = self.pods.values().map(|pod| &pod.metadata);
        let all = pods.chain(self.claims.values().map(|claim| &claim.metadata));
        all.map(|metadata| member_ref(metadata).map(|member| member.lineage))
            .collect()
    }

    fn claim_fact(&self, uid: Uid, claim: &PersistentVolumeClaim, member: MemberRef) -> ClaimFacts {
        let volume = claim
            .spec
            .as_ref()
            .and_then(|spec| spec.volume_name.as_deref());
        let phase = claim
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        let place = claim
            .metadata
            .name
            .as_ref()
            .and_then(|name| self.volume_locations.get(name));
        ClaimFacts {
            serial: member.serial,
            epoch: member.epoch,
            uid,
            volume: volume.filter(|name| !name.is_empty()).map(Uid::of_name),
            joined_on: claim::read_joined_on(claim),
            is_terminating: is_terminating(&self.desired, &claim.metadata),
            topology: place.map_or(VolumeTopology::Unknown, VolumeLocation::topology),
            is_lost: phase == Some("Lost") || place == Some(&VolumeLocation::Gone),
            removed_at: claim::read_removed_at(claim),
            last_version: version(&claim.metadata),
            is_owned: owned_by(&self.desired.name, self.desired.uid, &claim.metadata)
                == OwnedBy::Resource,
            requested_size: claim::requested_size(claim),
            resize_pending: self.resize_pending(claim),
            has_wrong_class: self.has_wrong_class(claim),
            is_misplaced: claim
                .metadata
                .name
                .as_ref()
                .is_some_and(|name| self.misplaced.contains(name)),
        }
    }

    /// Whether a claim has not been given yet what it asks for. A claim never asks for less again, so what was asked for and taken
    /// back may never be given, and nobody waits for it.
    fn resize_pending(&self, claim: &PersistentVolumeClaim) -> bool {
        let given = claim::granted_size(claim);
        given > 0 && given < claim::requested_size(claim).min(self.desired.size)
    }

    /// Whether a claim's volume is of another class than is wanted. Where the spec names no class it may be of any; so may one that has a
    /// volume and says nothing of a class; and so may one for which that class was asked: whoever has put another into it (a webhook,
    /// say) would do so with its successors, too.
    fn has_wrong_class(&self, claim: &PersistentVolumeClaim) -> bool {
        let spec = claim.spec.as_ref();
        let class = spec.and_then(|spec| spec.storage_class_name.as_deref());
        let volume = spec.and_then(|spec| spec.volume_name.as_ref());
        let asked = written(&claim.metadata, labels::STORAGE_CLASS);
        match &self.desired.data {
            desired::DesiredStorage::Persistent {
                class: Some(desired),
                ..
            } if asked != Some(desired) => class.map_or(volume.is_none(), |class| class != desired),
            desired::DesiredStorage::Persistent { .. }
            | desired::DesiredStorage::Ephemeral { .. } => false,
        }
    }

    fn drift(&self) -> BTreeMap<OwnedObject, Drift> {
        let mut amiss = self.tls.drift.clone();
        if self.identity_taken {
            amiss.insert(OwnedObject::Identity, Drift::NotOwned);
        }
        let services = [
            (
                OwnedObject::PeerService,
                &self.peer_service,
                service::peer(&self.desired),
            ),
            (
                OwnedObject::ClientService,
                &self.client_service,
                service::client(&self.desired),
            ),
        ];
        for (object, there, desired) in services {
            let Ok(desired) = desired else { continue };
            let how = match there {
                None => Some(Drift::Missing),
                Some(there) if ownership(&self.desired, &there.metadata) == Ownership::Other => {
                    Some(Drift::NotOwned)
                }
                Some(there) => {
                    // What others have put there is theirs; what the spec had and no longer has goes.
                    let ours = |service: &Service| {
                        written(&service.metadata, labels::SERVICE_ANNOTATIONS)
                            .map(ToOwned::to_owned)
                    };
                    let same = is_as_built(there, &desired) && ours(there) == ours(&desired);
                    (!same).then_some(Drift::Differs)
                }
            };
            amiss.extend(how.map(|how| (object, how)));
        }
        let budget = self
            .pdb
            .as_ref()
            .map(|there| ownership(&self.desired, &there.metadata));
        if budget == Some(Ownership::Other) {
            amiss.insert(OwnedObject::PodDisruptionBudget, Drift::NotOwned);
        }
        amiss
    }

    fn budget_fact(&self) -> Observed<Option<u8>> {
        let Some(there) = &self.pdb else {
            return Observed::Absent;
        };
        let min = (0..=u8::MAX).take(16).find(|min| {
            build::pod_disruption_budget(&self.desired, *min)
                .is_ok_and(|desired| is_as_built(there, &desired))
        });
        Observed::Present(min)
    }

    /// Of a member whose volume nobody provides, since no class was named and none is the default, or since there is none of that name:
    /// Kubernetes' own words ("unbound immediate PersistentVolumeClaims") tell nobody what to do.
    fn without_a_class(&self, serial: Serial) -> Option<String> {
        let mut claims = self.claims.values();
        let claim = claims.find(|claim| {
            self.member_of(&claim.metadata)
                .is_some_and(|one| one.serial == serial)
        })?;
        let spec = claim.spec.as_ref()?;
        let unbound = spec.volume_name.as_ref().is_none_or(String::is_empty);
        match &spec.storage_class_name {
            None if unbound => Some(
                "its volume has no StorageClass: none is the default of this Kubernetes cluster. Make one the default, or name one \
                 in spec.storage.class"
                    .to_owned(),
            ),
            Some(class) if unbound && self.missing_class.as_ref() == Some(class) => Some(format!(
                "there is no StorageClass {class} for its volume: create it, or name another in spec.storage.class"
            )),
            _ => None,
        }
    }

    fn member_details(&self, state: &EtcdState) -> BTreeMap<Serial, MemberDetails> {
        let members = state
            .membership
            .present()
            .map(|told| told.members.as_slice())
            .unwrap_or_default();
        let leads = |entry: &&ListedMember| Some(entry.id) == state.leader;
        let leader = members.iter().find(leads).map(|entry| entry.serial);
        let mut about: BTreeMap<Serial, MemberDetails> = BTreeMap::new();
        for pod in self.pods.values() {
            let Some(member) = self.member_of(&pod.metadata) else {
                continue;
            };
            about.insert(
                member.serial,
                MemberDetails {
                    node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
                    version: state.versions.get(&member.serial).cloned(),
                    is_leader: leader == Some(member.serial),
                    pod_problem: self
                        .without_a_class(member.serial)
                        .or_else(|| pod::trouble(pod)),
                },
            );
        }
        about
    }
}

/// Whether an identity object is this cluster's. Without our label it is somebody else's, unless it tells of this very cluster.
fn is_ours(desired: &DesiredCluster, objects: &ClusterObjects, object: &ConfigMap) -> bool {
    let pods = objects.pods.iter().map(|pod| &pod.metadata);
    let mut all = pods.chain(objects.claims.iter().map(|claim| &claim.metadata));
    let mut is_of = |identity: Identity| {
        identity.resource_uid == desired.uid
            || all.any(|one| member_ref(one).is_some_and(|one| one.lineage == identity.lineage))
    };
    ownership(desired, &object.metadata) != Ownership::Other
        || objects::parse_identity(object.clone()).is_ok_and(|(_, identity)| is_of(identity))
}

/// Whether an object is as we would build it, whatever else there is on it.
fn is_as_built<K: Serialize>(there: &K, desired: &K) -> bool {
    match (serde_json::to_value(there), serde_json::to_value(desired)) {
        (Ok(there), Ok(desired)) => is_superset(&there, &desired),
        _ => false,
    }
}

/// What is written on an object under a key.
fn written<'m>(metadata: &'m ObjectMeta, key: &str) -> Option<&'m str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The version of etcd that a claim's or a pod's member was last started with.
pub fn version(metadata: &ObjectMeta) -> Option<Version> {
    written(metadata, labels::VERSION)?.parse().ok()
}
