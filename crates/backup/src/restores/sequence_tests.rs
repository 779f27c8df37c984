//! Restores against a Kubernetes API in memory. An engine in the test writes the progress to the cluster.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use evenkeel_api::RestoreProgress;
use evenkeel_archive::tasks::Task;
use evenkeel_kit::testing::{client, failure, not_found};
use evenkeel_runtime::{Clock, Engine, TestClock};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::request::Parts;
use kube::api::PostParams;
use kube::runtime::reflector::store::Writer;
use serde_json::json;

use super::super::testing::{NEW_ID, OLD_ID, restore};
use super::*;
use crate::{BackupEngine, ClusterSource, RestoreState, SnapshotSource};

#[derive(Default)]
struct World {
    restores: BTreeMap<String, Value>,
    backup: Option<Value>,
    cluster: Option<RestoreState>,
    version: u64,
    writes: usize,
}

impl World {
    fn put(&mut self, mut restore: Value) -> Value {
        self.version += 1;
        restore["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let name = restore["metadata"]["name"].as_str().unwrap().to_owned();
        self.restores.insert(name, restore.clone());
        restore
    }

    fn answer(&mut self, head: &Parts, body: &Value) -> (u16, Value) {
        let path = head.uri.path().split("/shop/").nth(1).unwrap().to_owned();
        match (
            head.method.as_str(),
            path.split('/').collect::<Vec<_>>()[..].as_ref(),
        ) {
            ("GET", ["restores"]) => {
                let items: Vec<_> = self.restores.values().collect();
                (200, json!({ "metadata": {}, "items": items }))
            }
            ("GET", ["backups", _]) => self.backup.clone().map_or_else(not_found, |it| (200, it)),
            ("PUT", ["restores", name, "status"]) => {
                let mut restore = self.restores[*name].clone();
                if restore["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] {
                    return failure(409, "Conflict", "changed");
                }
                self.writes += 1;
                restore["status"] = body["status"].clone();
                (200, self.put(restore))
            }
            other => panic!("unexpected request: {other:?}"),
        }
    }
}

type Shared = Arc<Mutex<World>>;

struct FakeEngine(Shared);

impl BackupEngine for FakeEngine {
    fn kind(&self) -> ClusterKind {
        ClusterKind::EtcdCluster
    }

    fn name(&self) -> &'static str {
        "etcd"
    }

    fn cluster<'a>(
        &'a self,
        _key: &'a ResourceKey,
    ) -> BoxFuture<'a, Result<Option<ClusterSource>, Error>> {
        std::future::ready(Ok(None)).boxed()
    }

    fn snapshot_task(&self, _source: &SnapshotSource, _name: &str, _tls: PathBuf) -> Task {
        Task::List
    }

    fn restore_state<'a>(
        &'a self,
        key: &'a ResourceKey,
    ) -> BoxFuture<'a, Result<Option<RestoreState>, Error>> {
        assert_eq!(key.name, "orders");
        std::future::ready(Ok(self.0.lock().unwrap().cluster.clone())).boxed()
    }

    fn can_read(&self, version: &str, data_version: &str) -> bool {
        data_version <= version
    }
}

struct Run {
    world: Shared,
    clock: TestClock,
    client: Client,
}

impl Run {
    fn new() -> Self {
        let world = Shared::default();
        let answers = world.clone();
        let run = Self {
            client: client(move |head, body| answers.lock().unwrap().answer(head, body)),
            world,
            clock: TestClock::default(),
        };
        run.change(|world| {
            world.put(json!(restore(|_| ())));
            world.backup = Some(backup("Complete"));
            world.cluster = Some(cluster(OLD_ID, None));
        });
        run
    }

    fn change(&self, change: impl FnOnce(&mut World)) {
        change(&mut self.world.lock().unwrap());
    }

    /// Lets the engine report the progress of a Restore.
    fn progress(&self, id: &str, name: &str, phase: RestorePhase) {
        let until = self.clock.now().after(std::time::Duration::from_secs(3600));
        let progress = RestoreProgress {
            name: name.to_owned(),
            phase,
            message: String::new(),
            replaces: OLD_ID.to_owned(),
            undo_until: (phase >= RestorePhase::Complete).then(|| crate::conditions::time(until)),
        };
        self.change(|world| world.cluster = Some(cluster(id, Some(progress))));
    }

    /// Reconciles a Restore until its status is converged, and returns its phase and its reason.
    async fn settle(&self, name: &str) -> (RestorePhase, String) {
        let caches = RestoreCaches {
            restores: Writer::default().as_reader(),
            backups: Writer::default().as_reader(),
            sync: CacheSync::default(),
        };
        let engines = Engines::new(vec![Box::new(FakeEngine(self.world.clone()))]);
        let operator =
            RestoreReconciler::new(self.client.clone(), caches, engines, self.clock.shared());
        let key = ResourceKey {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
        };
        for _ in 0..3 {
            let seen = operator.observe(&key, ObserveFrom::Live).await;
            let seen = seen.unwrap().unwrap();
            let plan = RestoreControl::decide(&seen.facts);
            assert!(plan.is_noop());
            let mut changed = json!(operator.resource(&seen));
            let status = operator.status(&seen, &plan, None);
            let Some(status) = status.filter(|it| changed["status"] != *it) else {
                let status = seen.objects.restore.status.unwrap();
                return (status.phase, status.conditions[0].reason.clone());
            };
            changed["status"] = status;
            let changed: Restore = serde_json::from_value(changed).unwrap();
            let api: Api<Restore> = Api::namespaced(self.client.clone(), "shop");
            api.replace_status(name, &PostParams::default(), &changed)
                .await
                .unwrap();
        }
        panic!("the status of {name} does not converge");
    }

