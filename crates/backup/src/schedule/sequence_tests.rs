//! Whole runs of a BackupSchedule against a Kubernetes API and agents in memory. A write whose answer is lost stands for a
//! crash directly after it: the operator starts again and knows only the objects.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use evenkeel_api::{BackupScheduleStatus, ClusterKind};
use evenkeel_archive::tasks::{EtcdDrillTask, Outcome as AgentOutcome, Request, Task, TaskResult};
use evenkeel_kit::testing::{client, failure, merge_json, not_found};
use evenkeel_runtime::{CacheSync, Clock, Engine, TestClock};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::request::Parts;
use kube::runtime::reflector::store::Writer;

use super::*;
use crate::conditions::find;
use crate::engine::{BackupEngine, ClusterSource, DrillParts, SnapshotSource};
use crate::schedule::testing::location;

/// The objects in the API server, and the backups in the store.
#[derive(Default)]
struct World {
    schedule: Value,
    backups: BTreeMap<String, Value>,
    pods: BTreeMap<String, Value>,
    /// The places of the backups in the store.
    stored: BTreeSet<String>,
    version: u64,
    writes: usize,
    /// The write whose answer is lost.
    lost: Option<usize>,
    now: String,
    /// The tasks that agents have executed.
    tasks: Vec<&'static str>,
}

type Shared = Arc<Mutex<World>>;

impl World {
    fn answer(&mut self, head: &Parts, body: &Value) -> (u16, Value) {
        let path = head.uri.path().to_owned();
        let segments: Vec<_> = path.split('/').collect();
        let list = |objects: &BTreeMap<String, Value>| {
            let items: Vec<_> = objects.values().collect();
            (200, json!({ "metadata": {}, "items": items }))
        };
        match (head.method.as_str(), &segments[..]) {
            ("GET", [.., "backupschedules", _]) => (200, self.schedule.clone()),
            ("GET", [.., "backupstores", _]) => (200, store()),
            ("GET", [.., "backups"]) => list(&self.backups),
            ("GET", [.., "pods"]) => list(&self.pods),
            (_, segments) => {
                let answer = self.write(head.method.as_str(), segments, body);
                let is_lost = self.lost == Some(self.writes);
                self.writes += 1;
                if is_lost {
                    failure(500, "Timeout", "the answer was lost")
                } else {
                    answer
                }
            }
        }
    }

    fn write(&mut self, method: &str, segments: &[&str], body: &Value) -> (u16, Value) {
        self.version += 1;
        let version = json!(self.version.to_string());
        let stamped = |mut object: Value, now: &str| {
            object["metadata"]["uid"] = json!(format!("uid-{version}"));
            object["metadata"]["resourceVersion"] = version.clone();
            object["metadata"]["creationTimestamp"] = json!(now);
            object
        };
        match (method, segments) {
            ("POST", [.., kind @ ("backups" | "pods")]) => {
                let object = stamped(body.clone(), &self.now);
                let name = body["metadata"]["name"].as_str().unwrap().to_owned();
                let objects = if *kind == "pods" {
                    &mut self.pods
                } else {
                    &mut self.backups
                };
                if objects.contains_key(&name) {
                    return failure(409, "AlreadyExists", "exists");
                }
                objects.insert(name, object.clone());
                (201, object)
            }
            ("PATCH", [.., "backups", name, "status"]) => {
                let backup = self.backups.get_mut(*name).unwrap();
                for field in ["uid", "resourceVersion"] {
                    if backup["metadata"][field] != body["metadata"][field] {
                        return failure(409, "Conflict", "changed");
                    }
                }
                merge_json(&mut backup["status"], body["status"].clone());
                backup["metadata"]["resourceVersion"] = version;
                (200, backup.clone())
            }
            ("DELETE", [.., kind @ ("backups" | "pods"), name]) => {
                let objects = if *kind == "pods" {
                    &mut self.pods
                } else {
                    &mut self.backups
                };
                let Some(object) = objects.get(*name) else {
                    return not_found();
                };
                for field in ["uid", "resourceVersion"] {
                    assert_eq!(
                        object["metadata"][field], body["preconditions"][field],
                        "{name}"
                    );
                }
                (200, objects.remove(*name).unwrap())
            }
            other => panic!("unexpected write: {other:?}"),
        }
    }

