//! Reconciles BackupSchedules: watches, observation and execution. It contains no decisions.

use std::sync::Arc;

use evenkeel_api::backup::labels;
use evenkeel_api::{Backup, BackupSchedule, BackupStore, DrillResult, quantity};
use evenkeel_archive::tasks::PruneTask;
use evenkeel_runtime::{
    Action, CachedVersion, Error, EventSpec, Expectations, Expected, Explanation, ObjectKey,
    ObjectWriter, Observation, ObserveFrom, Outcome, Plan, Reconciler, ResourceKey, SharedClock,
    cache,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{ListParams, ObjectMeta, Patch, PatchParams};
use kube::runtime::reflector::Store;
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{Value, json};

use super::build::{self, DrillParams, PodParams};
use super::decide::{Outlook, Schedules};
use super::facts::ScheduleFacts;
use super::observe::{ScheduleObjects, object_time};
use super::plan::{ScheduleCreate, SchedulePatch, ScheduleWait};
use super::status::{self, StatusOf};
use super::watches::ScheduleCaches;
use crate::agent_pod::StoreAccess;
use crate::engine::{DrillSource, Engines};

/// The name of the controller in events and as a field manager.
pub const CONTROLLER: &str = "evenkeel.dev/backup-schedule";
/// The seconds that a drill may take per GiB of data, for a store of 20 MiB/s, and the least.
const DRILL_SECONDS_PER_GIB: u64 = 180;
const MIN_DRILL_SECONDS: u64 = 1_800;

/// Reconciles the BackupSchedules of one scope.
pub struct ScheduleReconciler {
    client: Client,
    clock: SharedClock,
    engines: Engines,
    agent_image: Option<String>,
    caches: ScheduleCaches,
    expectations: Expectations<ResourceKey>,
}

impl ScheduleReconciler {
    /// Returns a reconciler that reads `caches`, and starts agents with this image.
    pub fn new(
        client: Client,
        caches: ScheduleCaches,
        engines: Engines,
        agent_image: Option<String>,
        clock: SharedClock,
    ) -> Self {
        Self {
            expectations: Expectations::new(clock.clone()),
            client,
            clock,
            engines,
            agent_image,
            caches,
        }
    }

    fn version(&self, key: &ResourceKey, object: &ObjectKey) -> Option<CachedVersion> {
        let (caches, name) = (&self.caches, &object.name);
        match object.kind.as_str() {
            "BackupSchedule" => cache::version(&caches.schedules, key, name),
            "Backup" => cache::version(&caches.backups, key, name),
            "Pod" => cache::version(&caches.pods, key, name),
            _ => None,
        }
    }

    /// Returns the objects around a schedule from the caches, without the cluster.
    fn cached(&self, key: &ResourceKey) -> Option<ScheduleObjects> {
        let schedule = cache::get(&self.caches.schedules, key, &key.name)?;
        let store = cache::get(&self.caches.stores, key, &schedule.spec.policy.store);
        Some(ScheduleObjects {
            schedule: (*schedule).clone(),
            backups: in_namespace(&self.caches.backups, key),
            store: store.map(|store| (*store).clone()),
            pods: in_namespace(&self.caches.pods, key),
            cluster: None,
        })
    }

    /// Reads the objects around a schedule from the API server, without the cluster.
    async fn read_live(&self, key: &ResourceKey) -> Result<Option<ScheduleObjects>, Error> {
        let schedule = cache::read::<BackupSchedule>(&self.client, key, &key.name).await?;
        let Some(schedule) = schedule else {
            return Ok(None);
        };
        let (backups, pods) = (self.api::<Backup>(key), self.api::<Pod>(key));
        let all = ListParams::default();
        let agents = ListParams::default().labels(labels::TASK);
        let list = async {
            let list = backups.list(&all).await;
            list.map_err(Error::kubernetes("list backups".to_owned()))
        };
        let list_pods = async {
            let list = pods.list(&agents).await;
            list.map_err(Error::kubernetes("list pods".to_owned()))
        };
        let store = cache::read::<BackupStore>(&self.client, key, &schedule.spec.policy.store);
        let (backups, pods, store) = tokio::try_join!(list, list_pods, store)?;
        Ok(Some(ScheduleObjects {
            schedule,
            backups: backups.items,
            store,
            pods: pods.items,
            cluster: None,
        }))
    }

    fn api<K>(&self, key: &ResourceKey) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    /// Adds the cluster, which is always read from the API server.
    async fn with_cluster(&self, mut objects: ScheduleObjects) -> Result<ScheduleObjects, Error> {
        let reference = objects.schedule.spec.cluster.clone();
        if let Some(engine) = self.engines.get(reference.kind) {
            let key = ResourceKey {
                namespace: objects.schedule.namespace().unwrap_or_default(),
                name: reference.name,
            };
            let source = engine.cluster(&key).await?;
            objects.cluster = source.map(|source| (engine.name(), source));
        }
        Ok(objects)
    }

    async fn create(
        &self,
        writer: &ObjectWriter<'_>,
        observation: &Observation<Self>,
        create: &ScheduleCreate,
    ) -> Result<Outcome, Error> {
        let objects = &observation.objects;
        match create {
            ScheduleCreate::Backup { name, run, why: _ } => {
                writer
                    .create(&build::backup(&objects.schedule, name, *run))
                    .await
            }
            ScheduleCreate::PrunePod { lineage, delete } => {
                let Some((engine, cluster)) = &objects.cluster else {
                    return Ok(Outcome::Conflict);
                };
                let Some(store) = store_access(objects) else {
                    return Ok(Outcome::Conflict);
                };
                let task = PruneTask {
                    engine: (*engine).to_owned(),
                    namespace: writer.key.namespace.clone(),
                    name: objects.schedule.spec.cluster.name.clone(),
                    lineage: lineage.clone(),
                    delete: delete.clone(),
                };
                let params = self.pod_params(objects, &store)?;
                let pod = build::prune_pod(params, task, &cluster.placement)?;
                writer.create(&pod).await
            }
            ScheduleCreate::DrillPod { backup, uid, due } => {
                let Some(backup) = objects.backup(backup, uid) else {
                    return Ok(Outcome::Conflict);
                };
                let size = backup.status.as_ref().map(|status| status.size.clone());
                let size = quantity::bytes(&Quantity(size.unwrap_or_default())).unwrap_or_default();
                let gib = size.div_ceil(1 << 30);
                let drill = DrillParams {
                    backup,
                    size,
                    due: *due,
                    deadline_seconds: (gib * DRILL_SECONDS_PER_GIB).max(MIN_DRILL_SECONDS),
                    engine: objects.cluster.as_ref().map_or("", |(engine, _)| *engine),
                };
                self.create_drill_pod(writer, observation, drill).await
            }
        }
    }

    async fn create_drill_pod(
        &self,
        writer: &ObjectWriter<'_>,
        observation: &Observation<Self>,
        drill: DrillParams<'_>,
    ) -> Result<Outcome, Error> {
        let objects = &observation.objects;
        let Some(store) = store_access(objects) else {
            return Ok(Outcome::Conflict);
        };
        let reference = &objects.schedule.spec.cluster;
        let Some(engine) = self.engines.get(reference.kind) else {
            return Ok(Outcome::Conflict);
        };
        let cluster = ResourceKey {
            namespace: writer.key.namespace.clone(),
            name: reference.name.clone(),
        };
        let status = drill.backup.status.as_ref();
        let source = DrillSource {
            location: status
                .map(|status| status.location.clone())
                .unwrap_or_default(),
            file: build::fetched_file(),
            directory: build::restored_directory(),
            started_at: object_time(observation.facts.now).0.to_string(),
        };
        let Some(parts) = engine.drill_parts(&cluster, source).await? else {
            return Ok(Outcome::Conflict);
        };
        let pod = build::drill_pod(self.pod_params(objects, &store)?, drill, &parts)?;
        writer.create(&pod).await
    }

    fn pod_params<'a>(
        &'a self,
        objects: &'a ScheduleObjects,
        store: &'a StoreAccess,
    ) -> Result<PodParams<'a>, Error> {
        let image = self.agent_image.as_deref().ok_or_else(|| {
            Error::other(
                "start an agent",
                "the flag --agent-image of the operator is not set",
            )
        })?;
        Ok(PodParams {
            schedule: &objects.schedule,
            store,
            image,
        })
    }

    async fn patch(
        &self,
        writer: &ObjectWriter<'_>,
        objects: &ScheduleObjects,
        patch: &SchedulePatch,
    ) -> Result<Outcome, Error> {
        match patch {
            SchedulePatch::RecordDrill {
                backup,
                uid,
                at,
                result,
                version,
                seconds,
                message,
            } => {
                let Some(backup) = objects.backup(backup, uid) else {
                    return Ok(Outcome::Conflict);
                };
                let at = object_time(*at);
                let change = match result {
                    DrillResult::Proven => json!({
                        "proven": { "at": at, "version": version, "seconds": seconds },
                        "damaged": null,
                    }),
                    DrillResult::Damaged => json!({ "damaged": { "at": at, "message": message } }),
                    DrillResult::NotRun => return Ok(Outcome::Done),
                };
                self.patch_backup_status(writer.key, backup, change).await
            }
            SchedulePatch::DeleteBackup { backup, uid } => {
                writer.delete_if_observed(objects.backup(backup, uid)).await
            }
            SchedulePatch::DeletePod { pod, uid } => {
                let pod = objects.own_pod(pod);
                let pod = pod.filter(|pod| pod.uid().as_deref() == Some(uid));
                writer.delete_if_observed(pod).await
            }
        }
    }

    /// Merges a change into the status of a Backup. Another reconciler writes the other fields.
    async fn patch_backup_status(
        &self,
        key: &ResourceKey,
        backup: &Backup,
        change: Value,
    ) -> Result<Outcome, Error> {
        let name = backup.name_any();
        let patch = Patch::Merge(json!({
            "metadata": { "uid": backup.uid(), "resourceVersion": backup.resource_version() },
            "status": change,
        }));
        let written = self
            .api::<Backup>(key)
            .patch_status(&name, &PatchParams::default(), &patch)
            .await;
        match written {
            Ok(written) => {
                let object = ObjectKey {
                    kind: Backup::kind(&()).into_owned(),
                    name,
                };
                let version = written.resource_version().unwrap_or_default();
                self.expectations
                    .expect(key, object, Expected::Stored { version });
                Ok(Outcome::Done)
            }
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
                Ok(Outcome::Conflict)
            }
            Err(error) => {
                let action = format!("patch the status of Backup {name}");
                Err(Error::kubernetes(action)(error))
            }
        }
    }
}

