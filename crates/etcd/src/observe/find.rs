//! Reading a cluster's objects: from what the watches have brought, or from Kubernetes itself.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use evenkeel::{Error, InStore, Key, Listed, Ref, Shelf, shelf};
use evenkeel_api::{EtcdCluster, labels};
use k8s_openapi::api::core::v1::{ConfigMap, Node, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Client, Resource, ResourceExt};

use super::uid;
use crate::build::IDENTITY_KEY;
use crate::identity::{Identity, Uid};
use crate::names::Names;

/// The label that tells nodes apart. A volume that names one is on that node's own disk.
pub(super) const HOSTNAME: &str = "kubernetes.io/hostname";

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

#[cfg(test)]
#[path = "find_tests.rs"]
mod tests;
