//! Observation for Restores. Nothing but the status of a Restore is written, so there is nothing to execute.

use evenkeel_api::{Backup, ClusterKind, Restore, RestorePhase, RestoreStatus};
use evenkeel_runtime::{
    Action, CacheSync, CachedVersion, Error, EventSpec, Expectations, Explanation, ObjectKey,
    Observation, ObserveFrom, Observed, Outcome, Plan, Reconciler, ResourceKey, SharedClock,
    Triggers, Watches, cache,
};
use futures::StreamExt;
use futures::stream::{self, BoxStream, select_all};
use kube::api::{ListParams, ObjectMeta};
use kube::runtime::reflector::Store;
use kube::{Api, Client, ResourceExt};
use serde_json::Value;

use super::decide::{RestoreControl, step};
use super::facts::{self, RestoreBackup, RestoreCluster, RestoreFacts};
use super::status;
use crate::Engines;

/// The name of the controller.
pub const CONTROLLER: &str = "evenkeel.dev/restore";

/// The watches of other controllers that Restores depend on.
pub struct RestoreInputs {
    /// The Backups.
    pub backups: Store<Backup>,
    /// The keys of changed Backups.
    pub changed_backups: BoxStream<'static, ResourceKey>,
    /// The keys of changed clusters.
    pub changed_clusters: ChangedClusters,
}

/// The keys of changed clusters of each kind.
pub type ChangedClusters = Vec<(ClusterKind, BoxStream<'static, ResourceKey>)>;

/// The caches of Restores and Backups.
pub struct RestoreCaches {
    restores: Store<Restore>,
    backups: Store<Backup>,
    sync: CacheSync,
}

/// Returns the caches and the triggers of reconciles. The caches are filled only while the triggers are polled.
pub fn watch(watches: &Watches, inputs: RestoreInputs) -> (RestoreCaches, Triggers<Restore>) {
    let RestoreInputs {
        backups,
        changed_backups,
        changed_clusters,
    } = inputs;
    let mut triggers = Triggers {
        resources: watches.watch::<Restore>(None),
        related: stream::pending().boxed(),
        all: stream::pending().boxed(),
    };
    let caches = RestoreCaches {
        restores: triggers.resources.0.clone(),
        backups,
        sync: watches.cache_sync(),
    };
    // One Restore of a cluster may wait for another. The cluster of a deleted Restore is not known any more.
    let of_restores = keys(
        &caches.restores,
        triggers.resource_changes(),
        |restore, _| facts::phase(restore) == RestorePhase::Pending,
    );
    let of_backups = keys(&caches.restores, changed_backups, |restore, name| {
        restore.spec.from.backup == name
    });
    let of_clusters = changed_clusters.into_iter().map(|(kind, changes)| {
        keys(&caches.restores, changes, move |restore, name| {
            restore.spec.cluster.kind == kind && restore.spec.cluster.name == name
        })
    });
    triggers.related = select_all([of_restores, of_backups].into_iter().chain(of_clusters)).boxed();
    (caches, triggers)
}

/// Returns the keys of the Restores that changes of other objects in their namespace concern.
fn keys(
    restores: &Store<Restore>,
    changes: BoxStream<'static, ResourceKey>,
    is_concerned: impl Fn(&Restore, &str) -> bool + Send + 'static,
) -> BoxStream<'static, ResourceKey> {
    let known = restores.clone();
    let keys = changes.flat_map(move |changed| {
        let all = known.state();
        let concerned = all.iter().filter(|restore| {
            restore.namespace().as_ref() == Some(&changed.namespace)
                && is_concerned(restore, &changed.name)
        });
        let keys: Vec<_> = concerned
            .map(|restore| ResourceKey {
                namespace: changed.namespace.clone(),
                name: restore.name_any(),
            })
            .collect();
        stream::iter(keys)
    });
    keys.boxed()
}

/// The observed objects of a Restore.
pub struct RestoreObjects {
    restore: Restore,
    /// All Restores in the namespace.
    all: Vec<Restore>,
    backup: Option<Backup>,
}

/// Reconciles the Restores of one scope.
pub struct RestoreReconciler {
    client: Client,
    clock: SharedClock,
    caches: RestoreCaches,
    engines: Engines,
    expectations: Expectations<ResourceKey>,
}

impl RestoreReconciler {
    /// Returns a reconciler that reads `caches`, and the clusters from their engines.
    pub fn new(
        client: Client,
        caches: RestoreCaches,
        engines: Engines,
        clock: SharedClock,
    ) -> Self {
        Self {
            client,
            expectations: Expectations::new(clock.clone()),
            clock,
            caches,
            engines,
        }
    }

    fn cached_version(&self, key: &ResourceKey, object: &ObjectKey) -> Option<CachedVersion> {
        match object.kind.as_str() {
            "Restore" => cache::version(&self.caches.restores, key, &object.name),
            _ => None,
        }
    }

