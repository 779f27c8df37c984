//! Tests of the status screen. [`Scene::screen`] checks each screen for contradictions.

use evenkeel_etcd::availability::Alarm;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use crate::error::{EXIT_DEGRADED, EXIT_UNAVAILABLE};
use crate::live::ReadError;
use crate::member_metrics::LiveAnswer;
use crate::report::ReportSource;
use crate::scene::{Scene, names, words};

/// Asserts that a screen has these texts, apart from line breaks.
#[track_caller]
pub(crate) fn assert_has(screen: &str, texts: &[&str]) {
    let words = words(screen);
    for text in texts {
        assert!(words.contains(text), "`{text}` is missing:\n{screen}");
    }
}

#[test]
fn a_member_that_is_down_is_a_problem_before_the_operator_reports_it() {
    let mut scene = Scene::healthy();
    scene.no_answer(names()[2]);
    let screen = scene.screen();
    assert_eq!(scene.report().exit_code, EXIT_DEGRADED);
    assert_eq!(scene.report().problems[0].source, ReportSource::Live);
    assert_has(
        &screen,
        &[
            "Health DEGRADED reads and writes are served",
            "Tolerates nothing: 2 of 3 voters answer, and the quorum needs 2",
            "Problem Member orders-69mbp does not answer. The operator has not reported it yet.",
            "no answer",
        ],
    );
    // With permission to read nodes, the cause is named.
    scene.node("node-3", false);
    let screen = scene.screen();
    assert_has(
        &screen,
        &[
            "Problem Member orders-69mbp does not answer: node node-3 is NotReady since 11:58:58Z.",
            "You can Bring node node-3 back. If it is gone for good, delete it: `kubectl delete node node-3`.",
            "node-3 (NotReady)",
        ],
    );
}

#[test]
fn a_reported_problem_has_its_duration_and_the_next_action_its_deadline() {
    let mut scene = Scene::healthy();
    let member = names()[2];
    scene.no_answer(member);
    scene.resource["status"]["memberList"][2]["nodeStatus"] = json!("NotReady");
    scene.edit_pod(member, |pod| {
        pod.metadata.deletion_timestamp =
            serde_json::from_value(json!("2026-11-16T12:00:20Z")).unwrap();
        pod.metadata.deletion_grace_period_seconds = Some(30);
    });
    scene.status(
        "operation",
        json!({ "type": "Recover", "startTime": "2026-11-16T11:59:08Z",
        "message": "waiting for pod orders-69mbp to be deleted" }),
    );
    scene.status("waitingFor", json!(["pod orders-69mbp to be deleted"]));
    scene.status(
        "nextAction",
        json!({ "message": "operator replaces member orders-69mbp unless it recovers",
        "time": "2026-11-16T12:04:08Z" }),
    );
    scene.problem(
        "NodeNotReady",
        member,
        "Member orders-69mbp is not healthy: node node-3 is NotReady since 2026-11-16T11:58:58Z.",
        "Bring node node-3 back. If it is gone for good, delete it: `kubectl delete node node-3`.",
    );
    let screen = scene.screen();
    assert_eq!(scene.report().exit_code, EXIT_DEGRADED);
    assert_has(
        &screen,
        &[
            "Health DEGRADED for 52s: reads and writes are served",
            "You can Bring node node-3 back.",
            "Operation recover started 11:59:08Z (52s ago) now: waiting for pod orders-69mbp to be deleted",
            "next: at 12:04:08Z (in 4m08s) the operator replaces member orders-69mbp unless it recovers",
            "no answer Terminating",
            "node-3 (NotReady)",
        ],
    );
    // Without advice, the next action answers the question what to do.
    scene.resource["status"]["problems"][0]["advice"] = json!("");
    let screen = scene.screen();
    assert_has(
        &screen,
        &[
            "You can nothing: at 12:04:08Z (in 4m08s) the operator replaces member orders-69mbp unless it recovers",
        ],
    );
    assert!(!screen.contains("next:"), "{screen}");
}

#[test]
fn a_problem_that_the_answers_contradict_is_a_note() {
    let mut scene = Scene::healthy();
    scene.problem(
        "MemberDown",
        names()[0],
        "Member orders-gv2z5 is not healthy: etcd does not respond on node node-1.",
        "Check the node.",
    );
    scene.status(
        "operation",
        json!({ "type": "Recover", "startTime": "2026-11-16T11:59:08Z",
        "message": "waiting for member orders-gv2z5 to become healthy" }),
    );
    let screen = scene.screen();
    assert_eq!(scene.report().exit_code, 0);
    assert_has(
        &screen,
        &[
            "Health OK reads and writes are served; checked now",
            "This is the operator's view of 9s ago.",
            "Note the operator reported at 11:59:51Z: Member orders-gv2z5 is not healthy: etcd does not respond on node \
             node-1. That is outdated: the member answers now",
        ],
    );
}

