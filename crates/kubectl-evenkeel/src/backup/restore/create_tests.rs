use serde_json::{Value, json};

use super::super::super::fake::{FakeApi, list, path};
use super::*;
use crate::args::{ColorMode, OutputFormat};
use crate::error::EXIT_FORBIDDEN;

const ID: &str = "9c1f4e5a0b7d2c11";

fn options(is_confirmed: bool) -> RestoreOptions<'static> {
    RestoreOptions {
        backup: "nightly",
        name: None,
        keep_old_data_for: "72h",
        request: RequestOptions {
            is_confirmed,
            waits: false,
            timeout: Duration::from_secs(60),
        },
    }
}

fn output() -> OutputOptions {
    OutputOptions::new(OutputFormat::Text, Terminal::new(ColorMode::Never))
}

fn restore(backup: &str) -> Value {
    json!({ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "Restore",
        "metadata": { "name": "orders-nightly-9c1f4e", "namespace": "shop" },
        "spec": { "cluster": { "kind": "EtcdCluster", "name": "orders" }, "from": { "backup": backup }, "replaces": ID,
            "keepOldDataFor": "72h" } })
}

/// An API with a cluster and a backup.
fn api() -> FakeApi {
    let cluster = json!({ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "EtcdCluster",
        "metadata": { "name": "orders", "namespace": "shop" }, "spec": { "version": "3.6.16", "members": 3 },
        "status": { "clusterId": ID } });
    let backup = json!({ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "Backup",
        "metadata": { "name": "nightly", "namespace": "shop" },
        "spec": { "cluster": { "name": "orders" }, "store": "prod" },
        "status": { "phase": "Complete", "position": "revision 4711", "engineVersion": "3.6.16", "clusterId": ID } });
    let api = FakeApi::default();
    api.on(
        &format!("GET {}", path("etcdclusters/orders")),
        200,
        cluster,
    )
    .on(&format!("GET {}", path("backups/nightly")), 200, backup)
    .on(&format!("GET {}", path("restores")), 200, list([]));
    api
}

#[tokio::test]
async fn without_yes_nothing_is_changed() {
    let api = api();
    let code = run(&api.connection(), "orders", options(false), output()).await;
    assert_eq!(code.unwrap(), 0);
    assert!(api.changes().is_empty());
}

#[tokio::test]
async fn with_yes_the_restore_replaces_the_current_cluster_id() {
    let api = api();
    let post = format!("POST {}", path("restores"));
    api.on(&post, 201, restore("nightly"));
    let code = run(&api.connection(), "orders", options(true), output()).await;
    assert_eq!(code.unwrap(), 0);
    let changes = api.changes();
    let [(request, body)] = changes.as_slice() else {
        panic!("{changes:?}")
    };
    assert_eq!(*request, post);
    assert_eq!(body["metadata"]["name"], "orders-nightly-9c1f4e");
    assert_eq!(body["spec"], restore("nightly")["spec"]);
}

#[tokio::test]
async fn the_same_restore_is_continued_and_another_one_is_not_replaced() {
    let exists = json!({ "kind": "Status", "status": "Failure", "message": "exists", "code": 409,
        "reason": "AlreadyExists" });
    for (backup, is_same) in [("nightly", true), ("weekly", false)] {
        let api = api();
        api.on(&format!("POST {}", path("restores")), 409, exists.clone())
            .on(
                &format!("GET {}", path("restores/orders-nightly-9c1f4e")),
                200,
                restore(backup),
            );
        let result = run(&api.connection(), "orders", options(true), output()).await;
        assert_eq!(result.is_ok(), is_same, "{result:?}");
        if let Err(error) = result {
            assert!(error.message.contains("restores something else"), "{error}");
        }
    }
}

#[tokio::test]
async fn missing_objects_and_permissions_are_named() {
    let api = FakeApi::default();
    let cluster = json!({ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "EtcdCluster",
        "metadata": { "name": "orders", "namespace": "shop" }, "spec": { "version": "3.6.16" },
        "status": { "clusterId": ID } });
    let missing = json!({ "kind": "Status", "status": "Failure", "message": "not found", "code": 404,
        "reason": "NotFound", "details": { "name": "nightly" } });
    api.on(
        &format!("GET {}", path("etcdclusters/orders")),
        200,
        cluster,
    )
    .on(&format!("GET {}", path("backups/nightly")), 404, missing)
    .on(&format!("GET {}", path("restores")), 200, list([]));
    let error = run(&api.connection(), "orders", options(true), output()).await;
    let error = error.unwrap_err();
    assert_eq!(error.exit_code, EXIT_NOT_FOUND);
    assert!(
        error.message.starts_with("Backup nightly not found"),
        "{error}"
    );

    let api = self::api();
    let post = format!("POST {}", path("restores"));
    api.forbid(&post, "create", "restores");
    let error = run(&api.connection(), "orders", options(true), output()).await;
    let error = error.unwrap_err();
    assert_eq!(error.exit_code, EXIT_FORBIDDEN);
    assert_eq!(
        error.message,
        "cannot create Restore orders-nightly-9c1f4e: user jane needs create on restores in namespace shop"
    );
}

#[test]
fn the_end_names_the_way_back() {
    let restore = RestoreReport {
        name: "back".to_owned(),
        cluster: "orders".to_owned(),
        backup: "nightly".to_owned(),
        cluster_id: "77aa".to_owned(),
        undo_until: Some("2026-11-21T12:00:00Z".to_owned()),
        ..RestoreReport::default()
    };
    let terminal = Terminal::new(ColorMode::Never);
    assert_eq!(
        ended_text(&restore, Goal::Complete, terminal),
        "orders: restored. Clients are served the data of Backup nightly.\n\
         Cluster ID   77aa\n\
         Old data     kept until 2026-11-21T12:00:00Z\n\
         Undo         `kubectl evenkeel restore undo back`\n"
    );
    assert_eq!(
        ended_text(&restore, Goal::Undone, terminal),
        "orders: undone. Clients are served the old data again.\n"
    );
}
