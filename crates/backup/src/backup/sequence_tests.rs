//! Whole runs of Backups against a Kubernetes API and an agent in memory. A write whose answer is lost stands for a crash
//! directly after it: the operator starts again and knows only the objects.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use evenkeel_api::{BackupPhase, BackupStatus, ClusterKind};
use evenkeel_archive::manifest::ClusterInfo;
use evenkeel_archive::tasks::{
    BackupSummary, EtcdSnapshotTask, FailureReason, Outcome as AgentOutcome, TaskFailure,
    TaskResult,
};
use evenkeel_kit::testing::{client, failure, not_found};
use evenkeel_runtime::{Engine, TestClock};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::request::Parts;
use kube::Api;
use kube::api::PostParams;
use kube::runtime::reflector::store::Writer;
use serde_json::json;

use super::*;
use crate::BackupEngine;

/// The behaviour of the agent in one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    /// Stores the backup and reports it.
    Succeeds,
    /// Fails with a reason that may pass.
    Fails,
    /// Fails with a reason that does not pass.
    IsDenied,
    /// Stores the backup; its pod is deleted before the report is read.
    Vanishes,
    /// Never ends.
    Hangs,
}

/// The objects in the API server, the backups in the store, and the script of the agent.
#[derive(Default)]
struct World {
    backups: BTreeMap<String, Value>,
    store: Option<Value>,
    pods: BTreeMap<String, Value>,
    version: u64,
    /// The names of backups in the store.
    stored: BTreeSet<String>,
    script: Vec<Attempt>,
    /// The members that attempts have read.
    read: Vec<String>,
    members: Vec<&'static str>,
    writes: usize,
    /// The write whose answer is lost.
    lost: Option<usize>,
    /// The largest number of pods that existed at once.
    most_pods: usize,
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<World>>);

impl Shared {
    fn get(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }
}

impl World {
    fn next_version(&mut self) -> Value {
        self.version += 1;
        json!(self.version.to_string())
    }

