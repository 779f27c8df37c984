//! Observation and execution for Backups.

use evenkeel_api::backup::labels;
use evenkeel_api::{Backup, BackupStore};
use evenkeel_archive::tasks::{Request, Task};
use evenkeel_runtime::{
    Action, CacheSync, CachedVersion, Error, EventSpec, Expectations, Explanation, ObjectKey,
    ObjectWriter, Observation, ObserveFrom, Outcome, OwnedCache, Plan, Reconciler, ResourceKey,
    SharedClock, Triggers, Watches, cache,
};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ObjectMeta;
use kube::runtime::reflector::Store;
use kube::{Client, ResourceExt};
use serde_json::Value;

use super::decide::{BackupControl, BackupCreate, BackupStep, step};
use super::facts::{BackupFacts, SourceFacts, StoreState};
use super::status;
use crate::agent_pod::{AgentPod, StoreAccess, TLS_PATH, owner_reference, store_placement};
use crate::pod_facts::{PodFacts, delete_pod, find_pod};
use crate::{ClusterSource, Engines, SnapshotSource};

/// The value of the task label of pods that take a snapshot.
const SNAPSHOT: &str = "snapshot";
/// The value of the task label of pods that read a manifest.
const IMPORT: &str = "import";
/// The time between the deadline of the agent and that of the Backup, so that the agent's report is read in time.
const REPORT_SECONDS: u64 = 5;
/// The name of the controller as a field manager.
const MANAGER: &str = "evenkeel.dev/backup";

/// The caches of Backups, their pods and their stores.
#[derive(Clone)]
pub struct BackupCaches {
    /// The resources.
    pub backups: Store<Backup>,
    pods: OwnedCache<Pod>,
    stores: Store<BackupStore>,
    sync: CacheSync,
}

/// Returns the caches and the triggers of reconciles. The caches are filled only while the triggers are polled. `stores` is
/// the cache of the BackupStores' controller.
pub fn watch(watches: &Watches, stores: Store<BackupStore>) -> (BackupCaches, Triggers<Backup>) {
    let resources = watches.watch::<Backup>(None);
    let (pods, changed_pods) = OwnedCache::watch(watches, labels::BACKUP);
    let caches = BackupCaches {
        backups: resources.0.clone(),
        pods,
        stores,
        sync: watches.cache_sync(),
    };
    let triggers = Triggers {
        resources,
        related: changed_pods,
        all: futures::stream::pending().boxed(),
    };
    (caches, triggers)
}

/// Returns the name of the pod of a Backup. All Backups of a cluster have the same: two snapshots never run at once.
pub fn pod_name(backup: &Backup, engines: &Engines) -> String {
    if backup.spec.existing.is_some() {
        return format!("{}-import", backup.name_any());
    }
    let cluster = &backup.spec.cluster;
    let engine = engines.get(cluster.kind);
    let engine = engine.map_or("cluster", |engine| engine.name());
    format!("{}-{engine}-backup", cluster.name)
}

/// The observed objects of a Backup.
pub struct BackupObjects {
    backup: Backup,
    pod: Option<Pod>,
    store: Option<BackupStore>,
    source: Option<ClusterSource>,
}

/// Reconciles the Backups of one scope.
pub struct BackupReconciler {
    client: Client,
    clock: SharedClock,
    caches: BackupCaches,
    engines: Engines,
    expectations: Expectations<ResourceKey>,
    agent_image: Option<String>,
}

impl BackupReconciler {
    /// Returns a reconciler that reads `caches` and takes backups with this image of the agent.
    pub fn new(
        client: Client,
        caches: BackupCaches,
        engines: Engines,
        agent_image: Option<String>,
        clock: SharedClock,
    ) -> Self {
        Self {
            client,
            expectations: Expectations::new(clock.clone()),
            clock,
            caches,
            engines,
            agent_image,
        }
    }

    fn cached_version(&self, key: &ResourceKey, object: &ObjectKey) -> Option<CachedVersion> {
        match object.kind.as_str() {
            "Backup" => cache::version(&self.caches.backups, key, &object.name),
            "Pod" => self.caches.pods.version(key, &object.name),
            _ => None,
        }
    }

