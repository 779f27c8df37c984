//! Pod facts: readiness, crashes, scheduling, and the text that says why a pod does not start.

use super::*;
use crate::testing::change;

const NOW: UnixTime = UnixTime(1_800_000_000);
const CONTAINER: &str = "db";

fn pod(with: Value) -> Pod {
    let mut pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": "orders-1", "creationTimestamp": "2027-01-15T07:00:00Z" },
        "spec": { "nodeName": "node-1", "containers": [{ "name": CONTAINER, "image": "db.example/db:1" }] },
    }))
    .unwrap();
    change(&mut pod, with);
    pod
}

fn container_statuses(state: Value, restarts: i32) -> Value {
    json!([{ "name": CONTAINER, "state": state, "restartCount": restarts, "image": "", "imageID": "", "ready": false }])
}

fn waiting(reason: &str, message: &str) -> Pod {
    let state = json!({ "waiting": { "reason": reason, "message": message } });
    pod(json!({ "status": { "containerStatuses": container_statuses(state, 1) } }))
}

#[test]
fn a_pod_without_a_status_is_unready_since_its_creation() {
    let pod = pod(json!({}));
    assert!(!is_ready(&pod) && !is_finished(&pod));
    assert_eq!(unready_since(&pod, NOW), Some(created_at(&pod, NOW)));
    assert!(created_at(&pod, NOW) < NOW);
}

#[test]
fn a_condition_holds_only_if_its_status_is_true() {
    for status in ["False", "Unknown", "True"] {
        let condition = json!({ "type": "Ready", "status": status, "lastTransitionTime": "2027-01-15T07:30:00Z" });
        let pod = pod(json!({ "status": { "conditions": [condition] } }));
        assert_eq!(is_ready(&pod), status == "True", "{status}");
        let since = (status != "True").then_some(UnixTime(NOW.0 - 30 * 60));
        assert_eq!(unready_since(&pod, NOW), since, "{status}");
    }
}

#[test]
fn a_container_that_crashed_twice_is_crashing_since_it_was_last_ready() {
    let with = |state: Value, restarts: i32, ready: &str| {
        pod(json!({ "status": {
            "containerStatuses": container_statuses(state, restarts),
            "conditions": [
                { "type": "ContainersReady", "status": ready, "lastTransitionTime": "2027-01-15T07:30:00Z" },
            ],
        } }))
    };
    let since = |pod: &Pod| crashing_since(pod, CONTAINER, NOW);
    let back_off = || json!({ "waiting": { "reason": "CrashLoopBackOff" } });
    let crashing = with(back_off(), 2, "False");
    assert_eq!(since(&crashing), Some(UnixTime(NOW.0 - 30 * 60)));
    assert_eq!(
        since(&with(back_off(), 1, "False")),
        None,
        "one crash may be an accident"
    );
    let running = with(json!({ "running": {} }), 7, "False");
    assert_eq!(since(&running), None, "it runs now");
    assert_eq!(
        since(&with(back_off(), 7, "True")),
        None,
        "the kubelet has not caught up"
    );
    let pulling = json!({ "waiting": { "reason": "ImagePullBackOff" } });
    assert_eq!(
        since(&with(pulling, 7, "False")),
        None,
        "the image is missing"
    );
    assert_eq!(
        crashing_since(&crashing, "sidecar", NOW),
        None,
        "another container"
    );
}

#[test]
fn a_pod_is_idle_without_a_node_or_while_its_container_waits() {
    assert!(is_idle(
        &pod(json!({ "spec": { "nodeName": null } })),
        CONTAINER
    ));
    assert!(!is_idle(&pod(json!({})), CONTAINER), "nothing is reported");
    assert!(is_idle(&waiting("ImagePullBackOff", ""), CONTAINER));
    assert!(
        !is_idle(&waiting("CrashLoopBackOff", ""), CONTAINER),
        "the kubelet restarts it in a moment"
    );
    let often = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
    let often = pod(json!({ "status": { "containerStatuses": container_statuses(often, 2) } }));
    assert!(is_idle(&often, CONTAINER));
}

