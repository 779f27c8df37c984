//! What was found, as facts. Reading is in [`find`], asking etcd in [`ask`], [`heard`] and [`peers`], and what an operator
//! remembers of the answers in [`since`]; here is only the translation, and it is pure.

pub mod ask;
pub mod find;
mod heard;
mod peers;
mod pod;
pub mod secrets;
pub mod since;
mod stir;
pub mod volumes;

#[cfg(test)]
#[path = "observe_tests.rs"]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use evenkeel::{Error, Seen, Time};
use evenkeel_api::{EtcdCluster, Refusal, Version, labels};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;

use crate::accept::noted_spec;
use crate::build::{self, Member, claim, covers::covers, service};
use crate::facts::{About, Amiss, Claim, Facts, GoesWith, Object, Reach, Registered};
use crate::identity::{Identity, Uid};
use crate::names::{Lineage, Serial, member_name, peer_url};
use crate::wanted::{self, Wanted};
use ask::Answers;
use find::Objects;
use secrets::Judged;
use volumes::Place;

pub use pod::{has_joined, node};

/// The objects of a cluster as they were found.
#[derive(Debug)]
pub struct Found {
    /// The resource.
    pub resource: EtcdCluster,
    /// What it wants, or what it wanted last that could be accepted.
    pub wanted: Wanted,
    /// Why what it wants now cannot be accepted.
    pub refused: Option<Refusal>,
    /// The identity object, and what is in it.
    pub identity: Option<(ConfigMap, Identity)>,
    /// Whether there is something else in the identity object's place.
    pub identity_taken: bool,
    /// Pods of members, by uid.
    pub pods: BTreeMap<Uid, Pod>,
    /// Claims of members, by uid.
    pub claims: BTreeMap<Uid, PersistentVolumeClaim>,
    /// Where the volumes of claims are, by the claims' names, as far as that is known.
    pub places: BTreeMap<String, Place>,
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
    pub budget: Option<PodDisruptionBudget>,
    /// The certificates.
    pub tls: Judged,
    /// When it was looked at.
    pub now: Time,
    /// Randomness, for a cluster that is yet to have an identity.
    pub lineage: Lineage,
}

/// What is known of a cluster beside its objects.
#[derive(Debug)]
pub struct Beside {
    /// Where the volumes of claims are, by the claims' names, as far as that is known.
    pub places: BTreeMap<String, Place>,
    /// The claims whose volumes none of the nodes reaches that the spec allows.
    pub misplaced: BTreeSet<String>,
    /// The class that the spec names, if Kubernetes has none of that name.
    pub missing_class: Option<String>,
    /// What volumes call the nodes of the pods, by the nodes' names.
    pub hostnames: BTreeMap<String, String>,
    /// The certificates.
    pub tls: Judged,
    /// When it was looked at.
    pub now: Time,
    /// Randomness, for a cluster that is yet to have an identity.
    pub lineage: Lineage,
}

/// Whose an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// This resource's.
    Us,
    /// That of a resource of this name that is no more, or nobody's any longer: it is taken over.
    Earlier,
    /// Somebody else's: it is never touched.
    NotOurs,
}

/// Whose an object is that goes with the resource.
pub fn owner(wanted: &Wanted, metadata: &ObjectMeta) -> Owner {
    let label = metadata.labels.as_ref().and_then(|labels| labels.get(labels::CLUSTER));
    if label != Some(&wanted.name) {
        return Owner::NotOurs;
    }
    let mut references = metadata.owner_references.iter().flatten();
    match references.find(|reference| reference.controller == Some(true)) {
        None => Owner::Earlier,
        Some(reference) if reference.uid.parse() == Ok(wanted.uid) => Owner::Us,
        Some(reference) if reference.kind == "EtcdCluster" && reference.name == wanted.name => Owner::Earlier,
        Some(_) => Owner::NotOurs,
    }
}

