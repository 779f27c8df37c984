//! Sentences, one by one.

use std::time::Duration;

use evenkeel_api::conditions::ConditionType::{Degraded, Ready};
use evenkeel_api::{MemberRole, labels};
use serde_json::json;

use super::super::status;
use super::super::tests::{finds_no_node, is_plain, joining, line, reads_well, told};
use super::*;
use crate::facts::{OwnedObject, UnknownMember};
use crate::identity::{ClusterId, Intent, MemberId, MembershipChange};
use crate::names::Serial;
use crate::plan::UnreadableObjects;
use crate::testing::{NOW, Scene, change, claim_uid, condition, name, pod_uid};

#[test]
fn without_a_quorum_it_says_who_is_silent() {
    let mut scene = Scene::converged(3);
    scene.loses_its_quorum(&[0, 1]);
    let status = told(&scene);
    let expected =
        "No quorum: 1 of 3 answer | 0/3 | False QuorumLost | False Waiting | True QuorumLost";
    assert_eq!(line(&status), expected);
    let wait = format!(
        "a majority of voters must answer; silent: {}, {}",
        name(0),
        name(1)
    );
    assert_eq!(status.waiting_for.join("|"), wait);
    assert_eq!(condition(&status, Degraded).2, wait);
    assert_eq!(status.leader, "");
    let voters = status
        .member_list
        .iter()
        .filter(|one| one.role == MemberRole::Voter && !one.healthy);
    assert_eq!(
        voters.count(),
        3,
        "they keep their part while etcd cannot be asked"
    );
}

#[test]
fn when_all_answer_and_none_leads_it_does_not_say_that_too_few_answer() {
    let mut scene = Scene::converged(3);
    scene.loses_its_quorum(&[]);
    let status = told(&scene);
    assert_eq!(
        status.phrase,
        "No quorum: all 3 answer, and agree on no leader"
    );
    assert_eq!(condition(&status, Ready).1, "QuorumLost");
}

#[test]
fn a_step_that_must_wait_for_others_is_no_lost_quorum() {
    // One has lost its data, and another is being drained while it still answers.
    let mut scene = Scene::converged(3);
    scene.observed.claims.remove(&claim_uid(2));
    scene.observed.pods.remove(&pod_uid(2));
    scene.stops_answering(2);
    change(
        scene.pod(1),
        json!({ "metadata": { "deletionTimestamp": "2027-01-15T07:59:00Z" } }),
    );
    let status = told(&scene);
    assert_eq!(condition(&status, Ready).0, "True");
    assert_eq!(
        condition(&status, Degraded).1,
        "MemberDown",
        "a quorum answers"
    );
    assert_eq!(
        status.waiting_for[0],
        format!(
            "{} must serve again before a member is removed, or too few would be left to agree",
            name(1)
        )
    );
}

#[test]
fn a_learner_joins_and_what_holds_it_up_is_told() {
    let status = told(&joining());
    let phrase = format!("Joining {}", name(2));
    assert_eq!(
        line(&status),
        format!("{phrase} | 2/3 | True Serving | True Healing | False AsExpected")
    );
    assert_eq!(status.waiting_for[0], format!("{} must join", name(2)));
    assert_eq!(status.next, "it gets its vote");
    assert_eq!(status.member_list[2].role, MemberRole::Joining);

    let mut scene = joining();
    finds_no_node(&mut scene, 2);
    let status = told(&scene);
    assert_eq!(condition(&status, Degraded).1, "Unschedulable");
    assert!(
        condition(&status, Degraded)
            .2
            .starts_with(&format!("no node takes {}: 0/3 nodes", name(2)))
    );
    let start = format!(
        "Joining {}: 0/3 nodes are available: 1 node(s) had untolerated taint",
        name(2)
    );
    assert!(
        status.phrase.starts_with(&start) && status.phrase.ends_with('…'),
        "cut, and says so: {}",
        status.phrase
    );
}

#[test]
fn strangers_are_named_with_what_becomes_of_them() {
    let mut scene = Scene::converged(3);
    scene.has_stranger(0xabc, false);
    let status = scene.status();
    assert_eq!(status.phrase, "Unknown members in etcd: 1");
    assert_eq!(condition(&status, Degraded).1, "UnknownMember");
    let told = &status.waiting_for[0];
    assert!(
        told.contains("the member abc") && told.contains("removed unless it starts within 5m"),
        "{told}"
    );
    scene.has_stranger(0xdef, true);
    let status = scene.status();
    assert_eq!(status.phrase, "Unknown members in etcd: 2");
    let told = &status.waiting_for[0];
    assert!(
        told.contains("etcdctl member remove def") && told.contains("left alone"),
        "{told}"
    );
    is_plain(told);
}

#[test]
fn durations_are_told_as_users_write_them() {
    let told = |seconds| format_duration(Duration::from_secs(seconds));
    assert_eq!(
        [0, 30, 300, 5400, 86_400, 3661].map(told),
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
fn of_several_waits_the_trouble_is_told_with_its_own_words() {
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
            .contains("not this cluster's"),
        "{:?}",
        condition(&status, Degraded)
    );
}

#[test]
fn marks_are_told_as_what_they_are_for() {
    let mut scene = joining();
    scene.is_listed(2, true, true);
    scene.state(2);
    assert_eq!(
        told(&scene).doing,
        format!("noting on which volume {} has joined", name(2))
    );
    let mut scene = Scene::converged(3);
    change(
        scene.pod(2),
        json!({ "metadata": { "labels": { labels::ROLE: null } } }),
    );
    assert_eq!(
        told(&scene).doing,
        format!("letting clients reach {}", name(2))
    );
    let mut scene = Scene::converged(3);
    change(
        scene.pod(2),
        json!({ "metadata": { "ownerReferences": null } }),
    );
    assert_eq!(
        told(&scene).doing,
        format!("having the pod of {} go with the resource", name(2))
    );
}

#[test]
fn every_wait_is_a_sentence_and_says_what_comes_next_in_another() {
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
    ];
    for wait in waits {
        let mut plan = scene.plan();
        plan.waits = vec![wait.clone()];
        let status = status(&scene.observed, &scene.facts(), &plan, None);
        reads_well(&status);
        assert!(
            status.waiting_for[0].len() > 20,
            "{wait:?}: {:?}",
            status.waiting_for
        );
    }
}

#[test]
fn a_lost_quorum_is_told_before_a_name_that_is_taken() {
    let mut scene = Scene::converged(3);
    scene.loses_its_quorum(&[0, 1]);
    change(
        scene.observed.client_service.as_mut().unwrap(),
        json!({ "metadata": { "labels": null } }),
    );
    let status = told(&scene);
    assert_eq!(
        (status.phrase.as_str(), status.waiting_for.len()),
        ("No quorum: 1 of 3 answer", 2)
    );
    let (_, reason, message) = condition(&status, Degraded);
    assert!(
        reason == "QuorumLost" && message.contains("silent"),
        "{reason}: {message}"
    );
}