fn store_access(objects: &ScheduleObjects) -> Option<StoreAccess> {
    StoreAccess::of(&objects.store.as_ref()?.spec)
}

fn in_namespace<K>(store: &Store<K>, key: &ResourceKey) -> Vec<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    let objects = store.state();
    let inside = objects
        .iter()
        .filter(|object: &&Arc<K>| object.meta().namespace.as_ref() == Some(&key.namespace));
    inside.map(|object| (**object).clone()).collect()
}

/// Returns the status, and the events about its changes.
fn evaluated(
    objects: &ScheduleObjects,
    facts: &ScheduleFacts,
) -> (evenkeel_api::BackupScheduleStatus, Vec<EventSpec>) {
    let outlook = Outlook::new(facts);
    let old = objects.schedule.status.clone().unwrap_or_default();
    let of = StatusOf {
        old: &old,
        generation: objects.schedule.metadata.generation,
        cluster: &objects.schedule.spec.cluster,
    };
    let new = status::status(of, &outlook);
    let events = status::events(&old, &new, outlook.runs.skipped);
    (new, events)
}

impl Reconciler for ScheduleReconciler {
    type Engine = Schedules;
    type Resource = BackupSchedule;
    type Objects = ScheduleObjects;
    type ProbeResult = ();

    fn probe_timeout_result() {}

