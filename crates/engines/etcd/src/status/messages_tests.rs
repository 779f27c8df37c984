//! Descriptions of waits, summaries and member messages.

use std::time::Duration;

use evenkeel_api::conditions::ConditionType::{Degraded, Ready};
use evenkeel_api::{MemberRole, labels};
use serde_json::json;

use super::super::status;
use super::super::tests::{
    check_texts, finds_no_node, is_plain, is_sentence, joining, line, status_of, step,
};
use super::*;
use crate::actions::format_duration;
use crate::facts::{OwnedObject, UnknownMember};
use crate::identity::{ClusterId, Intent, MemberId, MembershipChange};
use crate::names::Serial;
use crate::plan::UnreadableObjects;
use crate::testing::{NOW, Scene, change, claim_uid, condition, name, pod_uid};

#[test]
fn a_lost_quorum_names_the_unreachable_members() {
    let mut scene = Scene::converged(3);
    scene.lose_quorum(&[0, 1]);
    let status = status_of(&scene);
    let expected = "Quorum lost: 1 of 3 voters responds | 0/3 | False QuorumLost | False Waiting | True QuorumLost";
    assert_eq!(line(&status), expected);
    let unreachable = format!("{}, {}", name(0), name(1));
    assert_eq!(
        status.waiting_for.join("|"),
        format!("a quorum of voters to respond (not responding: {unreachable})")
    );
    assert_eq!(
        status.problems[0].message,
        format!(
            "1 of 3 voters responds. Clients cannot read or write until a quorum responds. Not responding: {} (etcd does \
             not respond on node node-0), {} (etcd does not respond on node node-1).",
            name(0),
            name(1)
        )
    );
    assert_eq!(status.problems.len(), 1, "the members are named once");
    assert_eq!(status.leader, "");
    let voters = status
        .member_list
        .iter()
        .filter(|member| member.role == MemberRole::Voter && !member.healthy);
    assert_eq!(
        voters.count(),
        3,
        "members keep their roles while etcd's list is unknown"
    );
}

#[test]
fn reachable_members_without_a_leader_are_not_too_few() {
    let mut scene = Scene::converged(3);
    scene.lose_quorum(&[]);
    let status = status_of(&scene);
    assert_eq!(
        status.summary,
        "Quorum lost: 3 of 3 voters respond, but have no leader"
    );
    assert_eq!(condition(&status, Ready).1, "QuorumLost");
}

#[test]
fn an_unsafe_removal_is_not_a_lost_quorum() {
    // One member has lost its data, and another is being drained while it still answers.
    let mut scene = Scene::converged(3);
    scene.observed.claims.remove(&claim_uid(2));
    scene.observed.pods.remove(&pod_uid(2));
    scene.stop_answering(2);
    change(
        scene.pod(1),
        json!({ "metadata": { "deletionTimestamp": "2027-01-15T07:59:00Z" } }),
    );
    let status = status_of(&scene);
    assert_eq!(condition(&status, Ready).0, "True");
    assert_eq!(
        condition(&status, Degraded).1,
        "MemberDown",
        "a quorum answers"
    );
    assert_eq!(
        status.waiting_for[0],
        format!(
            "member {} to become healthy: the removal of another member would lose the quorum",
            name(1)
        )
    );
}

#[test]
fn a_paused_cluster_without_a_quorum_has_a_problem_and_resume_is_its_advice() {
    let mut scene = Scene::with(3, json!({ "paused": true }));
    scene.lose_quorum(&[0, 1]);
    let status = status_of(&scene);
    assert_eq!(
        status.summary,
        "Paused. Quorum lost: 1 of 3 voters responds"
    );
    let problem = &status.problems[0];
    assert_eq!(problem.reason, "QuorumLost");
    assert!(
        problem.advice.starts_with("Resume the operator")
            && problem.advice.contains("resume orders"),
        "{}",
        problem.advice
    );
    assert_eq!(condition(&status, Degraded).0, "True");
}

#[test]
fn without_a_quorum_no_advice_deletes_a_node_and_no_data_is_called_lost() {
    let mut scene = Scene::converged(1);
    scene.set_status(scene.status());
    scene.lose_quorum(&[0]);
    scene.observed.claims.clear();
    let status = status_of(&scene);
    let problem = &status.problems[0];
    assert!(
        problem.message.contains("was on a node that was deleted")
            && problem.advice.contains("back under the same name")
            && !problem.message.contains("a new member replaces it"),
        "{problem:?}"
    );
    assert_eq!(status.member_list[0].role, MemberRole::Voter);
    let tolerance = status.failure_tolerance.unwrap();
    assert_eq!(tolerance.summary, "nothing: the quorum is lost");
}