#[test]
fn an_unschedulable_pod_is_reported_with_the_schedulers_message() {
    let with = |reason: &str, message: Value| {
        pod(
            json!({ "status": { "conditions": [{ "type": "PodScheduled", "status": "False", "reason": reason,
            "message": message }] } }),
        )
    };
    let full = "0/3 nodes are available: 3 Insufficient cpu.";
    let unschedulable = with("Unschedulable", json!(full));
    assert_eq!(problem(&unschedulable, "db").as_deref(), Some(full));
    assert_eq!(unschedulable_since(&unschedulable, NOW), Some(NOW));
    assert!(problem(&with("Unschedulable", json!(null)), "db").is_some());
    let gated = with("SchedulingGated", json!("gated"));
    assert_eq!(problem(&gated, "db"), None);
    assert_eq!(unschedulable_since(&gated, NOW), None);
}

#[test]
fn the_problem_text_does_not_change_while_the_reason_stays() {
    let crashing = problem(
        &waiting(
            "CrashLoopBackOff",
            "back-off 40s restarting failed container",
        ),
        "db",
    );
    assert_eq!(
        crashing,
        problem(
            &waiting("CrashLoopBackOff", "back-off 80s restarting"),
            "db"
        )
    );
    assert!(crashing.is_some_and(|text| text.starts_with("db keeps crashing")));
    let pulls =
        ["ErrImagePull", "ImagePullBackOff"].map(|reason| problem(&waiting(reason, reason), "db"));
    assert_eq!(pulls[0], pulls[1], "the two reasons alternate");
    assert_eq!(
        pulls[0].as_deref(),
        Some("the image db.example/db:1 cannot be pulled")
    );
    assert_eq!(
        problem(
            &waiting("CreateContainerConfigError", "secret \"x\" not found"),
            "db"
        )
        .as_deref(),
        Some("CreateContainerConfigError: secret \"x\" not found")
    );
    for ordinary in ["ContainerCreating", "PodInitializing"] {
        assert_eq!(problem(&waiting(ordinary, ""), "db"), None, "{ordinary}");
    }
}

#[test]
fn a_held_pod_has_no_problem() {
    let sub_path = data_sub_path(true);
    assert!(
        sub_path.starts_with('/'),
        "the kubelet rejects an absolute sub-path"
    );
    let message =
        format!("failed to prepare subPath for volumeMount: {sub_path} must be a relative path");
    assert_eq!(
        problem(&waiting("CreateContainerConfigError", &message), "db"),
        None
    );
    let annotated = |value: Value| {
        pod(json!({ "metadata": { "annotations": { labels::DATA_SUB_PATH: value } } }))
    };
    assert!(is_held(&annotated(json!(sub_path))));
    assert!(is_held(&annotated(json!("elsewhere"))) && is_held(&annotated(json!(null))));
    assert!(!is_held(&annotated(json!(data_sub_path(false)))));
}

#[test]
fn two_spellings_of_a_quantity_have_one_hash() {
    let hash = |cpu: &str| template_hash(&normalize_quantities(json!({ "cpu": cpu, "name": "x" })));
    assert_eq!(hash("1"), hash("1000m"));
    assert_ne!(hash("1"), hash("1001m"));
}

#[test]
fn a_pod_that_was_ready_for_some_seconds_is_not_starting() {
    let at = |seconds: i64| {
        let time = jiff::Timestamp::from_second(NOW.0 + seconds).unwrap();
        time.to_string()
    };
    let has_been_ready = |ready: &str, since: i64| {
        let running = json!({ "running": { "startedAt": at(-20) } });
        let pod = pod(json!({ "status": {
            "conditions": [{ "type": "Ready", "status": ready, "lastTransitionTime": at(since) }],
            "containerStatuses": container_statuses(running, 0) } }));
        has_been_ready(&pod, CONTAINER, NOW)
    };
    assert!(!has_been_ready("False", -21), "never");
    assert!(!has_been_ready("True", -5), "just now");
    assert!(has_been_ready("True", -15));
    assert!(has_been_ready("False", -5), "lost again");
}
