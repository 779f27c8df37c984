//! The objects of a cluster: from the caches, or from the API.

use evenkeel_api::{BackupSchedule, EtcdCluster, Restore, labels};
use evenkeel_kit::{identity_object, objects};
use evenkeel_runtime::{
    CacheSync, CachedVersion, Error, ObjectKey, OwnedCache, ResourceKey, cache,
};
use k8s_openapi::api::core::v1::{ConfigMap, Node, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::runtime::reflector::Store;
use kube::{Client, ResourceExt};

use crate::identity::Identity;
use crate::names::{ENGINE, ObjectNames};
use crate::observe::restore_request::is_of_cluster;

/// The caches that the watches fill.
pub struct Caches {
    /// The resources.
    pub clusters: Store<EtcdCluster>,
    /// The pods of members.
    pub pods: OwnedCache<Pod>,
    /// The PVCs of members.
    pub claims: OwnedCache<PersistentVolumeClaim>,
    /// The identity objects.
    pub identities: OwnedCache<ConfigMap>,
    /// The Services.
    pub services: OwnedCache<Service>,
    /// The PodDisruptionBudgets.
    pub pdbs: OwnedCache<PodDisruptionBudget>,
    /// The Restores of all clusters.
    pub restores: Store<Restore>,
    /// The BackupSchedules.
    pub schedules: OwnedCache<BackupSchedule>,
    /// The nodes, trimmed.
    pub nodes: Store<Node>,
    /// Whether every cache was filled once. Nodes are not waited for: the operator may lack the permission to list them.
    pub sync: CacheSync,
}

/// The objects of a cluster as Kubernetes stores them. The TLS Secrets are read separately.
pub struct ClusterObjects {
    /// The resource.
    pub resource: EtcdCluster,
    /// The object with the identity's name, regardless of its owner.
    pub identity: Option<ConfigMap>,
    /// The pods with the cluster's label, without restore pods.
    pub pods: Vec<Pod>,
    /// The restore pods with the cluster's label.
    pub restore_pods: Vec<Pod>,
    /// The PVCs with the cluster's label.
    pub claims: Vec<PersistentVolumeClaim>,
    /// The Service with the peer Service's name, regardless of its owner.
    pub peer_service: Option<Service>,
    /// The Service with the client Service's name, regardless of its owner.
    pub client_service: Option<Service>,
    /// The PodDisruptionBudget with the cluster's name, regardless of its owner.
    pub pdb: Option<PodDisruptionBudget>,
    /// The BackupSchedule with the name of the cluster's, regardless of its owner.
    pub backup_schedule: Option<BackupSchedule>,
    /// The Restores of the cluster.
    pub restores: Vec<Restore>,
}

impl ClusterObjects {
    /// Returns a number that changes when any object changes. Changes of the resource's status do not count, and neither does
    /// the BackupSchedule, whose status changes with each backup.
    pub fn fingerprint(&self) -> u64 {
        let pods = self.pods.iter().chain(&self.restore_pods);
        let pods = pods.map(|object| &object.metadata);
        let claims = self.claims.iter().map(|object| &object.metadata);
        let services = self.peer_service.iter().chain(&self.client_service);
        let services = services.map(|object| &object.metadata);
        let identity = self.identity.iter().map(|object| &object.metadata);
        let pdb = self.pdb.iter().map(|object| &object.metadata);
        let metadata = pods
            .chain(claims)
            .chain(services)
            .chain(identity)
            .chain(pdb);
        objects::fingerprint(self.resource.metadata.generation, metadata)
    }
}

impl Caches {
    /// Returns the cached objects of a cluster; `None` if the resource is not cached.
    pub fn cached(&self, key: &ResourceKey) -> Option<ClusterObjects> {
        let names = ObjectNames(&key.name);
        let service = |name: &str| {
            let service = self.services.get(key, name)?;
            Some((*service).clone())
        };
        let (restore_pods, pods) = split_restore_pods(self.pods.owned_by(key));
        Some(ClusterObjects {
            resource: (*cache::get(&self.clusters, key, &key.name)?).clone(),
            identity: self
                .identities
                .get(key, &names.identity())
                .map(|object| (*object).clone()),
            pods,
            restore_pods,
            claims: self.claims.owned_by(key),
            peer_service: service(&names.peer_service()),
            client_service: service(&names.client_service()),
            pdb: self
                .pdbs
                .get(key, &names.pod_disruption_budget())
                .map(|object| (*object).clone()),
            backup_schedule: self
                .schedules
                .get(key, &names.backup_schedule())
                .map(|object| (*object).clone()),
            restores: self.restores_of(key),
        })
    }

    fn restores_of(&self, key: &ResourceKey) -> Vec<Restore> {
        let all = self.restores.state();
        let own = all.iter().filter(|restore| {
            restore.namespace().as_deref() == Some(&*key.namespace)
                && is_of_cluster(restore, &key.name)
        });
        own.map(|restore| (**restore).clone()).collect()
    }

    /// Returns the cached version of an object that the operator wrote.
    pub fn version(&self, key: &ResourceKey, object: &ObjectKey) -> Option<CachedVersion> {
        let name = &object.name;
        match object.kind.as_str() {
            kind if kind == ENGINE.kind => cache::version(&self.clusters, key, name),
            "Pod" => self.pods.version(key, name),
            "PersistentVolumeClaim" => self.claims.version(key, name),
            "ConfigMap" => self.identities.version(key, name),
            "Service" => self.services.version(key, name),
            "PodDisruptionBudget" => self.pdbs.version(key, name),
            "BackupSchedule" => self.schedules.version(key, name),
            _ => None,
        }
    }
}

/// Reads the objects of a cluster from the API; `None` if the resource does not exist.
pub async fn read_live(
    client: &Client,
    key: &ResourceKey,
) -> Result<Option<ClusterObjects>, Error> {
    let resource = cache::read::<EtcdCluster>(client, key, &key.name);
    let (resource, with_resource) = tokio::try_join!(resource, read_live_related(client, key))?;
    Ok(resource.map(with_resource))
}

/// Reads all objects of a cluster but the resource from the API. The caller supplies the resource, which may not exist.
pub async fn read_live_related(
    client: &Client,
    key: &ResourceKey,
) -> Result<impl FnOnce(EtcdCluster) -> ClusterObjects, Error> {
    let names = ObjectNames(&key.name);
    let identity_name = names.identity();
    let peer_service_name = names.peer_service();
    let client_service_name = names.client_service();
    let pdb_name = names.pod_disruption_budget();
    let schedule_name = names.backup_schedule();
    let (identity, pods, claims, peer_service, client_service, pdb, backup_schedule, restores) = tokio::try_join!(
        cache::read::<ConfigMap>(client, key, &identity_name),
        cache::list::<Pod>(client, key, labels::CLUSTER),
        cache::list::<PersistentVolumeClaim>(client, key, labels::CLUSTER),
        cache::read::<Service>(client, key, &peer_service_name),
        cache::read::<Service>(client, key, &client_service_name),
        cache::read::<PodDisruptionBudget>(client, key, &pdb_name),
        cache::read::<BackupSchedule>(client, key, &schedule_name),
        cache::list_all::<Restore>(client, &key.namespace),
    )?;
    let (restore_pods, pods) = split_restore_pods(pods);
    let restores = restores
        .into_iter()
        .filter(|restore| is_of_cluster(restore, &key.name))
        .collect();
    Ok(move |resource| ClusterObjects {
        resource,
        identity,
        pods,
        restore_pods,
        claims,
        peer_service,
        client_service,
        pdb,
        backup_schedule,
        restores,
    })
}

/// Returns the restore pods and the pods of members.
fn split_restore_pods(pods: Vec<Pod>) -> (Vec<Pod>, Vec<Pod>) {
    pods.into_iter()
        .partition(|pod| pod.labels().contains_key(labels::RESTORE))
}

/// Returns an identity object with the identity in it. An unreadable identity is an error and not absent.
pub fn parse_identity(object: ConfigMap) -> Result<(ConfigMap, Identity), Error> {
    let identity = identity_object::parse(&object)?;
    Ok((object, identity))
}

#[cfg(test)]
#[path = "objects_tests.rs"]
mod tests;
