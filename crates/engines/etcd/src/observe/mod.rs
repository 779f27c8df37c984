//! Observation: the objects of a cluster and the state of etcd, as facts. [`objects`] reads Kubernetes, [`etcd`] queries
//! etcd, and [`unreachable`] adds the times that the operator remembers. This file turns both into facts, and is pure.

mod crash;
mod details;
pub(crate) mod endpoints;
pub mod etcd;
mod leader_metrics;
mod member_status;
pub mod objects;
mod pod;
pub(crate) mod restore;
pub mod restore_request;
pub mod secrets;
pub mod source;
mod stuck;
pub(crate) mod unreachable;

#[cfg(test)]
#[path = "observe_tests.rs"]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_api::{BackupSchedule, EtcdCluster, Rejection, Version, labels};
use evenkeel_kit::identity_object::recorded_spec;
use evenkeel_kit::nodes::NodeState;
use evenkeel_kit::objects::{annotation, by_uid, is_as_built};
use evenkeel_kit::ownership::{is_terminating, owned_by, ownership};
use evenkeel_kit::volumes::VolumeLocation;
use evenkeel_kit::{MemberRef, Ownership, claims, pods};
use evenkeel_runtime::{Error, Observed, UnixTime};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::build::{self, restore_pod, service};
use crate::desired::{DesiredCluster, DesiredStorage};
use crate::facts::{
    ClaimFacts, Drift, EtcdFacts, OwnedBy, OwnedObject, PodFacts, RestoreRequest, VolumeTopology,
};
use crate::identity::{Identity, RestoreOrigin, Uid};
use crate::names::{Lineage, Serial, member_name, peer_url};
use etcd::EtcdState;
use objects::{ClusterObjects, parse_identity};
use restore::created_at;
use secrets::TlsState;
use source::RestoreSource;

pub use pod::has_joined;

/// The largest `minAvailable` that is recognized in a PodDisruptionBudget, plus one.
const MAX_MIN_AVAILABLE: u8 = 16;

/// An observed cluster.
#[derive(Debug)]
pub struct ObservedCluster {
    /// The resource.
    pub resource: EtcdCluster,
    /// The desired state, according to the effective spec.
    pub desired: DesiredCluster,
    /// The first field of the resource's spec that was rejected.
    pub rejection: Option<Rejection>,
    /// The identity object, and the identity in it.
    pub identity: Option<(ConfigMap, Identity)>,
    /// Whether another owner has a ConfigMap with the name of the identity object.
    pub identity_taken: bool,
    /// The pods of members, by uid.
    pub pods: BTreeMap<Uid, Pod>,
    /// The pods that fill the volumes of seeds, by uid.
    pub restore_pods: BTreeMap<Uid, Pod>,
    /// The request of the Restore that is carried out.
    pub restore_request: Option<RestoreRequest>,
    /// The `Backup` that the next epoch, or the epoch in bootstrap, starts from, and its store.
    pub source: Option<RestoreSource>,
    /// The PVCs of members, by uid.
    pub claims: BTreeMap<Uid, PersistentVolumeClaim>,
    /// The known locations of volumes, by the names of the PVCs.
    pub volume_locations: BTreeMap<String, VolumeLocation>,
    /// The names of the PVCs whose volumes no node reaches that the spec allows.
    pub misplaced: BTreeSet<String>,
    /// The StorageClass in the spec, if Kubernetes has none of that name.
    pub missing_class: Option<String>,
    /// The hostname labels of the pods' nodes, by the names of the nodes.
    pub hostnames: BTreeMap<String, String>,
    /// The nodes by name; `None` if the operator cannot list nodes.
    pub nodes: Option<BTreeMap<String, NodeState>>,
    /// Why the volumes of PVCs are not provisioned, by the names of the PVCs.
    pub volume_problems: BTreeMap<String, String>,
    /// The Service that gives members their host names.
    pub peer_service: Option<Service>,
    /// The Service for clients.
    pub client_service: Option<Service>,
    /// The PodDisruptionBudget.
    pub pdb: Option<PodDisruptionBudget>,
    /// The BackupSchedule.
    pub backup_schedule: Option<BackupSchedule>,
    /// The TLS Secrets.
    pub tls: TlsState,
    /// When the operator last nudged a stuck member.
    pub last_nudge: Option<UnixTime>,
    /// The time of the observation.
    pub now: UnixTime,
    /// A random lineage, for a cluster without an identity.
    pub lineage: Lineage,
}

/// Returns the member that an object belongs to, as its annotations say.
pub fn member_ref(metadata: &ObjectMeta) -> Option<MemberRef> {
    MemberRef::of(metadata)
}