    /// No application is probed: agents report in their pods.
    async fn probe(&self, _key: ResourceKey) -> Option<()> {
        Some(())
    }

    async fn observe(
        &self,
        key: &ResourceKey,
        from: ObserveFrom<'_, ()>,
    ) -> Result<Option<Observation<Self>>, Error> {
        let is_current = || {
            let version = |object: &ObjectKey| self.version(key, object);
            self.caches.sync.is_complete() && self.expectations.satisfied(key, version)
        };
        let is_live = match from {
            ObserveFrom::Cache(()) => !is_current(),
            ObserveFrom::Live => true,
        };
        let objects = if is_live {
            self.read_live(key).await?
        } else {
            self.cached(key)
        };
        // A schedule that is being deleted takes no backups.
        let is_terminating =
            |objects: &ScheduleObjects| objects.schedule.metadata.deletion_timestamp.is_some();
        let Some(objects) = objects.filter(|objects| !is_terminating(objects)) else {
            return Ok(None);
        };
        let objects = self.with_cluster(objects).await?;
        Ok(Some(Observation {
            facts: objects.facts(self.clock.now()),
            objects,
            probe_result: (),
            is_live,
        }))
    }

    async fn execute(
        &self,
        observation: &Observation<Self>,
        action: &Action<'_, Schedules>,
        _may_write: &(dyn Fn() -> bool + Sync),
    ) -> Result<Outcome, Error> {
        let objects = &observation.objects;
        let key = ResourceKey {
            namespace: objects.schedule.namespace().unwrap_or_default(),
            name: objects.schedule.name_any(),
        };
        let writer = ObjectWriter {
            client: &self.client,
            expectations: &self.expectations,
            key: &key,
            field_manager: CONTROLLER,
            unwatched_kinds: &[],
        };
        match action {
            Action::Create(create) => self.create(&writer, observation, create).await,
            Action::Patch(patch) => self.patch(&writer, objects, patch).await,
            Action::Apply(nothing) | Action::Disruption(nothing) => match **nothing {},
        }
    }

