//! Plans as text.

use evenkeel_api::EtcdCluster;
use evenkeel_etcd::preview::{
    ClientImpact, Effects, EtcdPreview, OutlineStep, Preview, PreviewStep, StepKind, Tolerance,
    ToleranceChange, VolumeDeletion,
};
use serde_json::json;

use super::*;
use crate::args::ColorMode;

fn cluster() -> EtcdCluster {
    let resource = json!({ "apiVersion": "evenkeel.dev/v1alpha1", "kind": "EtcdCluster",
        "metadata": { "name": "orders", "namespace": "shop" }, "spec": { "version": "3.6.16" } });
    serde_json::from_value(resource).unwrap()
}

fn now() -> Timestamp {
    "2026-11-18T14:46:39Z".parse().unwrap()
}

fn step(kind: StepKind, after: i64, text: &str, reason: &str) -> OutlineStep {
    OutlineStep {
        kind,
        after,
        member: None,
        text: text.to_owned(),
        reason: reason.to_owned(),
        is_bootstrap: false,
        actions: Vec::new(),
    }
}

fn tolerance(members: usize) -> Tolerance {
    Tolerance {
        can_write: true,
        members,
        nodes: Some(members),
    }
}

fn effects() -> Effects {
    Effects {
        creates_cluster: false,
        restarts: 3,
        members_added: 0,
        members_removed: 0,
        members_started: 0,
        volumes_resized: 0,
        leader_transfers: 1,
        clients: ClientImpact::Reconnect,
        failure_tolerance: ToleranceChange {
            before: Some(tolerance(1)),
            lowest: Some(tolerance(0)),
            after: Some(tolerance(1)),
        },
        expected_seconds: Some(27),
    }
}

fn preview(steps: Vec<OutlineStep>) -> EtcdPreview {
    EtcdPreview {
        course: Preview {
            steps: Vec::new(),
            ends: "Healthy".to_owned(),
            waits_for: Vec::new(),
            assumes: vec!["no other failures occur".to_owned()],
        },
        steps,
        volumes: Vec::new(),
        effects: effects(),
        notes: Vec::new(),
    }
}

fn upgrade() -> EtcdPreview {
    let restart = StepKind::RestartMember;
    let version = "version 3.6.16 → 3.7.3";
    preview(vec![
        step(
            StepKind::ForceSnapshot,
            0,
            "force a snapshot on every member",
            "etcd 3.7.3 cannot read raft log entries of older minor versions",
        ),
        step(StepKind::Record, 0, "recording it", "it is valid"),
        step(restart, 0, "restart orders-a (follower)", version),
        step(restart, 0, "restart orders-b (follower)", version),
        step(
            restart,
            0,
            "restart orders-c (leader) after leadership moves to orders-a",
            version,
        ),
    ])
}

/// Returns the text of a plan for an existing cluster.
fn plan_text(preview: EtcdPreview, edit: &str, show_all: bool) -> String {
    let report = PlanReport {
        exists: true,
        facts_age_seconds: Some(3),
        ..PlanReport::new(&cluster(), preview, vec![edit.to_owned()], now(), show_all)
    };
    text(&report, show_all, Terminal::new(ColorMode::Never))
}

#[test]
fn a_plan_shows_effects_and_one_line_for_each_member() {
    let expected = "\
Edit         spec.version: 3.6.16 → 3.7.3
Effects      3 members restart one by one, the leader last; about 30s
             clients: no outage expected; they reconnect to another member;
               leadership moves once
             tolerates 1 member failure and 1 node failure before and after; 0
               while a member restarts
Steps
  1  force a snapshot on every member  etcd 3.7.3 cannot read raft log entries
                                       of older minor versions
  2  restart orders-a (follower)       version 3.6.16 → 3.7.3
  3  restart orders-b (follower)
  4  restart orders-c (leader) after leadership moves to orders-a
Ends         Healthy
Assumes      no other failures occur
Based on     live objects; etcd as recorded with the last decision, 3s ago
";
    let text = plan_text(upgrade(), "spec.version: 3.6.16 → 3.7.3", false);
    assert_eq!(text, expected);
}

#[test]
fn steps_with_a_deadline_show_time_and_remaining_time_once() {
    let steps = vec![
        step(
            StepKind::RemoveMember,
            252,
            "remove orders-b",
            "it does not respond",
        ),
        step(
            StepKind::AddMember,
            252,
            "add orders-d",
            "takes the place of orders-b",
        ),
        step(
            StepKind::RestartMember,
            40_000,
            "restart orders-a (follower)",
            "version",
        ),
    ];
    let text = plan_text(preview(steps), "spec.paused: true → false", false);
    let headings: Vec<_> = text
        .lines()
        .filter(|line| line.contains("Z (in "))
        .collect();
    assert_eq!(
        headings,
        [
            "  at 14:50:51Z (in 4m12s)",
            "  at 2026-11-19T01:53Z (in 11h06m)"
        ],
        "{text}"
    );
}

