//! Tests of the output of `why`.

use evenkeel_runtime::Explanation;

use super::*;
use crate::args::ColorMode;
use crate::member_metrics::ClusterMetrics;
use crate::report::tests::{cluster, not_running, now, report};

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

#[test]
fn a_degraded_cluster_has_evidence_and_advice() {
    let members = [("orders-a", "Voter", true), ("orders-b", "Voter", false)];
    let cluster = cluster("True", true, &members);
    let decisions = vec![decision("one"), decision("two"), decision("three")];
    let explanation = explain(
        &cluster,
        &report(&cluster),
        decisions,
        WhyOptions {
            max_decisions: 2,
            include_facts: false,
        },
    );
    assert_eq!(explanation.goal, "3 members, etcd 3.6.16");
    assert!(
        explanation
            .evidence
            .iter()
            .any(|one| one.contains("MemberDown")),
        "{:?}",
        explanation.evidence
    );
    assert!(
        explanation
            .evidence
            .iter()
            .any(|one| one.starts_with("orders-b (voter)")),
        "{:?}",
        explanation.evidence
    );
    assert!(
        explanation.advice[0].contains("kubectl evenkeel logs orders"),
        "{:?}",
        explanation.advice
    );
    let output = text(&explanation, now(), Terminal::new(ColorMode::Never));
    assert!(
        !output.contains("decision    one") && output.contains("two") && output.contains("three"),
        "the last two: {output}"
    );
    assert!(
        output.contains("reason      the pod is missing") && output.contains("60s ago"),
        "{output}"
    );
    assert!(
        output.lines().all(|line| line.chars().count() <= 80),
        "{output}"
    );
}

#[test]
fn a_healthy_cluster_needs_no_action() {
    let cluster = cluster("True", false, &[("orders-a", "Voter", true)]);
    let explanation = explain(
        &cluster,
        &report(&cluster),
        Vec::new(),
        WhyOptions {
            max_decisions: 5,
            include_facts: false,
        },
    );
    let output = text(&explanation, now(), Terminal::new(ColorMode::Never));
    assert!(
        output.contains("Blocker:         none\n") && output.contains("Action required: none\n"),
        "{output}"
    );
    assert!(output.contains("No decisions to show"), "{output}");
}

#[test]
fn there_is_advice_while_the_cluster_is_not_ready() {
    let mut cluster = cluster("False", false, &[("orders-a", "Voter", true)]);
    let status = cluster.status.as_mut().unwrap();
    status.conditions[0].message = "a read through the client Service failed".to_owned();
    status.conditions[1].message =
        "all members are healthy: check the client Service and the network".to_owned();
    let explanation = explain(
        &cluster,
        &report(&cluster),
        Vec::new(),
        WhyOptions {
            max_decisions: 5,
            include_facts: false,
        },
    );
    let output = text(&explanation, now(), Terminal::new(ColorMode::Never));
    let words = output.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("Blocker: a read through the client Service failed"),
        "{output}"
    );
    assert!(
        words.contains("check the client Service and the network"),
        "{output}"
    );
    assert!(!words.contains("Action required: none"), "{output}");
}

#[test]
fn advice_about_a_pause_or_a_missing_operator_comes_first() {
    let mut cluster = cluster("True", true, &[("orders-a", "Voter", true)]);
    cluster.spec.paused = true;
    let advice_for = |report: &Report| {
        explain(
            &cluster,
            report,
            Vec::new(),
            WhyOptions {
                max_decisions: 5,
                include_facts: false,
            },
        )
        .advice
    };
    let advice = advice_for(&report(&cluster));
    assert!(
        advice.len() == 1 && advice[0].contains("kubectl evenkeel resume orders"),
        "{advice:?}"
    );
    let advice = advice_for(&Report::new(
        &cluster,
        &ClusterMetrics::default(),
        &not_running(),
        now(),
    ));
    assert!(advice[0].contains("start the operator"), "{advice:?}");
}
