//! Reading a cluster's objects: from what the watches have brought, or from Kubernetes itself.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use evenkeel::{Error, InStore, Key, Listed, Ref, Shelf, shelf};
use evenkeel_api::{EtcdCluster, labels};
use k8s_openapi::api::core::v1::{
    ConfigMap, Node, NodeSelectorTerm, PersistentVolume, PersistentVolumeClaim, Pod, Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, Client, Resource, ResourceExt};

use super::uid;
use crate::build::IDENTITY_KEY;
use crate::facts::Reach;
use crate::identity::{Identity, Uid};
use crate::names::Names;

/// The label that tells nodes apart. A volume that names one is on that node's own disk.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// What the watches have brought.
pub struct Stores {
    /// The resources.
    pub clusters: Store<EtcdCluster>,
    /// Members' pods.
    pub pods: Shelf<Pod>,
    /// Members' claims.
    pub claims: Shelf<PersistentVolumeClaim>,
    /// Identities.
    pub identities: Shelf<ConfigMap>,
    /// Services.
    pub services: Shelf<Service>,
    /// Disruption budgets.
    pub budgets: Shelf<PodDisruptionBudget>,
    /// Nodes.
    pub nodes: Store<PartialObjectMeta<Node>>,
    /// Whether everything has been listed once; nodes apart, which the operator may not be allowed to see.
    pub listed: Listed,
}

/// A cluster's objects as Kubernetes has them.
pub struct Objects {
    /// The resource.
    pub resource: EtcdCluster,
    /// The identity object.
    pub identity: Option<ConfigMap>,
    /// Pods.
    pub pods: Vec<Pod>,
    /// Claims.
    pub claims: Vec<PersistentVolumeClaim>,
    /// The service that gives members their names.
    pub peer_service: Option<Service>,
    /// The service for clients.
    pub client_service: Option<Service>,
    /// The disruption budget.
    pub budget: Option<PodDisruptionBudget>,
}

impl Objects {
    /// A number that is another one when anything of it has changed; the resource's own status apart, which is our own doing.
    pub fn print(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.resource.metadata.generation.hash(&mut hasher);
        let pods = self.pods.iter().map(|object| &object.metadata);
        let claims = self.claims.iter().map(|object| &object.metadata);
        let services = self.peer_service.iter().chain(&self.client_service).map(|object| &object.metadata);
        let others = self.identity.iter().map(|object| &object.metadata);
        let others = others.chain(self.budget.iter().map(|object| &object.metadata));
        let mut versions: Vec<_> = pods
            .chain(claims)
            .chain(services)
            .chain(others)
            .map(|metadata| (&metadata.uid, &metadata.resource_version))
            .collect();
        versions.sort();
        versions.hash(&mut hasher);
        hasher.finish()
    }
}

impl Stores {
    /// From what the watches have brought.
    pub fn find(&self, key: &Key) -> Option<Objects> {
        let names = Names(&key.name);
        Some(Objects {
            resource: (*shelf::get(&self.clusters, key, &key.name)?).clone(),
            identity: self.identities.get(key, &names.identity()).map(|object| (*object).clone()),
            pods: self.pods.of(key),
            claims: self.claims.of(key),
            peer_service: self.services.get(key, &names.peer_service()).map(|object| (*object).clone()),
            client_service: self.services.get(key, &names.client_service()).map(|object| (*object).clone()),
            budget: self.budgets.get(key, &key.name).map(|object| (*object).clone()),
        })
    }

    /// What the stores have of something that was written.
    pub fn version(&self, key: &Key, what: &Ref) -> Option<InStore> {
        let name = &what.name;
        match what.kind.as_str() {
            "EtcdCluster" => shelf::version(&self.clusters, key, name),
            "Pod" => self.pods.version(key, name),
            "PersistentVolumeClaim" => self.claims.version(key, name),
            "ConfigMap" => self.identities.version(key, name),
            "Service" => self.services.version(key, name),
            "PodDisruptionBudget" => self.budgets.version(key, name),
            _ => None,
        }
    }

    /// The nodes that there are, by the label that volumes name them by.
    pub fn hostnames(&self) -> BTreeSet<String> {
        self.nodes.state().iter().filter_map(|node| node.labels().get(HOSTNAME).cloned()).collect()
    }

    /// What volumes call the nodes of these pods, by the nodes' names.
    pub fn hostnames_of(&self, pods: &[Pod]) -> BTreeMap<String, String> {
        let names = pods.iter().filter_map(super::node);
        let known = names.filter_map(|name| {
            let node = self.nodes.get(&ObjectRef::new(name))?;
            Some((name.to_owned(), node.labels().get(HOSTNAME)?.clone()))
        });
        known.collect()
    }
}

/// From Kubernetes itself, all at the same time.
pub async fn live(client: &Client, key: &Key) -> Result<Option<Objects>, Error> {
    let resource = shelf::read::<EtcdCluster>(client, key, &key.name);
    // What the resource is matters only if it is there.
    let (resource, objects) = tokio::try_join!(resource, live_beside(client, key))?;
    Ok(resource.map(objects))
}

