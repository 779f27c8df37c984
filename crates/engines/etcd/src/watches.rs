//! The watches of the etcd engine: every object with the cluster's label, and the metadata of nodes, because a volume may
//! be lost with its node. Secrets are not watched; they are read by name.

use std::collections::BTreeSet;

use evenkeel_api::{EtcdCluster, labels};
use evenkeel_runtime::{OwnedCache, Triggers, Watches};
use futures::stream::{StreamExt, select_all};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use crate::observe::objects::Caches;

/// Returns the caches and the triggers of reconciles. The caches are filled only while the triggers are polled.
pub fn watch(watches: &Watches) -> (Caches, Triggers<EtcdCluster>) {
    let clusters = watches.watch::<EtcdCluster>(None);
    let (pods, pod_changes) = OwnedCache::watch(watches, labels::CLUSTER);
    let (claims, claim_changes) = OwnedCache::watch(watches, labels::CLUSTER);
    let (identities, identity_changes) = OwnedCache::watch(watches, labels::CLUSTER);
    let (services, service_changes) = OwnedCache::watch(watches, labels::CLUSTER);
    let (pdbs, pdb_changes) = OwnedCache::watch(watches, labels::CLUSTER);
    let (nodes, node_changes) = watches.watch_cluster_metadata::<Node>(None);
    let caches = Caches {
        clusters: clusters.0.clone(),
        pods,
        claims,
        identities,
        services,
        pdbs,
        nodes,
        sync: watches.cache_sync(),
    };
    let related = select_all([
        pod_changes,
        claim_changes,
        identity_changes,
        service_changes,
        pdb_changes,
    ]);
    let nodes = caches.nodes.clone();
    let mut known_nodes = BTreeSet::new();
    // Only the set of nodes matters: heartbeats change a node every few seconds.
    let all = node_changes.filter_map(move |_| {
        let current: BTreeSet<String> = nodes.state().iter().map(|node| node.name_any()).collect();
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
