use serde_json::{Value, json};

use super::*;

const NOW: UnixTime = UnixTime(1_800_000_000);
const ENDED: &str = "2026-11-18T12:00:00Z";

fn terminated(name: &str, code: i32, reason: &str, message: &str) -> Value {
    json!({ "name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": { "terminated": {
        "exitCode": code, "reason": reason, "message": message, "finishedAt": ENDED,
    } } })
}

fn running(name: &str) -> Value {
    json!({ "name": name, "image": "", "imageID": "", "ready": true, "restartCount": 0,
        "state": { "running": { "startedAt": ENDED } } })
}

fn outcome(reason: &str, message: &str) -> String {
    json!({ "failed": { "reason": reason, "message": message } }).to_string()
}

fn pod(phase: &str, init: &[Value], containers: &[Value]) -> Pod {
    serde_json::from_value(json!({
        "metadata": { "name": "orders-drill", "creationTimestamp": "2026-11-18T11:00:00Z" },
        "status": { "phase": phase, "initContainerStatuses": init, "containerStatuses": containers },
    }))
    .unwrap()
}

/// Returns the result and the message of a drill.
fn result(pod: &Pod) -> (DrillResult, String) {
    match state(pod, "b1", NOW) {
        DrillPodState::Finished(record) => (record.result, record.message),
        other => panic!("{other:?}"),
    }
}

fn after_restore(serve: Value, drill: Value) -> Pod {
    let init = [
        terminated(FETCH, 0, "Completed", ""),
        terminated(RESTORE, 0, "Completed", ""),
    ];
    pod("Running", &init, &[serve, drill])
}

#[test]
fn a_proven_drill_ends_while_the_application_runs() {
    let proven = json!({ "succeeded": { "proven": { "seconds": 12, "keys": 100 } } }).to_string();
    let pod = after_restore(running(SERVE), terminated(DRILL, 0, "Completed", &proven));
    let DrillPodState::Finished(record) = state(&pod, "b1", NOW) else {
        panic!();
    };
    assert_eq!((record.result, record.seconds), (DrillResult::Proven, 12));
    assert_eq!(record.at.0, 1_795_003_200);
    assert_eq!(record.backup, "b1");
}

#[test]
fn differences_and_damage_count_as_damage() {
    for reason in ["DataDiffers", "BackupDamaged", "BackupNotFound"] {
        let drill = terminated(DRILL, 1, "Error", &outcome(reason, "41 of 42 keys"));
        let found = result(&after_restore(running(SERVE), drill));
        assert_eq!(
            found,
            (DrillResult::Damaged, "41 of 42 keys.".to_owned()),
            "{reason}"
        );
        let fetch = terminated(FETCH, 1, "Error", &outcome(reason, "No manifest."));
        assert_eq!(
            result(&pod("Failed", &[fetch], &[])).0,
            DrillResult::Damaged
        );
    }
}

#[test]
fn a_store_that_cannot_be_read_proves_no_damage() {
    for reason in [
        "Unreachable",
        "NoSpace",
        "AccessDenied",
        "NotSupported",
        "DeadlineExceeded",
        "Other",
    ] {
        let fetch = terminated(FETCH, 1, "Error", &outcome(reason, "Reason."));
        assert_eq!(
            result(&pod("Failed", &[fetch], &[])).0,
            DrillResult::NotRun,
            "{reason}"
        );
    }
}

#[test]
fn an_application_that_rejects_the_data_shows_damage() {
    let fetched = terminated(FETCH, 0, "Completed", "");
    let restore = terminated(RESTORE, 1, "Error", "expected sha256 [1 2], got [3 4]");
    let found = result(&pod("Failed", &[fetched.clone(), restore], &[]));
    assert_eq!(found.0, DrillResult::Damaged);
    assert!(found.1.contains("expected sha256"), "{}", found.1);
    let drill = terminated(
        DRILL,
        1,
        "Error",
        &outcome("SourceFailed", "Connection refused."),
    );
    let serve = terminated(SERVE, 2, "Error", "panic: page 7 already freed");
    assert_eq!(result(&after_restore(serve, drill)).0, DrillResult::Damaged);

    let full = terminated(RESTORE, 1, "Error", "write db: no space left on device");
    assert_eq!(
        result(&pod("Failed", &[fetched.clone(), full], &[])).0,
        DrillResult::NotRun
    );
    let killed = terminated(RESTORE, 137, "OOMKilled", "");
    assert_eq!(
        result(&pod("Failed", &[fetched, killed], &[])).0,
        DrillResult::NotRun
    );
}

#[test]
fn an_application_that_runs_and_does_not_answer_proves_nothing() {
    let drill = terminated(DRILL, 1, "Error", &outcome("SourceFailed", "No answer."));
    let pod = after_restore(running(SERVE), drill);
    assert_eq!(result(&pod), (DrillResult::NotRun, "No answer.".to_owned()));
}

#[test]
fn an_evicted_pod_proves_nothing() {
    let mut pod = after_restore(
        terminated(SERVE, 137, "Error", ""),
        terminated(DRILL, 137, "Error", ""),
    );
    let status = pod.status.as_mut().unwrap();
    status.phase = Some("Failed".to_owned());
    status.reason = Some("Evicted".to_owned());
    status.message = Some("The node was low on resource: ephemeral-storage".to_owned());
    let found = result(&pod);
    assert_eq!(found.0, DrillResult::NotRun);
    assert!(found.1.contains("ephemeral-storage."), "{}", found.1);
}

#[test]
fn an_agent_without_a_report_proves_nothing() {
    for message in ["", "no JSON", &outcome("Other", "cut")[..10]] {
        let pod = after_restore(running(SERVE), terminated(DRILL, 1, "Error", message));
        assert_eq!(result(&pod).0, DrillResult::NotRun, "{message}");
    }
    let lies = json!({ "succeeded": { "proven": { "seconds": 1, "keys": 1 } } }).to_string();
    let pod = after_restore(running(SERVE), terminated(DRILL, 1, "Error", &lies));
    assert_eq!(result(&pod).0, DrillResult::NotRun);
}

#[test]
fn a_drill_runs_as_soon_as_a_container_has_started() {
    let pending = pod("Pending", &[], &[]);
    assert_eq!(
        state(&pending, "b1", NOW),
        DrillPodState::Pending(String::new())
    );
    let fetching = pod("Pending", &[running(FETCH)], &[]);
    assert_eq!(state(&fetching, "b1", NOW), DrillPodState::Running);
    let comparing = after_restore(terminated(SERVE, 2, "Error", "panic"), running(DRILL));
    assert_eq!(state(&comparing, "b1", NOW), DrillPodState::Running);
}
