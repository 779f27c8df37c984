//! Tests of the output of `status`.

use super::*;
use crate::args::ColorMode;
use crate::report::tests::{cluster, report};

#[test]
fn the_headline_comes_first_and_the_text_fits_80_by_24() {
    let members = [
        ("orders-k7f2x", "Voter", true),
        ("orders-a", "Voter", true),
        ("orders-lost", "Voter", false),
    ];
    let mut cluster = cluster("True", true, &members);
    let status = cluster.status.as_mut().unwrap();
    status.current_action = "creating pod orders-lost".to_owned();
    status.action_reason = "pod orders-lost is missing, and its data is intact. ".repeat(3);
    status.waiting_for = vec!["member orders-lost to become healthy".to_owned()];
    status.next_action = "adding orders-lost to the client Service".to_owned();
    status.failure_tolerance = Some(0);
    let output = text(&report(&cluster), Terminal::new(ColorMode::Never));
    let lines: Vec<_> = output.lines().collect();
    assert_eq!(lines[0], "orders: available, tolerates no member failure");
    assert!(
        lines.iter().all(|line| line.chars().count() <= 80) && lines.len() <= 24,
        "{output}"
    );
    for word in [
        "Current action: ",
        "Reason: ",
        "Waiting for: ",
        "Next action: ",
        "Certificates: ",
        "leader",
        "unhealthy",
        "etcd does not respond",
    ] {
        assert!(output.contains(word), "{word}: {output}");
    }
}

#[test]
fn an_idle_cluster_has_no_action_and_a_waiting_one_says_so() {
    let mut cluster = cluster("True", false, &[]);
    let idle = text(&report(&cluster), Terminal::new(ColorMode::Never));
    assert!(
        idle.contains("Current action:  none\nReason:          the cluster matches its spec\n"),
        "{idle}"
    );
    cluster.status.as_mut().unwrap().waiting_for = vec!["a maintenance window".to_owned()];
    let waiting = text(&report(&cluster), Terminal::new(ColorMode::Never));
    assert!(
        waiting.contains("Current action:  waiting\nReason:          no problem is known\n"),
        "{waiting}"
    );
}

#[test]
fn long_member_names_are_abbreviated() {
    let long = format!("{}-k7f2x", "o".repeat(40));
    let members = [(long.as_str(), "Voter", true)];
    let mut cluster = cluster("True", false, &members);
    cluster.metadata.name = Some("o".repeat(40));
    let output = text(&report(&cluster), Terminal::new(ColorMode::Never));
    assert!(output.contains("…-k7f2x"), "{output}");
    assert!(
        output.lines().all(|line| line.chars().count() <= 80),
        "{output}"
    );
}

#[test]
fn a_cluster_without_a_status_is_reported_as_unknown() {
    let mut cluster = cluster("True", false, &[]);
    cluster.status = None;
    let output = text(&report(&cluster), Terminal::new(ColorMode::Never));
    assert!(
        output.starts_with("orders: availability unknown\n"),
        "{output}"
    );
    assert!(
        output.contains("no operator has reconciled this cluster"),
        "{output}"
    );
}