#[test]
fn a_lost_quorum_is_reported_with_the_members_that_do_not_answer() {
    let mut scene = Scene::healthy();
    scene.no_answer(names()[0]);
    scene.no_answer(names()[1]);
    scene.no_quorum(names()[2]);
    let screen = scene.screen();
    assert_eq!(scene.report().exit_code, EXIT_UNAVAILABLE);
    assert_has(
        &screen,
        &[
            "Health UNAVAILABLE reads and writes are not served",
            "Tolerates nothing: the quorum of 2 is lost",
            "Problem The quorum is lost: 1 of 3 voters answers. Not answering: orders-gv2z5, orders-qhgqk. The operator has \
             not reported it yet.",
            "You can Restore the members that do not answer",
            "orders-69mbp voter no quorum",
        ],
    );
    scene.problem(
        "QuorumLost",
        "",
        "Quorum lost: 1 of 3 voters responds. Clients can neither read nor write.",
        "Restore the members that do not respond.",
    );
    scene.condition("Ready", "False", "QuorumLost", "2026-11-16T11:59:08Z");
    let screen = scene.screen();
    assert_has(
        &screen,
        &[
            "Health UNAVAILABLE for 52s: reads and writes are not served",
            "Since 11:59:08Z (52s).",
        ],
    );
    assert_eq!(scene.report().problems.len(), 1);
    for pod in scene.live.pods.as_mut().unwrap().values_mut() {
        let created = "2026-11-16T11:59:30Z".parse().unwrap();
        pod.metadata.creation_timestamp = Some(Time(created));
    }
    let screen = scene.screen();
    assert!(
        !screen.contains("restarting"),
        "the problem names the members: {screen}"
    );
}

#[test]
fn an_alarm_means_that_writes_are_rejected() {
    let mut scene = Scene::healthy();
    scene.alarm(Alarm::NoSpace);
    for answer in scene.live.answers.values_mut() {
        answer.metrics.db_size_bytes = Some(22 << 20);
        answer.metrics.quota_bytes = Some(16 << 20);
    }
    let screen = scene.screen();
    assert_eq!(scene.report().exit_code, EXIT_UNAVAILABLE);
    assert_has(
        &screen,
        &[
            "Health READ-ONLY reads are served, writes are rejected: the alarm NOSPACE is raised",
            "Problem etcd has raised the alarm NOSPACE",
            "You can Delete keys that are not needed, or raise spec.etcd.quota.",
            "Storage 22 MiB of 16 MiB quota (137 %)",
            "alarm",
        ],
    );
    // The operator knows it, too.
    scene.problem(
        "NoSpace",
        "",
        "etcd has raised the alarm NOSPACE. etcd rejects writes.",
        "Delete keys.",
    );
    assert_eq!(scene.report().problems.len(), 1);
    scene.screen();
    // Disarmed, and the operator does not know it yet.
    for answer in scene.live.answers.values_mut() {
        answer.alarms.clear();
        answer.metrics.db_size_bytes = Some(13 << 20);
    }
    let screen = scene.screen();
    assert_eq!(scene.report().exit_code, 0);
    assert_has(
        &screen,
        &[
            "That is outdated: the alarm is not raised any more",
            "the database uses 81 % of its quota",
        ],
    );
}

