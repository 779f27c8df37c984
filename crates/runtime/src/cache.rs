//! The objects of a resource, of one kind: from the cache of a watch, or live from the API server. A label names the
//! resource of each object.

use std::fmt::Debug;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::BoxStream;
use kube::api::ListParams;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::expectations::CachedVersion;
use crate::reconciler::{ManagedResource, ResourceKey};
use crate::watches::{WatchedStore, Watches};
use crate::writer::KubeObject;

/// The cached objects of one kind. Clones share the cache.
#[derive(Clone, Debug)]
pub struct OwnedCache<K: Resource<DynamicType = ()> + Clone + 'static> {
    store: Store<K>,
    label: &'static str,
}

impl<K: ManagedResource> OwnedCache<K> {
    /// Watches the objects with this label. Returns the cache, and a stream of the resources whose objects changed. The
    /// stream fills the cache and must be polled.
    pub fn watch(
        watches: &Watches,
        label: &'static str,
    ) -> (Self, BoxStream<'static, ResourceKey>) {
        Self::from_watch(watches.watch(Some(label)), label)
    }

    fn from_watch(
        watched: WatchedStore<K>,
        label: &'static str,
    ) -> (Self, BoxStream<'static, ResourceKey>) {
        let (store, changed) = watched;
        let owner = move |object: K| {
            Some(ResourceKey {
                namespace: object.namespace()?,
                name: object.labels().get(label)?.clone(),
            })
        };
        let keys =
            changed.filter_map(move |object| std::future::ready(object.ok().and_then(owner)));
        (Self::new(store, label), keys.boxed())
    }
}

impl<K: Resource<DynamicType = ()> + Clone + 'static> OwnedCache<K> {
    /// Returns a cache over a store; `label` is the key of the label with the name of the resource.
    pub fn new(store: Store<K>, label: &'static str) -> Self {
        Self { store, label }
    }

    /// Returns an object in the namespace of a resource.
    pub fn get(&self, key: &ResourceKey, name: &str) -> Option<Arc<K>> {
        get(&self.store, key, name)
    }

    /// Returns the objects of a resource.
    pub fn owned_by(&self, key: &ResourceKey) -> Vec<K> {
        let all = self.store.state();
        let owned = all.iter().filter(|object| {
            object.namespace().as_ref() == Some(&key.namespace)
                && object.labels().get(self.label) == Some(&key.name)
        });
        owned.map(|object| (**object).clone()).collect()
    }

    /// Returns the cached version of an object.
    pub fn version(&self, key: &ResourceKey, name: &str) -> Option<CachedVersion> {
        version(&self.store, key, name)
    }
}

/// Returns an object from a store.
pub fn get<K>(store: &Store<K>, key: &ResourceKey, name: &str) -> Option<Arc<K>>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    store.get(&ObjectRef::new(name).within(&key.namespace))
}

/// Returns the cached version of an object in a store.
pub fn version<K>(store: &Store<K>, key: &ResourceKey, name: &str) -> Option<CachedVersion>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    let object = get(store, key, name)?;
    Some(CachedVersion {
        uid: object.uid()?,
        version: object.resource_version()?,
    })
}

/// Reads an object from the API server.
pub async fn read<K: KubeObject>(
    client: &Client,
    key: &ResourceKey,
    name: &str,
) -> Result<Option<K>, Error> {
    let api: Api<K> = Api::namespaced(client.clone(), &key.namespace);
    api.get_opt(name)
        .await
        .map_err(Error::kubernetes(format!("read {} {name}", K::kind(&()))))
}

/// Lists the objects of a resource from the API server.
pub async fn list<K>(client: &Client, key: &ResourceKey, label: &str) -> Result<Vec<K>, Error>
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    K: Clone + Debug + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), &key.namespace);
    let params = ListParams::default().labels(&format!("{label}={}", key.name));
    let list = api
        .list(&params)
        .await
        .map_err(Error::kubernetes(format!("list {}", K::plural(&()))))?;
    Ok(list.items)
}

/// Lists the objects of a kind in a namespace from the API server. A kind that the API server does not know has none: a program
/// may be upgraded before its CustomResourceDefinitions.
pub async fn list_all<K>(client: &Client, namespace: &str) -> Result<Vec<K>, Error>
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    K: Clone + Debug + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    match api.list(&ListParams::default()).await {
        Ok(list) => Ok(list.items),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(Error::kubernetes(format!("list {}", K::plural(&())))(error)),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::runtime::reflector::store::Writer;
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;

    fn pod(namespace: &str, name: &str, owner: &str) -> Pod {
        serde_json::from_value(json!({ "metadata": {
            "name": name, "namespace": namespace, "uid": name, "resourceVersion": "7", "labels": { "db": owner },
        } }))
        .unwrap()
    }

    #[tokio::test]
    async fn objects_of_a_resource_are_in_its_namespace_and_carry_its_label() {
        let mut writer = Writer::<Pod>::default();
        let (store, all) = (
            writer.as_reader(),
            ["shop", "bank"].map(|namespace| pod(namespace, "a", "orders")),
        );
        let other = pod("shop", "b", "baskets");
        all.iter()
            .chain([&other])
            .for_each(|pod| writer.apply_watcher_event(&Event::Apply(pod.clone())));
        let changed = futures::stream::iter([Ok(other)]).boxed();
        let (cache, mut keys) = OwnedCache::from_watch((store, changed), "db");
        let orders = ResourceKey {
            namespace: "shop".into(),
            name: "orders".into(),
        };
        assert_eq!(
            cache
                .owned_by(&orders)
                .iter()
                .map(ResourceExt::name_any)
                .collect::<Vec<_>>(),
            ["a"]
        );
        assert!(
            cache.get(&orders, "b").is_some(),
            "found by name, whatever its label is"
        );
        assert_eq!(
            cache.version(&orders, "a"),
            Some(CachedVersion {
                uid: "a".into(),
                version: "7".into()
            })
        );
        assert_eq!(
            keys.next().await,
            Some(ResourceKey {
                namespace: "shop".into(),
                name: "baskets".into()
            })
        );
    }
}