/// Returns the version of etcd that the member of a PVC or a pod last started with.
pub fn version(metadata: &ObjectMeta) -> Option<Version> {
    annotation(metadata, labels::VERSION)?.parse().ok()
}

/// The serials of a lineage's members by name and by peer URL.
#[derive(Debug)]
pub struct MemberIndex {
    by_name: BTreeMap<String, Serial>,
    by_url: BTreeMap<String, Serial>,
}

impl MemberIndex {
    /// Returns the index of all members that the lineage ever had.
    pub fn of(desired: &DesiredCluster, identity: &Identity) -> Self {
        let (mut by_name, mut by_url) = (BTreeMap::new(), BTreeMap::new());
        for serial in (0..identity.next_serial.0).map(Serial) {
            let name = member_name(&desired.name, identity.lineage, serial);
            by_url.insert(peer_url(&desired.name, &desired.namespace, &name), serial);
            by_name.insert(name, serial);
        }
        Self { by_name, by_url }
    }

    /// Returns the serial of the member with this name.
    pub fn by_name(&self, name: &str) -> Option<Serial> {
        self.by_name.get(name).copied()
    }

    /// Returns the serial of the member with this peer URL.
    pub fn by_peer_url(&self, url: &str) -> Option<Serial> {
        self.by_url.get(url).copied()
    }
}

impl ObservedCluster {
    /// Returns a cluster without facts about volumes, nodes, Secrets and nudges, which the caller adds.
    pub fn new(
        objects: ClusterObjects,
        desired: DesiredCluster,
        rejection: Option<Rejection>,
        now: UnixTime,
        lineage: Lineage,
    ) -> Result<Self, Error> {
        let identity_taken = objects
            .identity
            .as_ref()
            .is_some_and(|object| !is_own_identity(&desired, &objects, object));
        let identity = objects.identity.filter(|_| !identity_taken);
        let identity = identity.map(parse_identity).transpose()?;
        let restore_request = identity
            .as_ref()
            .and_then(|(_, identity)| restore_request::select(&objects.restores, identity));
        Ok(Self {
            identity,
            identity_taken,
            restore_request,
            desired,
            rejection,
            pods: by_uid(objects.pods),
            restore_pods: by_uid(objects.restore_pods),
            source: None,
            claims: by_uid(objects.claims),
            volume_locations: BTreeMap::new(),
            misplaced: BTreeSet::new(),
            missing_class: None,
            hostnames: BTreeMap::new(),
            nodes: None,
            volume_problems: BTreeMap::new(),
            peer_service: objects.peer_service,
            client_service: objects.client_service,
            pdb: objects.pdb,
            backup_schedule: objects.backup_schedule,
            tls: TlsState::default(),
            last_nudge: None,
            now,
            lineage,
            resource: objects.resource,
        })
    }

    /// Returns the index of the lineage's members; `None` without an identity.
    pub fn member_index(&self) -> Option<MemberIndex> {
        self.identity
            .as_ref()
            .map(|(_, identity)| MemberIndex::of(&self.desired, identity))
    }

    /// Returns the member that an object belongs to; `None` for an object of another lineage.
    fn member_of(&self, metadata: &ObjectMeta) -> Option<MemberRef> {
        let lineage = self.identity.as_ref().map(|(_, identity)| identity.lineage);
        member_ref(metadata)
            .filter(|member| lineage.is_none_or(|lineage| lineage == member.lineage))
    }

