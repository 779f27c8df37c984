use evenkeel_api::{Backup, BackupSchedule};
use serde_json::{Value, json};

use super::super::fake::{FakeApi, list, path};
use super::super::list::{report, run};
use super::*;
use crate::args::{ColorMode, OutputFormat};
use crate::output::OutputOptions;

const NOW: &str = "2026-11-18T12:00:00Z";
const ALL: BackupsOptions<'static> = BackupsOptions {
    cluster: None,
    all_namespaces: false,
    store: None,
    is_wide: false,
};

fn backup(name: &str, created: &str, status: Value) -> Backup {
    serde_json::from_value(json!({ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "Backup",
        "metadata": { "name": name, "namespace": "shop", "creationTimestamp": created },
        "spec": { "cluster": { "name": name.split('-').next() }, "store": "prod" }, "status": status }))
    .unwrap()
}

fn complete(name: &str, at: &str) -> Backup {
    let status = json!({ "phase": "Complete", "location": format!("evenkeel-v1/etcd/shop/{name}"),
        "position": "revision 4711", "engineVersion": "3.6.16", "size": "25Mi", "startedAt": "2026-11-18T10:59:56Z",
        "finishedAt": at });
    backup(name, "2026-11-18T10:59:50Z", status)
}

fn failed(name: &str, at: &str) -> Backup {
    let condition = json!({ "type": "Complete", "status": "False", "reason": "StoreFull",
        "message": "The store has no space left. Delete backups, or enlarge the volume.",
        "lastTransitionTime": at });
    backup(
        name,
        at,
        json!({ "phase": "Failed", "finishedAt": at, "conditions": [condition] }),
    )
}

fn schedule(status: Value) -> BackupSchedule {
    serde_json::from_value(json!({ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "BackupSchedule",
        "metadata": { "name": "orders", "namespace": "shop" },
        "spec": { "cluster": { "name": "orders" }, "store": "prod", "schedule": "@hourly" }, "status": status }))
    .unwrap()
}

fn drill(result: &str) -> Value {
    json!({ "backup": "orders-b", "at": "2026-11-16T12:00:00Z", "result": result, "seconds": 74,
        "message": "3 keys differ" })
}

fn healthy_schedule() -> BackupSchedule {
    schedule(json!({ "nextBackup": "2026-11-18T13:00:00Z",
        "lastSuccess": { "name": "orders-b", "at": "2026-11-18T11:00:00Z", "complete": true },
        "drill": { "last": drill("Proven"), "lastSuccess": drill("Proven") },
        "conditions": [{ "type": "Recoverable", "status": "True", "reason": "Proven", "message": "",
            "lastTransitionTime": NOW }] }))
}

fn render(backups: &[Backup], schedules: &[BackupSchedule], options: BackupsOptions<'_>) -> String {
    let list = report(backups, schedules, options, NOW.parse().unwrap());
    let namespace = (!options.all_namespaces).then_some("shop");
    text(&list, namespace, options, Terminal::new(ColorMode::Never))
}

#[test]
fn backups_are_listed_below_their_schedule_the_newest_first() {
    let mut proven = complete("orders-a", "2026-11-16T11:00:00Z");
    let status = proven.status.as_mut().unwrap();
    status.proven = Some(
        serde_json::from_value(
            json!({ "at": "2026-11-16T12:00:00Z", "version": "3.6.16", "seconds": 74 }),
        )
        .unwrap(),
    );
    let backups = [
        proven,
        failed("orders-c", "2026-11-18T11:50:00Z"),
        complete("orders-b", "2026-11-18T11:00:00Z"),
        backup(
            "orders-d",
            "2026-11-18T11:59:55Z",
            json!({ "phase": "Running" }),
        ),
    ];
    let screen = render(&backups, &[healthy_schedule()], ALL);
    assert_eq!(
        screen,
        "Schedule     orders: last success 60m ago, next 13:00:00Z, recoverable, last\n\
         \x20            drill 2d ago: restored in 1m14s\n\
         \n\
         NAME      CLUSTER  AGE  PHASE     POSITION       SIZE  PROVEN\n\
         orders-d  orders   5s   Running   -              -     -\n\
         orders-c  orders   10m  Failed    -              -     -\n\
         orders-b  orders   60m  Complete  revision 4711  25Mi  -\n\
         orders-a  orders   2d   Complete  revision 4711  25Mi  2d ago\n\
         \n\
         Failed       orders-c: StoreFull: The store has no space left. Delete backups,\n\
         \x20            or enlarge the volume\n"
    );
    let wide = render(
        &backups,
        &[],
        BackupsOptions {
            is_wide: true,
            ..ALL
        },
    );
    for column in [
        "STORE",
        "LOCATION",
        "DURATION",
        "ENGINE VERSION",
        "2d ago in 1m14s",
    ] {
        assert!(wide.contains(column), "{column}\n{wide}");
    }
}

