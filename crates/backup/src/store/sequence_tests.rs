//! Whole checks of BackupStores against a Kubernetes API in memory. A write whose answer is lost stands for a crash directly
//! after it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use evenkeel_api::BackupStoreStatus;
use evenkeel_archive::tasks::{Outcome as AgentOutcome, TaskResult};
use evenkeel_kit::testing::{client, failure, not_found};
use evenkeel_runtime::{Engine, TestClock};
use http::request::Parts;
use kube::Api;
use kube::api::PostParams;
use kube::runtime::reflector::store::Writer;

use super::*;

/// A text that only the Secret contains.
const CANARY: &str = "Y2FuYXJ5LXNlY3JldA==";

#[derive(Default)]
struct World {
    /// All objects by the end of their path, such as `pods/prod-store-check`.
    objects: BTreeMap<String, Value>,
    version: u64,
    writes: usize,
    lost: Option<usize>,
    checks: usize,
}

impl World {
    fn put(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(path.to_owned(), object.clone());
        object
    }

    fn answer(&mut self, head: &Parts, body: &Value) -> (u16, Value) {
        let path = head.uri.path().split("/shop/").nth(1).unwrap().to_owned();
        if head.method == "GET" {
            if path == "pods" {
                let query = head.uri.query().unwrap_or_default();
                let is_check = query.contains("prod-store-check");
                let pod = self.objects.get("pods/prod-store-check");
                let pods: Vec<_> = pod.filter(|_| is_check).into_iter().collect();
                return (200, json!({ "metadata": {}, "items": pods }));
            }
            return self
                .objects
                .get(&path)
                .map_or_else(not_found, |it| (200, it.clone()));
        }
        let answer = match (head.method.as_str(), &*path) {
            ("PUT", "backupstores/prod/status") => {
                let mut store = self.objects["backupstores/prod"].clone();
                if store["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] {
                    return failure(409, "Conflict", "changed");
                }
                store["status"] = body["status"].clone();
                (200, self.put("backupstores/prod", store))
            }
            ("POST", "pods") => {
                if self.objects.contains_key("pods/prod-store-check") {
                    return failure(409, "AlreadyExists", "exists");
                }
                let mut pod = body.clone();
                pod["metadata"]["uid"] = json!("pod");
                pod["metadata"]["creationTimestamp"] = json!("2027-01-15T08:00:00Z");
                self.checks += 1;
                (201, self.put("pods/prod-store-check", pod))
            }
            ("DELETE", path) => self
                .objects
                .remove(path)
                .map_or_else(not_found, |it| (200, it)),
            other => panic!("unexpected write: {other:?}"),
        };
        let is_lost = self.lost == Some(self.writes);
        self.writes += 1;
        if is_lost {
            failure(500, "Timeout", "the answer was lost")
        } else {
            answer
        }
    }

    /// Ends the pod of the check with success.
    fn run_agent(&mut self) {
        let Some(pod) = self.objects.get_mut("pods/prod-store-check") else {
            return;
        };
        let outcome = AgentOutcome::Succeeded(TaskResult::StoreChecked {
            conditional_writes: true,
        });
        pod["status"] = json!({ "phase": "Succeeded", "containerStatuses": [{ "name": "agent", "ready": false,
            "restartCount": 0, "image": "", "imageID": "", "state": { "terminated": { "exitCode": 0,
                "message": serde_json::to_string(&outcome).unwrap(), "finishedAt": "2027-01-15T08:00:01Z" } } }] });
    }
}

struct Run {
    world: Arc<Mutex<World>>,
    clock: TestClock,
    client: Client,
    key: ResourceKey,
}

impl Run {
    fn new(spec: Value) -> Self {
        let world = Arc::new(Mutex::new(World::default()));
        world.lock().unwrap().put(
            "backupstores/prod",
            json!({ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "BackupStore", "spec": spec,
                "metadata": { "name": "prod", "namespace": "shop", "uid": "store", "generation": 1 } }),
        );
        let answers = world.clone();
        Self {
            client: client(move |head, body| answers.lock().unwrap().answer(head, body)),
            world,
            clock: TestClock::default(),
            key: ResourceKey {
                namespace: "shop".to_owned(),
                name: "prod".to_owned(),
            },
        }
    }

    fn s3() -> Self {
        Self::new(
            json!({ "s3": { "bucket": "backups", "region": "us-east-1", "credentials": { "secret": "s3-keys" },
            "ca": { "configMap": "corp-ca" } } }),
        )
    }

    fn put(&self, path: &str, object: Value) {
        self.world.lock().unwrap().put(path, object);
    }

    fn put_inputs(&self) {
        let data = json!({ "accessKeyID": CANARY, "secretAccessKey": CANARY });
        self.put(
            "secrets/s3-keys",
            json!({ "metadata": { "name": "s3-keys", "uid": "s" }, "data": data }),
        );
        let ca = "-----BEGIN CERTIFICATE-----\n";
        self.put(
            "configmaps/corp-ca",
            json!({ "metadata": { "name": "corp-ca", "uid": "c" }, "data": { "ca.crt": ca } }),
        );
    }

