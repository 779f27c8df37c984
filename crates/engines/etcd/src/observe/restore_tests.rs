use evenkeel_archive::tasks::{FailureReason, Outcome, TaskFailure};
use serde_json::{Value, json};

use super::*;
use crate::testing::{NOW, change};

fn pod(status: Value, sub_path: Option<&str>) -> Pod {
    let annotations = sub_path.map(|path| json!({ labels::DATA_SUB_PATH: path }));
    serde_json::from_value(json!({
        "metadata": { "name": "orders-kbbbb-restore", "annotations": annotations },
        "spec": { "nodeName": "node-0", "containers": [] },
        "status": status,
    }))
    .unwrap()
}

fn ended(name: &str, code: i32, message: &str, reason: &str) -> Value {
    json!({ "name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": { "terminated": {
        "exitCode": code, "message": message, "reason": reason, "finishedAt": "2027-01-15T08:00:00Z" } } })
}

fn released(status: Value) -> Pod {
    pod(status, Some(pods::data_sub_path(false)))
}

#[test]
fn a_restore_pod_is_held_until_its_sub_path_is_set() {
    let running = json!({ "phase": "Pending" });
    assert_eq!(
        state(&pod(running.clone(), None), NOW),
        RestorePodState::Held
    );
    assert_eq!(
        state(&released(running), NOW),
        RestorePodState::Running(RestoreStep::Fetch)
    );
    let fetched =
        json!({ "phase": "Pending", "initContainerStatuses": [ended(FETCH, 0, "", "Completed")] });
    assert_eq!(
        state(&released(fetched), NOW),
        RestorePodState::Running(RestoreStep::Restore)
    );
    let done = json!({ "phase": "Succeeded" });
    assert_eq!(state(&released(done), NOW), RestorePodState::Succeeded);
}

fn failure_of(statuses: Value) -> RestoreFailure {
    let status = json!({ "phase": "Failed", "initContainerStatuses": statuses });
    match state(&released(status), NOW) {
        RestorePodState::Failed(failure) => failure,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_report_of_the_agent_decides_whether_a_failure_is_transient() {
    let report = |reason| {
        let failed = Outcome::Failed(TaskFailure {
            reason,
            message: "The bucket is gone.".to_owned(),
        });
        let report = serde_json::to_string(&failed).unwrap();
        failure_of(json!([ended(FETCH, 1, &report, "Error")]))
    };
    let failure = report(FailureReason::Unreachable);
    assert!(failure.is_transient && failure.step == RestoreStep::Fetch);
    assert_eq!(failure.message, "The bucket is gone.");
    assert_eq!(failure.at, NOW);
    assert!(!report(FailureReason::BackupDamaged).is_transient);
}

#[test]
fn a_failure_of_etcdutl_has_the_end_of_its_log() {
    let log = "{\"level\":\"info\"}\nError: data-dir is not empty";
    let done = ended(FETCH, 0, "", "Completed");
    let failure = failure_of(json!([done, ended(RESTORE, 1, log, "Error")]));
    assert_eq!(
        (failure.step, failure.is_transient, failure.message.as_str()),
        (RestoreStep::Restore, false, "Error: data-dir is not empty")
    );
    let failure = failure_of(json!([ended(RESTORE, 137, "", "OOMKilled")]));
    assert!(failure.message.contains("spec.resources.limits.memory"));
}

#[test]
fn a_pod_that_its_node_has_ended_is_tried_again() {
    let status =
        json!({ "phase": "Failed", "reason": "Evicted", "message": "The node was low on memory." });
    let RestorePodState::Failed(failure) = state(&released(status), NOW) else {
        panic!()
    };
    assert!(failure.is_transient);
    assert_eq!(failure.message, "The node was low on memory.");
}

#[test]
fn the_restored_volume_is_read_as_it_was_recorded() {
    let mut claim = PersistentVolumeClaim::default();
    assert_eq!(read_restored(&claim), None);
    let mut annotate = |text: String| {
        change(
            &mut claim,
            json!({ "metadata": { "annotations": { labels::RESTORED_VOLUME: text } } }),
        );
        read_restored(&claim).unwrap()
    };
    let recorded = RestoredVolume {
        restore: Uid(5),
        claim: Uid(6),
        volume: Uid::of_name("pv/0"),
    };
    assert_eq!(annotate(restored_volume(Uid(5), Uid(6), "pv/0")), recorded);
    assert_eq!(annotate("malformed".to_owned()).claim, Uid(0));
}
