use serde_json::{Value, json};

use super::*;
use crate::live::ReadError;
use crate::scene::Scene;

/// Returns the scene of a cluster with these backups and this schedule.
fn scene(backups: &[(&str, Value)], schedule: Option<Value>) -> Scene {
    let backup = |(name, status): &(&str, Value)| {
        serde_json::from_value(json!({ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "Backup",
            "metadata": { "name": name, "namespace": "shop", "creationTimestamp": "2026-11-16T11:00:00Z" },
            "spec": { "cluster": { "name": "orders" }, "store": "prod" }, "status": status }))
        .unwrap()
    };
    let schedule = schedule.map(|status| {
        serde_json::from_value(json!({ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "BackupSchedule",
            "metadata": { "name": "hourly", "namespace": "shop" },
            "spec": { "cluster": { "name": "orders" }, "store": "prod", "schedule": "@hourly" }, "status": status }))
        .unwrap()
    });
    let mut scene = Scene::healthy();
    scene.live.backups = Ok(BackupObjects {
        backups: backups.iter().map(backup).collect(),
        schedules: schedule.into_iter().collect(),
    });
    scene
}

fn complete(at: &str) -> Value {
    json!({ "phase": "Complete", "position": "revision 4711", "finishedAt": at })
}

fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({ "type": type_, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-11-16T11:50:00Z" })
}

fn failed(at: &str) -> Value {
    json!({ "phase": "Failed", "finishedAt": at,
        "conditions": [condition("Complete", "False", "StoreFull", "The store has no space left.")] })
}

/// Returns the lines about backups on the status screen.
fn lines(scene: &Scene) -> String {
    let screen = scene.screen();
    let (_, rest) = screen.split_once("\nBackup ").unwrap();
    let (line, _) = rest.split_once("\nConnect").unwrap();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_last_backup_the_next_one_and_the_last_proof_are_shown() {
    let drill =
        json!({ "backup": "a", "at": "2026-11-14T11:00:00Z", "result": "Proven", "seconds": 14 });
    let schedule = json!({ "nextBackup": "2026-11-16T13:00:00Z", "drill": { "last": drill, "lastSuccess": drill } });
    let backups = [
        ("a", complete("2026-11-14T10:00:00Z")),
        ("b", complete("2026-11-16T11:48:00Z")),
    ];
    let scene = scene(&backups, Some(schedule));
    assert_eq!(
        lines(&scene),
        "OK last complete 12m ago (revision 4711); next 13:00:00Z; restore proven 2d ago, took 14s"
    );
    let report = serde_json::to_value(scene.report()).unwrap();
    assert_eq!(report["backup"]["state"], "OK");
    assert_eq!(report["backup"]["lastComplete"]["name"], "b");
    assert_eq!(report["backup"]["nextBackup"], "2026-11-16T13:00:00Z");
    assert_eq!(report["backup"]["lastProven"]["restoreSeconds"], 14);
    assert_eq!(report["backup"]["schedules"][0]["name"], "hourly");
}

#[test]
fn a_cluster_without_backups_says_how_to_take_one() {
    let mut scene = scene(&[], None);
    assert_eq!(
        lines(&scene),
        "none no backups are taken; see kubectl evenkeel backup --help"
    );
    scene.live.backups = Err(Scene::forbidden("list on backups"));
    assert_eq!(
        lines(&scene),
        "unknown (needs list on backups in namespace shop)"
    );
    scene.live.backups = Err(ReadError::Failed(
        super::super::objects::missing_kind("Backup").message,
    ));
    assert_eq!(
        lines(&scene),
        "unknown (the Kubernetes API does not know the kind Backup)"
    );
}

#[test]
fn a_failed_backup_is_a_problem_until_one_is_complete() {
    let mut backups = vec![
        ("a", complete("2026-11-16T10:00:00Z")),
        ("b", failed("2026-11-16T11:48:00Z")),
    ];
    assert_eq!(
        lines(&scene(&backups, None)),
        "FAILED last backup b: StoreFull: The store has no space left; last complete 2h ago (revision 4711); restore never \
         proven"
    );
    backups.push((
        "c",
        json!({ "phase": "Running", "startedAt": "2026-11-16T11:59:00Z" }),
    ));
    assert!(lines(&scene(&backups, None)).contains("; c is being taken; "));
    backups.push(("d", complete("2026-11-16T11:59:30Z")));
    assert!(lines(&scene(&backups, None)).starts_with("OK last complete 30s ago"));
}

#[test]
fn the_failure_of_a_deleted_backup_is_known_from_its_schedule() {
    let last = json!({ "name": "gone", "at": "2026-11-16T11:48:00Z", "complete": false, "message": "The bucket is gone." });
    let schedule = json!({ "nextBackup": "2026-11-16T13:00:00Z", "lastBackup": last });
    let scene = scene(&[("a", complete("2026-11-16T10:00:00Z"))], Some(schedule));
    assert!(
        lines(&scene)
            .starts_with("FAILED last backup gone: The bucket is gone; last complete 2h ago"),
        "{}",
        lines(&scene)
    );
}

#[test]
fn problems_are_sorted_the_worst_first() {
    let conditions = [
        condition(
            "Recoverable",
            "False",
            "DrillOverdue",
            "No drill has run for 9 days.",
        ),
        condition(
            "Ready",
            "False",
            "StoreNotReady",
            "The store prod is not Ready.",
        ),
    ];
    let schedule = json!({ "nextBackup": "2026-11-16T11:00:00Z", "conditions": conditions });
    let backups = [("a", failed("2026-11-16T10:00:00Z"))];
    let scene = scene(&backups, Some(schedule.clone()));
    let kinds: Vec<_> = scene
        .report()
        .backup
        .problems
        .iter()
        .map(|it| it.kind)
        .collect();
    use BackupHealth::{Failed, NotReady, NotRecoverable, Overdue};
    assert_eq!(kinds, [Failed, NotReady, Overdue, NotRecoverable]);
    let text = lines(&scene);
    assert!(
        text.contains("schedule hourly is overdue by 1h00m"),
        "{text}"
    );
    assert!(
        !text.contains("next "),
        "a time in the past is not the next one: {text}"
    );
    // The schedule of a suspended one is not overdue.
    let mut suspended = scene;
    let objects = suspended.live.backups.as_mut().unwrap();
    objects.schedules[0].spec.policy.suspend = true;
    objects.backups.clear();
    assert_eq!(lines(&suspended), "SUSPENDED none is complete yet");
}

#[test]
fn a_new_schedule_waits_for_its_first_backup() {
    let schedule = json!({ "nextBackup": "2026-11-16T13:00:00Z" });
    assert_eq!(
        lines(&scene(&[], Some(schedule))),
        "waiting none is complete yet; next 13:00:00Z"
    );
    let mut other = scene(&[("a", complete("2026-11-16T10:00:00Z"))], None);
    other.live.backups.as_mut().unwrap().backups[0]
        .spec
        .cluster
        .name = "users".to_owned();
    assert_eq!(other.report().backup.state, BackupHealth::None);
}