    /// Reconciles until the plan is a no-op or a write fails. Returns the serialized facts of all passes.
    async fn reconcile(&self) -> String {
        let caches = StoreCaches {
            stores: Writer::default().as_reader(),
            pods: OwnedCache::new(Writer::default().as_reader(), labels::STORE),
            sync: CacheSync::default(),
        };
        let image = Some("agent:1".to_owned());
        let operator =
            StoreReconciler::new(self.client.clone(), caches, image, self.clock.shared());
        let mut facts = String::new();
        for _ in 0..10 {
            let seen = operator
                .observe(&self.key, ObserveFrom::Live)
                .await
                .unwrap()
                .unwrap();
            facts += &serde_json::to_string(&seen.facts).unwrap();
            let plan = StoreEngine::decide(&seen.facts);
            for action in plan.actions() {
                if operator.execute(&seen, &action, &|| true).await.is_err() {
                    return facts;
                }
            }
            if plan.is_noop() {
                let mut changed = serde_json::to_value(operator.resource(&seen)).unwrap();
                let status = operator.status(&seen, &plan, None).unwrap();
                if changed["status"] != status {
                    changed["status"] = status;
                    let changed: BackupStore = serde_json::from_value(changed).unwrap();
                    let api: Api<BackupStore> = Api::namespaced(self.client.clone(), "shop");
                    let _ = api
                        .replace_status("prod", &PostParams::default(), &changed)
                        .await;
                }
                return facts;
            }
        }
        panic!("no end of passes");
    }

    /// Reconciles and runs the agent some times.
    async fn settle(&self) -> String {
        let mut facts = String::new();
        for _ in 0..6 {
            facts += &self.reconcile().await;
            self.world.lock().unwrap().run_agent();
            self.clock.advance(Duration::from_secs(1));
        }
        facts
    }

    fn status(&self) -> BackupStoreStatus {
        let world = self.world.lock().unwrap();
        serde_json::from_value(world.objects["backupstores/prod"]["status"].clone()).unwrap()
    }

    fn reason(&self) -> String {
        self.status().conditions[0].reason.clone()
    }
}

#[tokio::test]
async fn a_store_is_checked_once_and_its_pod_deleted() {
    let run = Run::s3();
    run.put_inputs();
    run.settle().await;
    assert_eq!(run.reason(), "Available");
    let world = run.world.lock().unwrap();
    assert_eq!(
        (world.checks, world.writes),
        (1, 4),
        "create, checking, available, delete"
    );
    assert!(!world.objects.contains_key("pods/prod-store-check"));
}

#[tokio::test]
async fn a_crash_after_any_write_leads_to_the_same_status() {
    for lost in 0..4 {
        let run = Run::s3();
        run.put_inputs();
        run.world.lock().unwrap().lost = Some(lost);
        run.settle().await;
        assert_eq!(run.reason(), "Available", "write {lost}");
        assert_eq!(run.world.lock().unwrap().checks, 1, "write {lost}");
    }
}

#[tokio::test]
async fn each_missing_input_is_reported_and_a_changed_one_is_checked_again() {
    let run = Run::s3();
    run.settle().await;
    assert_eq!(run.reason(), "SecretNotFound");
    run.put(
        "secrets/s3-keys",
        json!({ "metadata": { "name": "s3-keys", "uid": "s" }, "data": { "accessKeyID": CANARY } }),
    );
    run.settle().await;
    assert_eq!(run.reason(), "InvalidSecret");
    run.put_inputs();
    run.put(
        "configmaps/corp-ca",
        json!({ "metadata": { "name": "corp-ca" }, "data": { "ca.crt": "x" } }),
    );
    run.settle().await;
    assert_eq!(run.reason(), "InvalidConfigMap");
    assert_eq!(run.world.lock().unwrap().checks, 0);
    run.put_inputs();
    run.settle().await;
    assert_eq!(run.reason(), "Available");
    let first = run.status().checked_inputs;
    // The same content in another version: rotated credentials.
    run.put_inputs();
    run.settle().await;
    assert_eq!(
        (run.reason().as_str(), run.world.lock().unwrap().checks),
        ("Available", 2)
    );
    assert_ne!(run.status().checked_inputs, first);
}

#[tokio::test]
async fn a_volume_store_needs_its_claim() {
    let run = Run::new(json!({ "volume": { "claim": "backups" } }));
    run.settle().await;
    assert_eq!(run.reason(), "VolumeNotFound");
    let lost =
        json!({ "metadata": { "name": "backups", "uid": "v" }, "status": { "phase": "Lost" } });
    run.put("persistentvolumeclaims/backups", lost);
    run.settle().await;
    assert_eq!(run.reason(), "VolumeNotFound");
    run.put(
        "persistentvolumeclaims/backups",
        json!({ "metadata": { "name": "backups", "uid": "v" } }),
    );
    run.settle().await;
    assert_eq!(run.reason(), "Available");
    assert_eq!(run.status().location, "pvc://backups");
}

#[tokio::test]
async fn no_value_of_a_secret_leaves_the_secret() {
    let run = Run::s3();
    run.put_inputs();
    let facts = run.reconcile().await;
    let world = run.world.lock().unwrap();
    let pod = world.objects["pods/prod-store-check"].to_string();
    let store = world.objects["backupstores/prod"].to_string();
    for text in [facts, pod, store] {
        assert!(
            !text.contains(CANARY) && !text.contains("canary-secret"),
            "{text}"
        );
    }
}