    /// Completes all backups, and runs the agents of all pods.
    fn run_agents(&mut self) {
        let now = self.now.clone();
        for (name, backup) in &mut self.backups {
            if backup["status"]["phase"] != "Complete" {
                self.version += 1;
                backup["metadata"]["resourceVersion"] = json!(self.version.to_string());
                backup["status"] = json!({ "phase": "Complete", "location": location(name), "size": "1Mi",
                    "finishedAt": now });
                self.stored.insert(location(name));
            }
        }
        for pod in self.pods.values_mut() {
            if pod.get("status").is_some() {
                continue;
            }
            let annotations = &pod["metadata"]["annotations"];
            let request = |key: &str| -> Option<Request> {
                serde_json::from_str(annotations[key].as_str()?).ok()
            };
            let (container, result) = match request(labels::REQUEST).unwrap().task {
                Task::Prune(task) => {
                    self.tasks.push("prune");
                    let deleted = u32::try_from(task.delete.len()).unwrap();
                    task.delete.iter().for_each(|place| {
                        self.stored.remove(place);
                    });
                    (
                        "agent",
                        TaskResult::Pruned {
                            deleted,
                            locked: Vec::new(),
                            locked_until: None,
                        },
                    )
                }
                Task::Fetch(task) => {
                    self.tasks.push("drill");
                    assert!(self.stored.contains(&task.location), "{}", task.location);
                    let compare = request(labels::DRILL_REQUEST).unwrap().task;
                    assert!(matches!(compare, Task::DrillEtcd(it) if it.location == task.location));
                    (
                        "drill",
                        TaskResult::Proven {
                            seconds: 3,
                            keys: 9,
                        },
                    )
                }
                other => panic!("unexpected task: {other:?}"),
            };
            let message = serde_json::to_string(&AgentOutcome::Succeeded(result)).unwrap();
            self.version += 1;
            pod["metadata"]["resourceVersion"] = json!(self.version.to_string());
            pod["status"] = json!({ "phase": "Running", "containerStatuses": [{ "name": container, "ready": false,
                "restartCount": 0, "image": "", "imageID": "", "state": { "terminated": {
                    "exitCode": 0, "message": message, "finishedAt": now } } }] });
        }
    }
}

fn store() -> Value {
    json!({
        "apiVersion": "evenkeel.dev/v1alpha1", "kind": "BackupStore",
        "metadata": { "name": "prod", "namespace": "shop", "generation": 1 },
        "spec": { "volume": { "claim": "backups" } },
        "status": { "conditions": [{ "type": "Ready", "status": "True", "reason": "Available", "message": "",
            "observedGeneration": 1, "lastTransitionTime": "2027-01-15T08:00:00Z" }] },
    })
}

struct FakeEngine;

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
        let member = SnapshotSource {
            endpoint: String::new(),
            tls_secret: String::new(),
            cluster: evenkeel_archive::manifest::ClusterInfo {
                namespace: "shop".to_owned(),
                name: "orders".to_owned(),
                lineage: "0000abcd".to_owned(),
                cluster_id: "5".to_owned(),
                member: "a".to_owned(),
            },
            epoch: 1,
            version: "3.6.16".to_owned(),
            quota: 1,
            resource: json!({}),
        };
        let source = ClusterSource {
            lineage: Some("0000abcd".to_owned()),
            members: vec![member],
            problem: String::new(),
            placement: json!({}),
        };
        std::future::ready(Ok(Some(source))).boxed()
    }

    fn snapshot_task(&self, _source: &SnapshotSource, _name: &str, _tls: PathBuf) -> Task {
        Task::List
    }

    fn drill_parts<'a>(
        &'a self,
        _key: &'a ResourceKey,
        source: DrillSource,
    ) -> BoxFuture<'a, Result<Option<DrillParts>, Error>> {
        let parts = DrillParts {
            version: "3.6.16".to_owned(),
            restore: json!({ "name": "restore" }),
            serve: json!({ "name": "serve" }),
            certificates: None,
            compare: Task::DrillEtcd(EtcdDrillTask {
                tls: None,
                location: source.location,
                endpoint: "http://127.0.0.1:2379".to_owned(),
                started_at: source.started_at,
            }),
            placement: json!({}),
        };
        std::future::ready(Ok(Some(parts))).boxed()
    }
}

struct Run {
    world: Shared,
    clock: TestClock,
    client: Client,
}

impl Run {
    fn new(lost: Option<usize>) -> Self {
        let schedule = json!({
            "apiVersion": "evenkeel.dev/v1alpha1", "kind": "BackupSchedule",
            "metadata": { "name": "orders", "namespace": "shop", "uid": "u1", "generation": 1,
                "creationTimestamp": "2027-01-15T08:00:00Z" },
            "spec": { "cluster": { "name": "orders" }, "store": "prod", "schedule": "@hourly",
                "keep": { "last": 2 }, "drill": "0 */4 * * *" },
        });
        let world = Shared::default();
        {
            let mut world = world.lock().unwrap();
            world.schedule = schedule;
            world.lost = lost;
            world.now = "2027-01-15T08:00:00Z".to_owned();
        }
        let answers = world.clone();
        Self {
            client: client(move |head, body| answers.lock().unwrap().answer(head, body)),
            clock: TestClock::default(),
            world,
        }
    }