#[test]
fn deletions_of_retained_volumes_are_shown_only_if_the_plan_causes_them() {
    let volume = |claim: &str, after: i64, was_retained: bool| VolumeDeletion {
        claim: claim.to_owned(),
        after,
        was_retained,
    };
    let shrink = || EtcdPreview {
        volumes: vec![
            volume("orders-old", 3600, true),
            volume("orders-b", 86_400, false),
            volume("orders-c", 86_400, false),
        ],
        ..preview(Vec::new())
    };
    let caused = "\
Volumes      PersistentVolumeClaims orders-b, orders-c are deleted at
               2026-11-19T14:46Z (in 1d0h)
";
    let earlier = "PersistentVolumeClaim orders-old is deleted at 15:46:39Z (in 1h00m)";
    let text = plan_text(shrink(), "spec.members: 3 → 1", false);
    assert!(
        text.contains(caused) && !text.contains("orders-old"),
        "{text}"
    );
    let text = plan_text(shrink(), "spec.members: 3 → 1", true);
    assert!(
        text.contains(earlier) && text.contains("orders-b"),
        "{text}"
    );
    let text = plan_text(shrink(), "spec.storage.keepRemovedFor: 24h → 1h", false);
    assert!(text.contains(earlier), "the edit changes the time: {text}");
    let retained_only = EtcdPreview {
        volumes: vec![volume("orders-old", 3600, true)],
        ..preview(Vec::new())
    };
    let text = plan_text(retained_only, "spec.paused: true → false", false);
    assert!(
        text.contains("Effects      none: the operator has nothing to do\n"),
        "{text}"
    );
    let at_once = EtcdPreview {
        volumes: vec![volume("orders-b", 0, false)],
        ..preview(Vec::new())
    };
    let text = plan_text(at_once, "spec.storage.keepRemovedFor: 24h → 0", false);
    assert!(
        text.contains("orders-b is deleted when its pod is gone"),
        "{text}"
    );
}

#[test]
fn all_details_are_listed_below_each_step() {
    let action = |does: &str, is_note: bool| PreviewStep {
        after: 0,
        action: "create-pod",
        does: does.to_owned(),
        reason: String::new(),
        is_note,
    };
    let preview = || {
        let mut preview = upgrade();
        preview.steps[2].actions = vec![0, 2];
        preview.steps[1].actions = vec![1];
        preview.course.steps = vec![
            action("restarting member orders-a", false),
            action("recording the accepted spec", true),
            action("creating Pod orders-a", false),
        ];
        preview
    };
    let all = plan_text(preview(), "spec.version: 3.6.16 → 3.7.3", true);
    let details = "\
  2  recording it                      it is valid
       - recording the accepted spec
  3  restart orders-a (follower)       version 3.6.16 → 3.7.3
       - restarting member orders-a
       - creating Pod orders-a
";
    assert!(all.contains(details), "{all}");
    let short = plan_text(preview(), "spec.version: 3.6.16 → 3.7.3", false);
    assert!(!short.contains("recording"), "{short}");
}

#[test]
fn plans_with_long_names_fit_into_80_columns() {
    let name = format!("{}-a1b2c", "n".repeat(40));
    let steps = vec![
        step(
            StepKind::RestartMember,
            0,
            &format!("restart {name} (follower)"),
            "version 3.6.16 → 3.7.3",
        ),
        step(
            StepKind::RestartMember,
            0,
            &format!("restart {name} (leader) after leadership moves to {name}"),
            "quota 3Gi → 4.5Gi, derived from spec.storage.size; spec.resources.requests.cpu 100m → 2",
        ),
        step(StepKind::UpdateObjects, 0, "update Secret a", "it differs"),
    ];
    let long = EtcdPreview {
        notes: vec![format!("members {name}, {name} and {name} share 1 node")],
        volumes: vec![VolumeDeletion {
            claim: name,
            after: 86_400,
            was_retained: false,
        }],
        ..preview(steps)
    };
    let text = plan_text(long, "spec.storage.size: 4Gi → 6Gi", true);
    let too_long: Vec<_> = text
        .lines()
        .filter(|line| line.chars().count() > WIDTH)
        .collect();
    assert!(too_long.is_empty(), "{too_long:#?}\n{text}");
    assert!(text.contains("update Secret a"), "{text}");
}

#[test]
fn a_plan_without_steps_says_that_nothing_happens() {
    let report = PlanReport {
        exists: true,
        ..PlanReport::new(&cluster(), preview(Vec::new()), Vec::new(), now(), false)
    };
    let text = text(&report, false, Terminal::new(ColorMode::Never));
    let expected = "\
Edit         none
Effects      none: the operator has nothing to do
Ends         Healthy
Assumes      no other failures occur
Based on     live objects; no decision of the operator is recorded yet
";
    assert_eq!(text, expected);
}
