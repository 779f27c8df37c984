use evenkeel_archive::tasks::TaskResult;
use serde_json::{Value, json};

use super::*;

const NOW: UnixTime = UnixTime(1_800_000_000);

fn pod(status: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": { "name": "prod-store-check" },
        "spec": { "containers": [{ "name": "agent", "image": "agent:1" }] },
        "status": status,
    }))
    .unwrap()
}

fn ended(code: i32, reason: &str, message: Option<&str>) -> AgentState {
    let mut terminated =
        json!({ "exitCode": code, "reason": reason, "finishedAt": "2027-01-15T08:00:00Z" });
    if let Some(message) = message {
        terminated["message"] = json!(message);
    }
    let phase = if code == 0 { "Succeeded" } else { "Failed" };
    let container = json!({ "name": "agent", "state": { "terminated": terminated },
        "ready": false, "restartCount": 0, "image": "agent:1", "imageID": "" });
    state(
        &pod(json!({ "phase": phase, "containerStatuses": [container] })),
        "agent",
        NOW,
    )
}

fn outcome(state: AgentState) -> Outcome {
    match state {
        AgentState::Finished { outcome, .. } => outcome,
        other => panic!("not finished: {other:?}"),
    }
}

fn failure_text(state: AgentState) -> (FailureReason, String) {
    match outcome(state) {
        Outcome::Failed(failure) => (failure.reason, failure.message),
        Outcome::Succeeded(result) => panic!("counts as success: {result:?}"),
    }
}

fn checked() -> Outcome {
    Outcome::Succeeded(TaskResult::StoreChecked {
        conditional_writes: true,
    })
}

#[test]
fn a_report_with_exit_code_0_is_the_outcome() {
    let report = serde_json::to_string(&checked()).unwrap();
    let state = ended(0, "Completed", Some(&report));
    assert!(matches!(state, AgentState::Finished { at: Some(at), .. } if at == NOW));
    assert_eq!(outcome(state), checked());
}

#[test]
fn the_reason_of_a_failure_is_kept() {
    let report =
        r#"{"failed":{"reason":"AccessDenied","message":"The credentials do not allow it."}}"#;
    let (reason, message) = failure_text(ended(1, "Error", Some(report)));
    assert_eq!(
        (reason, &*message),
        (
            FailureReason::AccessDenied,
            "The credentials do not allow it."
        )
    );
}

#[test]
fn success_without_a_readable_report_is_a_failure() {
    let report = serde_json::to_string(&checked()).unwrap();
    let cut = &report[..report.len() - 3];
    for (code, reason, message, expected) in [
        (0, "Completed", None, "without a report"),
        (0, "Completed", Some(""), "without a report"),
        (0, "Completed", Some(cut), "cannot be read"),
        (0, "Completed", Some("done"), "cannot be read"),
        (
            0,
            "Completed",
            Some("{\"succeeded\":{\"later\":{}}}"),
            "cannot be read",
        ),
        (
            137,
            "OOMKilled",
            None,
            "more memory than its limit of 128Mi",
        ),
        (
            137,
            "OOMKilled",
            Some(&*report),
            "more memory than its limit of 128Mi",
        ),
        (
            1,
            "Error",
            Some(&*report),
            "reported success, but ended with exit code 1",
        ),
        (255, "Error", None, "exit code 255"),
    ] {
        let (kind, text) = failure_text(ended(code, reason, message));
        assert!(text.contains(expected), "{text}");
        assert!(kind.is_transient(), "{text}");
    }
}

#[test]
fn a_pod_that_kubernetes_ended_has_failed_with_kubernetes_reason() {
    let evicted = pod(
        json!({ "phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory." }),
    );
    let (reason, text) = failure_text(state(&evicted, "agent", NOW));
    assert_eq!(reason, FailureReason::Other);
    assert!(
        text.contains("Evicted: The node was low on resource: memory."),
        "{text}"
    );
    let late = pod(json!({ "phase": "Failed", "reason": "DeadlineExceeded" }));
    let (reason, _) = failure_text(state(&late, "agent", NOW));
    assert_eq!(reason, FailureReason::DeadlineExceeded);
    let silent = pod(json!({ "phase": "Succeeded" }));
    failure_text(state(&silent, "agent", NOW));
}

#[test]
fn a_pod_that_cannot_start_names_the_problem() {
    let waiting = |reason: &str, message: &str| {
        pod(
            json!({ "phase": "Pending", "containerStatuses": [{ "name": "agent", "ready": false, "restartCount": 0,
            "image": "agent:1", "imageID": "", "state": { "waiting": { "reason": reason, "message": message } } }] }),
        )
    };
    let unschedulable = pod(
        json!({ "phase": "Pending", "conditions": [{ "type": "PodScheduled",
        "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available: 3 Insufficient memory." }] }),
    );
    let scheduled = |at: &str| {
        pod(
            json!({ "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "True",
            "lastTransitionTime": at }] }),
        )
    };
    let cases = [
        (
            unschedulable,
            Some(("Unschedulable", "3 Insufficient memory.")),
        ),
        (
            waiting("ErrImagePull", "x"),
            Some(("ImagePullFailed", "The image agent:1 cannot be pulled.")),
        ),
        (
            waiting("ImagePullBackOff", "y"),
            Some(("ImagePullFailed", "The image agent:1 cannot be pulled.")),
        ),
        (
            waiting("CreateContainerConfigError", "secret \"s3-keys\" not found"),
            Some((
                "CreateContainerConfigError",
                "secret \"s3-keys\" not found.",
            )),
        ),
        (waiting("ContainerCreating", ""), None),
        (scheduled("2027-01-15T07:59:30Z"), None),
        (
            scheduled("2027-01-15T07:50:00Z"),
            Some(("ContainerNotStarted", "attached or mounted")),
        ),
        (pod(json!({})), None),
    ];
    for (pod, expected) in cases {
        let AgentState::Pending { problem } = state(&pod, "agent", NOW) else {
            panic!("not pending: {pod:?}")
        };
        let found = problem.as_ref().map(|it| (&*it.reason, &*it.message));
        match (found, expected) {
            (Some((reason, text)), Some((expected, part))) => {
                assert!(
                    reason == expected && text.contains(part),
                    "{reason}: {text}"
                );
            }
            (found, expected) => assert_eq!(found, expected),
        }
    }
}

#[test]
fn a_started_container_is_running() {
    let running = pod(
        json!({ "phase": "Running", "containerStatuses": [{ "name": "agent", "ready": true,
        "restartCount": 0, "image": "agent:1", "imageID": "", "state": { "running": {} } }] }),
    );
    assert_eq!(state(&running, "agent", NOW), AgentState::Running);
}
