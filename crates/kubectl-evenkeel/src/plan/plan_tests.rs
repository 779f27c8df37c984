//! What `plan` tells, and what it makes of what is known.

use evenkeel_etcd::preview::PreviewStep;
use serde_json::json;

use super::*;
use crate::args::Colour;

fn cluster() -> EtcdCluster {
    let spec = json!({ "version": "3.6.16", "members": 3 });
    let resource = json!({ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "EtcdCluster",
        "metadata": { "name": "orders", "namespace": "shop", "uid": "0c9e8a1f-33aa-4bcd-9e01-0123456789ab",
            "creationTimestamp": "2026-11-16T12:00:00Z" }, "spec": spec });
    serde_json::from_value(resource).unwrap()
}

/// A cluster of which there is nothing yet.
fn nothing_yet() -> ClusterObjects {
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

fn step(after: i64, does: &str, is_note: bool) -> PreviewStep {
    PreviewStep {
        after,
        does: does.to_owned(),
        because: "it is so".to_owned(),
        is_note,
    }
}

fn foreseen() -> Preview {
    Preview {
        steps: vec![
            step(0, "removing orders-b", false),
            step(0, "noting it", true),
            step(86_400, "deleting it", false),
        ],
        ends: "Healthy".to_owned(),
        waits_for: Vec::new(),
        assumes: vec!["nothing else fails".to_owned()],
    }
}

#[test]
fn steps_are_numbered_and_what_is_only_written_down_is_left_out_unless_asked_for() {
    let edits = vec!["spec.members: 3 → 2".to_owned()];
    let told = |all| {
        answer(
            (&cluster(), true),
            (edits.clone(), None),
            foreseen(),
            Some(90),
            all,
        )
    };
    let short = text(&told(false), Screen::new(Colour::Never));
    let expected = "\
Edit:     spec.members: 3 → 2
Plan:
  1.  removing orders-b
        because it is so
  24h from now:
  2.  deleting it
        because it is so
Ends:     Healthy
Assumes:  nothing else fails
Facts:    objects as they are now; etcd as the operator noted it 90s ago, and
          the status since
";
    assert_eq!(short, expected);
    assert!(text(&told(true), Screen::new(Colour::Never)).contains("2.  noting it"));
}

#[test]
fn a_cluster_that_is_yet_to_be_is_planned_from_nothing() {
    let effective = effective_spec(&cluster(), &ClusterHistory::default()).unwrap();
    let now = "2026-11-16T12:00:00Z".parse().unwrap();
    let (found, facts) = Known::default()
        .applied_to(nothing_yet(), effective, now)
        .unwrap();
    let foreseen = preview(&found, facts, None);
    assert_eq!(foreseen.ends, "Healthy");
    let first = foreseen.steps.iter().find(|step| !step.is_note).unwrap();
    assert_eq!(first.does, "giving the cluster its identity");
    assert!(
        foreseen
            .steps
            .iter()
            .any(|step| step.does.contains("Secret orders-etcd-server-tls")),
        "{foreseen:#?}"
    );
}

#[test]
fn of_decisions_the_last_facts_count_and_of_members_the_last_list() {
    let effective = effective_spec(&cluster(), &ClusterHistory::default()).unwrap();
    let now: Timestamp = "2026-11-16T12:00:00Z".parse().unwrap();
    let (_, mut facts) = Known::default()
        .applied_to(nothing_yet(), effective, now)
        .unwrap();
    let decision = |facts: &evenkeel_etcd::facts::EtcdFacts, at: &str| Decision {
        at: at.to_owned(),
        facts: serde_json::to_string(facts).ok(),
        ..Decision::default()
    };
    let list = json!({ "told_by": 0, "members": [], "strangers": [] });
    facts.membership = evenkeel_runtime::Observed::Present(serde_json::from_value(list).unwrap());
    let older = decision(&facts, "2026-11-16T11:00:00Z");
    facts.membership = evenkeel_runtime::Observed::Unknown;
    facts.cluster.members = 5;
    let newer = decision(&facts, "2026-11-16T11:30:00Z");
    let unread = Decision {
        facts: Some("{}".to_owned()),
        ..Decision::default()
    };
    let refused = Known::of(&[older.clone(), newer.clone(), unread]).unwrap_err();
    assert!(
        refused.what.contains("cannot be read"),
        "older ones would mislead: {refused}"
    );
    let known = Known::of(&[older, newer]).unwrap();
    assert_eq!(known.facts.unwrap().cluster.members, 5);
    assert_eq!(known.at, "2026-11-16T11:30:00Z".parse().ok());
    assert!(
        known.membership.is_some(),
        "though etcd did not tell any more"
    );
}

#[test]
fn what_kubectl_says_no_to_has_the_code_that_fits() {
    let code = |why: &str| edit::not_applied(why).code;
    assert_eq!(
        code("Error from server (Forbidden): etcdclusters is forbidden"),
        crate::trouble::FORBIDDEN
    );
    assert_eq!(
        code("Unable to connect to the server: dial tcp: refused"),
        crate::trouble::NO_ANSWER
    );
    assert_eq!(code("error: the path \"/nowhere\" does not exist"), FAILED);
    let told =
        edit::not_applied("patch: {\"a\":1}: strict decoding error: unknown field \"spec.x\"");
    assert_eq!(
        told.what,
        "it would not be accepted: unknown field \"spec.x\""
    );
}
