//! Tests of the output of `why`.

use evenkeel_runtime::Explanation;
use serde_json::json;

use super::*;
use crate::args::ColorMode;
use crate::scene::{Scene, names};
use crate::terminal::{Terminal, WIDTH};

const LAST_FIVE: WhyOptions = WhyOptions {
    max_decisions: 5,
    include_facts: false,
    is_wide: false,
};

fn decision(action: &str) -> Decision {
    let explained = Explanation {
        actions: vec![action.to_owned()],
        reasons: vec!["the pod is missing, and its data is intact".to_owned()],
        waits: Vec::new(),
    };
    Decision {
        at: "2026-11-16T11:59:00Z".to_owned(),
        by: "operator-1".to_owned(),
        explained,
        outcome: "done".to_owned(),
        ..Decision::default()
    }
}

fn explain_scene(scene: &Scene) -> ClusterExplanation {
    explain(&scene.cluster(), &scene.report())
}

/// Renders an explanation, and checks the width of its lines.
fn render(explanation: &ClusterExplanation) -> String {
    let text = why_text::text(explanation, Terminal::new(ColorMode::Never));
    for line in text.lines() {
        assert!(line.chars().count() <= WIDTH, "too long: {line}\n{text}");
    }
    text
}

#[test]
fn a_healthy_cluster_needs_no_action() {
    let mut explanation = explain_scene(&Scene::healthy());
    explanation.add_decisions(Vec::new(), LAST_FIVE);
    assert_eq!(
        render(&explanation),
        "Goal:            3 members, etcd 3.6.16\n\
         Blocker:         none\n\
         Evidence:        3 of 3 voters answer a linearizable read now\n\
         Action required: none\n\
         \nNo decisions are recorded.\n"
    );
}

#[test]
fn a_degraded_cluster_has_evidence_and_the_action_for_its_cause() {
    let mut scene = Scene::healthy();
    scene.no_answer(names()[2]);
    scene.problem(
        "NodeNotReady",
        names()[2],
        "Member orders-69mbp is not healthy.",
        "Bring node node-3 back.",
    );
    scene.status(
        "nextAction",
        json!({ "message": "operator replaces member orders-69mbp unless it recovers",
        "time": "2026-11-16T12:04:08Z" }),
    );
    let text = render(&explain_scene(&scene));
    for line in [
        "Blocker:         Member orders-69mbp is not healthy.\n",
        "Evidence:        2 of 3 voters answer a linearizable read now\n",
        "Evidence:        NodeNotReady, reported since 11:59:08Z (52s): the blocker\n",
        "Evidence:        orders-69mbp (follower): no answer; pod Running; node node-3;\n                 no response within 4s\n",
        "Action required: Bring node node-3 back.\n",
        "Next action:     at 12:04:08Z (in 4m08s) the operator replaces member\n",
    ] {
        assert!(text.contains(line), "{line}:\n{text}");
    }
}

#[test]
fn a_missing_permission_is_no_problem() {
    let mut scene = Scene::healthy();
    scene.view_only();
    let text = render(&explain_scene(&scene));
    assert!(text.contains("Action required: none\n"), "{text}");
    assert!(text.contains("Blocker:         none\n"), "{text}");
    assert!(text.contains("(needs get on pods/proxy in"), "{text}");
}

#[test]
fn a_paused_cluster_is_to_be_resumed_and_a_missing_operator_to_be_started() {
    let mut scene = Scene::healthy();
    scene.resource["spec"]["paused"] = json!(true);
    let explanation = explain_scene(&scene);
    assert_eq!(explanation.blocker.as_deref(), Some("spec.paused is set"));
    assert!(explanation.actions_required[0].contains("kubectl evenkeel resume orders"));
    scene.stop_operator();
    let explanation = explain_scene(&scene);
    assert!(
        explanation.actions_required[0].contains("kubectl -n evenkeel-system get deployments,pods")
    );
}

#[test]
fn the_last_decisions_are_shown_and_the_others_counted() {
    let decisions = || vec![decision("one"), decision("two"), decision("three")];
    let mut explanation = explain_scene(&Scene::healthy());
    let options = WhyOptions {
        max_decisions: 2,
        ..LAST_FIVE
    };
    explanation.add_decisions(decisions(), options);
    let text = render(&explanation);
    assert!(
        text.contains(
            "Last decisions, newest last (2 of 3):\n\n11:59:00Z (1m00s ago), by operator-1\n  decision     two\n  \
             reason       the pod is missing, and its data is intact\n  result       done\n"
        ),
        "{text}"
    );
    assert!(!text.contains("decision     one"), "{text}");
    let none = WhyOptions {
        max_decisions: 0,
        ..LAST_FIVE
    };
    explanation.add_decisions(decisions(), none);
    assert!(render(&explanation).contains("\n3 decisions are recorded."));
}