    fn writes(&self) -> usize {
        self.world.lock().unwrap().writes
    }
}

fn backup(phase: &str) -> Value {
    json!({
        "apiVersion": "evenkeel.dev/v1alpha1", "kind": "Backup",
        "metadata": { "name": "nightly", "namespace": "shop", "uid": "b" },
        "spec": { "cluster": { "name": "orders" }, "store": "prod" },
        "status": { "phase": phase, "engineVersion": "3.6.16" },
    })
}

fn cluster(id: &str, progress: Option<RestoreProgress>) -> RestoreState {
    RestoreState {
        cluster_id: Some(id.to_owned()),
        version: "3.6.16".to_owned(),
        progress,
        is_paused: false,
        is_ephemeral: false,
    }
}

#[tokio::test]
async fn a_restore_is_reported_from_its_obstacles_to_its_undo() {
    let run = Run::new();
    run.change(|world| {
        world.backup = None;
        world.cluster = None;
    });
    let settled = |phase, reason: &str| (phase, reason.to_owned());
    let pending = |reason| settled(RestorePhase::Pending, reason);
    assert_eq!(run.settle("back").await, pending("ClusterNotFound"));
    run.change(|world| world.cluster = Some(cluster(OLD_ID, None)));
    assert_eq!(run.settle("back").await, pending("BackupNotFound"));
    run.change(|world| world.backup = Some(backup("Running")));
    assert_eq!(run.settle("back").await, pending("BackupNotComplete"));
    run.change(|world| world.backup = Some(backup("Complete")));
    assert_eq!(run.settle("back").await, pending("Waiting"));
    for (id, phase) in [
        (OLD_ID, RestorePhase::Preparing),
        (OLD_ID, RestorePhase::Replacing),
        (NEW_ID, RestorePhase::Starting),
        (NEW_ID, RestorePhase::Complete),
    ] {
        run.progress(id, "back", phase);
        assert_eq!(run.settle("back").await, settled(phase, &phase.to_string()));
    }
    // The Backup is not needed any more.
    run.change(|world| {
        world.backup = None;
        let mut restore = world.restores["back"].clone();
        restore["spec"]["undo"] = json!(true);
        world.put(restore);
    });
    let requested = settled(RestorePhase::Complete, "UndoRequested");
    assert_eq!(run.settle("back").await, requested);
    for phase in [RestorePhase::Undoing, RestorePhase::Undone] {
        run.progress(OLD_ID, "back", phase);
        assert_eq!(run.settle("back").await, settled(phase, &phase.to_string()));
    }
    let writes = run.writes();
    run.change(|world| world.cluster = None);
    run.settle("back").await;
    assert_eq!(run.writes(), writes, "a final status is not written again");
}

#[tokio::test]
async fn of_two_restores_one_runs_and_the_other_is_not_needed() {
    let run = Run::new();
    run.change(|world| {
        let mut second = json!(restore(|_| ()));
        second["metadata"]["name"] = json!("second");
        second["metadata"]["creationTimestamp"] = json!("2027-01-15T08:00:01Z");
        world.put(second);
    });
    let reason = |(_, reason): (RestorePhase, String)| reason;
    assert_eq!(reason(run.settle("back").await), "Waiting");
    assert_eq!(reason(run.settle("second").await), "AnotherRestore");
    run.progress(OLD_ID, "back", RestorePhase::Preparing);
    assert_eq!(reason(run.settle("back").await), "Preparing");
    assert_eq!(reason(run.settle("second").await), "AnotherRestore");
    run.progress(NEW_ID, "back", RestorePhase::Complete);
    assert_eq!(reason(run.settle("back").await), "Complete");
    assert_eq!(reason(run.settle("second").await), "NotNeeded");
    // Its undo brings the old ID back, and the second Restore still does not run.
    run.progress(OLD_ID, "back", RestorePhase::Undone);
    assert_eq!(reason(run.settle("back").await), "Undone");
    assert_eq!(reason(run.settle("second").await), "NotNeeded");
}

#[tokio::test]
async fn a_restore_that_is_applied_again_changes_nothing() {
    let run = Run::new();
    run.progress(NEW_ID, "back", RestorePhase::Complete);
    assert_eq!(run.settle("back").await.0, RestorePhase::Complete);
    // Deleted and created again, as GitOps does.
    run.change(|world| {
        world.put(json!(restore(|_| ())));
    });
    assert_eq!(run.settle("back").await.0, RestorePhase::Complete);
    run.change(|world| {
        world.put(json!(restore(|_| ())));
        world.cluster = Some(cluster(NEW_ID, None));
    });
    assert_eq!(run.settle("back").await.0, RestorePhase::NotNeeded);
}

#[tokio::test]
async fn a_restore_that_is_being_deleted_is_left_alone() {
    let run = Run::new();
    run.change(|world| {
        world.put(json!(restore(|it| {
            it["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
        })));
    });
    let caches = RestoreCaches {
        restores: Writer::default().as_reader(),
        backups: Writer::default().as_reader(),
        sync: CacheSync::default(),
    };
    let engines = Engines::new(vec![Box::new(FakeEngine(run.world.clone()))]);
    let operator = RestoreReconciler::new(run.client.clone(), caches, engines, run.clock.shared());
    for name in ["back", "gone"] {
        let key = ResourceKey {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
        };
        let seen = operator.observe(&key, ObserveFrom::Live).await.unwrap();
        assert!(seen.is_none());
    }
}