    fn cached(&self, key: &ResourceKey) -> Option<BackupObjects> {
        let backup = (*cache::get(&self.caches.backups, key, &key.name)?).clone();
        let pod = self.caches.pods.get(key, &pod_name(&backup, &self.engines));
        let store = cache::get(&self.caches.stores, key, &backup.spec.store);
        Some(BackupObjects {
            pod: pod.map(|pod| (*pod).clone()),
            store: store.map(|store| (*store).clone()),
            source: None,
            backup,
        })
    }

    async fn read_live(&self, key: &ResourceKey) -> Result<Option<BackupObjects>, Error> {
        let Some(backup) = cache::read::<Backup>(&self.client, key, &key.name).await? else {
            return Ok(None);
        };
        let name = pod_name(&backup, &self.engines);
        let (pod, store) = tokio::try_join!(
            find_pod(&self.client, key, &name),
            cache::read::<BackupStore>(&self.client, key, &backup.spec.store),
        )?;
        Ok(Some(BackupObjects {
            pod,
            store,
            source: None,
            backup,
        }))
    }

    fn facts(&self, objects: &BackupObjects) -> BackupFacts {
        let now = self.clock.now();
        let backup = &objects.backup;
        BackupFacts {
            has_agent_image: self.agent_image.is_some(),
            store: StoreState::of(objects.store.as_ref()),
            pod: PodFacts::of(objects.pod.as_ref(), backup.uid().as_deref(), now),
            ..BackupFacts::of(backup, now)
        }
    }

    async fn observe_live(&self, key: &ResourceKey) -> Result<Option<Observation<Self>>, Error> {
        let objects = self.read_live(key).await?;
        let Some(mut objects) = objects.filter(|it| !is_terminating(&it.backup)) else {
            return Ok(None);
        };
        let mut facts = self.facts(&objects);
        if step(&facts) == BackupStep::ReadSource {
            let cluster = &objects.backup.spec.cluster;
            let cluster_key = ResourceKey {
                namespace: key.namespace.clone(),
                name: cluster.name.clone(),
            };
            objects.source = match self.engines.get(cluster.kind) {
                Some(engine) => engine.cluster(&cluster_key).await?,
                None => None,
            };
            facts.source = Some(SourceFacts::of(objects.source.as_ref()));
        }
        Ok(Some(Observation {
            facts,
            objects,
            probe_result: (),
            is_live: true,
        }))
    }

    fn attempt_pod(
        &self,
        objects: &BackupObjects,
        facts: &BackupFacts,
        create: &BackupCreate,
    ) -> Result<Option<Pod>, Error> {
        let backup = &objects.backup;
        let (Some(store), Some(image)) = (&objects.store, &self.agent_image) else {
            return Ok(None);
        };
        let Some(access) = StoreAccess::of(&store.spec) else {
            return Ok(None);
        };
        let source = objects.source.as_ref();
        let placement = match source {
            Some(cluster) => cluster.placement.clone(),
            None => store_placement(&store.spec),
        };
        let mut members = source.iter().flat_map(|source| &source.members);
        let source = members.find(|it| it.cluster.member == create.member);
        let Some(task) = self.task(backup, source) else {
            return Ok(None);
        };
        let remaining = facts.deadline.since(facts.now).as_secs();
        let request = Request {
            store: access.config.clone(),
            task,
            deadline_seconds: remaining.saturating_sub(REPORT_SECONDS).max(1),
        };
        let mut labels_of_pod = vec![(labels::BACKUP.to_owned(), backup.name_any())];
        let schedule = backup.labels().get(labels::SCHEDULE);
        labels_of_pod.extend(schedule.map(|name| (labels::SCHEDULE.to_owned(), name.clone())));
        let pod = AgentPod {
            name: &pod_name(backup, &self.engines),
            namespace: &backup.namespace().unwrap_or_default(),
            owner: owner_reference(backup),
            task: source.map_or(IMPORT, |_| SNAPSHOT),
            labels: labels_of_pod.into_iter().collect(),
            annotations: [
                (labels::ATTEMPT.to_owned(), create.attempt.to_string()),
                (labels::MEMBER.to_owned(), create.member.clone()),
            ]
            .into(),
            image,
            store: &access,
            request: &request,
            tls_secret: source.map(|source| source.tls_secret.as_str()),
            spool_bytes: source.map(|source| source.quota),
            placement: &placement,
        };
        Ok(Some(pod.build()?))
    }