/// What an object goes with. Kubernetes deletes it when none of its owners is left; orphaned, it has none.
pub fn goes_with(name: &str, uid: Uid, metadata: &ObjectMeta) -> GoesWith {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    if owners.iter().any(|owner| owner.uid.parse() == Ok(uid)) {
        GoesWith::Resource
    } else if !owners.is_empty()
        && owners.iter().all(|owner| owner.kind == "EtcdCluster" && owner.name == name)
    {
        GoesWith::Former
    } else {
        GoesWith::Nothing
    }
}

/// Whether an object is on its way out, or will be in a moment.
fn is_going(wanted: &Wanted, metadata: &ObjectMeta) -> bool {
    metadata.deletion_timestamp.is_some() || goes_with(&wanted.name, wanted.uid, metadata) == GoesWith::Former
}

/// A uid as facts carry it.
pub fn uid(metadata: &ObjectMeta) -> Option<Uid> {
    metadata.uid.as_ref()?.parse().ok()
}

/// Who an object's member is, by what is written on it.
pub fn member(metadata: &ObjectMeta) -> Option<Member> {
    Member::read(metadata.annotations.as_ref()?)
}

/// Which of a lineage's members a name or a peer URL belongs to.
#[derive(Debug)]
pub struct Register {
    pub(super) by_name: BTreeMap<String, Serial>,
    pub(super) by_url: BTreeMap<String, Serial>,
}

impl Register {
    /// Of all members that there ever were.
    pub fn of(wanted: &Wanted, identity: &Identity) -> Self {
        let (mut by_name, mut by_url) = (BTreeMap::new(), BTreeMap::new());
        for serial in (0..identity.next.0).map(Serial) {
            let name = member_name(&wanted.name, identity.lineage, serial);
            by_url.insert(peer_url(&wanted.name, &wanted.namespace, &name), serial);
            by_name.insert(name, serial);
        }
        Self { by_name, by_url }
    }

    /// By name.
    pub fn named(&self, name: &str) -> Option<Serial> {
        self.by_name.get(name).copied()
    }

    /// By peer URL.
    pub fn at(&self, url: &str) -> Option<Serial> {
        self.by_url.get(url).copied()
    }
}

impl Found {
    /// A cluster's objects, and what is in force of what its resource wants.
    pub fn of(
        objects: Objects,
        (wanted, refused): (Wanted, Option<Refusal>),
        beside: Beside,
    ) -> Result<Self, Error> {
        let identity_taken =
            objects.identity.as_ref().is_some_and(|object| !is_ours(&wanted, &objects, object));
        let identity = objects.identity.filter(|_| !identity_taken);
        Ok(Self {
            identity: identity.map(find::identity).transpose()?,
            identity_taken,
            wanted,
            refused,
            pods: find::by_uid(objects.pods),
            claims: find::by_uid(objects.claims),
            places: beside.places,
            misplaced: beside.misplaced,
            missing_class: beside.missing_class,
            hostnames: beside.hostnames,
            peer_service: objects.peer_service,
            client_service: objects.client_service,
            budget: objects.budget,
            tls: beside.tls,
            now: beside.now,
            lineage: beside.lineage,
            resource: objects.resource,
        })
    }

    /// Who is who.
    pub fn register(&self) -> Option<Register> {
        self.identity.as_ref().map(|(_, identity)| Register::of(&self.wanted, identity))
    }

    /// Who an object's member is, if it is of this cluster's history: objects of another one under its name are none of ours.
    fn ours(&self, metadata: &ObjectMeta) -> Option<Member> {
        let lineage = self.identity.as_ref().map(|(_, identity)| identity.lineage);
        member(metadata).filter(|member| lineage.is_none_or(|lineage| lineage == member.lineage))
    }

