//! The screen that `status` prints.

use super::*;
use crate::args::Colour;
use crate::report::tests::{cluster, report};

#[test]
fn one_screen_of_80_columns_begins_with_what_matters_most() {
    let members = [
        ("orders-k7f2x", "Voter", true),
        ("orders-a", "Voter", true),
        ("orders-lost", "Voter", false),
    ];
    let mut cluster = cluster("True", true, &members);
    let status = cluster.status.as_mut().unwrap();
    status.doing = "creating the pod of orders-lost".to_owned();
    status.because = "the pod of orders-lost is gone, and its data is there".repeat(3);
    status.waiting_for = vec!["orders-lost must come back".to_owned()];
    status.next = "clients are routed to it".to_owned();
    status.survives = Some(0);
    let told = text(&report(&cluster), Screen::new(Colour::Never));
    let lines: Vec<_> = told.lines().collect();
    assert_eq!(lines[0], "orders: writable, survives no further failure");
    assert!(
        lines.iter().all(|line| line.chars().count() <= 80) && lines.len() <= 24,
        "{told}"
    );
    for word in [
        "Doing:",
        "Because:",
        "Waits:",
        "Next:",
        "Certs:",
        "leader",
        "down",
        "etcd does not answer",
    ] {
        assert!(told.contains(word), "{word}: {told}");
    }
}

#[test]
fn long_names_are_shortened_and_fit() {
    let long = format!("{}-k7f2x", "o".repeat(40));
    let members = [(long.as_str(), "Voter", true)];
    let mut cluster = cluster("True", false, &members);
    cluster.metadata.name = Some("o".repeat(40));
    let told = text(&report(&cluster), Screen::new(Colour::Never));
    assert!(told.contains("…-k7f2x"), "{told}");
    assert!(
        told.lines().all(|line| line.chars().count() <= 80),
        "{told}"
    );
}

#[test]
fn a_cluster_that_nobody_has_looked_at_is_told_as_such() {
    let mut cluster = cluster("True", false, &[]);
    cluster.status = None;
    let told = text(&report(&cluster), Screen::new(Colour::Never));
    assert!(
        told.starts_with("orders: not known whether it is writable\n"),
        "{told}"
    );
    assert!(told.contains("no operator has looked at it"), "{told}");
}