#[test]
fn a_rolling_upgrade_is_progress_and_not_a_problem() {
    let mut scene = Scene::healthy();
    let member = names()[2];
    scene.resource["spec"]["version"] = json!("3.7.3");
    scene.no_answer(member);
    scene.resource["status"]["memberList"][2]["healthy"] = json!(false);
    scene
        .live
        .answers
        .get_mut(names()[0])
        .unwrap()
        .metrics
        .version = Some("3.7.3".to_owned());
    scene.edit_pod(member, |pod| {
        pod.metadata.creation_timestamp =
            serde_json::from_value(json!("2026-11-16T11:59:52Z")).unwrap();
    });
    scene.condition("Progressing", "True", "Upgrading", "2026-11-16T11:59:40Z");
    scene.status("operation", json!({ "type": "Upgrade", "completed": 1, "total": 3, "startTime": "2026-11-16T11:59:40Z",
        "message": "waiting for member orders-69mbp to become healthy before the next member is restarted" }));
    scene.status(
        "waitingFor",
        json!(["member orders-69mbp to become healthy before the next member is restarted"]),
    );
    scene.status(
        "nextAction",
        json!({ "message": "operator restarts the next outdated member" }),
    );
    let screen = scene.screen();
    assert_eq!(scene.report().exit_code, 0);
    assert_has(
        &screen,
        &[
            "etcd 3.6.16 → 3.7.3",
            "Health OK reads and writes are served (1 member restarts)",
            "Tolerates nothing: 2 of 3 voters answer, and the quorum needs 2",
            "Operation upgrade [######--------------] 1 of 3, started 11:59:40Z (20s ago)",
            "now: waiting for member orders-69mbp to become healthy before the next member is restarted",
            "next: the operator restarts the next outdated member",
            "restarting Running",
            "3.7.3",
        ],
    );
    assert!(
        !screen.contains("waiting for:"),
        "a fact occurs twice:\n{screen}"
    );
    // After a minute it is down.
    scene.edit_pod(member, |pod| {
        pod.metadata.creation_timestamp =
            serde_json::from_value(json!("2026-11-16T11:58:59Z")).unwrap();
    });
    scene.screen();
    assert_eq!(scene.report().exit_code, EXIT_DEGRADED);
}

#[test]
fn a_deleted_pod_is_a_restart_unless_nothing_recreates_it() {
    let mut scene = Scene::healthy();
    scene.no_answer(names()[0]);
    scene.remove_pod(names()[0]);
    assert_has(&scene.screen(), &["Health OK", "restarting none"]);
    scene.resource["spec"]["paused"] = json!(true);
    let screen = scene.screen();
    assert_has(
        &screen,
        &[
            "Health DEGRADED",
            "Problem Member orders-gv2z5 does not answer: its pod does not exist.",
            "You can Resume the cluster, so that the operator recovers it: `kubectl evenkeel resume orders`.",
        ],
    );
    scene.resource["spec"]["paused"] = json!(false);
    scene.stop_operator();
    assert_has(&scene.screen(), &["Health DEGRADED", "no answer none"]);
}

#[test]
fn a_new_cluster_is_being_created() {
    let mut scene = Scene::new();
    let screen = scene.screen();
    assert_eq!(scene.report().exit_code, EXIT_UNAVAILABLE);
    assert_has(
        &screen,
        &[
            "Health CREATING for 1s: clients are not served until bootstrap is finished",
            "Operation none the operator has not reported yet",
        ],
    );
    scene.resource["metadata"]["creationTimestamp"] = json!("2026-11-16T11:59:55Z");
    scene.resource["status"] = json!({ "ready": "0/3", "observedGeneration": 4,
        "memberList": [{ "name": "orders-gv2z5", "role": "Joining" }],
        "operation": { "type": "Bootstrap", "completed": 1, "total": 3, "startTime": "2026-11-16T11:59:55Z",
            "message": "creating Pod orders-qhgqk" },
        "conditions": [{ "type": "Ready", "status": "False", "reason": "Bootstrapping", "message": "",
            "lastTransitionTime": "2026-11-16T11:59:55Z" }] });
    scene.no_answer("orders-gv2z5");
    scene.pod("orders-gv2z5", "node-1");
    let screen = scene.screen();
    assert_has(
        &screen,
        &[
            "Health CREATING for 5s: clients are not served until bootstrap is finished",
            "Operation bootstrap [######--------------] 1 of 3, started 11:59:55Z (5s ago) now: creating Pod orders-qhgqk",
            "orders-gv2z5 joining starting Running",
        ],
    );
    assert!(!screen.contains("Tolerates"), "{screen}");
}

#[test]
fn a_cluster_that_no_operator_reconciles_is_a_problem() {
    let mut scene = Scene::new();
    scene.resource["metadata"]["creationTimestamp"] = json!("2026-11-16T10:00:00Z");
    let screen = scene.screen();
    assert_eq!(scene.report().exit_code, EXIT_UNAVAILABLE);
    assert_has(
        &screen,
        &[
            "Health UNAVAILABLE clients are not served: the cluster has no members",
            "Problem No operator has reconciled this cluster in the 2h since its creation.",
            "You can Check that an operator is running and manages this namespace.",
        ],
    );
}

