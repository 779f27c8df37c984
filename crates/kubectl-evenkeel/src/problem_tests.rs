//! Tests of the problems on the status screen: their order, their duration, and the advice.

use evenkeel_api::labels;
use serde_json::json;

use super::tests::assert_has;
use crate::args::ColorMode;
use crate::operator_status::OperatorStatus;
use crate::scene::{Scene, names, words};
use crate::terminal::Terminal;

/// Returns the reasons of the problems, in their order.
fn reasons(scene: &Scene) -> Vec<String> {
    let problems = scene.report().problems.into_iter();
    problems.map(|problem| problem.reason).collect()
}

fn lose_quorum(scene: &mut Scene) {
    scene.no_answer(names()[0]);
    scene.no_answer(names()[1]);
    scene.no_quorum(names()[2]);
}

fn reject_writes(scene: &mut Scene) {
    scene.problem(
        "WriteRejected",
        "",
        "failed to create Pod orders-gv2z5: exceeded quota: none",
        "Raise the ResourceQuota.",
    );
}

fn report_lost_quorum(scene: &mut Scene) {
    scene.problem(
        "QuorumLost",
        "",
        "Quorum lost: 1 of 3 voters responds.",
        "Restore the members that do not respond.",
    );
}

#[test]
fn the_order_of_reported_problems_is_the_operators() {
    let mut scene = Scene::healthy();
    lose_quorum(&mut scene);
    reject_writes(&mut scene);
    assert_eq!(reasons(&scene), ["WriteRejected", "QuorumLost"]);
    assert_eq!(
        scene.report().problems[1].since,
        None,
        "only the answers show it yet"
    );
    report_lost_quorum(&mut scene);
    assert_eq!(reasons(&scene), ["WriteRejected", "QuorumLost"]);
    scene.stop_operator();
    assert_eq!(
        reasons(&scene),
        ["WriteRejected", "QuorumLost", "OperatorNotRunning"]
    );
    scene.screen();
}

#[test]
fn an_outage_comes_before_other_problems() {
    let mut scene = Scene::healthy();
    lose_quorum(&mut scene);
    scene.problem(
        "NodeCordoned",
        "",
        "Node node-1 is cordoned.",
        "Uncordon it.",
    );
    scene.stop_operator();
    assert_eq!(
        reasons(&scene),
        ["QuorumLost", "OperatorNotRunning", "NodeCordoned"]
    );
}

#[test]
fn an_outage_lasts_since_its_own_problem_and_not_since_an_earlier_one() {
    let mut scene = Scene::healthy();
    // Writes were rejected for a minute before the quorum was lost.
    scene.condition("Ready", "False", "NoSpace", "2026-11-16T11:58:40Z");
    lose_quorum(&mut scene);
    assert_has(
        &scene.screen(),
        &["Health UNAVAILABLE reads and writes are not served"],
    );
    scene.condition("Ready", "False", "QuorumLost", "2026-11-16T11:58:40Z");
    report_lost_quorum(&mut scene);
    scene.resource["status"]["problems"][0]["since"] = json!("2026-11-16T11:59:57Z");
    assert_has(
        &scene.screen(),
        &["Health UNAVAILABLE for 3s: reads and writes are not served"],
    );
}

#[test]
fn the_advice_for_a_member_that_is_down_without_a_known_cause_is_to_wait() {
    let mut scene = Scene::healthy();
    let member = names()[0];
    scene.no_answer(member);
    let screen = scene.screen();
    assert_has(
        &screen,
        &[
            "You can Wait up to a minute: the operator reports the cause and what to do. Meanwhile, `kubectl describe pod \
           orders-gv2z5` shows the pod's node and events.",
        ],
    );
    assert!(!words(&screen).contains("You can nothing"), "{screen}");
    scene.edit_pod(member, |pod| {
        pod.status = serde_json::from_value(json!({ "containerStatuses": [{ "name": "etcd", "ready": false,
            "restartCount": 0, "image": "", "imageID": "", "state": { "waiting": { "reason": "ImagePullBackOff" } } }] }))
        .unwrap();
    });
    assert_has(
        &scene.screen(),
        &[
            "You can Resolve the problem of its pod: `kubectl describe pod orders-gv2z5` shows its events.",
        ],
    );
}

