//! Observation and execution for BackupStores.

use evenkeel_api::backup::labels;
use evenkeel_api::{BackupStore, BackupStoreSpec};
use evenkeel_archive::tasks::{Request, Task};
use evenkeel_runtime::{
    Action, CacheSync, CachedVersion, Error, EventSpec, Expectations, Explanation, ObjectKey,
    ObjectWriter, Observation, ObserveFrom, Outcome, OwnedCache, Plan, Reconciler, ResourceKey,
    SharedClock, Triggers, Watches, cache,
};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret};
use kube::api::ObjectMeta;
use kube::runtime::reflector::Store;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::decide::{StoreCreate, StoreEngine, StorePatch, step};
use super::facts::{LastCheck, MissingInput, StoreFacts};
use super::listing::ListingFacts;
use super::status;
use crate::agent_pod::{AgentPod, StoreAccess, owner_reference, store_placement};
use crate::pod_facts::{PodFacts, delete_pod, find_pod};

/// The values of the task label of the pods.
const CHECK_TASK: &str = "check-store";
const LIST_TASK: &str = "list";
/// How many seconds a check may take.
const CHECK_SECONDS: u64 = 120;
/// How many seconds a listing may take.
const LIST_SECONDS: u64 = 300;
/// The keys that a Secret with credentials must have.
const SECRET_KEYS: [&str; 2] = ["accessKeyID", "secretAccessKey"];
/// The name of the controller as a field manager.
const MANAGER: &str = "evenkeel.dev/backup";

/// The caches of BackupStores and their pods.
#[derive(Clone)]
pub struct StoreCaches {
    /// The resources.
    pub stores: Store<BackupStore>,
    pods: OwnedCache<Pod>,
    sync: CacheSync,
}

/// Returns the caches and the triggers of reconciles. The caches are filled only while the triggers are polled.
pub fn watch(watches: &Watches) -> (StoreCaches, Triggers<BackupStore>) {
    let resources = watches.watch::<BackupStore>(None);
    let (pods, changed_pods) = OwnedCache::watch(watches, labels::STORE);
    let caches = StoreCaches {
        stores: resources.0.clone(),
        pods,
        sync: watches.cache_sync(),
    };
    let triggers = Triggers {
        resources,
        related: changed_pods,
        all: futures::stream::pending().boxed(),
    };
    (caches, triggers)
}

/// Returns the name of the pod that checks a store.
pub(super) fn pod_name(store: &BackupStore) -> String {
    format!("{}-store-check", store.name_any())
}

/// Returns the name of the pod that lists the backups in a store.
fn list_pod_name(store: &BackupStore) -> String {
    format!("{}-store-list", store.name_any())
}

/// The observed objects of a store.
pub struct StoreObjects {
    store: BackupStore,
    /// The pod of the check.
    pod: Option<Pod>,
    /// The pod of the listing.
    list_pod: Option<Pod>,
}

/// Reconciles the BackupStores of one scope.
pub struct StoreReconciler {
    client: Client,
    clock: SharedClock,
    caches: StoreCaches,
    expectations: Expectations<ResourceKey>,
    agent_image: Option<String>,
}

impl StoreReconciler {
    /// Returns a reconciler that reads `caches` and checks stores with this image of the agent.
    pub fn new(
        client: Client,
        caches: StoreCaches,
        agent_image: Option<String>,
        clock: SharedClock,
    ) -> Self {
        Self {
            client,
            expectations: Expectations::new(clock.clone()),
            clock,
            caches,
            agent_image,
        }
    }

    fn cached_version(&self, key: &ResourceKey, object: &ObjectKey) -> Option<CachedVersion> {
        match object.kind.as_str() {
            "BackupStore" => cache::version(&self.caches.stores, key, &object.name),
            "Pod" => self.caches.pods.version(key, &object.name),
            _ => None,
        }
    }

    async fn facts(&self, key: &ResourceKey, objects: &StoreObjects) -> Result<StoreFacts, Error> {
        let StoreObjects {
            store,
            pod,
            list_pod,
        } = objects;
        let now = self.clock.now();
        let (missing, versions) = self.inputs(key, &store.spec).await?;
        let inputs = json!([store.spec, versions, self.agent_image]).to_string();
        let digest = Sha256::digest(inputs.as_bytes());
        let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(StoreFacts {
            now,
            has_agent_image: self.agent_image.is_some(),
            missing,
            inputs: digits[..16].to_owned(),
            last_check: LastCheck::of(store),
            pod: PodFacts::of(pod.as_ref(), store.uid().as_deref(), now),
            listing: ListingFacts {
                request: store.annotations().get(labels::LIST_REQUEST).cloned(),
                answered: store
                    .status
                    .as_ref()
                    .map(|status| status.listed_request.clone())
                    .unwrap_or_default(),
                pod: PodFacts::of(list_pod.as_ref(), store.uid().as_deref(), now),
            },
        })
    }