#[test]
fn a_voter_whose_pod_is_gone_stays_a_voter_while_the_quorum_is_lost() {
    let mut scene = Scene::converged(1);
    scene.set_status(scene.status());
    let before = scene.status().member_list[0].clone();
    scene.lose_quorum(&[0]);
    scene.observed.pods.clear();
    let member = status_of(&scene).member_list[0].clone();
    assert_eq!((member.role, member.id), (MemberRole::Voter, before.id));
    assert!(!member.healthy);
}

#[test]
fn a_joining_learner_and_its_pod_problem_are_reported() {
    let status = status_of(&joining());
    let summary = format!("Joining {}", name(2));
    assert_eq!(
        line(&status),
        format!("{summary} | 2/3 | True Serving | True Recovering | False AsExpected")
    );
    assert_eq!(status.waiting_for[0], format!("member {} to join", name(2)));
    assert_eq!(
        status.next_action.unwrap().message,
        format!("operator promotes member {} to voter", name(2))
    );
    assert_eq!(status.member_list[2].role, MemberRole::Joining);

    let mut scene = joining();
    finds_no_node(&mut scene, 2);
    let status = status_of(&scene);
    assert_eq!(condition(&status, Degraded).1, "Unschedulable");
    assert!(condition(&status, Degraded).2.starts_with(&format!(
        "Member {} cannot start: no node can run its pod: 0/3 nodes",
        name(2)
    )));
    let expected = format!(
        "Joining {}: no node can run its pod: 0/3 nodes are available: 1 node(s)",
        name(2)
    );
    assert!(
        status.summary.starts_with(&expected) && status.summary.ends_with('…'),
        "cut with an ellipsis: {}",
        status.summary
    );
}

#[test]
fn unknown_members_are_reported_with_their_future() {
    let mut scene = Scene::converged(3);
    scene.add_unknown_member(0xabc, false);
    let status = scene.status();
    assert_eq!(status.summary, "Unknown members in etcd: 1");
    assert_eq!(condition(&status, Degraded).1, "UnknownMember");
    assert_eq!(
        status.waiting_for[0],
        "unknown member abc to start within 5m or to be removed"
    );
    let problem = condition(&status, Degraded).2;
    assert!(
        problem.contains("lists member abc") && problem.contains("unless it starts within 5m"),
        "{problem}"
    );
    scene.add_unknown_member(0xdef, true);
    let status = scene.status();
    assert_eq!(status.summary, "Unknown members in etcd: 2");
    let problem = condition(&status, Degraded).2;
    assert!(
        problem.contains("etcdctl orders -- member remove def")
            && problem.contains("The operator does not remove it"),
        "{problem}"
    );
    is_plain(problem);
}

#[test]
fn durations_are_formatted_as_users_write_them() {
    let format = |seconds| format_duration(Duration::from_secs(seconds));
    assert_eq!(
        [0, 30, 300, 5400, 86_400, 3661].map(format),
        ["0s", "30s", "5m", "1h30m", "24h", "1h1m1s"]
    );
}

fn unknown(id: u64) -> UnknownMember {
    UnknownMember {
        id: MemberId(id),
        is_learner: false,
        has_started: true,
        first_seen: NOW,
    }
}

#[test]
fn degraded_reports_the_wait_that_a_user_has_to_end() {
    let scene = Scene::converged(3);
    let mut plan = scene.plan();
    plan.waits = vec![
        EtcdWait::UnsafeToAdd,
        EtcdWait::UnknownMembers(vec![unknown(1)]),
    ];
    let status = status(&scene.observed, &scene.facts(), &plan, None);
    assert_eq!(condition(&status, Degraded).1, "UnknownMember");
    assert!(
        condition(&status, Degraded)
            .2
            .contains("which the operator did not add"),
        "{:?}",
        condition(&status, Degraded)
    );
}