#[test]
fn without_permission_the_health_is_unknown() {
    let mut scene = Scene::healthy();
    scene.view_only();
    scene.live.events = Err(Scene::forbidden("list on events"));
    let screen = scene.screen();
    assert_eq!(scene.report().exit_code, EXIT_UNAVAILABLE);
    assert_has(
        &screen,
        &[
            "Health unknown (needs get on pods/proxy in namespace shop). The operator reports Ready=True for 10m00s",
            "Tolerates 1 member failure, 1 node failure, according to the operator",
            "Operator unknown (this needs list on leases at cluster scope)",
            "orders-qhgqk leader unknown Running",
        ],
    );
    assert!(
        screen.contains("Last events  unknown (needs list on events in namespace shop)"),
        "{screen}"
    );
}

#[test]
fn without_an_operator_the_members_answer_for_themselves() {
    let mut scene = Scene::healthy();
    scene.stop_operator();
    scene.status(
        "operation",
        json!({ "type": "Upgrade", "completed": 1, "total": 3,
        "startTime": "2026-11-13T11:59:40Z", "message": "restarting member orders-69mbp" }),
    );
    let screen = scene.screen();
    assert_eq!(scene.report().exit_code, EXIT_DEGRADED);
    assert_has(
        &screen,
        &[
            "Health UNMANAGED reads and writes are served; checked now",
            "Problem No operator is running: Lease evenkeel-system/evenkeel-operator was last renewed 3d ago.",
            "You can Check the operator: `kubectl -n evenkeel-system get deployments,pods`.",
            "Operation stopped upgrade 1 of 3: no operator continues it, reported 9s ago",
            "Operator NOT RUNNING in namespace evenkeel-system",
        ],
    );
    scene.no_answer(names()[0]);
    let screen = scene.screen();
    assert_has(
        &screen,
        &["Health DEGRADED", "Member orders-gv2z5 does not answer."],
    );
    assert!(!screen.contains("not reported it yet"), "{screen}");
}

#[test]
fn a_paused_cluster_is_not_ok() {
    let mut scene = Scene::healthy();
    scene.resource["spec"]["paused"] = json!(true);
    scene.status("waitingFor", json!(["spec.paused to be set to false"]));
    let screen = scene.screen();
    assert_eq!(scene.report().exit_code, EXIT_DEGRADED);
    assert_has(
        &screen,
        &[
            "Health PAUSED reads and writes are served; checked now",
            "Operation paused spec.paused is set: the operator neither recovers nor changes members.",
            "`kubectl evenkeel resume orders`",
        ],
    );
}

#[test]
fn a_single_member_tolerates_nothing_and_its_restart_is_no_failure() {
    let mut scene = Scene::single_member();
    assert_has(
        &scene.screen(),
        &[
            "Health OK",
            "Tolerates nothing: the cluster has only one member",
        ],
    );
    let member = names()[1];
    scene.no_answer(member);
    scene.remove_pod(member);
    scene.condition("Ready", "False", "Restarting", "2026-11-16T11:59:57Z");
    scene.status(
        "operation",
        json!({ "type": "Restart", "completed": 0, "total": 1,
        "startTime": "2026-11-16T11:59:57Z", "message": "restarting member orders-qhgqk" }),
    );
    let screen = scene.screen();
    assert_eq!(scene.report().exit_code, EXIT_UNAVAILABLE);
    assert_has(
        &screen,
        &["Health RESTARTING for 3s: reads and writes are not served while the member restarts"],
    );
    // Without an operation, the pod was not restarted on purpose.
    scene.status("operation", json!(null));
    assert_has(
        &scene.screen(),
        &[
            "Health UNAVAILABLE",
            "Problem The only member orders-qhgqk does not answer: its pod does not exist.",
        ],
    );
}

#[test]
fn the_status_of_an_older_operator_is_understood() {
    let mut scene = Scene::healthy();
    for field in [
        "failureTolerance",
        "quota",
        "retainedVolumes",
        "versionSummary",
    ] {
        scene.resource["status"]
            .as_object_mut()
            .unwrap()
            .remove(field);
    }
    assert_eq!(scene.report().exit_code, 0);
    assert_has(
        &scene.screen(),
        &["Tolerates 1 member failure, 1 node failure"],
    );
    scene.condition("Degraded", "True", "MemberDown", "2026-11-16T11:59:08Z");
    scene.resource["status"]["conditions"][2]["message"] =
        json!("Member orders-gv2z5 is not healthy.");
    scene.no_answer(names()[0]);
    let screen = scene.screen();
    assert_has(
        &screen,
        &[
            "Problem Member orders-gv2z5 is not healthy. Since 11:59:08Z (52s).",
            "You can None yet:",
        ],
    );
    assert_eq!(scene.report().problems.len(), 1);
    scene.view_only();
    scene.resource["status"]
        .as_object_mut()
        .unwrap()
        .remove("memberList");
    scene.live.answers.clear();
    assert_has(&scene.screen(), &["Health unknown (no member is known)."]);
}