    /// Returns the task of a Backup; `None` if the member that was chosen is not observed.
    fn task(&self, backup: &Backup, source: Option<&SnapshotSource>) -> Option<Task> {
        if let Some(location) = &backup.spec.existing {
            return Some(Task::ReadManifest {
                location: location.clone(),
            });
        }
        let engine = self.engines.get(backup.spec.cluster.kind)?;
        // The same for all attempts, and for no other Backup.
        let name = format!("{}-{}", backup.name_any(), backup.uid()?);
        Some(engine.snapshot_task(source?, &name, TLS_PATH.into()))
    }
}

fn is_terminating(backup: &Backup) -> bool {
    backup.metadata.deletion_timestamp.is_some()
}

impl Reconciler for BackupReconciler {
    type Engine = BackupControl;
    type Resource = Backup;
    type Objects = BackupObjects;
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
        let is_current = || {
            let version = |object: &ObjectKey| self.cached_version(key, object);
            self.caches.sync.is_complete() && self.expectations.satisfied(key, version)
        };
        if from == ObserveFrom::Live || !is_current() {
            return self.observe_live(key).await;
        }
        let objects = self.cached(key);
        let Some(objects) = objects.filter(|it| !is_terminating(&it.backup)) else {
            return Ok(None);
        };
        let facts = self.facts(&objects);
        // Clusters are not cached here.
        if step(&facts) == BackupStep::ReadSource {
            return self.observe_live(key).await;
        }
        Ok(Some(Observation {
            facts,
            objects,
            probe_result: (),
            is_live: false,
        }))
    }

    async fn execute(
        &self,
        observation: &Observation<Self>,
        action: &Action<'_, BackupControl>,
        _may_write: &(dyn Fn() -> bool + Sync),
    ) -> Result<Outcome, Error> {
        let objects = &observation.objects;
        let key = ResourceKey {
            namespace: objects.backup.namespace().unwrap_or_default(),
            name: objects.backup.name_any(),
        };
        let writer = ObjectWriter {
            client: &self.client,
            expectations: &self.expectations,
            key: &key,
            field_manager: MANAGER,
            unwatched_kinds: &[],
        };
        match action {
            Action::Create(create) => {
                match self.attempt_pod(objects, &observation.facts, create)? {
                    Some(pod) => writer.create(&pod).await,
                    None => Ok(Outcome::Conflict),
                }
            }
            Action::Patch(delete) => {
                delete_pod(&writer, objects.pod.as_ref(), delete.by_force).await
            }
            Action::Apply(()) | Action::Disruption(()) => Ok(Outcome::Done),
        }
    }

    fn is_prerequisite(_action: &Action<'_, BackupControl>) -> bool {
        false
    }

    /// A Backup that fails because of a fact in a cache that lags behind would fail for ever.
    fn confirm_live(plan: &Plan<BackupControl>) -> bool {
        plan.waits.is_empty() && plan.requeue != evenkeel_runtime::Requeue::OnChange
    }

    fn status(
        &self,
        observation: &Observation<Self>,
        _plan: &Plan<BackupControl>,
        error: Option<&Error>,
    ) -> Option<Value> {
        let (backup, facts) = (&observation.objects.backup, &observation.facts);
        let status = status::status(backup, facts, &step(facts), error)?;
        serde_json::to_value(status).ok()
    }

    fn resource<'o>(&self, observation: &'o Observation<Self>) -> &'o Backup {
        &observation.objects.backup
    }

    fn event_for(
        &self,
        _observation: &Observation<Self>,
        action: &Action<'_, BackupControl>,
    ) -> Option<EventSpec> {
        match action {
            Action::Create(create) => Some(status::start_event(create)),
            Action::Patch(_) | Action::Apply(()) | Action::Disruption(()) => None,
        }
    }

    fn state_events(
        &self,
        observation: &Observation<Self>,
        _plan: &Plan<BackupControl>,
    ) -> Vec<EventSpec> {
        let (backup, facts) = (&observation.objects.backup, &observation.facts);
        status::outcome_events(backup, facts, &step(facts))
    }

    fn explain(
        &self,
        _observation: &Observation<Self>,
        _plan: &Plan<BackupControl>,
    ) -> Explanation {
        Explanation::default()
    }

    fn decision_log_meta(&self, _backup: &Backup) -> Option<ObjectMeta> {
        None
    }

    fn action_name(action: &Action<'_, BackupControl>) -> &'static str {
        match action {
            Action::Create(_) => "create-backup-pod",
            Action::Patch(_) => "delete-backup-pod",
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
