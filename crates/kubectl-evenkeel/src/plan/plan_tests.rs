//! Tests of the output of `plan`, and of the snapshot.

use evenkeel_etcd::facts::{EtcdFacts, Membership};
use evenkeel_etcd::names::Serial;
use evenkeel_etcd::preview::PreviewStep;
use evenkeel_runtime::{Decision, Observed};
use serde_json::json;

use super::*;
use crate::args::ColorMode;

fn cluster() -> EtcdCluster {
    let spec = json!({ "version": "3.6.16", "members": 3 });
    let resource = json!({ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "EtcdCluster",
        "metadata": { "name": "orders", "namespace": "shop", "uid": "0c9e8a1f-33aa-4bcd-9e01-0123456789ab",
            "creationTimestamp": "2026-11-16T12:00:00Z" }, "spec": spec });
    serde_json::from_value(resource).unwrap()
}

/// Returns the objects of a cluster that does not exist yet.
fn no_objects() -> ClusterObjects {
    ClusterObjects {
        resource: cluster(),
        identity: None,
        pods: Vec::new(),
        claims: Vec::new(),
        peer_service: None,
        client_service: None,
        pdb: None,
    }
}

fn step(after: i64, action: &str, is_note: bool) -> PreviewStep {
    PreviewStep {
        after,
        action: "remove-member",
        does: action.to_owned(),
        reason: "the spec has changed".to_owned(),
        is_note,
    }
}

fn shrink_preview() -> Preview {
    Preview {
        steps: vec![
            step(0, "removing orders-b", false),
            step(0, "recording it", true),
            step(86_400, "deleting it", false),
        ],
        ends: "Healthy".to_owned(),
        waits_for: Vec::new(),
        assumes: vec!["no other failures occur".to_owned()],
    }
}

#[test]
fn steps_are_numbered_and_bookkeeping_is_left_out_by_default() {
    let report = |include_bookkeeping| PlanReport {
        exists: true,
        edits: vec!["spec.members: 3 → 2".to_owned()],
        facts_age_seconds: Some(90),
        ..PlanReport::from_preview(&cluster(), shrink_preview(), include_bookkeeping)
    };
    let terminal = Terminal::new(ColorMode::Never);
    let short = text(&report(false), terminal);
    let expected = "\
Edit:            spec.members: 3 → 2
Plan:
  1.  removing orders-b
        reason: the spec has changed
  24h from now:
  2.  deleting it
        reason: the spec has changed
Final state:     Healthy
Assumption:      no other failures occur
Based on:        live Kubernetes objects and status; etcd state observed 90s ago
";
    assert_eq!(short, expected);
    assert!(text(&report(true), terminal).contains("2.  recording it"));
}

#[test]
fn a_new_cluster_is_planned_without_objects() {
    let effective = effective_spec(&cluster(), &ClusterHistory::default()).unwrap();
    let now = "2026-11-16T12:00:00Z".parse().unwrap();
    let (observed, facts) = Snapshot::default()
        .apply_to(no_objects(), effective, now)
        .unwrap();
    let preview = preview(&observed, facts, None);
    assert_eq!(preview.ends, "Healthy");
    let first = preview.steps.iter().find(|step| !step.is_note).unwrap();
    assert_eq!(first.action, "create-identity");
    assert!(
        preview
            .steps
            .iter()
            .any(|step| step.does.contains("Secret orders-etcd-server-tls")),
        "{preview:#?}"
    );
}

#[test]
fn the_newest_facts_and_the_newest_membership_are_used() {
    let effective = effective_spec(&cluster(), &ClusterHistory::default()).unwrap();
    let now: Timestamp = "2026-11-16T12:00:00Z".parse().unwrap();
    let (_, mut facts) = Snapshot::default()
        .apply_to(no_objects(), effective, now)
        .unwrap();
    let decision = |facts: &EtcdFacts, at: &str| Decision {
        at: at.to_owned(),
        facts: serde_json::to_string(facts).ok(),
        ..Decision::default()
    };
    facts.membership = Observed::Present(Membership {
        reported_by: Serial(0),
        members: Vec::new(),
        unknown: Vec::new(),
    });
    let older = decision(&facts, "2026-11-16T11:00:00Z");
    facts.membership = Observed::Unknown;
    facts.cluster.members = 5;
    let newer = decision(&facts, "2026-11-16T11:30:00Z");
    let invalid = Decision {
        facts: Some("{}".to_owned()),
        ..Decision::default()
    };
    let error = Snapshot::from_decisions(&[older.clone(), newer.clone(), invalid]).unwrap_err();
    assert!(
        error.message.contains("cannot parse the facts"),
        "older facts would mislead: {error}"
    );
    let snapshot = Snapshot::from_decisions(&[older, newer]).unwrap();
    assert_eq!(snapshot.facts.unwrap().cluster.members, 5);
    assert_eq!(snapshot.at, "2026-11-16T11:30:00Z".parse().ok());
    assert!(snapshot.membership.is_some(), "from the older decision");
}

#[test]
fn errors_of_kubectl_have_specific_exit_codes() {
    let code = |stderr: &str| edit::apply_error(stderr).exit_code;
    assert_eq!(
        code("Error from server (Forbidden): etcdclusters is forbidden"),
        crate::error::EXIT_FORBIDDEN
    );
    assert_eq!(
        code("Unable to connect to the server: dial tcp: refused"),
        crate::error::EXIT_UNREACHABLE
    );
    assert_eq!(
        code("error: the path \"/nowhere\" does not exist"),
        EXIT_FAILED
    );
    let error = edit::apply_error("error: error validating data");
    assert_eq!(
        error.message,
        "the manifest would be rejected: error validating data"
    );
    let error = edit::apply_error(
        "error: error validating \"new.yaml\": error validating data: [kind not set]; if you choose to ignore these errors, \
         turn validation off with --validate=false\n",
    );
    assert_eq!(
        error.to_string(),
        "error: the manifest would be rejected: [kind not set]"
    );
    let error =
        edit::apply_error("patch: {\"a\":1}: strict decoding error: unknown field \"spec.x\"");
    assert_eq!(
        error.message,
        "the manifest would be rejected: unknown field \"spec.x\""
    );
}
