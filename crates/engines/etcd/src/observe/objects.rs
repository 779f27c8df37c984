//! Reading a cluster's objects: from what the watches have brought, or from Kubernetes itself.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use evenkeel_api::{EtcdCluster, labels};
use evenkeel_runtime::{
    CacheSync, CachedVersion, Error, ObjectKey, OwnedCache, ResourceKey, cache,
};
use k8s_openapi::api::core::v1::{ConfigMap, Node, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Client, Resource, ResourceExt};

use super::uid;
use crate::build::IDENTITY_KEY;
use crate::identity::{Identity, Uid};
use crate::names::ObjectNames;

/// The label that tells nodes apart. A volume that names one is on that node's own disk.
pub(super) const HOSTNAME: &str = "kubernetes.io/hostname";

/// What the watches have brought.
pub struct Caches {
    /// The resources.
    pub clusters: Store<EtcdCluster>,
    /// Members' pods.
    pub pods: OwnedCache<Pod>,
    /// Members' claims.
    pub claims: OwnedCache<PersistentVolumeClaim>,
    /// Identities.
    pub identities: OwnedCache<ConfigMap>,
    /// Services.
    pub services: OwnedCache<Service>,
    /// Disruption budgets.
    pub budgets: OwnedCache<PodDisruptionBudget>,
    /// Nodes.
    pub nodes: Store<PartialObjectMeta<Node>>,
    /// Whether everything has been listed once; nodes apart, which the operator may not be allowed to see.
    pub sync: CacheSync,
}

/// A cluster's objects as Kubernetes has them.
pub struct ClusterObjects {
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

impl ClusterObjects {
    /// A number that is another one when anything of it has changed; the resource's own status apart, which is our own doing.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.resource.metadata.generation.hash(&mut hasher);
        let pods = self.pods.iter().map(|object| &object.metadata);
        let claims = self.claims.iter().map(|object| &object.metadata);
        let services = self
            .peer_service
            .iter()
            .chain(&self.client_service)
            .map(|object| &object.metadata);
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

impl Caches {
    /// From what the watches have brought.
    pub fn cached(&self, key: &ResourceKey) -> Option<ClusterObjects> {
        let names = ObjectNames(&key.name);
        Some(ClusterObjects {
            resource: (*cache::get(&self.clusters, key, &key.name)?).clone(),
            identity: self
                .identities
                .get(key, &names.identity())
                .map(|object| (*object).clone()),
            pods: self.pods.owned_by(key),
            claims: self.claims.owned_by(key),
            peer_service: self
                .services
                .get(key, &names.peer_service())
                .map(|object| (*object).clone()),
            client_service: self
                .services
                .get(key, &names.client_service())
                .map(|object| (*object).clone()),
            budget: self
                .budgets
                .get(key, &names.pod_disruption_budget())
                .map(|object| (*object).clone()),
        })
    }

    /// What the stores have of something that was written.
    pub fn version(&self, key: &ResourceKey, what: &ObjectKey) -> Option<CachedVersion> {
        let name = &what.name;
        match what.kind.as_str() {
            "EtcdCluster" => cache::version(&self.clusters, key, name),
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
        self.nodes
            .state()
            .iter()
            .filter_map(|node| node.labels().get(HOSTNAME).cloned())
            .collect()
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
pub async fn read_live(
    client: &Client,
    key: &ResourceKey,
) -> Result<Option<ClusterObjects>, Error> {
    let resource = cache::read::<EtcdCluster>(client, key, &key.name);
    // What the resource is matters only if it is there.
    let (resource, objects) = tokio::try_join!(resource, read_live_related(client, key))?;
    Ok(resource.map(objects))
}

/// All that there is but the resource itself, which is handed in: there may be none yet, or no longer.
pub async fn read_live_related(
    client: &Client,
    key: &ResourceKey,
) -> Result<impl FnOnce(EtcdCluster) -> ClusterObjects, Error> {
    let names = ObjectNames(&key.name);
    let (identity, peer, service, pdb) = (
        names.identity(),
        names.peer_service(),
        names.client_service(),
        names.pod_disruption_budget(),
    );
    let (identity, pods, claims, peer_service, client_service, budget) = tokio::try_join!(
        cache::read::<ConfigMap>(client, key, &identity),
        cache::list::<Pod>(client, key, labels::CLUSTER),
        cache::list::<PersistentVolumeClaim>(client, key, labels::CLUSTER),
        cache::read::<Service>(client, key, &peer),
        cache::read::<Service>(client, key, &service),
        cache::read::<PodDisruptionBudget>(client, key, &pdb),
    )?;
    Ok(move |resource| ClusterObjects {
        resource,
        identity,
        pods,
        claims,
        peer_service,
        client_service,
        budget,
    })
}

/// What an identity object says. One that cannot be read is no reason to make another.
pub fn parse_identity(object: ConfigMap) -> Result<(ConfigMap, Identity), Error> {
    let text = object
        .data
        .as_ref()
        .and_then(|data| data.get(IDENTITY_KEY))
        .cloned()
        .unwrap_or_default();
    match serde_json::from_str(&text) {
        Ok(identity) => Ok((object, identity)),
        Err(why) => Err(Error::other(
            format!("read the identity in the ConfigMap {}", object.name_any()),
            why,
        )),
    }
}

/// Objects by their uid.
pub fn by_uid<K: Resource>(objects: Vec<K>) -> BTreeMap<Uid, K> {
    objects
        .into_iter()
        .filter_map(|object| Some((uid(object.meta())?, object)))
        .collect()
}

#[cfg(test)]
#[path = "objects_tests.rs"]
mod tests;
