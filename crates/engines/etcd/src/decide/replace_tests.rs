//! Replacement of lost members, unknown members, retained claims and restored identities.

use evenkeel_api::labels;
use evenkeel_runtime::{Requeue, UnixTime};
use serde_json::json;

use crate::facts::StartMode;
use crate::identity::{Identity, Intent, MemberId, MembershipChange, Uid};
use crate::names::{Epoch, Serial};
use crate::plan::{DeleteReason, EtcdDisruption, EtcdPatch, EtcdWait};
use crate::testing::{NOW, Scene, change, claim_uid, pod_uid};

fn replaces(scene: &Scene, serial: u16) -> bool {
    scene.asked().is_some_and(|intent| {
        intent.is_replacement && intent.change == MembershipChange::Remove(Serial(serial))
    })
}

#[test]
fn the_status_has_the_time_since_when_a_member_to_be_replaced_is_unreachable() {
    let since = |scene: &Scene| -> Vec<Option<i64>> {
        let members = scene.status().member_list.into_iter();
        members
            .map(|member| Some(member.unreachable_since?.0.as_second()))
            .collect()
    };
    let mut scene = Scene::converged(3);
    scene.make_unreachable(2, 60);
    assert_eq!(since(&scene), [None, None, Some(NOW.0 - 60)]);
    scene.observed.now = UnixTime(NOW.0 + 5);
    assert_eq!(since(&scene), [None, None, Some(NOW.0 - 60)], "later");
    scene.state.unreachable_since.clear();
    assert_eq!(since(&scene), [None, None, None], "the leader reaches it");
}

#[test]
fn an_unreachable_member_is_replaced_after_its_time_and_not_before() {
    let mut scene = Scene::converged(3);
    scene.make_unreachable(2, 299);
    let plan = scene.plan();
    assert!(plan.is_noop(), "{plan:?}");
    assert_eq!(plan.requeue, Requeue::Poll, "the member is polled");
    let next = scene.status().next_action.unwrap();
    assert!(
        next.message.starts_with("operator replaces member "),
        "{next:?}"
    );
    assert_eq!(next.time.unwrap().0.as_second(), NOW.0 + 1, "the deadline");
    scene.make_unreachable(2, 300);
    assert!(replaces(&scene, 2));
}

#[test]
fn a_ready_member_that_does_not_answer_is_polled() {
    let mut scene = Scene::converged(3);
    assert_eq!(scene.plan().requeue, Requeue::OnChange);
    scene.stop_answering(2);
    assert_eq!(
        scene.plan().requeue,
        Requeue::Poll,
        "otherwise the status reports it as down for long"
    );
}

#[test]
fn a_member_that_one_of_three_observers_reaches_is_not_replaced() {
    let mut scene = Scene::converged(3);
    scene.make_unreachable(2, 9999);
    scene.state.unreachable_since.clear();
    assert!(
        scene.asked().is_none(),
        "the leader has a stream to it, or does not report"
    );

    let mut scene = Scene::converged(3);
    scene.make_unreachable(2, 9999);
    scene.state(2);
    assert!(scene.asked().is_none(), "it answers the operator");

    let mut scene = Scene::converged(3);
    scene.make_unreachable(2, 9999);
    let ready = json!([{ "type": "Ready", "status": "True", "lastTransitionTime": "2027-01-15T07:00:00Z" }]);
    change(scene.pod(2), json!({ "status": { "conditions": ready } }));
    assert!(scene.asked().is_none(), "its kubelet reports it as Ready");
}

#[test]
fn a_member_needed_for_the_quorum_is_not_replaced() {
    let mut scene = Scene::converged(2);
    scene.make_unreachable(1, 9999);
    // With one of two voters unreachable etcd does not report a list; if it did, one of one voter
    // would be left.
    assert!(replaces(&scene, 1));
    let mut scene = Scene::converged(5);
    scene.make_unreachable(4, 9999);
    scene.stop_answering(3);
    scene.stop_answering(2);
    assert!(scene.asked().is_none(), "two of four voters have no quorum");
    assert!(scene.plan().waits.contains(&EtcdWait::NoQuorum));
}

