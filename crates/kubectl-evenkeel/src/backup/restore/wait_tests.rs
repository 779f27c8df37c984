use serde_json::{Value, json};

use super::super::super::fake::{FakeApi, path};
use super::*;
use crate::error::EXIT_FAILED;

const NO_DELAY: WaitTimes = WaitTimes {
    interval: Duration::from_millis(1),
    grace: Duration::from_secs(60),
    outage: Duration::from_secs(60),
};
const LIMIT: Duration = Duration::from_secs(30);

fn restore(phase: &str, reason: &str) -> Value {
    let condition = json!({ "type": "Complete", "status": "False", "reason": reason, "message": "It says why.",
        "lastTransitionTime": "2026-11-18T11:00:06Z" });
    json!({ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "Restore",
        "metadata": { "name": "back", "namespace": "shop" },
        "spec": { "cluster": { "name": "orders" }, "from": { "backup": "nightly" }, "replaces": "9c1f" },
        "status": { "phase": phase, "message": "It says why.", "conditions": [condition] } })
}

async fn wait_for(goal: Goal, phases: &[(&str, &str)]) -> Result<RestoreReport, CliError> {
    let api = FakeApi::default();
    for (phase, reason) in phases {
        let read = format!("GET {}", path("restores/back"));
        api.on(&read, 200, restore(phase, reason));
    }
    let created = serde_json::from_value(restore("Pending", "Waiting")).unwrap();
    wait(&api.connection(), &created, goal, LIMIT, NO_DELAY).await
}

#[tokio::test]
async fn the_wait_ends_when_clients_are_served() {
    let phases = [
        ("Pending", "Waiting"),
        ("Preparing", "Preparing"),
        ("Replacing", "Replacing"),
        ("Starting", "Starting"),
        ("Complete", "Complete"),
    ];
    let ended = wait_for(Goal::Complete, &phases).await.unwrap();
    assert_eq!(ended.phase, "Complete");
    let undo = [
        ("Complete", "Complete"),
        ("Complete", "UndoRequested"),
        ("Undoing", "Undoing"),
        ("Undone", "Undone"),
    ];
    let ended = wait_for(Goal::Undone, &undo).await.unwrap();
    assert_eq!(ended.phase, "Undone");
}

#[tokio::test]
async fn a_restore_that_never_reaches_its_goal_is_an_error() {
    for (goal, phase, reason, text) in [
        (
            Goal::Complete,
            "NotNeeded",
            "NotNeeded",
            "Restore back is not needed: It says why",
        ),
        (
            Goal::Complete,
            "Undone",
            "Undone",
            "is being undone or was undone",
        ),
        (
            Goal::Undone,
            "Complete",
            "UndoNotPossible",
            "cannot be undone: It says why",
        ),
    ] {
        let error = wait_for(goal, &[(phase, reason)]).await.unwrap_err();
        assert!(error.message.contains(text), "{error}");
        assert_eq!(error.exit_code, EXIT_FAILED);
    }
}

#[tokio::test]
async fn a_wait_has_an_end_and_a_deleted_restore_is_named() {
    let read = format!("GET {}", path("restores/back"));
    let created = serde_json::from_value(restore("Pending", "Waiting")).unwrap();
    let api = FakeApi::default();
    api.on(&read, 200, restore("Pending", "BackupNotFound"));
    let limit = Duration::from_millis(5);
    let error = wait(&api.connection(), &created, Goal::Complete, limit, NO_DELAY)
        .await
        .unwrap_err();
    assert!(
        error.message.contains("has not ended within") && error.message.ends_with("It says why"),
        "{error}"
    );
    let api = FakeApi::default();
    let missing = json!({ "kind": "Status", "status": "Failure", "message": "not found", "code": 404,
        "reason": "NotFound", "details": { "name": "back" } });
    api.on(&read, 404, missing);
    let error = wait(&api.connection(), &created, Goal::Complete, LIMIT, NO_DELAY)
        .await
        .unwrap_err();
    assert!(error.message.contains("was deleted"), "{error}");
}
