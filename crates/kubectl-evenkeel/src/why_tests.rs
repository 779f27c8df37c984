//! Tests of the output of `why`.

use evenkeel_runtime::Explanation;

use super::*;
use crate::args::ColorMode;
use crate::member_metrics::ClusterMetrics;
use crate::operator_status::OperatorStatus;
use crate::report::tests::{cluster, now, report};

fn decision(action: &str) -> Decision {
    let explained = Explanation {
        actions: vec![action.to_owned()],
        reasons: vec!["the pod is gone, and its data is there".to_owned()],
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
    assert_eq!(explanation.goal, "3 members of etcd 3.6.16");
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
        !output.contains("decided     one") && output.contains("two") && output.contains("three"),
        "the last two: {output}"
    );
    assert!(
        output.contains("because     the pod is gone") && output.contains("60s ago"),
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
        output.contains("nothing is in the way") && output.contains("nothing needs you"),
        "{output}"
    );
    assert!(output.contains("No decision is on record"), "{output}");
}

#[test]
fn there_is_advice_while_clients_are_not_served() {
    let mut cluster = cluster("False", false, &[("orders-a", "Voter", true)]);
    let status = cluster.status.as_mut().unwrap();
    status.conditions[0].message = "a read through the client Service was not answered".to_owned();
    status.conditions[1].message =
        "nothing is amiss with the members: look at the client Service and the network".to_owned();
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
        words.contains("Blocker: a read through the client Service was not answered"),
        "{output}"
    );
    assert!(
        words.contains("look at the client Service and the network"),
        "{output}"
    );
    assert!(!words.contains("nothing needs you"), "{output}");
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
    let not_running = OperatorStatus::NotRunning("the last one was heard 3d ago".to_owned());
    let advice = advice_for(&Report::new(
        &cluster,
        &ClusterMetrics::default(),
        &not_running,
        now(),
    ));
    assert!(advice[0].contains("bring an operator back"), "{advice:?}");
}