    /// Returns the facts about the cluster, given the state of etcd.
    pub fn facts(&self, state: &EtcdState) -> EtcdFacts {
        let index = self.member_index();
        let serial_of = |name: &str| index.as_ref()?.by_name(name);
        let pods = self.pods.iter().filter_map(|(uid, pod)| {
            let member = self.member_of(&pod.metadata)?;
            let facts = pod::facts(&self.desired, *uid, pod, member, serial_of, self.now);
            let hostname = self.hostname(pod);
            Some(PodFacts {
                node: hostname.map(Uid::of_name),
                on_cordoned_node: hostname.is_some_and(|hostname| self.is_cordoned(hostname)),
                ..facts
            })
        });
        let claims = self.claims.iter().filter_map(|(uid, claim)| {
            let member = self.member_of(&claim.metadata)?;
            Some(self.claim_facts(*uid, claim, member))
        });
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
            restore_pods: self.restore_pod_facts(),
            restore_request: self.restore_request.clone(),
            source: self.source.as_ref().map(RestoreSource::state),
            pods: Observed::Present(pods.collect()),
            claims: Observed::Present(claims.collect()),
            membership: state.membership.clone(),
            health: state.health.clone(),
            unreachable_since: state.unreachable_since.clone(),
            stuck: state.stuck,
            last_nudge: self.last_nudge,
            drift: self.drift(),
            recheck_secrets_at: self.tls.recheck_at,
            pdb_min_available: self.pdb_min_available(),
            spec_recorded: self.identity.as_ref().is_none_or(|(object, _)| {
                recorded_spec(object) == Some(self.desired.spec.as_str())
            }),
            identity_owner: self.identity_owner(),
            client_read: state.client_read,
            alarms: state.alarms.clone(),
        }
    }

    fn identity_owner(&self) -> OwnedBy {
        match &self.identity {
            Some((object, _)) => owned_by(self.desired.cluster_ref(), &object.metadata),
            None => OwnedBy::Unowned,
        }
    }

    /// Returns true if the identity, and with it the whole cluster, belongs to a deleted resource of the same name.
    pub fn belongs_to_previous_resource(&self) -> bool {
        self.identity_owner() == OwnedBy::PreviousResource
    }

    /// Returns the restore whose backup is read.
    pub fn restore_origin(&self) -> Option<&RestoreOrigin> {
        let identity = self.identity.as_ref().map(|(_, identity)| identity);
        source::needed(
            identity,
            self.restore_request.as_ref(),
            self.desired.restore.as_ref(),
        )
    }

    /// Returns the lineages of the pods and PVCs with the cluster's label; `None` for an unreadable one.
    fn lineages(&self) -> BTreeSet<Option<Lineage>> {
        let pods = self.pods.values().map(|pod| &pod.metadata);
        let claims = self.claims.values().map(|claim| &claim.metadata);
        let members = pods.chain(claims).map(member_ref);
        let restore_pods = self.restore_pods.values();
        members
            .chain(restore_pods.map(|pod| restore_pod::member_of(&pod.metadata)))
            .map(|member| member.map(|member| member.lineage))
            .collect()
    }

    /// Returns the hostname label of a pod's node, or the node's name if the label is unknown.
    fn hostname<'p>(&'p self, pod: &'p Pod) -> Option<&'p str> {
        let node = pods::node(pod)?;
        Some(self.hostnames.get(node).map_or(node, String::as_str))
    }

    /// Returns true if the node with this hostname label exists and is cordoned.
    fn is_cordoned(&self, hostname: &str) -> bool {
        let mut nodes = self.nodes.iter().flat_map(BTreeMap::values);
        nodes.any(|node| {
            node.is_cordoned && node.hostname.as_deref().unwrap_or(&node.name) == hostname
        })
    }

    /// Returns true if a PVC's volume is on the disk of a cordoned node.
    fn is_on_cordoned_node(&self, claim: &PersistentVolumeClaim) -> bool {
        let name = claim.metadata.name.as_ref();
        match name.and_then(|name| self.volume_locations.get(name)) {
            Some(VolumeLocation::Node(hostname)) => self.is_cordoned(hostname),
            Some(VolumeLocation::Gone | VolumeLocation::Anywhere) | None => false,
        }
    }

    /// Returns the members whose pods or local volumes are on cordoned nodes.
    pub(crate) fn members_on_cordoned_nodes(&self) -> BTreeSet<Serial> {
        let on_cordoned = |pod: &&Pod| {
            let hostname = self.hostname(pod);
            hostname.is_some_and(|hostname| self.is_cordoned(hostname))
        };
        let pods = self.pods.values().filter(on_cordoned);
        let claims = self.claims.values();
        let claims = claims.filter(|claim| self.is_on_cordoned_node(claim));
        pods.map(|pod| &pod.metadata)
            .chain(claims.map(|claim| &claim.metadata))
            .filter_map(|metadata| Some(self.member_of(metadata)?.serial))
            .collect()
    }

    fn claim_facts(
        &self,
        uid: Uid,
        claim: &PersistentVolumeClaim,
        member: MemberRef,
    ) -> ClaimFacts {
        let cluster = self.desired.cluster_ref();
        let name = claim.metadata.name.as_ref();
        let location = name.and_then(|name| self.volume_locations.get(name));
        let owner = owned_by(cluster, &claim.metadata);
        let desired_class = match &self.desired.data {
            DesiredStorage::Persistent { class, .. } => class.as_deref(),
            DesiredStorage::Ephemeral { .. } => None,
        };
        ClaimFacts {
            serial: member.serial,
            epoch: member.epoch,
            uid,
            volume: claims::volume_name(claim).map(Uid::of_name),
            created_at: created_at(&claim.metadata, self.now),
            joined_on: claims::read_joined_on(claim),
            restored: restore::read_restored(claim),
            replaced_until: claims::read_replaced_until(claim),
            is_terminating: is_terminating(cluster, &claim.metadata),
            topology: location.map_or(VolumeTopology::Unknown, VolumeLocation::topology),
            on_cordoned_node: self.is_on_cordoned_node(claim),
            is_lost: claims::is_lost(claim) || location == Some(&VolumeLocation::Gone),
            removed_at: claims::read_removed_at(claim),
            last_version: version(&claim.metadata),
            is_owned: owner == OwnedBy::Resource,
            requested_size: claims::requested_size(claim),
            resize_pending: claims::is_resize_pending(claim, self.desired.size),
            has_wrong_class: claims::has_wrong_class(claim, desired_class),
            is_misplaced: name.is_some_and(|name| self.misplaced.contains(name)),
        }
    }

    fn drift(&self) -> BTreeMap<OwnedObject, Drift> {
        let mut drift = self.tls.drift.clone();
        if self.identity_taken {
            drift.insert(OwnedObject::Identity, Drift::NotOwned);
        }
        if let Ok(desired) = service::peer(&self.desired) {
            let service = self.service_drift(self.peer_service.as_ref(), &desired);
            drift.extend(service.map(|service| (OwnedObject::PeerService, service)));
        }
        if let Ok(desired) = service::client(&self.desired) {
            let service = self.service_drift(self.client_service.as_ref(), &desired);
            drift.extend(service.map(|service| (OwnedObject::ClientService, service)));
        }
        if self.pdb.as_ref().is_some_and(|pdb| {
            ownership(self.desired.cluster_ref(), &pdb.metadata) == Ownership::Other
        }) {
            drift.insert(OwnedObject::PodDisruptionBudget, Drift::NotOwned);
        }
        let schedule = self.backup_schedule_drift();
        drift.extend(schedule.map(|schedule| (OwnedObject::BackupSchedule, schedule)));
        drift
    }

    /// Returns the drift of the BackupSchedule. One that is not wanted any more differs, and is deleted.
    fn backup_schedule_drift(&self) -> Option<Drift> {
        let desired = build::backup_schedule(&self.desired).ok()?;
        let observed = self.backup_schedule.as_ref();
        let owner = observed.map(|it| ownership(self.desired.cluster_ref(), &it.metadata));
        let (Some(desired), Some(observed)) = (&desired, observed) else {
            let is_unwanted = owner == Some(Ownership::ThisResource);
            return match desired {
                Some(_) => Some(Drift::Missing),
                None => is_unwanted.then_some(Drift::Differs),
            };
        };
        if owner == Some(Ownership::Other) {
            return Some(Drift::NotOwned);
        }
        // Not only the fields that are set: a field that was removed must be removed there, too.
        let is_current = observed.spec == desired.spec && is_as_built(observed, desired);
        (!is_current).then_some(Drift::Differs)
    }

    fn service_drift(&self, observed: Option<&Service>, desired: &Service) -> Option<Drift> {
        let Some(observed) = observed else {
            return Some(Drift::Missing);
        };
        if ownership(self.desired.cluster_ref(), &observed.metadata) == Ownership::Other {
            return Some(Drift::NotOwned);
        }
        // Foreign annotations stay. Annotations that the spec no longer has are removed: the list of its keys shows them.
        let spec_keys = |service: &Service| {
            annotation(&service.metadata, labels::SERVICE_ANNOTATIONS).map(str::to_owned)
        };
        let is_current =
            is_as_built(observed, desired) && spec_keys(observed) == spec_keys(desired);
        (!is_current).then_some(Drift::Differs)
    }

    /// Returns `minAvailable` of the PodDisruptionBudget; `Present(None)` if it has another form.
    fn pdb_min_available(&self) -> Observed<Option<u8>> {
        let Some(observed) = &self.pdb else {
            return Observed::Absent;
        };
        let min_available = (0..MAX_MIN_AVAILABLE).find(|min_available| {
            build::pod_disruption_budget(&self.desired, *min_available)
                .is_ok_and(|desired| is_as_built(observed, &desired))
        });
        Observed::Present(min_available)
    }
}

/// Returns true if an identity object is this cluster's: by label and owner, or because it names this resource or the
/// lineage of an existing member.
fn is_own_identity(desired: &DesiredCluster, objects: &ClusterObjects, object: &ConfigMap) -> bool {
    if ownership(desired.cluster_ref(), &object.metadata) != Ownership::Other {
        return true;
    }
    let Ok((_, identity)) = parse_identity(object.clone()) else {
        return false;
    };
    let pods = objects.pods.iter().map(|pod| &pod.metadata);
    let mut members = pods
        .chain(objects.claims.iter().map(|claim| &claim.metadata))
        .filter_map(member_ref);
    identity.resource_uid == desired.uid || members.any(|member| member.lineage == identity.lineage)
}