#[test]
fn a_decision_lists_the_facts_about_each_member() {
    let mut explanation = explain_scene(&Scene::healthy());
    let mut wait = decision("");
    wait.explained = Explanation::default();
    wait.outcome = String::new();
    explanation.add_decisions(vec![wait], LAST_FIVE);
    let facts = |name: &str, pod, probe| MemberFactsReport {
        name: name.to_owned(),
        role: "voter",
        pod,
        data: "intact",
        probe,
    };
    explanation.decisions[0].members = vec![
        facts("orders-gv2z5", "Ready", "ok"),
        facts("orders-69mbp", "NotReady", "no answer"),
    ];
    let text = render(&explanation);
    assert!(
        text.ends_with(
            "  decision     no action yet: orders-69mbp may still recover\n  \
             MEMBER        ROLE   POD       DATA    PROBE\n  \
             orders-gv2z5  voter  Ready     intact  ok\n  \
             orders-69mbp  voter  NotReady  intact  no answer\n"
        ),
        "{text}"
    );
}

#[test]
fn all_clusters_have_one_line_each_with_their_blocker() {
    let mut broken = Scene::healthy();
    broken.no_answer(names()[0]);
    let explanations = [explain_scene(&broken), explain_scene(&Scene::healthy())];
    let text = |is_wide| why_text::table(&explanations, is_wide, Terminal::new(ColorMode::Never));
    assert_eq!(
        text(true),
        "NAMESPACE  NAME    HEALTH    BLOCKER\n\
         shop       orders  DEGRADED  Member orders-gv2z5 does not answer. The operator has not reported it yet.\n\
         shop       orders  OK        none\n"
    );
    assert!(
        text(false).contains("DEGRADED  Member orders-gv2z5 does not answer. The operator …\n"),
        "{}",
        text(false)
    );
}

#[test]
fn the_required_action_is_the_first_problems_that_is_an_action() {
    let mut scene = Scene::healthy();
    scene.no_answer(names()[0]);
    let text = render(&explain_scene(&scene));
    assert!(
        text.contains("Action required: none\n"),
        "to wait is no action: {text}"
    );
    scene.problem("WriteRejected", "", "exceeded quota", "Raise the quota.");
    scene.problem(
        "MemberDown",
        names()[1],
        "Member is down.",
        "None yet: wait.",
    );
    scene.problem(
        "NodeNotReady",
        names()[0],
        "Node is down.",
        "Start the node.",
    );
    scene.no_answer(names()[1]);
    let text = render(&explain_scene(&scene));
    assert!(
        text.contains("Action required: Raise the quota.\nThen, if needed: Start the node.\n"),
        "{text}"
    );
}

#[test]
fn one_voter_is_counted_in_words_and_a_missing_pod_is_named_once() {
    let mut scene = Scene::single_member();
    let text = render(&explain_scene(&scene));
    assert!(
        text.contains("the only voter answers a linearizable read now\n"),
        "{text}"
    );
    scene.no_answer(names()[1]);
    scene.remove_pod(names()[1]);
    let text = render(&explain_scene(&scene));
    assert!(
        text.contains("the only voter does not answer a linearizable read now\n"),
        "{text}"
    );
    assert!(
        text.contains("orders-qhgqk (voter): restarting; pod none; node node-2\n"),
        "{text}"
    );
}

#[test]
fn one_failed_action_is_not_done_partially() {
    let mut explanation = explain_scene(&Scene::healthy());
    let mut failed = decision("create Pod orders-a");
    failed.outcome = "partially done: exceeded quota".to_owned();
    explanation.add_decisions(vec![failed.clone()], LAST_FIVE);
    let text = render(&explanation);
    assert!(
        text.contains("result       failed: exceeded quota\n"),
        "{text}"
    );
    failed
        .explained
        .actions
        .push("create Pod orders-b".to_owned());
    explanation.add_decisions(vec![failed], LAST_FIVE);
    let text = render(&explanation);
    assert!(
        text.contains("result       partially done: exceeded quota\n"),
        "{text}"
    );
}
