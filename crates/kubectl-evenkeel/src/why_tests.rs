//! What `why` tells.

use evenkeel::Explained;

use super::*;
use crate::args::Colour;
use crate::report::tests::{cluster, now, report};

fn decision(does: &str) -> Decision {
    let explained = Explained {
        does: vec![does.to_owned()],
        because: vec!["the pod is gone, and its data is there".to_owned()],
        waits_for: Vec::new(),
    };
    Decision {
        at: "2026-11-16T11:59:00Z".to_owned(),
        by: "operator-1".to_owned(),
        explained,
        outcome: "done".to_owned(),
        events: Vec::new(),
        facts: None,
    }
}

#[test]
fn what_is_amiss_comes_with_its_evidence_and_what_to_do() {
    let members = [("orders-a", "Voter", true), ("orders-b", "Voter", false)];
    let cluster = cluster("True", true, &members);
    let decisions = vec![decision("one"), decision("two"), decision("three")];
    let answer = answer(&cluster, &report(&cluster), decisions, Extent { last: 2, facts: false });
    assert_eq!(answer.goal, "3 members of etcd 3.6.16");
    assert!(answer.evidence.iter().any(|one| one.contains("MemberDown")), "{:?}", answer.evidence);
    assert!(answer.evidence.iter().any(|one| one.starts_with("orders-b (voter)")), "{:?}", answer.evidence);
    assert!(answer.you_can[0].contains("kubectl evenkeel logs orders"), "{:?}", answer.you_can);
    let told = text(&answer, now(), Screen::new(Colour::Never));
    assert!(
        !told.contains("decided     one") && told.contains("two") && told.contains("three"),
        "the last two: {told}"
    );
    assert!(told.contains("because     the pod is gone") && told.contains("60s ago"), "{told}");
    assert!(told.lines().all(|line| line.chars().count() <= 80), "{told}");
}

#[test]
fn where_nothing_is_amiss_nobody_is_needed() {
    let cluster = cluster("True", false, &[("orders-a", "Voter", true)]);
    let answer = answer(&cluster, &report(&cluster), Vec::new(), Extent { last: 5, facts: false });
    let told = text(&answer, now(), Screen::new(Colour::Never));
    assert!(told.contains("nothing is in the way") && told.contains("nothing needs you"), "{told}");
    assert!(told.contains("No decision is on record"), "{told}");
}