    /// Reads the referenced objects. Returns the first problem, and the versions of the objects. Secrets are not watched.
    async fn inputs(
        &self,
        key: &ResourceKey,
        spec: &BackupStoreSpec,
    ) -> Result<(Option<MissingInput>, Vec<Value>), Error> {
        let mut versions = Vec::new();
        let version = |meta: &ObjectMeta| json!([meta.uid, meta.resource_version]);
        if StoreAccess::of(spec).is_none() {
            return Ok((Some(MissingInput::Place), versions));
        }
        if let Some(volume) = &spec.volume {
            let claim =
                cache::read::<PersistentVolumeClaim>(&self.client, key, &volume.claim).await?;
            let is_lost = |claim: &PersistentVolumeClaim| {
                let phase = claim.status.as_ref().and_then(|it| it.phase.as_deref());
                claim.metadata.deletion_timestamp.is_some() || phase == Some("Lost")
            };
            let Some(claim) = claim.filter(|claim| !is_lost(claim)) else {
                return Ok((Some(MissingInput::Claim(volume.claim.clone())), versions));
            };
            // The resourceVersion changes with every resize and bind; the data does not.
            versions.push(json!(claim.metadata.uid));
        }
        let s3 = spec.s3.as_ref();
        if let Some(name) = s3.and_then(|s3| s3.credentials.secret.as_ref()) {
            let Some(secret) = cache::read::<Secret>(&self.client, key, name).await? else {
                return Ok((Some(MissingInput::Secret(name.clone())), versions));
            };
            versions.push(version(&secret.metadata));
            if let Some(missing) = missing_key(name, &secret) {
                return Ok((Some(missing), versions));
            }
        }
        if let Some(name) = s3.and_then(|s3| Some(&s3.ca.as_ref()?.config_map)) {
            let Some(map) = cache::read::<ConfigMap>(&self.client, key, name).await? else {
                return Ok((Some(MissingInput::ConfigMap(name.clone())), versions));
            };
            versions.push(version(&map.metadata));
            let ca = map.data.as_ref().and_then(|data| data.get("ca.crt"));
            if !ca.is_some_and(|ca| ca.contains("-----BEGIN CERTIFICATE-----")) {
                return Ok((Some(MissingInput::ConfigMapKey(name.clone())), versions));
            }
        }
        Ok((None, versions))
    }

    fn build_pod(&self, store: &BackupStore, create: &StoreCreate) -> Result<Pod, Error> {
        let missing = |what: &'static str| Error::other("build the pod of a store", what);
        let access =
            StoreAccess::of(&store.spec).ok_or_else(|| missing("the spec has no place"))?;
        let image = self.agent_image.as_deref();
        let (name, label, task, seconds, annotations) = match create {
            StoreCreate::CheckPod { inputs } => (
                pod_name(store),
                CHECK_TASK,
                Task::CheckStore,
                CHECK_SECONDS,
                vec![(labels::INPUTS, inputs)],
            ),
            StoreCreate::ListPod { request } => (
                list_pod_name(store),
                LIST_TASK,
                Task::List,
                LIST_SECONDS,
                vec![(labels::INPUTS, request), (labels::LIST_REQUEST, request)],
            ),
        };
        let annotations = annotations.into_iter();
        let request = Request {
            store: access.config.clone(),
            task,
            deadline_seconds: seconds,
        };
        let pod = AgentPod {
            name: &name,
            namespace: &store.namespace().unwrap_or_default(),
            owner: owner_reference(store),
            task: label,
            labels: [(labels::STORE.to_owned(), store.name_any())].into(),
            annotations: annotations
                .map(|(key, value)| (key.to_owned(), value.clone()))
                .collect(),
            image: image.ok_or_else(|| missing("the image of the agent is unknown"))?,
            store: &access,
            request: &request,
            tls_secret: None,
            spool_bytes: None,
            placement: &store_placement(&store.spec),
        };
        Ok(pod.build()?)
    }
}

/// Returns the first required key without a value.
fn missing_key(name: &str, secret: &Secret) -> Option<MissingInput> {
    let value = |key: &str| secret.data.as_ref()?.get(key);
    let is_missing = |key: &str| value(key).is_none_or(|value| value.0.is_empty());
    let key = SECRET_KEYS.into_iter().find(|key| is_missing(key))?;
    Some(MissingInput::SecretKey {
        secret: name.to_owned(),
        key: key.to_owned(),
    })
}

impl Reconciler for StoreReconciler {
    type Engine = StoreEngine;
    type Resource = BackupStore;
    type Objects = StoreObjects;
    type ProbeResult = ();

    fn probe_timeout_result() {}

    async fn probe(&self, _key: ResourceKey) -> Option<()> {
        Some(())
    }