#[test]
fn a_fourth_replacement_within_an_hour_waits() {
    let mut scene = Scene::converged(3);
    scene.make_unreachable(2, 9999);
    let ago = |minutes: i64| UnixTime(NOW.0 - 60 * minutes);
    scene.turn(|identity| identity.replacements = [ago(61), ago(50), ago(20)].into());
    assert!(replaces(&scene, 2), "only two are within the last hour");
    scene.turn(|identity| identity.replacements = [ago(59), ago(50), ago(20)].into());
    let plan = scene.plan();
    assert!(plan.is_noop(), "{plan:?}");
    assert!(
        plan.waits
            .contains(&EtcdWait::ReplacementLimit(Serial(2), UnixTime(NOW.0 + 60))),
        "{plan:?}"
    );
}

#[test]
fn a_replacement_counts_once_even_if_it_is_recorded_twice() {
    let mut scene = Scene::converged(3);
    scene.make_unreachable(2, 9999);
    let intent = scene.asked().unwrap();
    let (_, identity) = scene.observed.identity.as_ref().unwrap();
    let recorded = identity.with_intent(&intent);
    assert_eq!(recorded.replacements, [NOW].into());
    assert_eq!(recorded.with_intent(&intent), recorded);
    let plain = Intent {
        is_replacement: false,
        ..intent
    };
    assert_eq!(identity.with_intent(&plain).replacements, [].into());
    // A replacement of more than an hour ago does not count.
    let old = Identity {
        replacements: [UnixTime(NOW.0 - 3601)].into(),
        ..identity.clone()
    };
    assert_eq!(
        old.with_intent(&scene.asked().unwrap()).replacements,
        [NOW].into()
    );
}

#[test]
fn a_crashing_member_is_replaced_only_if_its_template_works_elsewhere() {
    let mut scene = Scene::converged(3);
    scene.crashes(2, 299);
    assert!(scene.asked().is_none());
    scene.crashes(2, 300);
    assert!(replaces(&scene, 2));
    // The others have another template, and the successor would have one that no member runs with
    // yet.
    let other = json!({ "metadata": { "annotations": { labels::POD_TEMPLATE_HASH: Uid(9) } } });
    for serial in [0, 1] {
        change(scene.pod(serial), other.clone());
    }
    assert!(scene.asked().is_none(), "its successor would crash as well");
}

#[test]
fn no_member_is_replaced_while_a_successor_does_not_start() {
    let mut scene = Scene::with_newcomer();
    scene.crashes(3, 9999);
    assert!(
        scene.asked().is_none(),
        "it never started: another learner would crash as well"
    );
    scene.crashes(2, 9999);
    assert!(scene.asked().is_none());
    assert!(
        scene
            .plan()
            .waits
            .contains(&EtcdWait::ReplacementJoin(Serial(3))),
        "{:?}",
        scene.plan().waits
    );
}

#[test]
fn an_unscheduled_learner_is_not_lost_and_holds_up_no_replacement() {
    let mut scene = Scene::with_newcomer();
    change(scene.pod(3), json!({ "spec": { "nodeName": null } }));
    scene.make_unreachable(3, 9999);
    assert!(scene.asked().is_none());
    scene.make_unreachable(2, 9999);
    assert!(replaces(&scene, 2));
}

#[test]
fn a_learner_on_a_lost_node_is_removed() {
    let mut scene = Scene::with_newcomer();
    scene.make_unreachable(3, 9999);
    assert!(
        scene.asked().is_none(),
        "its image may be missing: another learner would not start either"
    );
    change(
        scene.pod(3),
        json!({ "metadata": { "deletionTimestamp": "2027-01-15T08:00:00Z" } }),
    );
    let intent = scene.asked().unwrap();
    assert_eq!(
        (intent.change, intent.is_replacement),
        (MembershipChange::Remove(Serial(3)), false),
        "a learner does not count as a replacement"
    );
}

#[test]
fn an_unknown_member_that_never_started_is_removed_after_its_time() {
    let mut scene = Scene::converged(3);
    scene.add_unknown_member(0xabc, false);
    let plan = scene.plan();
    assert!(plan.disruption.is_none(), "{plan:?}");
    assert_eq!(plan.requeue, Requeue::At(UnixTime(NOW.0 + 300)));
    scene.observed.now = UnixTime(NOW.0 + 300);
    let intent = scene.asked().unwrap();
    assert_eq!(
        intent.change,
        MembershipChange::RemoveUnknown(MemberId(0xabc))
    );
    assert_eq!(
        intent.unknown_voters,
        [MemberId(0xabc)].into(),
        "its vote is recorded"
    );
}