    /// The facts, with what etcd says.
    pub fn facts(&self, answers: &Answers) -> Facts {
        let register = self.register();
        let named = |name: &str| register.as_ref().and_then(|register| register.named(name));
        let pods = self.pods.iter().filter_map(|(uid, pod)| {
            let member = self.ours(&pod.metadata)?;
            let node = node(pod).map(|name| self.hostnames.get(name).map_or(name, String::as_str));
            let fact = pod::fact(&self.wanted, *uid, pod, member, named, self.now);
            Some(crate::facts::Pod { node: node.map(Uid::of_name), ..fact })
        });
        let claims = self.claims.iter().filter_map(|(uid, claim)| {
            let member = self.ours(&claim.metadata)?;
            Some(self.claim_fact(*uid, claim, member))
        });
        let (pods, claims): (Vec<_>, Vec<_>) = (pods.collect(), claims.collect());
        Facts {
            now: self.now,
            fresh_lineage: self.lineage,
            cluster: self.wanted.facts(self.now),
            identity: match &self.identity {
                Some((_, identity)) => Seen::Present(identity.clone()),
                None if self.identity_taken => Seen::Unknown,
                None => Seen::Absent,
            },
            about: self.about(answers),
            written: self.written(),
            pods: Seen::Present(pods),
            claims: Seen::Present(claims),
            membership: answers.membership.clone(),
            voices: answers.voices.clone(),
            silent: answers.silent.clone(),
            amiss: self.amiss(),
            secrets_again: self.tls.again,
            budget: self.budget_fact(),
            accepted: self
                .identity
                .as_ref()
                .is_none_or(|(object, _)| noted_spec(object) == Some(self.wanted.spec.as_str())),
            identity_goes: self.identity_goes(),
            served: answers.served,
        }
    }

    fn identity_goes(&self) -> GoesWith {
        match &self.identity {
            Some((object, _)) => goes_with(&self.wanted.name, self.wanted.uid, &object.metadata),
            None => GoesWith::Nothing,
        }
    }

    /// Whether what there is went with a resource that is no more.
    pub fn goes_former(&self) -> bool {
        self.identity_goes() == GoesWith::Former
    }

    /// The lineages that are written on what is labelled for this cluster.
    fn written(&self) -> BTreeSet<Option<Lineage>> {
        let pods = self.pods.values().map(|pod| &pod.metadata);
        let all = pods.chain(self.claims.values().map(|claim| &claim.metadata));
        all.map(|metadata| member(metadata).map(|member| member.lineage)).collect()
    }

    fn claim_fact(&self, uid: Uid, claim: &PersistentVolumeClaim, member: Member) -> Claim {
        let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
        let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
        let place = claim.metadata.name.as_ref().and_then(|name| self.places.get(name));
        Claim {
            serial: member.serial,
            epoch: member.epoch,
            uid,
            volume: volume.filter(|name| !name.is_empty()).map(Uid::of_name),
            joined_on: claim::read_joined_on(claim),
            deleting: is_going(&self.wanted, &claim.metadata),
            reach: place.map_or(Reach::Unknown, Place::reach),
            lost: phase == Some("Lost") || place == Some(&Place::Gone),
            removed: claim::read_removed_at(claim),
            version: version(&claim.metadata),
            owned: goes_with(&self.wanted.name, self.wanted.uid, &claim.metadata) == GoesWith::Resource,
            size: claim::size(claim),
            grows: self.has_to_grow(claim),
            moves: self.has_to_move(claim),
            misplaced: claim.metadata.name.as_ref().is_some_and(|name| self.misplaced.contains(name)),
        }
    }

    /// Whether a claim has not been given yet what it asks for. A claim never asks for less again, so what was asked for and taken
    /// back may never be given, and nobody waits for it.
    fn has_to_grow(&self, claim: &PersistentVolumeClaim) -> bool {
        let given = claim::given(claim);
        given > 0 && given < claim::size(claim).min(self.wanted.size)
    }

    /// Whether a claim's volume is of another class than is wanted. Where the spec names no class it may be of any; so may one that has a
    /// volume and says nothing of a class; and so may one for which that class was asked: whoever has put another into it (a webhook,
    /// say) would do so with its successors, too.
    fn has_to_move(&self, claim: &PersistentVolumeClaim) -> bool {
        let spec = claim.spec.as_ref();
        let class = spec.and_then(|spec| spec.storage_class_name.as_deref());
        let volume = spec.and_then(|spec| spec.volume_name.as_ref());
        let asked = written(&claim.metadata, labels::CLASS);
        match &self.wanted.data {
            wanted::Data::Persistent { class: Some(wanted), .. } if asked != Some(wanted) => {
                class.map_or(volume.is_none(), |class| class != wanted)
            }
            wanted::Data::Persistent { .. } | wanted::Data::Ephemeral { .. } => false,
        }
    }