    async fn observe(
        &self,
        key: &ResourceKey,
        from: ObserveFrom<'_, ()>,
    ) -> Result<Option<Observation<Self>>, Error> {
        let is_live = from == ObserveFrom::Live
            || !self.caches.sync.is_complete()
            || !self
                .expectations
                .satisfied(key, |object| self.cached_version(key, object));
        let store = if is_live {
            cache::read::<BackupStore>(&self.client, key, &key.name).await?
        } else {
            cache::get(&self.caches.stores, key, &key.name).map(|store| (*store).clone())
        };
        let Some(store) = store.filter(|store| store.metadata.deletion_timestamp.is_none()) else {
            return Ok(None);
        };
        let names = [pod_name(&store), list_pod_name(&store)];
        let [pod, list_pod] = if is_live {
            let [check, list] = names.each_ref();
            [
                find_pod(&self.client, key, check).await?,
                find_pod(&self.client, key, list).await?,
            ]
        } else {
            names.map(|name| self.caches.pods.get(key, &name).map(|pod| (*pod).clone()))
        };
        let objects = StoreObjects {
            store,
            pod,
            list_pod,
        };
        Ok(Some(Observation {
            facts: self.facts(key, &objects).await?,
            objects,
            probe_result: (),
            is_live,
        }))
    }

    async fn execute(
        &self,
        observation: &Observation<Self>,
        action: &Action<'_, StoreEngine>,
        _may_write: &(dyn Fn() -> bool + Sync),
    ) -> Result<Outcome, Error> {
        let StoreObjects {
            store,
            pod,
            list_pod,
        } = &observation.objects;
        let key = ResourceKey {
            namespace: store.namespace().unwrap_or_default(),
            name: store.name_any(),
        };
        let writer = ObjectWriter {
            client: &self.client,
            expectations: &self.expectations,
            key: &key,
            field_manager: MANAGER,
            unwatched_kinds: &[],
        };
        match action {
            Action::Create(create) => writer.create(&self.build_pod(store, create)?).await,
            Action::Patch(StorePatch::DeleteCheckPod { by_force }) => {
                delete_pod(&writer, pod.as_ref(), *by_force).await
            }
            Action::Patch(StorePatch::DeleteListPod { by_force }) => {
                delete_pod(&writer, list_pod.as_ref(), *by_force).await
            }
            Action::Apply(()) | Action::Disruption(()) => Ok(Outcome::Done),
        }
    }

    fn is_prerequisite(_action: &Action<'_, StoreEngine>) -> bool {
        false
    }

    fn status(
        &self,
        observation: &Observation<Self>,
        _plan: &Plan<StoreEngine>,
        error: Option<&Error>,
    ) -> Option<Value> {
        let facts = &observation.facts;
        let status = status::status(&observation.objects.store, facts, &step(facts), error);
        serde_json::to_value(status).ok()
    }

    fn resource<'o>(&self, observation: &'o Observation<Self>) -> &'o BackupStore {
        &observation.objects.store
    }

    /// Returns a warning if the store becomes unusable.
    fn state_events(
        &self,
        observation: &Observation<Self>,
        _plan: &Plan<StoreEngine>,
    ) -> Vec<EventSpec> {
        let (facts, store) = (&observation.facts, &observation.objects.store);
        let new = status::status(store, facts, &step(facts), None);
        let old = store.status.as_ref().map(|status| &status.conditions);
        let reason =
            |conditions: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition]| {
                crate::conditions::find(conditions, status::READY).map(|it| it.reason.clone())
            };
        let has_changed = old.and_then(|old| reason(old)) != reason(&new.conditions);
        let ready = crate::conditions::find(&new.conditions, status::READY);
        match ready {
            Some(ready) if has_changed && ready.status == "False" => {
                vec![EventSpec::warning(
                    &ready.reason,
                    "CheckStore",
                    &*ready.message,
                )]
            }
            Some(ready) if has_changed && ready.status == "True" => {
                vec![EventSpec::normal(
                    &ready.reason,
                    "CheckStore",
                    &*ready.message,
                )]
            }
            _ => Vec::new(),
        }
    }

    fn explain(&self, _observation: &Observation<Self>, _plan: &Plan<StoreEngine>) -> Explanation {
        Explanation::default()
    }

    fn decision_log_meta(&self, _store: &BackupStore) -> Option<ObjectMeta> {
        None
    }

    fn action_name(action: &Action<'_, StoreEngine>) -> &'static str {
        match action {
            Action::Create(StoreCreate::CheckPod { .. }) => "create-check-pod",
            Action::Create(StoreCreate::ListPod { .. }) => "create-list-pod",
            Action::Patch(StorePatch::DeleteCheckPod { .. }) => "delete-check-pod",
            Action::Patch(StorePatch::DeleteListPod { .. }) => "delete-list-pod",
            Action::Apply(()) | Action::Disruption(()) => "none",
        }
    }

    fn expectations(&self) -> &Expectations<ResourceKey> {
        &self.expectations
    }
}

#[cfg(test)]
#[path = "sequence_tests.rs"]
mod tests;
