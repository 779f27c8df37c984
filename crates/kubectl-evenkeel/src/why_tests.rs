//! What `why` tells.

use evenkeel_runtime::Explanation;

use super::*;
use crate::args::Colour;
use crate::live::Live;
use crate::overseer::Overseer;
use crate::report::tests::{cluster, now, report};

fn decision(does: &str) -> Decision {
    let explained = Explanation {
        actions: vec![does.to_owned()],
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
fn what_is_amiss_comes_with_its_evidence_and_what_to_do() {
    let members = [("orders-a", "Voter", true), ("orders-b", "Voter", false)];
    let cluster = cluster("True", true, &members);
    let decisions = vec![decision("one"), decision("two"), decision("three")];
    let answer = answer(
        &cluster,
        &report(&cluster),
        decisions,
        Extent {
            last: 2,
            facts: false,
        },
    );
    assert_eq!(answer.goal, "3 members of etcd 3.6.16");
    assert!(
        answer.evidence.iter().any(|one| one.contains("MemberDown")),
        "{:?}",
        answer.evidence
    );
    assert!(
        answer
            .evidence
            .iter()
            .any(|one| one.starts_with("orders-b (voter)")),
        "{:?}",
        answer.evidence
    );
    assert!(
        answer.you_can[0].contains("kubectl evenkeel logs orders"),
        "{:?}",
        answer.you_can
    );
    let told = text(&answer, now(), Screen::new(Colour::Never));
    assert!(
        !told.contains("decided     one") && told.contains("two") && told.contains("three"),
        "the last two: {told}"
    );
    assert!(
        told.contains("because     the pod is gone") && told.contains("60s ago"),
        "{told}"
    );
    assert!(
        told.lines().all(|line| line.chars().count() <= 80),
        "{told}"
    );
}

#[test]
fn where_nothing_is_amiss_nobody_is_needed() {
    let cluster = cluster("True", false, &[("orders-a", "Voter", true)]);
    let answer = answer(
        &cluster,
        &report(&cluster),
        Vec::new(),
        Extent {
            last: 5,
            facts: false,
        },
    );
    let told = text(&answer, now(), Screen::new(Colour::Never));
    assert!(
        told.contains("nothing is in the way") && told.contains("nothing needs you"),
        "{told}"
    );
    assert!(told.contains("No decision is on record"), "{told}");
}

#[test]
fn nobody_is_sent_away_while_clients_are_not_served() {
    let mut cluster = cluster("False", false, &[("orders-a", "Voter", true)]);
    let status = cluster.status.as_mut().unwrap();
    status.conditions[0].message = "a read through the client Service was not answered".to_owned();
    status.conditions[1].message =
        "nothing is amiss with the members: look at the client Service and the network".to_owned();
    let answer = answer(
        &cluster,
        &report(&cluster),
        Vec::new(),
        Extent {
            last: 5,
            facts: false,
        },
    );
    let told = text(&answer, now(), Screen::new(Colour::Never));
    let words = told.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("Blocker: a read through the client Service was not answered"),
        "{told}"
    );
    assert!(
        words.contains("look at the client Service and the network"),
        "{told}"
    );
    assert!(!words.contains("nothing needs you"), "{told}");
}

#[test]
fn a_pause_and_an_absent_operator_come_before_anything_else() {
    let mut cluster = cluster("True", true, &[("orders-a", "Voter", true)]);
    cluster.spec.paused = true;
    let asked = |report: &Report| {
        answer(
            &cluster,
            report,
            Vec::new(),
            Extent {
                last: 5,
                facts: false,
            },
        )
        .you_can
    };
    let told = asked(&report(&cluster));
    assert!(
        told.len() == 1 && told[0].contains("kubectl evenkeel resume orders"),
        "{told:?}"
    );
    let away = Overseer::Away("the last one was heard 3d ago".to_owned());
    let told = asked(&Report::of(&cluster, &Live::default(), &away, now()));
    assert!(told[0].contains("bring an operator back"), "{told:?}");
}