    fn answer(&mut self, head: &Parts, body: &Value) -> (u16, Value) {
        let path = head.uri.path().to_owned();
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        match (head.method.as_str(), &*path) {
            ("GET", path) if path.contains("/backups/") => found(self.backups.get(&name)),
            ("GET", path) if path.contains("/backupstores/") => found(self.store.as_ref()),
            ("GET", _) => {
                let query = head.uri.query().unwrap_or_default();
                let items: Vec<_> = self
                    .pods
                    .iter()
                    .filter(|(name, _)| query.ends_with(&format!("metadata.name%3D{name}")))
                    .map(|(_, pod)| pod)
                    .collect();
                (
                    200,
                    json!({ "apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items }),
                )
            }
            ("PUT" | "POST" | "DELETE", _) => {
                let answer = self.write(head, &path, body);
                let is_lost = self.lost == Some(self.writes);
                self.writes += 1;
                if is_lost {
                    failure(500, "Timeout", "the answer was lost")
                } else {
                    answer
                }
            }
            other => panic!("unexpected request: {other:?}"),
        }
    }

    fn write(&mut self, head: &Parts, path: &str, body: &Value) -> (u16, Value) {
        let version = self.next_version();
        let segments: Vec<_> = path.split('/').collect();
        match (head.method.as_str(), &segments[..]) {
            ("PUT", [.., "backups", name, "status"]) => {
                let backup = self.backups.get_mut(*name).unwrap();
                if backup["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] {
                    return failure(409, "Conflict", "changed");
                }
                backup["status"] = body["status"].clone();
                backup["metadata"]["resourceVersion"] = version;
                (200, backup.clone())
            }
            ("POST", [.., "pods"]) => {
                let name = body["metadata"]["name"].as_str().unwrap().to_owned();
                if self.pods.contains_key(&name) {
                    return failure(409, "AlreadyExists", "exists");
                }
                let mut pod = body.clone();
                pod["metadata"]["uid"] = json!(format!("pod-{}", self.version));
                pod["metadata"]["resourceVersion"] = version;
                pod["metadata"]["creationTimestamp"] = json!("2027-01-15T08:00:00Z");
                self.pods.insert(name, pod.clone());
                self.most_pods = self.most_pods.max(self.pods.len());
                (201, pod)
            }
            ("DELETE", [.., "pods", name]) => match self.pods.remove(*name) {
                Some(pod) => (200, pod),
                None => not_found(),
            },
            other => panic!("unexpected write: {other:?}"),
        }
    }

    /// Runs the agents of all pods that have not ended.
    fn run_agents(&mut self) {
        let names: Vec<_> = self.pods.keys().cloned().collect();
        for name in names {
            let pod = &self.pods[&name];
            if pod.get("status").is_some() {
                continue;
            }
            let request = pod["metadata"]["annotations"][labels::REQUEST]
                .as_str()
                .unwrap();
            let request: Request = serde_json::from_str(request).unwrap();
            let attempt = if self.script.is_empty() {
                Attempt::Hangs
            } else {
                self.script.remove(0)
            };
            let outcome = self.run(&request.task, attempt);
            match outcome {
                Some(outcome) => {
                    let code = i32::from(matches!(outcome, AgentOutcome::Failed(_)));
                    let message = serde_json::to_string(&outcome).unwrap();
                    let version = self.next_version();
                    let pod = self.pods.get_mut(&name).unwrap();
                    pod["metadata"]["resourceVersion"] = version;
                    pod["status"] = json!({ "phase": if code == 0 { "Succeeded" } else { "Failed" },
                        "containerStatuses": [{ "name": "agent", "ready": false, "restartCount": 0, "image": "",
                            "imageID": "", "state": { "terminated": { "exitCode": code, "message": message } } }] });
                }
                None if attempt == Attempt::Vanishes => {
                    self.pods.remove(&name);
                }
                None => {}
            }
        }
    }

    fn run(&mut self, task: &Task, attempt: Attempt) -> Option<AgentOutcome> {
        let (name, member) = match task {
            Task::SnapshotEtcd(task) => (task.name.clone(), task.cluster.member.clone()),
            Task::ReadManifest { location } => (location.clone(), "old".to_owned()),
            other => panic!("unexpected task: {other:?}"),
        };
        self.read.push(member.clone());
        let failed = |reason| {
            Some(AgentOutcome::Failed(TaskFailure {
                reason,
                message: "A problem.".to_owned(),
            }))
        };
        match attempt {
            Attempt::Fails => failed(FailureReason::Unreachable),
            Attempt::IsDenied => failed(FailureReason::AccessDenied),
            Attempt::Hangs => None,
            Attempt::Vanishes => {
                self.stored.insert(name);
                None
            }
            Attempt::Succeeds => {
                // As the archive does: an earlier backup of the same name is found.
                self.stored.insert(name.clone());
                Some(AgentOutcome::Succeeded(TaskResult::Backup {
                    location: format!("store/{name}"),
                    summary: BackupSummary {
                        position: "revision 7".to_owned(),
                        engine_version: "3.6.16".to_owned(),
                        cluster_id: "5".to_owned(),
                        member,
                        size: 25 << 20,
                        stored_size: 1 << 20,
                        keys: Some(3),
                        started_at: "2027-01-15T08:00:01.5Z".to_owned(),
                        finished_at: "2027-01-15T08:00:02.5Z".to_owned(),
                    },
                }))
            }
        }
    }
}

fn found(object: Option<&Value>) -> (u16, Value) {
    object.map_or_else(not_found, |object| (200, object.clone()))
}

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
        key: &'a ResourceKey,
    ) -> BoxFuture<'a, Result<Option<ClusterSource>, Error>> {
        let of_member = |member: &&str| SnapshotSource {
            endpoint: String::new(),
            tls_secret: "tls".to_owned(),
            cluster: ClusterInfo {
                namespace: key.namespace.clone(),
                name: key.name.clone(),
                lineage: "00000007".to_owned(),
                cluster_id: "5".to_owned(),
                member: (*member).to_owned(),
            },
            epoch: 1,
            version: "3.6.16".to_owned(),
            quota: 2 << 30,
            resource: json!({}),
        };
        let source = ClusterSource {
            lineage: None,
            members: self.0.get().members.iter().map(of_member).collect(),
            problem: "No voter is healthy.".to_owned(),
            placement: json!({ "nodeSelector": { "disk": "fast" } }),
        };
        std::future::ready(Ok(Some(source))).boxed()
    }

    fn snapshot_task(&self, source: &SnapshotSource, name: &str, tls: PathBuf) -> Task {
        Task::SnapshotEtcd(EtcdSnapshotTask {
            endpoint: source.endpoint.clone(),
            tls,
            cluster: source.cluster.clone(),
            epoch: source.epoch,
            version: source.version.clone(),
            quota: source.quota,
            resource: source.resource.clone(),
            name: name.to_owned(),
        })
    }
}

/// One run: a world, a clock, and the operator, which can be started again.
struct Run {
    world: Shared,
    clock: TestClock,
    client: Client,
}

