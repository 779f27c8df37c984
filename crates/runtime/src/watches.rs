//! Watches that take care of themselves: each has its own backoff, logs its own errors and never passes one on, so
//! that one failing watch delays nobody else. Every change goes into a store *before* it is told, and what vanished
//! while a watch was away is told too.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use kube::core::{
    ClusterResourceScope, DeserializeGuard, NamespaceResourceScope, PartialObjectMeta,
};
use kube::runtime::WatchStreamExt;
use kube::runtime::reflector::{ObjectRef, Store, store::Writer};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::metrics::Metrics;

/// How many objects are asked for at a time: a page that is held in memory twice while it is read.
const PAGE: u32 = 250;

/// Where the operator looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everywhere.
    All,
    /// In one namespace.
    Namespace(String),
}

impl Scope {
    /// The API for a kind that lives in namespaces.
    pub fn api<K>(&self, client: Client) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType: Default>,
    {
        match self {
            Self::All => Api::all(client),
            Self::Namespace(namespace) => Api::namespaced(client, namespace),
        }
    }
}

/// A store, and the stream that fills it and names each object that was touched (deleted ones too). The stream must be
/// polled. Its items are results because that is what [`kube::runtime::Controller`] takes; they are never errors.
pub type WatchedStore<K> = (Store<K>, BoxStream<'static, watcher::Result<K>>);

/// How many watches have yet to bring everything once. A store of kube's tells only one of those who wait for that: it keeps
/// one waker, and the controller waits, too.
#[derive(Clone, Debug)]
pub struct CacheSync(Arc<watch::Sender<usize>>);

impl Default for CacheSync {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

impl CacheSync {
    /// Whether all have. Before that nothing can be told from what is not in a store.
    pub fn is_complete(&self) -> bool {
        *self.0.borrow() == 0
    }

    /// Resolves when all have.
    pub fn complete(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut missing = self.0.subscribe();
        async move {
            // An error says that all watches are gone, and with them everything else.
            let _ = missing.wait_for(|missing| *missing == 0).await;
        }
    }

    /// One more is waited for, until the returned is called.
    fn one_more(&self) -> impl FnOnce() + Send + 'static + use<> {
        self.0.send_modify(|missing| *missing += 1);
        let all = self.0.clone();
        move || all.send_modify(|missing| *missing -= 1)
    }
}

/// Starts watches in one scope.
#[derive(Clone)]
pub struct Watches {
    client: Client,
    scope: Scope,
    metrics: Metrics,
    cache_sync: CacheSync,
}

impl Watches {
    /// Watches through `client` in `scope`.
    pub fn new(client: Client, scope: Scope, metrics: Metrics) -> Self {
        Self {
            client,
            scope,
            metrics,
            cache_sync: CacheSync::default(),
        }
    }

    /// Whether all watches of kinds that live in namespaces have brought everything once. Others need not: an operator for
    /// some namespaces may not be allowed to see them.
    pub fn listed(&self) -> CacheSync {
        self.cache_sync.clone()
    }

    /// Watches a kind that lives in namespaces, as far as `labels` select it.
    pub fn watch<K>(&self, labels: Option<&str>) -> WatchedStore<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType: Default + Eq + Hash + Clone>,
        K: Clone + Debug + DeserializeOwned + Send + Sync + 'static,
        K::DynamicType: Send + Sync,
    {
        let events = watcher(self.scope.api(self.client.clone()), config(labels));
        feed(
            events,
            self.metrics.clone(),
            Some(Box::new(self.cache_sync.one_more())),
        )
    }

    /// Watches a kind that lives in no namespace, as far as `labels` select it.
    pub fn watch_cluster<K>(&self, labels: Option<&str>) -> WatchedStore<K>
    where
        K: Resource<Scope = ClusterResourceScope, DynamicType: Default + Eq + Hash + Clone>,
        K: Clone + Debug + DeserializeOwned + Send + Sync + 'static,
        K::DynamicType: Send + Sync,
    {
        feed(
            watcher(Api::all(self.client.clone()), config(labels)),
            self.metrics.clone(),
            None,
        )
    }

    /// Watches only the metadata of a kind that lives in namespaces: for mappings, at a fraction of the memory.
    pub fn watch_metadata<K>(&self, labels: Option<&str>) -> WatchedStore<PartialObjectMeta<K>>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType: Default + Eq + Hash + Clone>,
        K: Clone + Debug + Send + Sync + 'static,
        K::DynamicType: Send + Sync,
    {
        let events = watcher(
            self.scope.api::<PartialObjectMeta<K>>(self.client.clone()),
            config(labels),
        );
        // Metadata has the same shape in every object, so nothing of it fails to decode.
        let listed = Box::new(self.cache_sync.one_more());
        feed(
            events.map(|event| event.map(decoded)),
            self.metrics.clone(),
            Some(listed),
        )
    }

    /// Watches only the metadata of a kind that lives in no namespace.
    pub fn watch_cluster_metadata<K>(
        &self,
        labels: Option<&str>,
    ) -> WatchedStore<PartialObjectMeta<K>>
    where
        K: Resource<Scope = ClusterResourceScope, DynamicType: Default + Eq + Hash + Clone>,
        K: Clone + Debug + Send + Sync + 'static,
        K::DynamicType: Send + Sync,
    {
        let events = watcher(
            Api::<PartialObjectMeta<K>>::all(self.client.clone()),
            config(labels),
        );
        feed(
            events.map(|event| event.map(decoded)),
            self.metrics.clone(),
            None,
        )
    }
}

fn config(labels: Option<&str>) -> watcher::Config {
    let config = watcher::Config::default().page_size(PAGE);
    match labels {
        Some(labels) => config.labels(labels),
        None => config,
    }
}

fn decoded<K>(event: Event<K>) -> Event<DeserializeGuard<K>> {
    let guard = |object| DeserializeGuard(Ok(object));
    match event {
        Event::Apply(object) => Event::Apply(guard(object)),
        Event::Delete(object) => Event::Delete(guard(object)),
        Event::InitApply(object) => Event::InitApply(guard(object)),
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
    }
}

fn feed<K>(
    events: impl Stream<Item = watcher::Result<Event<DeserializeGuard<K>>>> + Send + 'static,
    metrics: Metrics,
    listed: Option<Done>,
) -> WatchedStore<K>
where
    K: Resource<DynamicType: Default + Eq + Hash + Clone> + Clone + Send + Sync + 'static,
    K::DynamicType: Send + Sync,
{
    let mut feed = Feed::new(metrics, listed);
    let store = feed.store.clone();
    // A copy is made when an object is told, not before: a list may be long.
    let told = events
        .default_backoff()
        .flat_map(move |event| stream::iter(feed.take(event)));
    (store, told.map(|object| Ok((*object).clone())).boxed())
}

/// Called when everything has been brought once.
type Done = Box<dyn FnOnce() + Send>;

/// What becomes of the events of one watch.
struct Feed<K>
where
    K: Resource<DynamicType: Default + Eq + Hash + Clone> + Clone + 'static,
{
    kind: String,
    writer: Writer<K>,
    store: Store<K>,
    metrics: Metrics,
    /// The error that the watch is in, so that each is logged once.
    complaint: Option<String>,
    /// Nothing once it was told.
    first_list: Option<Done>,
}

impl<K> Feed<K>
where
    K: Resource<DynamicType: Default + Eq + Hash + Clone> + Clone + 'static,
{
    fn new(metrics: Metrics, first_list: Option<Done>) -> Self {
        let writer = Writer::default();
        let kind = K::kind(&K::DynamicType::default()).into_owned();
        Self {
            kind,
            store: writer.as_reader(),
            writer,
            metrics,
            complaint: None,
            first_list,
        }
    }

    /// Puts it into the store, and returns what is to be told.
    fn take(&mut self, event: watcher::Result<Event<DeserializeGuard<K>>>) -> Vec<Arc<K>> {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                self.failed(&error.to_string());
                return Vec::new();
            }
        };
        // A watch that fails begins each attempt with `Init`: that is no recovery.
        if !matches!(event, Event::Init)
            && let Some(was) = self.complaint.take()
        {
            tracing::info!(kind = self.kind, was, "watching again");
        }
        match self.readable(event) {
            Some(Event::InitDone) => self.listed(),
            Some(event) => {
                self.writer.apply_watcher_event(&event);
                match event {
                    Event::Apply(object) | Event::Delete(object) => vec![Arc::new(object)],
                    // Told with the list's end, when the store shows them all.
                    Event::Init | Event::InitApply(_) | Event::InitDone => Vec::new(),
                }
            }
            None => Vec::new(),
        }
    }

    /// The list is complete: all in it are told, and so are those that were there before and are no more.
    fn listed(&mut self) -> Vec<Arc<K>> {
        let by_name = |object: Arc<K>| (ObjectRef::from_obj(&*object), object);
        let mut told: HashMap<_, _> = self.store.state().into_iter().map(by_name).collect();
        self.writer.apply_watcher_event(&Event::InitDone);
        told.extend(self.store.state().into_iter().map(by_name));
        if let Some(done) = self.first_list.take() {
            done();
        }
        told.into_values().collect()
    }

    /// The event as far as it can be read, without the fields that nobody looks at.
    fn readable(&self, event: Event<DeserializeGuard<K>>) -> Option<Event<K>> {
        Some(match event {
            Event::Apply(object) => Event::Apply(self.decode(object)?),
            Event::InitApply(object) => Event::InitApply(self.decode(object)?),
            // Gone is gone, whether or not its last words can be read.
            Event::Delete(object) => {
                let known = ObjectRef::new(&object.name_any())
                    .within(&object.namespace().unwrap_or_default());
                match self.decode(object) {
                    Some(object) => Event::Delete(object),
                    None => Event::Delete((*self.store.get(&known)?).clone()),
                }
            }
            Event::Init => Event::Init,
            Event::InitDone => Event::InitDone,
        })
    }

    fn decode(&self, DeserializeGuard(object): DeserializeGuard<K>) -> Option<K> {
        match object {
            Ok(mut object) => {
                object.managed_fields_mut().clear();
                Some(object)
            }
            Err(invalid) => {
                let (name, namespace) = (invalid.metadata.name, invalid.metadata.namespace);
                tracing::error!(
                    kind = self.kind,
                    namespace,
                    name,
                    error = invalid.error,
                    "skipping what cannot be read"
                );
                self.metrics.skipped(&self.kind);
                None
            }
        }
    }

    fn failed(&mut self, error: &str) {
        self.metrics.watch_failed(&self.kind);
        if self.complaint.as_deref() != Some(error) {
            tracing::warn!(kind = self.kind, error, "cannot watch; trying again");
            self.complaint = Some(error.to_owned());
        }
    }
}

#[cfg(test)]
#[path = "watches_tests.rs"]
mod tests;