#[test]
fn an_unknown_member_that_has_started_stays_and_recovery_continues() {
    let mut scene = Scene::converged(3);
    scene.add_unknown_member(0xabc, true);
    scene.observed.now = UnixTime(NOW.0 + 9999);
    let plan = scene.plan();
    assert!(plan.disruption.is_none(), "{plan:?}");
    assert!(matches!(plan.waits[..], [EtcdWait::UnknownMembers(_)]));
    // A missing pod is recreated.
    scene.observed.pods.remove(&pod_uid(2));
    scene.stop_answering(2);
    assert_eq!(scene.plan().create.len(), 1);
    // A member without data is removed: of four votes three are left, and two of them are healthy.
    scene.observed.claims.remove(&claim_uid(2));
    assert_eq!(
        scene.asked().unwrap().change,
        MembershipChange::Remove(Serial(2))
    );
}

#[test]
fn an_unknown_voter_counts_towards_the_quorum_and_never_as_healthy() {
    let mut scene = Scene::with(4, json!({ "members": 3 }));
    scene.add_unknown_member(0xabc, true);
    scene.stop_answering(0);
    // Clients are detached already. Of five votes four are left, and three are needed: three known
    // voters are healthy.
    change(
        scene.pod(0),
        json!({ "metadata": { "labels": { "evenkeel.dev/role": null } } }),
    );
    assert_eq!(
        scene.asked().unwrap().change,
        MembershipChange::Remove(Serial(0))
    );
    scene.stop_answering(1);
    // Two known voters are healthy, and the unknown voter does not count.
    assert!(scene.asked().is_none(), "{:?}", scene.plan());
}

#[test]
fn no_member_is_added_while_an_unknown_member_is_listed() {
    let mut scene = Scene::with(3, json!({ "members": 5 }));
    scene.add_unknown_member(0xabc, true);
    let plan = scene.plan();
    assert!(
        plan.disruption.is_none() && plan.waits.contains(&EtcdWait::UnsafeToAdd),
        "{plan:?}"
    );
}

#[test]
fn the_claim_of_a_removed_member_is_retained_as_the_spec_says() {
    let mut scene = Scene::converged(3);
    scene.turn(|identity| identity.next_serial = Serial(4));
    scene.add_claim(3, true);
    let plan = scene.plan();
    assert!(plan.disruption.is_none(), "{plan:?}");
    assert_eq!(
        plan.patch,
        [EtcdPatch::RecordRemoval {
            claim: claim_uid(3),
            at: Some(NOW)
        }]
    );

    scene.mark_removed(3);
    let plan = scene.plan();
    assert!(
        plan.is_noop() && plan.requeue == Requeue::At(UnixTime(NOW.0 + 86_400)),
        "{plan:?}"
    );
    assert_eq!(scene.status().summary, "Healthy");
    assert_eq!(scene.status().members, 3, "the claim belongs to no member");

    scene.observed.now = UnixTime(NOW.0 + 86_400);
    let deleted = EtcdDisruption::DeleteClaim {
        claim: claim_uid(3),
        serial: Serial(3),
        why: DeleteReason::MemberRemoved,
    };
    assert_eq!(scene.plan().disruption, Some(deleted));
}

#[test]
fn a_removed_members_claim_is_deleted_at_once_without_retention_or_data() {
    let mut scene = Scene::with(3, json!({ "storage": { "keepRemovedFor": "0" } }));
    scene.turn(|identity| identity.next_serial = Serial(4));
    scene.add_claim(3, true);
    assert!(matches!(
        scene.plan().disruption,
        Some(EtcdDisruption::DeleteClaim { .. })
    ));
    let mut scene = Scene::converged(3);
    scene.turn(|identity| identity.next_serial = Serial(4));
    scene.add_claim(3, false);
    assert!(matches!(
        scene.plan().disruption,
        Some(EtcdDisruption::DeleteClaim { .. })
    ));
}

#[test]
fn a_retained_claim_gets_no_pod_when_the_quorum_is_lost() {
    let mut scene = Scene::converged(3);
    scene.turn(|identity| identity.next_serial = Serial(4));
    scene.add_claim(3, true);
    scene.mark_removed(3);
    scene.lose_quorum(&[0, 1]);
    let plan = scene.plan();
    assert!(plan.is_noop(), "{plan:?}");
    assert_eq!(
        scene.status().summary,
        "Quorum lost: 1 of 3 voters responds"
    );
}