/// All that there is but the resource itself, which is handed in: there may be none yet, or no longer.
pub async fn live_beside(client: &Client, key: &Key) -> Result<impl FnOnce(EtcdCluster) -> Objects, Error> {
    let names = Names(&key.name);
    let (identity, peer, service) = (names.identity(), names.peer_service(), names.client_service());
    let (identity, pods, claims, peer_service, client_service, budget) = tokio::try_join!(
        shelf::read::<ConfigMap>(client, key, &identity),
        shelf::list::<Pod>(client, key, labels::CLUSTER),
        shelf::list::<PersistentVolumeClaim>(client, key, labels::CLUSTER),
        shelf::read::<Service>(client, key, &peer),
        shelf::read::<Service>(client, key, &service),
        shelf::read::<PodDisruptionBudget>(client, key, &key.name),
    )?;
    Ok(move |resource| Objects { resource, identity, pods, claims, peer_service, client_service, budget })
}

/// What an identity object says. One that cannot be read is no reason to make another.
pub fn identity(object: ConfigMap) -> Result<(ConfigMap, Identity), Error> {
    let text = object.data.as_ref().and_then(|data| data.get(IDENTITY_KEY)).cloned().unwrap_or_default();
    match serde_json::from_str(&text) {
        Ok(identity) => Ok((object, identity)),
        Err(why) => {
            Err(Error::other(format!("read the identity in the ConfigMap {}", object.name_any()), why))
        }
    }
}

/// Objects by their uid.
pub fn by_uid<K: Resource>(objects: Vec<K>) -> BTreeMap<Uid, K> {
    objects.into_iter().filter_map(|object| Some((uid(object.meta())?, object))).collect()
}

/// Where a volume is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the disk of this node, as the volume calls it.
    Node(String),
    /// On the disk of a node that is no more.
    Gone,
    /// It can be reached from everywhere.
    Anywhere,
}

impl Place {
    /// From where it can be reached.
    pub fn reach(&self) -> Reach {
        match self {
            Self::Node(hostname) => Reach::Node(Uid::of_name(hostname)),
            Self::Anywhere => Reach::Anywhere,
            Self::Gone => Reach::Unknown,
        }
    }
}

/// On which nodes volumes are, which never changes.
#[derive(Debug, Default)]
pub struct Volumes {
    /// Nothing for one that some nodes reach, or of which nothing may be known.
    known: Mutex<HashMap<String, Option<Place>>>,
}

impl Volumes {
    /// Where the volumes of claims are, by the claims' names, as far as that is known. A node is no more if it is not in the
    /// store, and not in Kubernetes either.
    pub async fn places(
        &self,
        client: &Client,
        nodes: &BTreeSet<String>,
        claims: &[PersistentVolumeClaim],
    ) -> Result<BTreeMap<String, Place>, Error> {
        let mut places = BTreeMap::new();
        for claim in claims {
            let Some(volume) = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()) else {
                continue;
            };
            let place = match self.place(client, &volume).await? {
                Some(Place::Node(hostname))
                    if !nodes.contains(&hostname) && is_gone(client, &hostname).await? =>
                {
                    Some(Place::Gone)
                }
                place => place,
            };
            places.extend(place.map(|place| (claim.name_any(), place)));
        }
        Ok(places)
    }

    async fn place(&self, client: &Client, volume: &str) -> Result<Option<Place>, Error> {
        if let Some(known) = self.lock().get(volume) {
            return Ok(known.clone());
        }
        let api: Api<PersistentVolume> = Api::all(client.clone());
        let place = match api.get_opt(volume).await {
            Ok(Some(there)) => place(&there),
            Ok(None) => return Ok(None),
            // Without the permission to look nobody knows, and what is unknown is not lost.
            Err(kube::Error::Api(refused)) if refused.code == 403 => None,
            Err(error) => return Err(Error::kubernetes(format!("read the volume {volume}"))(error)),
        };
        self.lock().insert(volume.to_owned(), place.clone());
        Ok(place)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Option<Place>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a volume is; nothing if some nodes reach it and others do not, such as those of a zone.
fn place(volume: &PersistentVolume) -> Option<Place> {
    let affinity =
        volume.spec.as_ref()?.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
    let Some(affinity) = affinity else { return Some(Place::Anywhere) };
    // Terms are alternatives: a volume that can be reached from two nodes outlives either.
    let mut hostnames = affinity.node_selector_terms.iter().map(only_hostname);
    let first = hostnames.next()??;
    hostnames.all(|other| other == Some(first)).then(|| Place::Node(first.to_owned()))
}

fn only_hostname(term: &NodeSelectorTerm) -> Option<&str> {
    let mut expressions = term.match_expressions.iter().flatten();
    match expressions.find(|one| one.key == HOSTNAME && one.operator == "In")?.values.as_deref() {
        Some([one]) => Some(one),
        _ => None,
    }
}

async fn is_gone(client: &Client, hostname: &str) -> Result<bool, Error> {
    let api: Api<Node> = Api::all(client.clone());
    let named = ListParams::default().labels(&format!("{HOSTNAME}={hostname}"));
    match api.list_metadata(&named).await {
        Ok(list) => Ok(list.items.is_empty()),
        Err(kube::Error::Api(refused)) if refused.code == 403 => Ok(false),
        Err(error) => Err(Error::kubernetes("list nodes")(error)),
    }
}

#[cfg(test)]
#[path = "find_tests.rs"]
mod tests;