    fn cached(&self, key: &ResourceKey) -> Option<RestoreObjects> {
        let restore = (*cache::get(&self.caches.restores, key, &key.name)?).clone();
        let all = self.caches.restores.state();
        let in_namespace = all
            .iter()
            .filter(|other| other.namespace().as_ref() == Some(&key.namespace));
        let backup = cache::get(&self.caches.backups, key, &restore.spec.from.backup);
        Some(RestoreObjects {
            all: in_namespace.map(|other| (**other).clone()).collect(),
            backup: backup.map(|backup| (*backup).clone()),
            restore,
        })
    }

    async fn read_live(&self, key: &ResourceKey) -> Result<Option<RestoreObjects>, Error> {
        let api = Api::<Restore>::namespaced(self.client.clone(), &key.namespace);
        let list = api.list(&ListParams::default()).await;
        let all = list
            .map_err(Error::kubernetes("list restores".to_owned()))?
            .items;
        let Some(restore) = all.iter().find(|it| it.name_any() == key.name).cloned() else {
            return Ok(None);
        };
        let backup = cache::read::<Backup>(&self.client, key, &restore.spec.from.backup).await?;
        Ok(Some(RestoreObjects {
            restore,
            all,
            backup,
        }))
    }

    /// Returns the facts. Clusters are not cached here: the last one is read from the API server, unless nothing depends on it.
    async fn facts(
        &self,
        key: &ResourceKey,
        objects: &RestoreObjects,
    ) -> Result<RestoreFacts, Error> {
        let restore = &objects.restore;
        let spec = &restore.spec;
        let phase = facts::phase(restore);
        let is_final = matches!(phase, RestorePhase::Undone | RestorePhase::Unknown);
        let engine = self.engines.get(spec.cluster.kind);
        let cluster = match engine {
            _ if is_final => Observed::Unknown,
            None => Observed::Absent,
            Some(engine) => {
                let cluster = ResourceKey {
                    namespace: key.namespace.clone(),
                    name: spec.cluster.name.clone(),
                };
                let state = engine.restore_state(&cluster).await?;
                Observed::from(state.map(RestoreCluster::of))
            }
        };
        let version = cluster.present().map(|it| it.version.as_str());
        let can_read = |data_version: &str| match (engine, version) {
            (Some(engine), Some(version)) => engine.can_read(version, data_version),
            (None, _) | (_, None) => false,
        };
        Ok(RestoreFacts {
            now: self.clock.now(),
            name: restore.name_any(),
            replaces: spec.replaces.clone(),
            is_undo_requested: spec.undo,
            phase,
            older: facts::older(restore, objects.all.iter()),
            backup: RestoreBackup::of(restore, objects.backup.as_ref(), can_read),
            cluster,
        })
    }
}

fn new_status(observation: &Observation<RestoreReconciler>) -> Option<RestoreStatus> {
    let facts = &observation.facts;
    status::status(&observation.objects.restore, facts, &step(facts))
}

impl Reconciler for RestoreReconciler {
    type Engine = RestoreControl;
    type Resource = Restore;
    type Objects = RestoreObjects;
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
        let objects = if is_live {
            self.read_live(key).await?
        } else {
            self.cached(key)
        };
        let is_terminating =
            |objects: &RestoreObjects| objects.restore.metadata.deletion_timestamp.is_some();
        let Some(objects) = objects.filter(|objects| !is_terminating(objects)) else {
            return Ok(None);
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
        _observation: &Observation<Self>,
        action: &Action<'_, RestoreControl>,
        _may_write: &(dyn Fn() -> bool + Sync),
    ) -> Result<Outcome, Error> {
        match action {
            Action::Create(()) | Action::Patch(()) | Action::Apply(()) | Action::Disruption(()) => {
                Ok(Outcome::Done)
            }
        }
    }

    fn is_prerequisite(_action: &Action<'_, RestoreControl>) -> bool {
        false
    }

    fn status(
        &self,
        observation: &Observation<Self>,
        _plan: &Plan<RestoreControl>,
        _error: Option<&Error>,
    ) -> Option<Value> {
        serde_json::to_value(new_status(observation)?).ok()
    }

    fn resource<'o>(&self, observation: &'o Observation<Self>) -> &'o Restore {
        &observation.objects.restore
    }

    fn state_events(
        &self,
        observation: &Observation<Self>,
        _plan: &Plan<RestoreControl>,
    ) -> Vec<EventSpec> {
        let old = observation.objects.restore.status.clone();
        let new = new_status(observation);
        new.map_or_else(Vec::new, |new| {
            status::events(&old.unwrap_or_default(), &new)
        })
    }

    fn explain(
        &self,
        _observation: &Observation<Self>,
        _plan: &Plan<RestoreControl>,
    ) -> Explanation {
        Explanation::default()
    }

    /// The cluster has the decision log of a restore.
    fn decision_log_meta(&self, _restore: &Restore) -> Option<ObjectMeta> {
        None
    }

    fn action_name(_action: &Action<'_, RestoreControl>) -> &'static str {
        "none"
    }

    fn expectations(&self) -> &Expectations<ResourceKey> {
        &self.expectations
    }
}

#[cfg(test)]
#[path = "sequence_tests.rs"]
mod tests;