impl Run {
    fn new(script: &[Attempt]) -> Self {
        let world = Shared::default();
        {
            let mut state = world.get();
            state.script = script.to_vec();
            state.members = vec!["b", "c", "a"];
            state.store = Some(json!({
                "apiVersion": "evenkeel.dev/v1alpha1", "kind": "BackupStore",
                "metadata": { "name": "prod", "namespace": "shop", "generation": 1 },
                "spec": { "volume": { "claim": "backups" } },
                "status": { "conditions": [{ "type": "Ready", "status": "True", "reason": "Available", "message": "",
                    "observedGeneration": 1, "lastTransitionTime": "2027-01-15T08:00:00Z" }] },
            }));
        }
        let answers = world.clone();
        let run = Self {
            client: client(move |head, body| answers.get().answer(head, body)),
            clock: TestClock::default(),
            world,
        };
        run.add("nightly", json!({}));
        run
    }

    fn add(&self, name: &str, further: Value) {
        let mut spec =
            json!({ "cluster": { "name": "orders" }, "store": "prod", "deadline": "10m" });
        for (key, value) in further.as_object().unwrap() {
            spec[key] = value.clone();
        }
        let backup = json!({
            "apiVersion": "evenkeel.dev/v1alpha1", "kind": "Backup",
            "metadata": { "name": name, "namespace": "shop", "uid": format!("uid-{name}"), "generation": 1,
                "resourceVersion": "1", "creationTimestamp": "2027-01-15T08:00:00Z" },
            "spec": spec,
        });
        self.world.get().backups.insert(name.to_owned(), backup);
    }

    /// Starts the operator: it knows nothing of what it did before.
    fn operator(&self) -> BackupReconciler {
        let caches = BackupCaches {
            backups: Writer::default().as_reader(),
            pods: OwnedCache::new(Writer::default().as_reader(), labels::BACKUP),
            stores: Writer::default().as_reader(),
            sync: CacheSync::default(),
        };
        BackupReconciler::new(
            self.client.clone(),
            caches,
            Engines::new(vec![Box::new(FakeEngine(self.world.clone()))]),
            Some("agent:1".to_owned()),
            self.clock.shared(),
        )
    }

    /// Reconciles one Backup until its plan is a no-op or a write fails, as the controller does.
    async fn reconcile(&self, name: &str) {
        let operator = self.operator();
        let key = ResourceKey {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
        };
        for _ in 0..10 {
            let seen = operator.observe(&key, ObserveFrom::Live).await.unwrap();
            let Some(seen) = seen else { return };
            let plan = BackupControl::decide(&seen.facts);
            for action in plan.actions() {
                if operator.execute(&seen, &action, &|| true).await.is_err() {
                    return;
                }
            }
            if plan.is_noop() {
                let Some(status) = operator.status(&seen, &plan, None) else {
                    return;
                };
                let mut changed = serde_json::to_value(operator.resource(&seen)).unwrap();
                if changed["status"] != status {
                    changed["status"] = status;
                    let changed: Backup = serde_json::from_value(changed).unwrap();
                    let api: Api<Backup> = Api::namespaced(self.client.clone(), "shop");
                    let _ = api
                        .replace_status(name, &PostParams::default(), &changed)
                        .await;
                }
                return;
            }
        }
        panic!("no end of passes");
    }

    /// Runs all Backups until they have ended and no pod is left. Returns their statuses.
    async fn to_end(&self) -> BTreeMap<String, BackupStatus> {
        let names: Vec<_> = self.world.get().backups.keys().cloned().collect();
        for _ in 0..400 {
            for name in &names {
                self.reconcile(name).await;
            }
            self.world.get().run_agents();
            self.clock.advance(Duration::from_secs(3));
            let all: BTreeMap<_, _> = names
                .iter()
                .map(|it| (it.clone(), self.status(it)))
                .collect();
            if all.values().all(|it| it.phase.is_final()) && self.world.get().pods.is_empty() {
                return all;
            }
        }
        panic!("a Backup does not end: {:?}", self.world.get().backups);
    }

    fn status(&self, name: &str) -> BackupStatus {
        let status = self.world.get().backups[name].get("status").cloned();
        status.map_or_else(BackupStatus::default, |it| {
            serde_json::from_value(it).unwrap()
        })
    }
}

#[tokio::test]
async fn a_backup_is_taken_recorded_and_its_pod_deleted() {
    let run = Run::new(&[Attempt::Succeeds]);
    let status = &run.to_end().await["nightly"];
    assert_eq!(status.phase, BackupPhase::Complete);
    assert_eq!(status.location, "store/nightly-uid-nightly");
    assert_eq!((&*status.size, &*status.stored_size), ("25Mi", "1Mi"));
    assert_eq!((&*status.position, status.keys), ("revision 7", Some(3)));
    assert_eq!((status.attempts, &*status.member), (1, "b"));
    assert!(status.started_at < status.finished_at);
    assert_eq!(status.conditions[0].status, "True");
    assert_eq!(
        run.world.get().writes,
        4,
        "create, running, complete, delete"
    );
}

