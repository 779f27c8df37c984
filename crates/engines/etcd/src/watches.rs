//! What is watched for etcd clusters: everything that carries the cluster's label, and nodes, since a volume may go with one.
//! Secrets are not: they are read by name.

use std::collections::BTreeSet;

use evenkeel_api::{EtcdCluster, labels};
use evenkeel_runtime::{OwnedCache, Triggers, Watches};
use futures::stream::{StreamExt, select_all};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use crate::observe::objects::Caches;

/// The stores, and what wakes the loop. Nothing is brought before the wakers are polled.
pub fn watch(streams: &Watches) -> (Caches, Triggers<EtcdCluster>) {
    let clusters = streams.watch::<EtcdCluster>(None);
    let (pods, pods_touched) = OwnedCache::watch(streams, labels::CLUSTER);
    let (claims, claims_touched) = OwnedCache::watch(streams, labels::CLUSTER);
    let (identities, identities_touched) = OwnedCache::watch(streams, labels::CLUSTER);
    let (services, services_touched) = OwnedCache::watch(streams, labels::CLUSTER);
    let (budgets, budgets_touched) = OwnedCache::watch(streams, labels::CLUSTER);
    let (nodes, nodes_touched) = streams.watch_cluster_metadata::<Node>(None);
    let stores = Caches {
        clusters: clusters.0.clone(),
        pods,
        claims,
        identities,
        services,
        budgets,
        nodes,
        sync: streams.cache_sync(),
    };
    let touched = select_all([
        pods_touched,
        claims_touched,
        identities_touched,
        services_touched,
        budgets_touched,
    ]);
    let nodes = stores.nodes.clone();
    let mut before = BTreeSet::new();
    // A node's heartbeat is no news; that there is one more, or one less, is.
    let all = nodes_touched.filter_map(move |_| {
        let now: BTreeSet<String> = nodes.state().iter().map(|node| node.name_any()).collect();
        let changed = now != before;
        before = now;
        std::future::ready(changed.then_some(()))
    });
    (
        stores,
        Triggers {
            resources: clusters,
            related: touched.boxed(),
            all: all.boxed(),
        },
    )
}