#[test]
fn a_broken_client_service_is_an_outage_that_only_the_operator_sees() {
    let mut scene = Scene::healthy();
    scene.condition("Ready", "False", "NotServing", "2026-11-16T11:59:08Z");
    scene.problem(
        "NotServing",
        "",
        "All members are healthy, but a read through Service orders-etcd-client fails.",
        "Check the endpoints of Service orders-etcd-client, and NetworkPolicies between clients and members.",
    );
    let screen = scene.screen();
    assert_eq!(scene.report().exit_code, EXIT_UNAVAILABLE);
    assert_has(
        &screen,
        &[
            "Health UNAVAILABLE for 52s: the members answer, but the operator does not reach them through the client Service",
        ],
    );
}

#[test]
fn a_problem_that_prevents_a_restart_ends_the_grace_time() {
    let mut scene = Scene::healthy();
    let member = names()[0];
    scene.no_answer(member);
    scene.remove_pod(member);
    scene.resource["status"]["memberList"][0]["healthy"] = json!(false);
    scene.problem(
        "WriteRejected",
        "",
        "failed to create Pod orders-gv2z5: pods \"orders-gv2z5\" is forbidden: exceeded quota: none",
        "Resolve the cause that the message names: a ResourceQuota, a policy, a webhook.",
    );
    let screen = scene.screen();
    assert_eq!(scene.report().exit_code, EXIT_DEGRADED);
    assert_has(
        &screen,
        &[
            "exceeded quota: none. Since 11:59:08Z (52s).",
            "Problem Member orders-gv2z5 does not answer: its pod does not exist.",
        ],
    );
    assert!(!screen.contains("not reported"), "{screen}");
}

#[test]
fn a_drained_member_restarts_until_it_is_missed() {
    let mut scene = Scene::healthy();
    let member = names()[0];
    scene.no_answer(member);
    scene.edit_pod(member, |pod| {
        pod.metadata.creation_timestamp =
            serde_json::from_value(json!("2026-11-16T11:59:40Z")).unwrap();
        pod.spec.as_mut().unwrap().node_name = None;
        pod.status = serde_json::from_value(json!({ "phase": "Pending", "conditions": [{ "type": "PodScheduled",
            "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available" }] }))
        .unwrap();
    });
    assert_has(&scene.screen(), &["Health OK", "restarting Pending"]);
    scene.edit_pod(member, |pod| {
        pod.metadata.creation_timestamp =
            serde_json::from_value(json!("2026-11-16T11:58:40Z")).unwrap();
    });
    assert_has(
        &scene.screen(),
        &[
            "Health DEGRADED",
            "Member orders-gv2z5 does not answer: 0/3 nodes are available.",
        ],
    );
}

#[test]
fn a_cluster_that_is_being_deleted_is_not_ok() {
    let mut scene = Scene::healthy();
    scene.resource["metadata"]["deletionTimestamp"] = json!("2026-11-16T11:59:58Z");
    scene.status(
        "operation",
        json!({ "type": "Delete", "startTime": "2026-11-16T11:59:58Z",
            "message": "waiting for Kubernetes to delete the owned objects" }),
    );
    let screen = scene.screen();
    assert_eq!(scene.report().exit_code, EXIT_DEGRADED);
    assert_has(
        &screen,
        &[
            "Health DELETING for 2s: reads and writes are served",
            "Operation delete started 11:59:58Z (2s ago) now: waiting for Kubernetes to delete the owned objects",
        ],
    );
}

#[test]
fn members_that_serve_before_bootstrap_is_finished_serve_no_clients() {
    let mut scene = Scene::healthy();
    scene.status("clusterId", json!(""));
    scene.condition("Ready", "False", "Bootstrapping", "2026-11-16T11:59:08Z");
    let health = scene.report().health;
    assert_eq!((health.reads, health.writes), (Some(false), Some(false)));
    assert_has(&scene.screen(), &["Health CREATING"]);
}

#[test]
fn without_the_api_server_members_are_unknown_and_not_down() {
    let mut scene = Scene::healthy();
    let error = "the Kubernetes API did not respond within 4s";
    scene.live.pods = Err(ReadError::Failed(error.to_owned()));
    for answer in scene.live.answers.values_mut() {
        *answer = LiveAnswer::unknown(error);
    }
    assert_has(
        &scene.screen(),
        &["Health unknown (the Kubernetes API did not respond within 4s)."],
    );
}
