//! Watches that handle their errors: each has its own backoff, logs its own errors and never passes them on, so that a
//! failing watch does not delay others. Every change is in the store *before* it is emitted, and objects that were
//! deleted while a watch was interrupted are emitted, too.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use kube::core::{ClusterResourceScope, DeserializeGuard, NamespaceResourceScope};
use kube::runtime::WatchStreamExt;
use kube::runtime::reflector::{ObjectRef, Store, store::Writer};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::metrics::Metrics;

/// The number of objects per page of a list. A page is in memory twice while it is decoded.
const PAGE_SIZE: u32 = 250;

/// The namespaces that an operator watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All namespaces.
    All,
    /// One namespace.
    Namespace(String),
}

impl Scope {
    fn api<K>(&self, client: Client) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType: Default>,
    {
        match self {
            Self::All => Api::all(client),
            Self::Namespace(namespace) => Api::namespaced(client, namespace),
        }
    }
}

/// A store, and the stream that fills it and emits each changed or deleted object. The stream must be polled. Its items
/// are results because [`kube::runtime::Controller`] requires results; they are never errors.
pub type WatchedStore<K> = (Store<K>, BoxStream<'static, watcher::Result<K>>);

/// The number of watches without a complete first list. The list of a kind that the API server does not serve is complete and
/// empty: an operator starts before the CustomResourceDefinition of a new kind is applied. kube's `Store::wait_until_ready` wakes only one waiter, and the
/// controller is one already.
#[derive(Clone, Debug)]
pub struct CacheSync(Arc<watch::Sender<usize>>);

impl Default for CacheSync {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

impl CacheSync {
    /// Returns true if all first lists are complete. Before, an object that is not in a store may exist.
    pub fn is_complete(&self) -> bool {
        *self.0.borrow() == 0
    }

    /// Resolves when all first lists are complete.
    pub fn complete(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut pending = self.0.subscribe();
        async move {
            // An error means that all watches are gone: the program ends.
            let _ = pending.wait_for(|pending| *pending == 0).await;
        }
    }

    /// Adds a watch. The returned function marks its first list as complete.
    fn add(&self) -> impl FnOnce() + Send + 'static + use<> {
        self.0.send_modify(|pending| *pending += 1);
        let pending = self.0.clone();
        move || pending.send_modify(|pending| *pending -= 1)
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
    /// Returns the watches of `client` in `scope`.
    pub fn new(client: Client, scope: Scope, metrics: Metrics) -> Self {
        Self {
            client,
            scope,
            metrics,
            cache_sync: CacheSync::default(),
        }
    }

    /// Returns the sync state of all watches of namespaced kinds. Watches of cluster-scoped kinds are optional: an operator
    /// for some namespaces may have no permission for them.
    pub fn cache_sync(&self) -> CacheSync {
        self.cache_sync.clone()
    }

    /// Watches a namespaced kind with a label selector.
    pub fn watch<K>(&self, labels: Option<&str>) -> WatchedStore<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType: Default + Eq + Hash + Clone>,
        K: Clone + Debug + DeserializeOwned + Send + Sync + 'static,
        K::DynamicType: Send + Sync,
    {
        let events = watcher(self.scope.api(self.client.clone()), config(labels));
        let first_list_complete = Box::new(self.cache_sync.add());
        let feed = Feed::new(self.metrics.clone(), Some(first_list_complete), |_| ());
        watched_store(events, feed)
    }

    /// Watches a cluster-scoped kind. `trim` removes the parts of an object that need not be in memory.
    pub fn watch_cluster<K>(&self, trim: fn(&mut K)) -> WatchedStore<K>
    where
        K: Resource<Scope = ClusterResourceScope, DynamicType: Default + Eq + Hash + Clone>,
        K: Clone + Debug + DeserializeOwned + Send + Sync + 'static,
        K::DynamicType: Send + Sync,
    {
        let events = watcher(Api::all(self.client.clone()), config(None));
        watched_store(events, Feed::new(self.metrics.clone(), None, trim))
    }
}

/// Returns true if the kind of a list does not exist. A list of a kind that exists is never answered with 404: one of a
/// namespace that does not exist is empty, and an API server that does not know its CustomResourceDefinitions yet answers 503.
fn is_kind_missing(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404)
}

fn config(labels: Option<&str>) -> watcher::Config {
    let config = watcher::Config::default().page_size(PAGE_SIZE);
    match labels {
        Some(labels) => config.labels(labels),
        None => config,
    }
}

fn watched_store<K>(
    events: impl Stream<Item = watcher::Result<Event<DeserializeGuard<K>>>> + Send + 'static,
    mut feed: Feed<K>,
) -> WatchedStore<K>
where
    K: Resource<DynamicType: Default + Eq + Hash + Clone> + Clone + Send + Sync + 'static,
    K::DynamicType: Send + Sync,
{
    let store = feed.store.clone();
    // An object is cloned when it is emitted, not before: a list may be long.
    let changed = events
        .default_backoff()
        .flat_map(move |event| stream::iter(feed.handle(event)));
    (store, changed.map(|object| Ok((*object).clone())).boxed())
}

/// Called when the first list is complete.
type OnComplete = Box<dyn FnOnce() + Send>;

/// Handles the events of one watch.
struct Feed<K>
where
    K: Resource<DynamicType: Default + Eq + Hash + Clone> + Clone + 'static,
{
    kind: String,
    writer: Writer<K>,
    store: Store<K>,
    metrics: Metrics,
    /// The current error of the watch, so that each error is logged once.
    error: Option<String>,
    /// `None` after the first list.
    first_list_complete: Option<OnComplete>,
    /// Removes the parts of an object that need not be in memory.
    trim: fn(&mut K),
}

impl<K> Feed<K>
where
    K: Resource<DynamicType: Default + Eq + Hash + Clone> + Clone + 'static,
{
    fn new(metrics: Metrics, first_list_complete: Option<OnComplete>, trim: fn(&mut K)) -> Self {
        let writer = Writer::default();
        let kind = K::kind(&K::DynamicType::default()).into_owned();
        Self {
            kind,
            store: writer.as_reader(),
            writer,
            metrics,
            error: None,
            first_list_complete,
            trim,
        }
    }

    /// Applies an event to the store, and returns the changed objects.
    fn handle(&mut self, event: watcher::Result<Event<DeserializeGuard<K>>>) -> Vec<Arc<K>> {
        let event = match event {
            Ok(event) => event,
            Err(error) if is_kind_missing(&error) => {
                self.failed(
                    "the API server does not serve this kind: apply its CustomResourceDefinition",
                );
                self.complete_first_list();
                return Vec::new();
            }
            Err(error) => {
                self.failed(&error.to_string());
                return Vec::new();
            }
        };
        // A failing watch begins each attempt with `Init`, which does not end the error.
        if !matches!(event, Event::Init)
            && let Some(error) = self.error.take()
        {
            tracing::info!(kind = self.kind, error, "watch recovered");
        }
        match self.decoded(event) {
            Some(Event::InitDone) => self.finish_list(),
            Some(event) => {
                self.writer.apply_watcher_event(&event);
                match event {
                    Event::Apply(object) | Event::Delete(object) => vec![Arc::new(object)],
                    // Emitted at the end of the list, when the store has all objects.
                    Event::Init | Event::InitApply(_) | Event::InitDone => Vec::new(),
                }
            }
            None => Vec::new(),
        }
    }

    /// Ends a list. Returns its objects, and those that were in the store before and are gone.
    fn finish_list(&mut self) -> Vec<Arc<K>> {
        let by_name = |object: Arc<K>| (ObjectRef::from_obj(&*object), object);
        let mut changed: HashMap<_, _> = self.store.state().into_iter().map(by_name).collect();
        self.writer.apply_watcher_event(&Event::InitDone);
        changed.extend(self.store.state().into_iter().map(by_name));
        self.complete_first_list();
        changed.into_values().collect()
    }

    fn complete_first_list(&mut self) {
        if let Some(complete) = self.first_list_complete.take() {
            complete();
        }
    }

    /// Returns the event with decoded objects, without their managed fields. `None` if an object cannot be decoded.
    fn decoded(&self, event: Event<DeserializeGuard<K>>) -> Option<Event<K>> {
        Some(match event {
            Event::Apply(object) => Event::Apply(self.decode(object)?),
            Event::InitApply(object) => Event::InitApply(self.decode(object)?),
            // A deletion counts even if the last version cannot be decoded.
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
                (self.trim)(&mut object);
                Some(object)
            }
            Err(invalid) => {
                let (name, namespace) = (invalid.metadata.name, invalid.metadata.namespace);
                tracing::error!(
                    kind = self.kind,
                    namespace,
                    name,
                    error = invalid.error,
                    "skipped an object that cannot be decoded"
                );
                self.metrics.skipped(&self.kind);
                None
            }
        }
    }

    fn failed(&mut self, error: &str) {
        self.metrics.watch_failed(&self.kind);
        if self.error.as_deref() != Some(error) {
            tracing::warn!(kind = self.kind, error, "watch failed, retrying");
            self.error = Some(error.to_owned());
        }
    }
}

#[cfg(test)]
#[path = "watches_tests.rs"]
mod tests;