#[test]
fn suggested_commands_name_the_namespace_if_the_context_has_another() {
    let mut scene = Scene::healthy();
    scene.no_answer(names()[2]);
    scene.problem(
        "NodeNotReady",
        names()[2],
        "Member orders-69mbp is not healthy.",
        "See `kubectl evenkeel logs orders`. If node node-3 is gone, delete it: `kubectl delete node node-3`.",
    );
    let screen = |context: &str| {
        let terminal = Terminal::new(ColorMode::Never).with_namespaces(context, "shop");
        words(&super::text(&scene.report(), false, terminal))
    };
    let other = screen("default");
    for command in [
        "`kubectl evenkeel why orders -n shop`",
        "`kubectl evenkeel logs orders -n shop`",
        "`kubectl delete node node-3`",
    ] {
        assert!(other.contains(command), "{command}: {other}");
    }
    assert!(!screen("shop").contains("-n shop"), "{}", screen("shop"));
}

#[test]
fn a_time_in_the_message_is_not_repeated() {
    let mut scene = Scene::healthy();
    scene.no_answer(names()[2]);
    scene.problem(
        "NodeNotReady",
        names()[2],
        "Member orders-69mbp is not healthy: node node-3 is NotReady since 2026-11-16T11:58:58Z.",
        "Bring node node-3 back.",
    );
    let screen = scene.screen();
    assert!(!screen.contains("Since"), "{screen}");
    scene.resource["status"]["problems"][0]["message"] =
        json!("Member orders-69mbp is not healthy since then.");
    assert_has(&scene.screen(), &["since then. Since 11:59:08Z (52s)."]);
}

#[test]
fn existing_volumes_are_counted_and_not_members() {
    let mut scene = Scene::healthy();
    assert_has(&scene.screen(), &["volumes 3 × 4Gi lab-disk"]);
    scene.live.volume_count = Ok(0);
    assert_has(&scene.screen(), &["(0 %); no volumes Certificates"]);
    scene.live.volume_count = Err(Scene::forbidden("list on persistentvolumeclaims"));
    assert_has(&scene.screen(), &["volumes of 4Gi, lab-disk"]);
}

#[test]
fn a_requested_restart_is_pending_until_the_operator_begins_it() {
    let mut scene = Scene::healthy();
    scene.resource["metadata"]["annotations"] =
        json!({ labels::RESTARTED_AT: "2026-11-16T11:59:58Z" });
    assert_has(
        &scene.screen(),
        &[
            "Operation pending the restart requested at 11:59:58Z has not been reported by the operator yet",
        ],
    );
    scene.stop_operator();
    assert_has(
        &scene.screen(),
        &["Operation pending the restart requested at 11:59:58Z waits until an operator runs"],
    );
    for member in names() {
        scene.edit_pod(member, |pod| {
            let annotations = pod.metadata.annotations.get_or_insert_default();
            annotations.insert(
                labels::RESTARTED_AT.to_owned(),
                "2026-11-16T11:59:58Z".to_owned(),
            );
        });
    }
    assert_has(&scene.screen(), &["Operation none Operator"]);
    scene.resource["metadata"]["generation"] = json!(5);
    assert_has(
        &scene.screen(),
        &["Operation pending generation 5 of the spec waits until an operator runs"],
    );
}

#[test]
fn an_operator_of_other_namespaces_is_not_called_stopped() {
    let mut scene = Scene::healthy();
    scene.operator = OperatorStatus::NotRunning {
        namespace: None,
        lease: "the operator with Lease evenkeel-system/evenkeel-operator watches only web"
            .to_owned(),
    };
    assert_has(
        &scene.screen(),
        &[
            "Health UNMANAGED",
            "Problem No operator watches this namespace: the operator with Lease evenkeel-system/evenkeel-operator watches \
             only web.",
            "You can Add the namespace to the operator's flag --namespaces, or install an operator for it.",
            "Operator NOT RUNNING for namespace shop",
        ],
    );
}