#[test]
fn nothing_is_deleted_while_an_unknown_member_has_started() {
    let mut scene = Scene::converged(3);
    // As if a user had changed the URLs and the name of the third member: it serves as an unknown
    // member.
    if let evenkeel_runtime::Observed::Present(membership) = &mut scene.state.membership {
        membership.members.pop();
    }
    scene.add_unknown_member(0xabc, true);
    let plan = scene.plan();
    assert!(
        plan.disruption.is_none() && plan.patch.is_empty(),
        "{plan:?}"
    );
}

#[test]
fn a_restored_identity_skips_the_serials_of_later_members() {
    let mut scene = Scene::converged(3);
    scene.turn(|identity| identity.next_serial = Serial(1));
    let Some(EtcdDisruption::UpdateIdentity {
        to,
        why: crate::plan::IdentityChange::Repair,
        ..
    }) = scene.plan().disruption
    else {
        panic!("{:?}", scene.plan())
    };
    assert!(to.next_serial > Serial(2), "{to:?}");
    scene.turn(|identity| *identity = to);
    assert!(scene.plan().is_noop(), "{:?}", scene.plan());
}

#[test]
fn a_removal_record_on_a_listed_members_claim_is_deleted() {
    let mut scene = Scene::converged(3);
    scene.mark_removed(2);
    assert_eq!(
        scene.plan().patch,
        [EtcdPatch::RecordRemoval {
            claim: claim_uid(2),
            at: None
        }]
    );
    let elsewhere = json!({ "evenkeel.dev/removed-at": "0c9e8a1f-33aa-4bcd-9e01-0123456789ab/2027-01-15T08:00:00Z" });
    change(
        scene.claim(2),
        json!({ "metadata": { "annotations": elsewhere } }),
    );
    assert!(scene.plan().is_noop());
}

#[test]
fn a_member_that_came_back_is_not_removed_by_an_open_intent() {
    let mut scene = Scene::converged(3);
    scene.make_unreachable(2, 9999);
    let intent = scene.asked().unwrap();
    scene.turn(|identity| *identity = identity.with_intent(&intent));
    assert!(
        replaces(&scene, 2),
        "the call is repeated while the member is unreachable"
    );
    scene.state(2);
    let plan = scene.plan();
    assert!(
        !matches!(
            plan.disruption,
            Some(EtcdDisruption::ChangeMembership { .. })
        ),
        "{plan:?}"
    );
    assert!(
        plan.waits
            .iter()
            .any(|wait| matches!(wait, EtcdWait::OpenIntent(_))),
        "{plan:?}"
    );
}

#[test]
fn an_unscheduled_learner_with_ephemeral_storage_is_not_replaced() {
    let mut scene = Scene::with(3, json!({ "members": 4, "storage": { "ephemeral": true } }));
    scene.turn(|identity| {
        identity.next_serial = Serial(4);
        identity.seed_storage = Some(crate::identity::SeedStorage::Pod(pod_uid(0)));
    });
    scene.add_pod(
        3,
        &StartMode::Join([Serial(0), Serial(1), Serial(2), Serial(3)].into()),
    );
    scene.list_member(3, true, false);
    change(scene.pod(3), json!({ "spec": { "nodeName": null } }));
    scene.make_unreachable(3, 9999);
    assert!(scene.asked().is_none(), "{:?}", scene.plan());
}

#[test]
fn a_voter_with_a_dead_kubelet_holds_up_no_learner() {
    let mut scene = Scene::with_newcomer();
    scene.observed.pods.remove(&pod_uid(3));
    change(
        scene.pod(2),
        json!({ "metadata": { "deletionTimestamp": "2027-01-15T08:00:00Z" } }),
    );
    assert_eq!(
        scene.plan().create.len(),
        1,
        "it stays Terminating and answers: {:?}",
        scene.plan()
    );
}

/// Returns true if a restored identity is repaired to a bootstrapped one.
fn is_repaired(scene: &Scene) -> bool {
    match scene.plan().disruption {
        Some(EtcdDisruption::UpdateIdentity {
            to,
            why: crate::plan::IdentityChange::Repair,
            ..
        }) => to.bootstrapped,
        Some(disruption) => panic!("{disruption:?}"),
        None => false,
    }
}