#[tokio::test]
async fn a_crash_after_any_write_leads_to_exactly_one_backup() {
    use Attempt::{Fails, Succeeds, Vanishes};
    for script in [
        &[Succeeds][..],
        &[Fails, Succeeds],
        &[Vanishes, Succeeds],
        &[Fails, Vanishes, Succeeds],
    ] {
        let whole = Run::new(script);
        whole.to_end().await;
        let writes = whole.world.get().writes;
        for lost in 0..writes {
            let run = Run::new(script);
            run.world.get().lost = Some(lost);
            let status = &run.to_end().await["nightly"];
            let world = run.world.get();
            assert_eq!(
                status.phase,
                BackupPhase::Complete,
                "{script:?}, write {lost}"
            );
            assert_eq!(
                world.stored.len(),
                1,
                "{script:?}, write {lost}: {:?}",
                world.stored
            );
            assert_eq!(world.read.len(), script.len(), "{script:?}, write {lost}");
            assert_eq!(world.most_pods, 1);
        }
    }
}

#[tokio::test]
async fn a_crash_after_any_write_never_makes_a_failed_backup_complete() {
    use Attempt::{Fails, IsDenied};
    for script in [&[IsDenied][..], &[Fails, IsDenied], &[Fails, Fails, Fails]] {
        for lost in 0..12 {
            let run = Run::new(script);
            run.world.get().lost = Some(lost);
            let status = &run.to_end().await["nightly"];
            assert_eq!(
                status.phase,
                BackupPhase::Failed,
                "{script:?}, write {lost}"
            );
            assert_eq!(status.conditions[0].status, "False");
            assert!(status.location.is_empty());
            assert_eq!(run.world.get().read.len(), script.len());
        }
    }
}

#[tokio::test]
async fn each_attempt_reads_another_member() {
    let run = Run::new(&[Attempt::Fails; 3]);
    let status = &run.to_end().await["nightly"];
    assert_eq!(run.world.get().read, ["b", "c", "a"]);
    assert_eq!((status.attempts, status.failed_attempts.len()), (3, 2));
    assert_eq!(status.conditions[0].reason, "Unreachable");
}

#[tokio::test]
async fn a_backup_without_a_healthy_member_fails_at_its_deadline() {
    let run = Run::new(&[]);
    run.world.get().members.clear();
    let status = &run.to_end().await["nightly"];
    assert_eq!(status.phase, BackupPhase::Failed);
    assert_eq!(status.conditions[0].reason, "DeadlineExceeded");
    assert!(
        status.conditions[0]
            .message
            .contains("No voter is healthy.")
    );
    assert_eq!(run.world.get().most_pods, 0);
}

#[tokio::test]
async fn an_agent_that_never_ends_is_stopped_at_the_deadline() {
    let run = Run::new(&[Attempt::Hangs]);
    let status = &run.to_end().await["nightly"];
    assert_eq!(status.conditions[0].reason, "DeadlineExceeded");
}

#[tokio::test]
async fn two_backups_of_a_cluster_run_one_after_the_other() {
    let run = Run::new(&[Attempt::Succeeds; 2]);
    run.add("weekly", json!({}));
    run.reconcile("nightly").await;
    run.reconcile("weekly").await;
    let waiting = run.status("weekly");
    assert_eq!(waiting.phase, BackupPhase::Pending);
    assert_eq!(waiting.conditions[0].reason, "AnotherBackupRunning");
    let all = run.to_end().await;
    assert!(all.values().all(|it| it.phase == BackupPhase::Complete));
    let world = run.world.get();
    assert_eq!((world.most_pods, world.stored.len()), (1, 2));
}

#[tokio::test]
async fn an_import_reads_the_manifest_of_the_existing_backup() {
    let run = Run::new(&[Attempt::Succeeds, Attempt::Succeeds]);
    run.add(
        "old",
        json!({ "existing": "evenkeel-v1/etcd/shop/orders/7" }),
    );
    run.world.get().members.clear();
    run.world.get().backups.remove("nightly");
    let status = &run.to_end().await["old"];
    assert_eq!(status.phase, BackupPhase::Complete);
    assert_eq!(status.location, "store/evenkeel-v1/etcd/shop/orders/7");
    assert_eq!(status.member, "old");
}