    /// Starts the operator: it knows nothing of what it did before.
    fn operator(&self) -> ScheduleReconciler {
        let caches = ScheduleCaches {
            schedules: Writer::default().as_reader(),
            backups: Writer::default().as_reader(),
            stores: Writer::default().as_reader(),
            pods: Writer::default().as_reader(),
            sync: CacheSync::default(),
        };
        let engines = Engines::new(vec![Box::new(FakeEngine)]);
        let image = Some("agent:1".to_owned());
        ScheduleReconciler::new(
            self.client.clone(),
            caches,
            engines,
            image,
            self.clock.shared(),
        )
    }

    /// Reconciles until neither the objects nor the status change. Fails where a write fails.
    async fn reconcile(&self) -> Result<(), Error> {
        let operator = self.operator();
        let key = ResourceKey {
            namespace: "shop".to_owned(),
            name: "orders".to_owned(),
        };
        for _ in 0..20 {
            let observation = operator.observe(&key, ObserveFrom::Live).await?.unwrap();
            let plan = Schedules::decide(&observation.facts);
            for action in plan.actions() {
                operator.execute(&observation, &action, &|| true).await?;
            }
            if !plan.is_noop() {
                continue;
            }
            let status = operator.status(&observation, &plan, None).unwrap();
            let mut world = self.world.lock().unwrap();
            if world.schedule.get("status") == Some(&status) {
                return Ok(());
            }
            world.schedule["status"] = status;
        }
        panic!("no end");
    }

    /// Runs for this many hours, and reconciles every ten minutes.
    async fn run(&self, hours: u64) {
        for _ in 0..hours * 6 {
            self.reconcile_despite_crash().await;
            self.clock.advance(Duration::from_secs(600));
            self.world.lock().unwrap().now = object_time(self.clock.now()).0.to_string();
            self.world.lock().unwrap().run_agents();
        }
        // Until the last pods are deleted.
        for _ in 0..5 {
            self.reconcile_despite_crash().await;
            self.world.lock().unwrap().run_agents();
        }
        self.reconcile_despite_crash().await;
    }

    async fn reconcile_despite_crash(&self) {
        if self.reconcile().await.is_err() {
            self.reconcile().await.unwrap();
        }
    }

    fn status(&self) -> BackupScheduleStatus {
        serde_json::from_value(self.world.lock().unwrap().schedule["status"].clone()).unwrap()
    }
}

#[tokio::test]
async fn a_schedule_takes_restores_and_deletes_backups_despite_any_crash() {
    let calm = Run::new(None);
    calm.run(10).await;
    let (writes, backups, tasks) = {
        let world = calm.world.lock().unwrap();
        (
            world.writes,
            world.backups.keys().cloned().collect::<Vec<_>>(),
            world.tasks.clone(),
        )
    };
    assert!(writes > 25, "{writes}");
    assert!(tasks.contains(&"prune") && tasks.iter().filter(|it| **it == "drill").count() >= 3);
    for lost in 0..writes {
        let run = Run::new(Some(lost));
        run.run(10).await;
        let world = run.world.lock().unwrap();
        assert_eq!(
            world.backups.keys().cloned().collect::<Vec<_>>(),
            backups,
            "lost {lost}"
        );
        let places: BTreeSet<_> = world.backups.keys().map(|name| location(name)).collect();
        assert_eq!(
            world.stored, places,
            "objects and data belong together, lost {lost}"
        );
        assert!(places.len() <= 4, "{places:?}");
    }
}

#[tokio::test]
async fn the_status_tells_what_was_done() {
    let run = Run::new(None);
    run.run(5).await;
    let status = run.status();
    let reason = |type_: &str| find(&status.conditions, type_).unwrap().reason.clone();
    assert_eq!(
        (reason("Ready"), reason("Recoverable")),
        ("Scheduled".into(), "Proven".into())
    );
    let drill = status.drill.unwrap();
    assert_eq!(drill.last.as_ref(), drill.last_success.as_ref());
    assert_eq!(drill.last.unwrap().seconds, 3);
    let world = run.world.lock().unwrap();
    let proven = world
        .backups
        .values()
        .filter(|it| it["status"].get("proven").is_some());
    assert!(proven.count() >= 1);
    assert!(status.backups >= 2 && status.next_backup.is_some());
}

#[tokio::test]
async fn a_converged_schedule_writes_nothing() {
    let run = Run::new(None);
    run.run(3).await;
    run.reconcile().await.unwrap();
    let writes = || run.world.lock().unwrap().writes;
    let before = (writes(), run.status());
    run.clock.advance(Duration::from_secs(300));
    run.reconcile().await.unwrap();
    assert_eq!((writes(), run.status()), before);
}
