//! What belongs to a resource, of one kind: from what a watch has brought, or from Kubernetes itself. Objects say by a label
//! whose they are.

use std::fmt::Debug;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::BoxStream;
use kube::api::ListParams;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use crate::expectations::CachedVersion;
use crate::reconciler::{Error, ManagedResource, ResourceKey};
use crate::watches::{WatchedStore, Watches};
use crate::writer::KubeObject;

/// What a watch has brought of one kind. Clones share it.
#[derive(Clone, Debug)]
pub struct OwnedCache<K: Resource<DynamicType = ()> + Clone + 'static> {
    store: Store<K>,
    label: &'static str,
}

impl<K: ManagedResource> OwnedCache<K> {
    /// Watches the objects that have this label, and tells whose were touched. The stream must be polled.
    pub fn watch(
        streams: &Watches,
        label: &'static str,
    ) -> (Self, BoxStream<'static, ResourceKey>) {
        Self::of_watch(streams.watch(Some(label)), label)
    }

    fn of_watch(
        (store, touched): WatchedStore<K>,
        label: &'static str,
    ) -> (Self, BoxStream<'static, ResourceKey>) {
        let whose = move |object: K| {
            Some(ResourceKey {
                namespace: object.namespace()?,
                name: object.labels().get(label)?.clone(),
            })
        };
        let keys =
            touched.filter_map(move |object| std::future::ready(object.ok().and_then(whose)));
        (Self::new(store, label), keys.boxed())
    }
}

impl<K: Resource<DynamicType = ()> + Clone + 'static> OwnedCache<K> {
    /// What is in a store, by this label.
    pub fn new(store: Store<K>, label: &'static str) -> Self {
        Self { store, label }
    }

    /// One object in a resource's namespace.
    pub fn get(&self, key: &ResourceKey, name: &str) -> Option<Arc<K>> {
        get(&self.store, key, name)
    }

    /// All that belong to a resource.
    pub fn owned_by(&self, key: &ResourceKey) -> Vec<K> {
        let all = self.store.state();
        let ours = all.iter().filter(|object| {
            object.namespace().as_ref() == Some(&key.namespace)
                && object.labels().get(self.label) == Some(&key.name)
        });
        ours.map(|object| (**object).clone()).collect()
    }

    /// Which version the store has of an object.
    pub fn version(&self, key: &ResourceKey, name: &str) -> Option<CachedVersion> {
        version(&self.store, key, name)
    }
}

/// One object of a store.
pub fn get<K>(store: &Store<K>, key: &ResourceKey, name: &str) -> Option<Arc<K>>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    store.get(&ObjectRef::new(name).within(&key.namespace))
}

/// Which version a store has of an object.
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

/// One object from Kubernetes itself.
pub async fn read<K: KubeObject>(
    client: &Client,
    key: &ResourceKey,
    name: &str,
) -> Result<Option<K>, Error> {
    let api: Api<K> = Api::namespaced(client.clone(), &key.namespace);
    api.get_opt(name).await.map_err(Error::kubernetes(format!(
        "read the {} {name}",
        K::kind(&())
    )))
}

/// All objects from Kubernetes itself whose label says that they belong to a resource.
pub async fn list<K>(client: &Client, key: &ResourceKey, label: &str) -> Result<Vec<K>, Error>
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    K: Clone + Debug + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), &key.namespace);
    let labelled = ListParams::default().labels(&format!("{label}={}", key.name));
    let list = api
        .list(&labelled)
        .await
        .map_err(Error::kubernetes(format!("list {}", K::plural(&()))))?;
    Ok(list.items)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::runtime::reflector::store::Writer;
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;

    fn pod(namespace: &str, name: &str, of: &str) -> Pod {
        serde_json::from_value(json!({ "metadata": {
            "name": name, "namespace": namespace, "uid": name, "resourceVersion": "7", "labels": { "db": of },
        } }))
        .unwrap()
    }

    #[tokio::test]
    async fn what_belongs_to_a_resource_is_in_its_namespace_and_says_so_by_its_label() {
        let mut writer = Writer::<Pod>::default();
        let (store, all) = (
            writer.as_reader(),
            ["shop", "bank"].map(|place| pod(place, "a", "orders")),
        );
        let other = pod("shop", "b", "baskets");
        all.iter()
            .chain([&other])
            .for_each(|pod| writer.apply_watcher_event(&Event::Apply(pod.clone())));
        let touched = futures::stream::iter([Ok(other)]).boxed();
        let (shelf, mut keys) = OwnedCache::of_watch((store, touched), "db");
        let orders = ResourceKey {
            namespace: "shop".into(),
            name: "orders".into(),
        };
        assert_eq!(
            shelf
                .owned_by(&orders)
                .iter()
                .map(ResourceExt::name_any)
                .collect::<Vec<_>>(),
            ["a"]
        );
        assert!(
            shelf.get(&orders, "b").is_some(),
            "it is there, whosever it is"
        );
        assert_eq!(
            shelf.version(&orders, "a"),
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