#[test]
fn a_restored_identity_from_before_the_end_of_bootstrap_loses_no_data() {
    let mut scene = Scene::converged(3);
    scene.turn(|identity| {
        identity.bootstrapped = false;
        identity.next_serial = Serial(3);
    });
    assert!(
        is_repaired(&scene),
        "clients are routed to its pods: {:?}",
        scene.plan()
    );
    // The seed was replaced long ago and all pods are gone: only the claims and the status are
    // left.
    scene.observed.claims.remove(&claim_uid(0));
    scene.observed.pods.clear();
    scene.lose_quorum(&[0, 1, 2]);
    let old_status = evenkeel_api::EtcdClusterStatus {
        cluster_id: "1f".to_owned(),
        ..Default::default()
    };
    scene.set_status(old_status);
    assert!(is_repaired(&scene), "{:?}", scene.plan());
    scene.set_status(evenkeel_api::EtcdClusterStatus::default());
    scene.add_claim(0, true);
    scene.mark_removed(0);
    assert!(
        is_repaired(&scene),
        "a member was removed before: {:?}",
        scene.plan()
    );
}

#[test]
fn a_restored_identity_of_an_earlier_epoch_deletes_nothing() {
    let mut scene = Scene::converged(3);
    scene.turn(|identity| identity.epoch = Epoch(0));
    assert!(is_repaired(&scene), "{:?}", scene.plan());
    scene.turn(|identity| identity.bootstrapped = false);
    assert!(is_repaired(&scene), "{:?}", scene.plan());
}

#[test]
fn a_rejected_claim_does_not_hold_up_the_removal_of_its_member() {
    let mut scene = Scene::with_newcomer();
    scene.observed.pods.remove(&pod_uid(3));
    scene.observed.claims.remove(&claim_uid(3));
    let plan = scene.plan();
    assert!(
        plan.disruption.is_none() && plan.create.len() == 1,
        "{plan:?}"
    );
    scene.edit_spec(json!({ "members": 3 }));
    assert_eq!(
        scene.asked().unwrap().change,
        MembershipChange::Remove(Serial(3))
    );
}

#[test]
fn a_rejected_pod_does_not_hold_up_a_promotion() {
    let mut scene = Scene::with(4, json!({ "members": 5 }));
    scene.turn(|identity| identity.next_serial = Serial(5));
    scene.add_current_voter(4);
    scene.list_member(4, true, true);
    scene.observed.pods.remove(&pod_uid(1));
    scene.stop_answering(1);
    assert_eq!(scene.plan().create.len(), 1, "{:?}", scene.plan());
    assert_eq!(
        scene.asked().unwrap().change,
        MembershipChange::Promote(Serial(4))
    );
}

#[test]
fn a_claim_of_a_later_epoch_does_not_change_a_bootstrapped_cluster() {
    let mut scene = Scene::converged(3);
    scene.add_claim(3, true);
    change(
        scene.claim(3),
        json!({ "metadata": { "annotations": { labels::EPOCH: "2" } } }),
    );
    let plan = scene.plan();
    assert!(
        plan.is_noop() && plan.waits == [EtcdWait::InconsistentObjects],
        "{plan:?}"
    );
}

#[test]
fn a_recreated_resource_with_a_restored_identity_keeps_its_data() {
    let mut scene = Scene::converged(3);
    scene.turn(|identity| {
        identity.bootstrapped = false;
        identity.next_serial = Serial(1);
        identity.resource_uid = Uid(9);
    });
    scene.observed.pods.clear();
    scene.lose_quorum(&[0, 1, 2]);
    assert!(is_repaired(&scene), "{:?}", scene.plan());
}

#[test]
fn a_restored_identity_without_objects_starts_no_cluster() {
    let mut scene = Scene::converged(3);
    scene.turn(|identity| identity.bootstrapped = false);
    scene.observed.claims.clear();
    scene.observed.pods.clear();
    scene.lose_quorum(&[0, 1, 2]);
    scene.set_status(evenkeel_api::EtcdClusterStatus {
        cluster_id: "1f".to_owned(),
        ..Default::default()
    });
    let plan = scene.plan();
    assert!(
        plan.is_noop() && matches!(plan.waits[..], [EtcdWait::DataLost(_)]),
        "{plan:?}"
    );
}

#[test]
fn a_finished_pod_is_deleted_while_another_is_created() {
    let mut scene = Scene::converged(3);
    scene.observed.pods.remove(&pod_uid(1));
    scene.stop_answering(1);
    change(scene.pod(2), json!({ "status": { "phase": "Failed" } }));
    scene.stop_answering(2);
    let plan = scene.plan();
    assert_eq!(plan.create.len(), 1, "{plan:?}");
    assert!(
        matches!(
            plan.disruption,
            Some(EtcdDisruption::DeletePod {
                why: DeleteReason::Finished,
                ..
            })
        ),
        "{plan:?}"
    );
}