#[test]
fn backups_are_chosen_by_cluster_and_store() {
    let backups = [
        complete("orders-a", "2026-11-18T11:00:00Z"),
        complete("users-a", "2026-11-18T11:00:00Z"),
    ];
    let names = |options| {
        let list = report(
            &backups,
            &[healthy_schedule()],
            options,
            NOW.parse().unwrap(),
        );
        let names: Vec<_> = list.items.into_iter().map(|backup| backup.name).collect();
        (names.join(" "), list.schedules.len())
    };
    let cluster = |name| BackupsOptions {
        cluster: Some(name),
        ..ALL
    };
    assert_eq!(names(cluster("users")), ("users-a".to_owned(), 0));
    assert_eq!(names(cluster("orders")), ("orders-a".to_owned(), 1));
    let other = BackupsOptions {
        store: Some("other"),
        ..ALL
    };
    assert_eq!(names(other), (String::new(), 0));
    let screen = render(&backups, &[], other);
    assert_eq!(
        screen,
        "No Backups found in store other in namespace shop. `kubectl evenkeel backup\n\
         CLUSTER` takes one. A BackupSchedule takes them regularly.\n"
    );
}

#[test]
fn a_damaged_backup_and_a_schedule_with_problems_stand_out() {
    let schedule = schedule(
        json!({ "nextBackup": "2026-11-18T13:00:00Z", "drill": { "last": drill("Damaged") },
        "conditions": [
            { "type": "Ready", "status": "False", "reason": "StoreNotReady", "message": "", "lastTransitionTime": NOW },
            { "type": "Recoverable", "status": "False", "reason": "DrillFailed", "message": "", "lastTransitionTime": NOW },
        ] }),
    );
    let backups = [complete("orders-b", "2026-11-18T11:00:00Z")];
    let screen = render(&backups, &[schedule], ALL);
    assert!(
        screen.starts_with(
            "Schedule     orders: NOT READY (StoreNotReady), no success yet, next 13:00:00Z,\n\
             \x20            NOT RECOVERABLE (DrillFailed), last drill 2d ago: DAMAGED\n"
        ),
        "{screen}"
    );
    assert!(screen.contains("25Mi  DAMAGED\n"), "{screen}");
    assert!(
        screen.ends_with("Damaged      orders-b: 3 keys differ\n"),
        "{screen}"
    );
}

#[test]
fn the_table_fits_into_80_columns_and_names_stay_whole() {
    let name = format!("orders-{}", "x".repeat(38));
    let backups = [complete(&name, "2026-11-18T11:00:00Z")];
    let options = BackupsOptions {
        all_namespaces: true,
        ..ALL
    };
    let screen = render(&backups, &[], options);
    assert!(screen.contains(&name), "{screen}");
    assert!(screen.starts_with("NAMESPACE  NAME"), "{screen}");
    for line in screen.lines() {
        assert!(line.chars().count() <= 80, "{line}\n{screen}");
    }
    let many: Vec<_> = (0..5)
        .map(|index| failed(&format!("orders-{index}"), "2026-11-18T11:50:00Z"))
        .collect();
    let screen = render(&many, &[], ALL);
    assert!(screen.contains("2 more: -o wide shows all"), "{screen}");
}

#[tokio::test]
async fn a_name_without_backups_must_be_a_cluster() {
    let api = FakeApi::default();
    api.on(&format!("GET {}", path("backups")), 200, list([]))
        .on(&format!("GET {}", path("backupschedules")), 200, list([]))
        .on(&format!("GET {}", path("etcdclusters")), 200, list([]))
        .on(
            &format!("GET {}", path("etcdclusters/odrers")),
            404,
            json!({ "kind": "Status", "status": "Failure", "message": "not found", "reason": "NotFound", "code": 404 }),
        );
    let options = BackupsOptions {
        cluster: Some("odrers"),
        ..ALL
    };
    let output = OutputOptions::new(OutputFormat::Text, Terminal::new(ColorMode::Never));
    let error = run(&api.connection(), options, output).await.unwrap_err();
    assert_eq!(error.exit_code, crate::error::EXIT_NOT_FOUND);
    assert_eq!(
        error.message,
        "EtcdCluster odrers not found in namespace shop"
    );
    assert_eq!(run(&api.connection(), ALL, output).await, Ok(0));
}

#[tokio::test]
async fn a_missing_permission_is_an_error_of_its_own() {
    let api = FakeApi::default();
    api.forbid(&format!("GET {}", path("backups")), "list", "backups");
    let output = OutputOptions::new(OutputFormat::Json, Terminal::new(ColorMode::Never));
    let error = run(&api.connection(), ALL, output).await.unwrap_err();
    assert_eq!(error.exit_code, crate::error::EXIT_FORBIDDEN);
    assert_eq!(
        error.message,
        "cannot list Backups: user jane needs list on backups in namespace shop"
    );
}
