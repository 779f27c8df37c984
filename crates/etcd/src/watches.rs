//! What is watched for etcd clusters: everything that carries the cluster's label, and nodes, since a volume may go with one.
//! Secrets are not: they are read by name.

use std::collections::BTreeSet;

use evenkeel::{Key, Managed, Streams, Touched, Wakers};
use evenkeel_api::{EtcdCluster, labels};
use futures::stream::{BoxStream, StreamExt, select_all};
use k8s_openapi::api::core::v1::Node;
use kube::{Resource, ResourceExt};

use crate::observe::find::Stores;

/// The stores, and what wakes the loop. Nothing is brought before the wakers are polled.
pub fn watch(streams: &Streams) -> (Stores, Wakers<EtcdCluster>) {
    let labelled = Some(labels::CLUSTER);
    let clusters = streams.watch::<EtcdCluster>(None);
    let (pods, pods_touched) = owners(streams.watch(labelled));
    let (claims, claims_touched) = owners(streams.watch(labelled));
    let (identities, identities_touched) = owners(streams.watch(labelled));
    let (services, services_touched) = owners(streams.watch(labelled));
    let (budgets, budgets_touched) = owners(streams.watch(labelled));
    let (nodes, nodes_touched) = streams.watch_cluster_metadata::<Node>(None);
    let stores = Stores {
        clusters: clusters.0.clone(),
        pods,
        claims,
        identities,
        services,
        budgets,
        nodes,
        listed: streams.listed(),
    };
    let touched =
        select_all([pods_touched, claims_touched, identities_touched, services_touched, budgets_touched]);
    let nodes = stores.nodes.clone();
    let mut before = BTreeSet::new();
    // A node's heartbeat is no news; that there is one more, or one less, is.
    let all = nodes_touched.filter_map(move |_| {
        let now: BTreeSet<String> = nodes.state().iter().map(|node| node.name_any()).collect();
        let changed = now != before;
        before = now;
        std::future::ready(changed.then_some(()))
    });
    (stores, Wakers { resources: clusters, touched: touched.boxed(), all: all.boxed() })
}

/// The store of a kind, and whose its objects are that were touched.
fn owners<K: Managed>(
    (store, touched): Touched<K>,
) -> (kube::runtime::reflector::Store<K>, BoxStream<'static, Key>) {
    let keys = touched.filter_map(|object| std::future::ready(object.ok().and_then(|object| owner(&object))));
    (store, keys.boxed())
}

fn owner<K: Resource>(object: &K) -> Option<Key> {
    Some(Key { namespace: object.namespace()?, name: object.labels().get(labels::CLUSTER)?.clone() })
}