    fn amiss(&self) -> BTreeMap<Object, Amiss> {
        let mut amiss = self.tls.amiss.clone();
        if self.identity_taken {
            amiss.insert(Object::Identity, Amiss::NotOurs);
        }
        let services = [
            (Object::PeerService, &self.peer_service, service::peer(&self.wanted)),
            (Object::ClientService, &self.client_service, service::client(&self.wanted)),
        ];
        for (object, there, wanted) in services {
            let Ok(wanted) = wanted else { continue };
            let how = match there {
                None => Some(Amiss::Missing),
                Some(there) if owner(&self.wanted, &there.metadata) == Owner::NotOurs => Some(Amiss::NotOurs),
                Some(there) => {
                    // What others have put there is theirs; what the spec had and no longer has goes.
                    let ours = |service: &Service| {
                        written(&service.metadata, labels::ANNOTATIONS).map(ToOwned::to_owned)
                    };
                    let same = is_as_built(there, &wanted) && ours(there) == ours(&wanted);
                    (!same).then_some(Amiss::Differs)
                }
            };
            amiss.extend(how.map(|how| (object, how)));
        }
        let budget = self.budget.as_ref().map(|there| owner(&self.wanted, &there.metadata));
        if budget == Some(Owner::NotOurs) {
            amiss.insert(Object::Budget, Amiss::NotOurs);
        }
        amiss
    }

    fn budget_fact(&self) -> Seen<Option<u8>> {
        let Some(there) = &self.budget else { return Seen::Absent };
        let min = (0..=u8::MAX)
            .take(16)
            .find(|min| build::budget(&self.wanted, *min).is_ok_and(|wanted| is_as_built(there, &wanted)));
        Seen::Present(min)
    }

    /// Of a member whose volume nobody provides, since no class was named and none is the default, or since there is none of that name:
    /// Kubernetes' own words ("unbound immediate PersistentVolumeClaims") tell nobody what to do.
    fn without_a_class(&self, serial: Serial) -> Option<String> {
        let mut claims = self.claims.values();
        let claim =
            claims.find(|claim| self.ours(&claim.metadata).is_some_and(|one| one.serial == serial))?;
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

    fn about(&self, answers: &Answers) -> BTreeMap<Serial, About> {
        let members = answers.membership.present().map(|told| told.members.as_slice()).unwrap_or_default();
        let leads = |entry: &&Registered| Some(entry.id) == answers.leader;
        let leader = members.iter().find(leads).map(|entry| entry.serial);
        let mut about: BTreeMap<Serial, About> = BTreeMap::new();
        for pod in self.pods.values() {
            let Some(member) = self.ours(&pod.metadata) else { continue };
            about.insert(
                member.serial,
                About {
                    node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
                    version: answers.versions.get(&member.serial).cloned(),
                    leads: leader == Some(member.serial),
                    trouble: self.without_a_class(member.serial).or_else(|| pod::trouble(pod)),
                },
            );
        }
        about
    }
}

/// Whether an identity object is this cluster's. Without our label it is somebody else's, unless it tells of this very cluster.
fn is_ours(wanted: &Wanted, objects: &Objects, object: &ConfigMap) -> bool {
    let pods = objects.pods.iter().map(|pod| &pod.metadata);
    let mut all = pods.chain(objects.claims.iter().map(|claim| &claim.metadata));
    let mut is_of = |identity: Identity| {
        identity.resource == wanted.uid
            || all.any(|one| member(one).is_some_and(|one| one.lineage == identity.lineage))
    };
    owner(wanted, &object.metadata) != Owner::NotOurs
        || find::identity(object.clone()).is_ok_and(|(_, identity)| is_of(identity))
}

/// Whether an object is as we would build it, whatever else there is on it.
fn is_as_built<K: Serialize>(there: &K, wanted: &K) -> bool {
    match (serde_json::to_value(there), serde_json::to_value(wanted)) {
        (Ok(there), Ok(wanted)) => covers(&there, &wanted),
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
