use serde_json::{Value, json};

use super::super::fake::{FakeApi, list, path};
use super::*;
use crate::args::ColorMode;

const NO_DELAY: WaitTimes = WaitTimes {
    interval: Duration::from_millis(1),
    grace: Duration::from_secs(60),
    outage: Duration::from_secs(60),
};

fn target() -> NamedTarget {
    NamedTarget {
        cluster: "orders".to_owned(),
    }
}

fn options(store: Option<&'static str>) -> BackupOptions<'static> {
    BackupOptions {
        store,
        name: Some("before-upgrade"),
        deadline: None,
        waits: true,
    }
}

fn cluster() -> Value {
    json!({ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "EtcdCluster",
        "metadata": { "name": "orders", "namespace": "shop" }, "spec": { "version": "3.6.16", "members": 3 },
        "status": { "clusterId": "26937bbebc2c7cf" } })
}

fn store(name: &str, ready: &str, reason: &str) -> Value {
    json!({ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "BackupStore",
        "metadata": { "name": name, "namespace": "shop", "generation": 1 },
        "spec": { "volume": { "claim": "backups" } },
        "status": { "observedGeneration": 1, "conditions": [{ "type": "Ready", "status": ready, "reason": reason,
            "message": "The bucket prod does not exist.", "lastTransitionTime": "2026-11-18T10:00:00Z" }] } })
}

fn schedule(store: &str) -> Value {
    json!({ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "BackupSchedule",
        "metadata": { "name": "orders", "namespace": "shop" },
        "spec": { "cluster": { "name": "orders" }, "store": store, "schedule": "@hourly", "deadline": "10m" } })
}

fn backup(status: Value) -> Value {
    json!({ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "Backup",
        "metadata": { "name": "before-upgrade", "namespace": "shop", "creationTimestamp": "2026-11-18T11:00:00Z" },
        "spec": { "cluster": { "name": "orders" }, "store": "prod", "deadline": "10m" }, "status": status })
}

fn complete_backup() -> Value {
    backup(
        json!({ "phase": "Complete", "location": "evenkeel-v1/etcd/shop/orders/k/epochs/1/bases/b",
        "position": "revision 4711", "engineVersion": "3.6.16", "member": "orders-gv2z5", "size": "25Mi",
        "storedSize": "8Mi", "keys": 1200, "startedAt": "2026-11-18T11:00:02Z", "finishedAt": "2026-11-18T11:00:06Z" }),
    )
}

/// An API with a cluster, a store and a schedule.
fn api() -> FakeApi {
    let api = FakeApi::default();
    api.on(
        &format!("GET {}", path("etcdclusters/orders")),
        200,
        cluster(),
    )
    .on(
        &format!("GET {}", path("backupstores")),
        200,
        list([
            store("prod", "True", "Available"),
            store("test", "True", "Available"),
        ]),
    )
    .on(
        &format!("GET {}", path("backupschedules")),
        200,
        list([schedule("prod")]),
    )
    .on(&format!("POST {}", path("backups")), 201, backup(json!({})));
    api
}

#[tokio::test]
async fn a_backup_has_the_store_and_the_deadline_of_the_schedule() {
    let api = api();
    let created = create(&api.connection(), &target(), options(None))
        .await
        .unwrap();
    assert_eq!(created.name_any(), "before-upgrade");
    let changes = api.changes();
    let [(request, body)] = changes.as_slice() else {
        panic!("{changes:?}")
    };
    assert_eq!(*request, format!("POST {}", path("backups")));
    assert_eq!(body["metadata"]["name"], "before-upgrade");
    assert_eq!(
        body["spec"],
        json!({ "cluster": { "kind": "EtcdCluster", "name": "orders" }, "store": "prod", "deadline": "10m" })
    );
}

#[tokio::test]
async fn the_flags_choose_another_store_and_deadline() {
    let api = api();
    let flags = BackupOptions {
        deadline: Some("5m"),
        ..options(Some("test"))
    };
    create(&api.connection(), &target(), flags).await.unwrap();
    assert_eq!(api.changes()[0].1["spec"]["store"], "test");
    assert_eq!(api.changes()[0].1["spec"]["deadline"], "5m");
}

#[tokio::test]
async fn nothing_is_created_for_a_store_that_is_not_ready() {
    let api = FakeApi::default();
    api.on(
        &format!("GET {}", path("etcdclusters/orders")),
        200,
        cluster(),
    )
    .on(
        &format!("GET {}", path("backupstores")),
        200,
        list([store("prod", "False", "BucketNotFound")]),
    )
    .on(&format!("GET {}", path("backupschedules")), 200, list([]));
    let error = create(&api.connection(), &target(), options(None))
        .await
        .unwrap_err();
    assert_eq!(
        error.message,
        "BackupStore prod is not Ready: BucketNotFound: The bucket prod does not exist. Nothing was created"
    );
    assert_eq!(error.exit_code, EXIT_FAILED);
    assert!(api.changes().is_empty());
}

#[tokio::test]
async fn an_installation_without_backups_is_named() {
    let api = FakeApi::default();
    api.on(
        &format!("GET {}", path("etcdclusters/orders")),
        200,
        cluster(),
    );
    let error = create(&api.connection(), &target(), options(None))
        .await
        .unwrap_err();
    assert_eq!(
        error.message,
        "the Kubernetes API does not know the kind BackupStore"
    );
    assert_eq!(error.exit_code, crate::error::EXIT_NOT_FOUND);
}

#[tokio::test]
async fn a_missing_permission_is_named_with_its_role() {
    let api = FakeApi::default();
    api.on(
        &format!("GET {}", path("etcdclusters/orders")),
        200,
        cluster(),
    )
    .on(
        &format!("GET {}", path("backupstores")),
        200,
        list([store("prod", "True", "Available")]),
    )
    .on(&format!("GET {}", path("backupschedules")), 200, list([]))
    .forbid(&format!("POST {}", path("backups")), "create", "backups");
    let error = create(&api.connection(), &target(), options(None))
        .await
        .unwrap_err();
    assert_eq!(error.exit_code, crate::error::EXIT_FORBIDDEN);
    assert_eq!(
        error.message,
        "cannot create Backup before-upgrade: user jane needs create on backups in namespace shop"
    );
    assert!(
        error
            .help
            .as_deref()
            .unwrap()
            .starts_with("ask for the ClusterRole edit in namespace shop"),
        "{error}"
    );
}

#[tokio::test]
async fn the_wait_ends_with_the_backup() {
    let read = format!("GET {}", path("backups/before-upgrade"));
    let created: Backup = serde_json::from_value(backup(json!({}))).unwrap();
    let api = FakeApi::default();
    api.on(&read, 200, backup(json!({})))
        .on(&read, 200, backup(json!({ "phase": "Running" })))
        .on(&read, 200, complete_backup());
    let ended = wait(&api.connection(), &created, NO_DELAY).await.unwrap();
    assert!(BackupReport::new(&ended).is_complete());

    let api = FakeApi::default();
    let missing = json!({ "kind": "Status", "status": "Failure", "message": "not found", "code": 404,
        "reason": "NotFound", "details": { "name": "before-upgrade" } });
    api.on(&read, 200, backup(json!({ "phase": "Running" })))
        .on(&read, 404, missing);
    let error = wait(&api.connection(), &created, NO_DELAY)
        .await
        .unwrap_err();
    assert_eq!(
        error.message,
        "Backup before-upgrade was deleted before it was complete"
    );
}

#[tokio::test]
async fn the_wait_ends_after_the_deadline() {
    let read = format!("GET {}", path("backups/before-upgrade"));
    let api = FakeApi::default();
    api.on(&read, 200, backup(json!({ "phase": "Running" })));
    let mut created: Backup = serde_json::from_value(backup(json!({}))).unwrap();
    created.spec.deadline = "0".to_owned();
    let times = WaitTimes {
        grace: Duration::from_millis(5),
        ..NO_DELAY
    };
    let error = wait(&api.connection(), &created, times).await.unwrap_err();
    assert_eq!(error.exit_code, EXIT_FAILED);
    assert!(error.message.contains("has not ended within"), "{error}");
    assert!(error.message.ends_with(": Running"), "{error}");
}

#[tokio::test]
async fn the_log_of_the_running_agent_is_read() {
    let pods = "GET /api/v1/namespaces/shop/pods";
    let pod = |name: &str, phase: &str| {
        json!({ "metadata": { "name": name, "namespace": "shop" }, "status": { "phase": phase },
            "spec": { "containers": [{ "name": "proxy" }, { "name": "agent" }] } })
    };
    let api = FakeApi::default();
    api.on(pods, 200, list([pod("a", "Failed"), pod("b", "Running")]))
        .on(
            &format!("{pods}/b/log"),
            200,
            json!("{\"message\":\"snapshot in progress\",\"done\":1,\"total\":4}\n"),
        );
    let connection = api.connection();
    let mut log = AgentLog::new(&connection, "before-upgrade");
    assert_eq!(log.read().await.unwrap().total, Some(4));
    let api = FakeApi::default();
    api.forbid(pods, "list", "pods");
    let connection = api.connection();
    let mut log = AgentLog::new(&connection, "before-upgrade");
    assert_eq!(log.read().await, None);
    assert!(
        log.pods.is_none(),
        "a missing permission is not asked for again"
    );
}

#[test]
fn a_complete_backup_is_described_with_its_next_step() {
    let backup: Backup = serde_json::from_value(complete_backup()).unwrap();
    let text = complete(&BackupReport::new(&backup), Terminal::new(ColorMode::Never));
    assert_eq!(
        text,
        "orders: Backup before-upgrade is complete.\n\
         Store        prod\n\
         Location     evenkeel-v1/etcd/shop/orders/k/epochs/1/bases/b\n\
         Position     revision 4711; etcd 3.6.16; read from orders-gv2z5\n\
         Size         25Mi; 8Mi in the store; 1200 keys\n\
         Duration     4s\n\
         Next         `kubectl evenkeel backups orders` lists all backups. A new cluster\n\
         \x20            begins with this one if its manifest has\n\
         \x20            spec.bootstrap.from.backup: before-upgrade\n"
    );
}

#[test]
fn a_failed_backup_names_its_reason() {
    let condition = json!({ "type": "Complete", "status": "False", "reason": "StoreFull",
        "message": "The store has no space left.", "lastTransitionTime": "2026-11-18T11:00:06Z" });
    let failed_backup = backup(json!({ "phase": "Failed", "conditions": [condition] }));
    let backup: Backup = serde_json::from_value(failed_backup).unwrap();
    let error = failed(&BackupReport::new(&backup));
    assert_eq!(
        error.message,
        "Backup before-upgrade has failed: StoreFull: The store has no space left"
    );
    assert_eq!(error.exit_code, EXIT_FAILED);
}

#[test]
fn names_with_the_time_have_at_most_63_characters() {
    let mut cluster: EtcdCluster = serde_json::from_value(cluster()).unwrap();
    let now: Timestamp = "2026-11-18T11:40:05Z".parse().unwrap();
    assert_eq!(default_name(&cluster, now), "orders-20261118-114005");
    cluster.metadata.name = Some("o".repeat(40));
    assert!(default_name(&cluster, now).len() <= 63);
}
