//! The watches of the etcd engine: every object with the cluster's label, and the nodes, because a volume may be lost
//! with its node. Secrets are not watched; they are read by name.

use evenkeel_api::{EtcdCluster, Restore, labels};
use evenkeel_kit::nodes;
use evenkeel_runtime::{OwnedCache, ResourceKey, Triggers, Watches};
use futures::stream::{StreamExt, select_all};

use crate::observe::objects::Caches;

/// Returns the caches and the triggers of reconciles. The caches are filled only while the triggers are polled.
pub fn watch(watches: &Watches) -> (Caches, Triggers<EtcdCluster>) {
    let clusters = watches.watch::<EtcdCluster>(None);
    let (pods, pod_changes) = OwnedCache::watch(watches, labels::CLUSTER);
    let (claims, claim_changes) = OwnedCache::watch(watches, labels::CLUSTER);
    let (identities, identity_changes) = OwnedCache::watch(watches, labels::CLUSTER);
    let (services, service_changes) = OwnedCache::watch(watches, labels::CLUSTER);
    let (pdbs, pdb_changes) = OwnedCache::watch(watches, labels::CLUSTER);
    let (schedules, schedule_changes) = OwnedCache::watch(watches, labels::CLUSTER);
    let (restores, restore_changes) = watches.watch::<Restore>(None);
    let restore_changes = restore_changes.filter_map(|restore| {
        let key = restore.ok().and_then(|restore| {
            Some(ResourceKey {
                namespace: restore.metadata.namespace?,
                name: restore.spec.cluster.name,
            })
        });
        std::future::ready(key)
    });
    let (nodes, node_changes) = watches.watch_cluster(nodes::trim);
    let caches = Caches {
        clusters: clusters.0.clone(),
        pods,
        claims,
        identities,
        services,
        pdbs,
        schedules,
        restores,
        nodes,
        sync: watches.cache_sync(),
    };
    let related = select_all([
        pod_changes,
        claim_changes,
        identity_changes,
        service_changes,
        pdb_changes,
        schedule_changes,
        restore_changes.boxed(),
    ]);
    let node_cache = caches.nodes.clone();
    let mut known_nodes = None;
    // Only the states matter: heartbeats change the node objects.
    let all = node_changes.filter_map(move |_| {
        let current = nodes::states(&node_cache);
        let has_changed = current != known_nodes;
        known_nodes = current;
        std::future::ready(has_changed.then_some(()))
    });
    (
        caches,
        Triggers {
            resources: clusters,
            related: related.boxed(),
            all: all.boxed(),
        },
    )
}