#[test]
fn patches_are_described_by_their_purpose() {
    let mut scene = joining();
    scene.list_member(2, true, true);
    scene.state(2);
    assert_eq!(
        step(&status_of(&scene)),
        format!(
            "recording on PersistentVolumeClaim {} the volume that its member joined on",
            name(2)
        )
    );
    let mut scene = Scene::converged(3);
    change(
        scene.pod(2),
        json!({ "metadata": { "labels": { labels::ROLE: null } } }),
    );
    assert_eq!(
        step(&status_of(&scene)),
        format!("adding member {} to Service orders-etcd-client", name(2))
    );
    let mut scene = Scene::converged(3);
    change(
        scene.pod(2),
        json!({ "metadata": { "ownerReferences": null } }),
    );
    assert_eq!(
        step(&status_of(&scene)),
        format!("setting the owner reference of Pod {}", name(2))
    );
}

#[test]
fn every_wait_has_a_plain_description() {
    let scene = Scene::converged(3);
    let intent = |change| Intent::new(change, [Serial(0)].into(), NOW);
    let waits = [
        EtcdWait::Unreadable(UnreadableObjects::Identity),
        EtcdWait::Unreadable(UnreadableObjects::Objects),
        EtcdWait::Paused,
        EtcdWait::InconsistentObjects,
        EtcdWait::DataLost(ClusterId(0x8e9e_05c5_2164_694d)),
        EtcdWait::OldEpochDeletion,
        EtcdWait::PreviousResourceDeletion(NOW),
        EtcdWait::PreviousResourceDeletion(NOW.after(Duration::from_secs(9))),
        EtcdWait::SeedStart(Serial(0)),
        EtcdWait::NoQuorum,
        EtcdWait::OpenIntent(intent(MembershipChange::Add(Serial(3)))),
        EtcdWait::OpenIntent(intent(MembershipChange::Promote(Serial(2)))),
        EtcdWait::OpenIntent(intent(MembershipChange::Remove(Serial(2)))),
        EtcdWait::MemberJoin([Serial(1)].into()),
        EtcdWait::MemberJoin([Serial(1), Serial(2)].into()),
        EtcdWait::LearnerCatchUp(Serial(2)),
        EtcdWait::UnsafeToAdd,
        EtcdWait::BootstrapTimeout(NOW),
        EtcdWait::NameConflict(OwnedObject::PodDisruptionBudget),
        EtcdWait::NameConflict(OwnedObject::OperatorTls),
        EtcdWait::CaMissing(OwnedObject::PeerCa),
        EtcdWait::UnknownMembers(vec![unknown(1)]),
        EtcdWait::UnknownMembers(vec![unknown(1), unknown(2)]),
        EtcdWait::ReplacementJoin(Serial(2)),
        EtcdWait::ReplacementLimit(Serial(2), NOW),
        EtcdWait::MaintenanceWindow(NOW),
        EtcdWait::InvalidWindows,
        EtcdWait::UnhealthyMember(Serial(2)),
        EtcdWait::TooFewVoters,
        EtcdWait::VersionMismatch(Serial(2), evenkeel_api::Version::new(3, 5, 35)),
        EtcdWait::VolumeResize(Serial(2)),
        EtcdWait::SnapshotBlocked(Serial(2)),
    ];
    for wait in waits {
        let mut plan = scene.plan();
        plan.waits = vec![wait.clone()];
        let status = status(&scene.observed, &scene.facts(), &plan, None);
        check_texts(&status);
        assert!(
            status.waiting_for[0].len() > 20,
            "{wait:?}: {:?}",
            status.waiting_for
        );
        let facts = scene.facts();
        let view = ClusterView::from_facts(&facts);
        let context = ActionContext::new(&scene.observed, &facts, view.as_ref());
        let problem = wait.problem(&context);
        is_plain(&problem.message);
        is_sentence(&problem.message);
        if !problem.advice.is_empty() {
            is_plain(&problem.advice);
            is_sentence(&problem.advice);
        }
    }
}

#[test]
fn a_lost_quorum_comes_before_a_name_conflict() {
    let mut scene = Scene::converged(3);
    scene.lose_quorum(&[0, 1]);
    change(
        scene.observed.client_service.as_mut().unwrap(),
        json!({ "metadata": { "labels": null } }),
    );
    let status = status_of(&scene);
    assert_eq!(
        (status.summary.as_str(), status.waiting_for.len()),
        ("Quorum lost: 1 of 3 voters responds", 2)
    );
    let (_, reason, message) = condition(&status, Degraded);
    assert!(
        reason == "QuorumLost" && message.contains("Not responding"),
        "{reason}: {message}"
    );
}
