use serde_json::{Value, json};

use super::*;

fn schedule(status: Value) -> BackupSchedule {
    serde_json::from_value(json!({
        "apiVersion": "evenkeel.dev/v1alpha1", "kind": "BackupSchedule",
        "metadata": { "name": "orders-etcd", "namespace": "shop" },
        "spec": { "cluster": { "name": "orders" }, "store": "prod", "schedule": "@hourly" },
        "status": status,
    }))
    .unwrap()
}

/// Returns the status of a schedule whose last backup ended at this hour.
fn status(ended: &str, next: &str, complete: bool) -> Value {
    let backup = |at: &str| json!({ "name": "b", "at": format!("2026-11-18T{at}:00Z"), "complete": complete });
    let mut status = json!({
        "nextBackup": format!("2026-11-18T{next}:00Z"),
        "lastBackup": backup(ended), "lastSuccess": backup("09:01"),
        "conditions": [{ "type": "Recoverable", "status": "True", "reason": "Proven", "message": "It was restored in 7 seconds.",
            "lastTransitionTime": "2026-11-18T08:00:00Z" }],
    });
    if complete {
        status["lastSuccess"] = backup(ended);
    }
    status
}

fn summarize(status: Value, old: Option<&ClusterBackupStatus>) -> ClusterBackupStatus {
    of_schedule(Some(&schedule(status)), old)
}

#[test]
fn the_summary_has_the_last_and_the_next_backup_and_recoverability() {
    let found = json!(summarize(status("10:01", "11:00", true), None));
    assert_eq!(
        found,
        json!({ "lastSuccess": "2026-11-18T10:01:00Z", "lastBackup": "2026-11-18T10:01:00Z",
            "nextBackup": "2026-11-18T11:00:00Z", "recoverable": "True", "reason": "Proven" })
    );
    let failed = json!(summarize(status("10:01", "10:02", false), None));
    assert_eq!(failed["lastSuccess"], "2026-11-18T09:01:00Z");
}

#[test]
fn a_schedule_without_a_status_is_unknown() {
    for (schedule, reason) in [
        (None, "ScheduleNotFound"),
        (Some(schedule(Value::Null)), "Pending"),
        (Some(schedule(json!({}))), "Pending"),
    ] {
        let found = of_schedule(schedule.as_ref(), None);
        assert_eq!((&*found.recoverable, &*found.reason), ("Unknown", reason));
    }
}

#[test]
fn the_summary_changes_when_a_backup_ends_and_not_when_it_begins() {
    let ten = summarize(status("10:01", "11:00", true), None);
    // At 11:00 the next backup begins, and the one after it is due at 12:00.
    let running = summarize(status("10:01", "12:00", true), Some(&ten));
    assert_eq!(running, ten);
    let eleven = summarize(status("11:01", "12:00", true), Some(&running));
    assert_eq!(json!(eleven)["nextBackup"], "2026-11-18T12:00:00Z");
    // An earlier time, as of an edited schedule or a retry, is shown at once.
    let edited = summarize(status("11:01", "11:30", true), Some(&eleven));
    assert_eq!(json!(edited)["nextBackup"], "2026-11-18T11:30:00Z");
}