    fn is_prerequisite(_action: &Action<'_, Schedules>) -> bool {
        false
    }

    fn status(
        &self,
        observation: &Observation<Self>,
        _plan: &Plan<Schedules>,
        _error: Option<&Error>,
    ) -> Option<Value> {
        let (status, _) = evaluated(&observation.objects, &observation.facts);
        serde_json::to_value(status).ok()
    }

    fn resource<'o>(&self, observation: &'o Observation<Self>) -> &'o BackupSchedule {
        &observation.objects.schedule
    }

    fn event_for(
        &self,
        _observation: &Observation<Self>,
        action: &Action<'_, Schedules>,
    ) -> Option<EventSpec> {
        let (reason, verb) = match action {
            Action::Create(ScheduleCreate::Backup { .. }) => ("BackupCreated", "Backup"),
            Action::Create(ScheduleCreate::PrunePod { .. }) => ("PruneStarted", "Prune"),
            Action::Create(ScheduleCreate::DrillPod { .. }) => ("DrillStarted", "Drill"),
            Action::Patch(SchedulePatch::DeleteBackup { .. }) => ("BackupDeleted", "Prune"),
            Action::Patch(SchedulePatch::RecordDrill { .. } | SchedulePatch::DeletePod { .. }) => {
                return None;
            }
            Action::Apply(nothing) | Action::Disruption(nothing) => match **nothing {},
        };
        Some(EventSpec::normal(reason, verb, described(action)))
    }

    fn state_events(
        &self,
        observation: &Observation<Self>,
        _plan: &Plan<Schedules>,
    ) -> Vec<EventSpec> {
        evaluated(&observation.objects, &observation.facts).1
    }

    fn explain(&self, _observation: &Observation<Self>, plan: &Plan<Schedules>) -> Explanation {
        let waits = plan.waits.iter().map(|wait: &ScheduleWait| {
            let name: &'static str = wait.into();
            name.to_owned()
        });
        Explanation {
            actions: plan.actions().map(|action| described(&action)).collect(),
            reasons: Vec::new(),
            waits: waits.collect(),
        }
    }

    /// Status and events of a schedule tell what was done and why; it has no decision log.
    fn decision_log_meta(&self, _resource: &BackupSchedule) -> Option<ObjectMeta> {
        None
    }

    fn action_name(action: &Action<'_, Schedules>) -> &'static str {
        match action {
            Action::Create(create) => (*create).into(),
            Action::Patch(patch) => (*patch).into(),
            Action::Apply(nothing) | Action::Disruption(nothing) => match **nothing {},
        }
    }

    fn expectations(&self) -> &Expectations<ResourceKey> {
        &self.expectations
    }
}

/// Returns an action as a sentence.
fn described(action: &Action<'_, Schedules>) -> String {
    match action {
        Action::Create(ScheduleCreate::Backup { name, run, why }) => {
            super::plan::describe_run(name, *run, *why)
        }
        Action::Create(ScheduleCreate::PrunePod { delete, .. }) => {
            format!(
                "Deletes {} backups that no rule of spec.keep keeps.",
                delete.len()
            )
        }
        Action::Create(ScheduleCreate::DrillPod { backup, .. }) => {
            format!("Restores Backup {backup} in a pod, and compares its data.")
        }
        Action::Patch(SchedulePatch::RecordDrill { backup, result, .. }) => {
            format!("Records the result {result} on Backup {backup}.")
        }
        Action::Patch(SchedulePatch::DeleteBackup { backup, .. }) => {
            format!("Deleted Backup {backup}: its data is deleted, or it has failed.")
        }
        Action::Patch(SchedulePatch::DeletePod { pod, .. }) => format!("Deletes Pod {pod}."),
        Action::Apply(nothing) | Action::Disruption(nothing) => match **nothing {},
    }
}

#[cfg(test)]
#[path = "sequence_tests.rs"]
mod tests;
