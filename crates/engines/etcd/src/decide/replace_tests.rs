//! Members that may come back, members of somebody else's, and what former members leave.

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
fn a_member_that_nobody_reaches_is_replaced_when_its_time_is_over_and_not_before() {
    let mut scene = Scene::converged(3);
    scene.is_out_of_reach(2, 299);
    let plan = scene.plan();
    assert!(plan.is_noop(), "{plan:?}");
    assert_eq!(
        plan.requeue,
        Requeue::Poll,
        "and somebody looks again in time"
    );
    let next = scene.status().next;
    assert!(
        next.contains("is replaced unless it comes back within 5m"),
        "{next}"
    );
    scene.is_out_of_reach(2, 300);
    assert!(replaces(&scene, 2));
}

#[test]
fn a_member_that_kubernetes_calls_ready_is_asked_soon_whether_it_serves() {
    let mut scene = Scene::converged(3);
    assert_eq!(scene.plan().requeue, Requeue::OnChange);
    scene.stops_answering(2);
    assert_eq!(
        scene.plan().requeue,
        Requeue::Poll,
        "or the status says for long that it is down"
    );
}

#[test]
fn a_member_that_one_of_three_still_reaches_is_not_replaced() {
    let mut scene = Scene::converged(3);
    scene.is_out_of_reach(2, 9999);
    scene.state.unreachable_since.clear();
    assert!(
        scene.asked().is_none(),
        "the leader has a connection to it, or does not say"
    );

    let mut scene = Scene::converged(3);
    scene.is_out_of_reach(2, 9999);
    scene.state(2);
    assert!(scene.asked().is_none(), "it answers the operator");

    let mut scene = Scene::converged(3);
    scene.is_out_of_reach(2, 9999);
    let ready = json!([{ "type": "Ready", "status": "True", "lastTransitionTime": "2027-01-15T07:00:00Z" }]);
    change(scene.pod(2), json!({ "status": { "conditions": ready } }));
    assert!(scene.asked().is_none(), "its kubelet says that it is well");
}

#[test]
fn nobody_is_replaced_who_is_needed_for_the_quorum() {
    let mut scene = Scene::converged(2);
    scene.is_out_of_reach(1, 9999);
    // With one of two silent etcd would not even tell who the members are; should it, one of one is left.
    assert!(replaces(&scene, 1));
    let mut scene = Scene::converged(5);
    scene.is_out_of_reach(4, 9999);
    scene.stops_answering(3);
    scene.stops_answering(2);
    assert!(scene.asked().is_none(), "two of four do not agree");
    assert!(scene.plan().waits.contains(&EtcdWait::NoQuorum));
}

#[test]
fn a_fourth_replacement_within_an_hour_waits_until_the_first_is_an_hour_old() {
    let mut scene = Scene::converged(3);
    scene.is_out_of_reach(2, 9999);
    let ago = |minutes: i64| UnixTime(NOW.0 - 60 * minutes);
    scene.turn(|identity| identity.replacements = [ago(61), ago(50), ago(20)].into());
    assert!(replaces(&scene, 2), "only two are of the last hour");
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
fn a_replacement_is_counted_once_however_often_it_is_noted() {
    let mut scene = Scene::converged(3);
    scene.is_out_of_reach(2, 9999);
    let intent = scene.asked().unwrap();
    let (_, identity) = scene.observed.identity.as_ref().unwrap();
    let noted = identity.with_intent(&intent);
    assert_eq!(noted.replacements, [NOW].into());
    assert_eq!(noted.with_intent(&intent), noted);
    let plain = Intent {
        is_replacement: false,
        ..intent
    };
    assert_eq!(identity.with_intent(&plain).replacements, [].into());
    // What it was an hour ago is of no interest any more.
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
fn one_that_crashes_is_replaced_only_if_others_run_on_the_same() {
    let mut scene = Scene::converged(3);
    scene.crashes(2, 299);
    assert!(scene.asked().is_none());
    scene.crashes(2, 300);
    assert!(replaces(&scene, 2));
    // The others were built from something else, and so would be its successor, from what nobody runs on yet.
    let other = json!({ "metadata": { "annotations": { labels::POD_TEMPLATE_HASH: Uid(9) } } });
    for serial in [0, 1] {
        change(scene.pod(serial), other.clone());
    }
    assert!(scene.asked().is_none(), "its successor would crash, too");
}

#[test]
fn nobody_is_replaced_while_a_successor_does_not_start() {
    let mut scene = Scene::with_newcomer();
    scene.crashes(3, 9999);
    assert!(
        scene.asked().is_none(),
        "it never started: another one would crash as well"
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
fn a_newcomer_without_a_node_holds_up_nobody_and_is_not_taken_for_lost() {
    let mut scene = Scene::with_newcomer();
    change(scene.pod(3), json!({ "spec": { "nodeName": null } }));
    scene.is_out_of_reach(3, 9999);
    assert!(scene.asked().is_none());
    scene.is_out_of_reach(2, 9999);
    assert!(replaces(&scene, 2));
}

#[test]
fn a_newcomer_on_a_node_that_nobody_reaches_is_replaced() {
    let mut scene = Scene::with_newcomer();
    scene.is_out_of_reach(3, 9999);
    assert!(
        scene.asked().is_none(),
        "its image may not be there: another one would not start either"
    );
    change(
        scene.pod(3),
        json!({ "metadata": { "deletionTimestamp": "2027-01-15T08:00:00Z" } }),
    );
    let intent = scene.asked().unwrap();
    assert_eq!(
        (intent.change, intent.is_replacement),
        (MembershipChange::Remove(Serial(3)), false),
        "nobody misses it"
    );
}

#[test]
fn a_stranger_that_never_started_goes_when_its_time_is_over() {
    let mut scene = Scene::converged(3);
    scene.has_stranger(0xabc, false);
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
        "its vote was counted"
    );
}

#[test]
fn a_stranger_that_has_started_stays_and_healing_goes_on_beside_it() {
    let mut scene = Scene::converged(3);
    scene.has_stranger(0xabc, true);
    scene.observed.now = UnixTime(NOW.0 + 9999);
    let plan = scene.plan();
    assert!(plan.disruption.is_none(), "{plan:?}");
    assert!(matches!(plan.waits[..], [EtcdWait::UnknownMembers(_)]));
    // A pod that is gone comes back.
    scene.observed.pods.remove(&pod_uid(2));
    scene.stops_answering(2);
    assert_eq!(scene.plan().create.len(), 1);
    // One whose data is gone is removed: of four votes three are left, and two are given.
    scene.observed.claims.remove(&claim_uid(2));
    assert_eq!(
        scene.asked().unwrap().change,
        MembershipChange::Remove(Serial(2))
    );
}

#[test]
fn a_strangers_vote_counts_and_is_never_taken_as_given() {
    let mut scene = Scene::with(4, json!({ "members": 3 }));
    scene.has_stranger(0xabc, true);
    scene.stops_answering(0);
    // Clients have left it already. Of five votes four are left, and three must agree: three of ours are there.
    change(
        scene.pod(0),
        json!({ "metadata": { "labels": { "evenkeel.dev/role": null } } }),
    );
    assert_eq!(
        scene.asked().unwrap().change,
        MembershipChange::Remove(Serial(0))
    );
    scene.stops_answering(1);
    // Two of ours are, and nobody knows of the stranger.
    assert!(scene.asked().is_none(), "{:?}", scene.plan());
}

#[test]
fn nobody_is_added_beside_a_stranger() {
    let mut scene = Scene::with(3, json!({ "members": 5 }));
    scene.has_stranger(0xabc, true);
    let plan = scene.plan();
    assert!(
        plan.disruption.is_none() && plan.waits.contains(&EtcdWait::UnsafeToAdd),
        "{plan:?}"
    );
}

#[test]
fn the_claim_of_a_former_member_is_kept_for_as_long_as_the_user_wants() {
    let mut scene = Scene::converged(3);
    scene.turn(|identity| identity.next_serial = Serial(4));
    scene.has_claim(3, true);
    let plan = scene.plan();
    assert!(plan.disruption.is_none(), "{plan:?}");
    assert_eq!(
        plan.patch,
        [EtcdPatch::RecordRemoval {
            claim: claim_uid(3),
            at: Some(NOW)
        }]
    );

    scene.is_marked_removed(3);
    let plan = scene.plan();
    assert!(
        plan.is_noop() && plan.requeue == Requeue::At(UnixTime(NOW.0 + 86_400)),
        "{plan:?}"
    );
    assert_eq!(scene.status().phrase, "Healthy");
    assert_eq!(scene.status().members, 3, "it is no member");

    scene.observed.now = UnixTime(NOW.0 + 86_400);
    let deleted = EtcdDisruption::DeleteClaim {
        claim: claim_uid(3),
        serial: Serial(3),
        why: DeleteReason::MemberRemoved,
    };
    assert_eq!(scene.plan().disruption, Some(deleted));
}

#[test]
fn the_claim_of_a_former_member_goes_at_once_if_the_user_wants_that_or_nobody_ever_wrote_to_it() {
    let mut scene = Scene::with(3, json!({ "storage": { "keepRemovedFor": "0" } }));
    scene.turn(|identity| identity.next_serial = Serial(4));
    scene.has_claim(3, true);
    assert!(matches!(
        scene.plan().disruption,
        Some(EtcdDisruption::DeleteClaim { .. })
    ));
    let mut scene = Scene::converged(3);
    scene.turn(|identity| identity.next_serial = Serial(4));
    scene.has_claim(3, false);
    assert!(matches!(
        scene.plan().disruption,
        Some(EtcdDisruption::DeleteClaim { .. })
    ));
}

#[test]
fn a_kept_claim_brings_nobody_back_when_the_quorum_is_lost() {
    let mut scene = Scene::converged(3);
    scene.turn(|identity| identity.next_serial = Serial(4));
    scene.has_claim(3, true);
    scene.is_marked_removed(3);
    scene.loses_its_quorum(&[0, 1]);
    let plan = scene.plan();
    assert!(plan.is_noop(), "{plan:?}");
    assert_eq!(scene.status().phrase, "No quorum: 1 of 3 answer");
}

#[test]
fn nothing_is_tidied_up_while_somebody_unknown_runs_somewhere() {
    let mut scene = Scene::converged(3);
    // As if somebody had given the third member other URLs and another name: it serves, and nobody knows it.
    if let evenkeel_runtime::Observed::Present(told) = &mut scene.state.membership {
        told.members.pop();
    }
    scene.has_stranger(0xabc, true);
    let plan = scene.plan();
    assert!(
        plan.disruption.is_none() && plan.patch.is_empty(),
        "{plan:?}"
    );
}

#[test]
fn an_identity_that_was_put_back_from_before_learns_of_those_who_came_since() {
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
fn a_mark_of_removal_on_a_members_claim_is_taken_off_and_one_from_elsewhere_says_nothing() {
    let mut scene = Scene::converged(3);
    scene.is_marked_removed(2);
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
fn a_member_that_came_back_is_not_removed_though_that_was_begun() {
    let mut scene = Scene::converged(3);
    scene.is_out_of_reach(2, 9999);
    let intent = scene.asked().unwrap();
    scene.turn(|identity| *identity = identity.with_intent(&intent));
    assert!(
        replaces(&scene, 2),
        "it is repeated while the member is away"
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
fn a_newcomer_in_a_pod_of_its_own_that_no_node_takes_is_not_replaced() {
    let mut scene = Scene::with(3, json!({ "members": 4, "storage": { "ephemeral": true } }));
    scene.turn(|identity| {
        identity.next_serial = Serial(4);
        identity.seed_storage = Some(crate::identity::SeedStorage::Pod(pod_uid(0)));
    });
    scene.has_pod(
        3,
        &StartMode::Join([Serial(0), Serial(1), Serial(2), Serial(3)].into()),
    );
    scene.is_listed(3, true, false);
    change(scene.pod(3), json!({ "spec": { "nodeName": null } }));
    scene.is_out_of_reach(3, 9999);
    assert!(scene.asked().is_none(), "{:?}", scene.plan());
}

#[test]
fn a_voter_whose_kubelet_is_dead_keeps_no_newcomer_waiting() {
    let mut scene = Scene::with_newcomer();
    scene.observed.pods.remove(&pod_uid(3));
    change(
        scene.pod(2),
        json!({ "metadata": { "deletionTimestamp": "2027-01-15T08:00:00Z" } }),
    );
    assert_eq!(
        scene.plan().create.len(),
        1,
        "it goes for ever, and answers: {:?}",
        scene.plan()
    );
}

/// What is done about an identity that was put back from before its epoch was sealed.
fn is_brought_up_to_date(scene: &Scene) -> bool {
    match scene.plan().disruption {
        Some(EtcdDisruption::UpdateIdentity {
            to,
            why: crate::plan::IdentityChange::Repair,
            ..
        }) => to.bootstrapped,
        Some(step) => panic!("{step:?}"),
        None => false,
    }
}

#[test]
fn an_identity_that_was_put_back_from_before_clients_were_let_in_costs_no_data() {
    let mut scene = Scene::converged(3);
    scene.turn(|identity| (identity.bootstrapped, identity.next_serial) = (false, Serial(3)));
    assert!(
        is_brought_up_to_date(&scene),
        "clients are routed to its pods: {:?}",
        scene.plan()
    );
    // Its first member was replaced long ago, all pods are gone, and nothing is known but what is written on volumes and told.
    scene.observed.claims.remove(&claim_uid(0));
    scene.observed.pods.clear();
    scene.loses_its_quorum(&[0, 1, 2]);
    let told = evenkeel_api::EtcdClusterStatus {
        cluster_id: "1f".to_owned(),
        ..Default::default()
    };
    scene.was_told(told);
    assert!(is_brought_up_to_date(&scene), "{:?}", scene.plan());
    scene.was_told(evenkeel_api::EtcdClusterStatus::default());
    scene.has_claim(0, true);
    scene.is_marked_removed(0);
    assert!(
        is_brought_up_to_date(&scene),
        "it has had a former member: {:?}",
        scene.plan()
    );
}

#[test]
fn an_identity_of_an_earlier_bootstrap_has_nothing_of_a_later_one_deleted() {
    let mut scene = Scene::converged(3);
    scene.turn(|identity| identity.epoch = Epoch(0));
    assert!(is_brought_up_to_date(&scene), "{:?}", scene.plan());
    scene.turn(|identity| identity.bootstrapped = false);
    assert!(is_brought_up_to_date(&scene), "{:?}", scene.plan());
}

#[test]
fn a_claim_that_is_refused_for_ever_does_not_keep_its_member_from_being_taken_back() {
    let mut scene = Scene::with_newcomer();
    scene.observed.pods.remove(&pod_uid(3));
    scene.observed.claims.remove(&claim_uid(3));
    let plan = scene.plan();
    assert!(
        plan.disruption.is_none() && plan.create.len() == 1,
        "{plan:?}"
    );
    scene.is_edited(json!({ "members": 3 }));
    assert_eq!(
        scene.asked().unwrap().change,
        MembershipChange::Remove(Serial(3))
    );
}

#[test]
fn a_pod_that_is_refused_for_ever_keeps_nobody_else_from_getting_a_vote() {
    let mut scene = Scene::with(4, json!({ "members": 5 }));
    scene.turn(|identity| identity.next_serial = Serial(5));
    scene.is_rebuilt_anew(4);
    scene.is_listed(4, true, true);
    scene.observed.pods.remove(&pod_uid(1));
    scene.stops_answering(1);
    assert_eq!(scene.plan().create.len(), 1, "{:?}", scene.plan());
    assert_eq!(
        scene.asked().unwrap().change,
        MembershipChange::Promote(Serial(4))
    );
}

#[test]
fn what_says_that_it_is_of_a_later_bootstrap_costs_a_sealed_cluster_nothing() {
    let mut scene = Scene::converged(3);
    scene.has_claim(3, true);
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
fn a_resource_that_is_created_anew_beside_an_older_identity_keeps_its_data() {
    let mut scene = Scene::converged(3);
    scene.turn(|identity| {
        (
            identity.bootstrapped,
            identity.next_serial,
            identity.resource_uid,
        ) = (false, Serial(1), Uid(9))
    });
    scene.observed.pods.clear();
    scene.loses_its_quorum(&[0, 1, 2]);
    assert!(is_brought_up_to_date(&scene), "{:?}", scene.plan());
}

#[test]
fn where_nothing_is_left_an_older_identity_begins_nothing() {
    let mut scene = Scene::converged(3);
    scene.turn(|identity| identity.bootstrapped = false);
    scene.observed.claims.clear();
    scene.observed.pods.clear();
    scene.loses_its_quorum(&[0, 1, 2]);
    scene.was_told(evenkeel_api::EtcdClusterStatus {
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
fn a_pod_that_has_ended_is_deleted_though_another_one_is_to_be_created() {
    let mut scene = Scene::converged(3);
    scene.observed.pods.remove(&pod_uid(1));
    scene.stops_answering(1);
    change(scene.pod(2), json!({ "status": { "phase": "Failed" } }));
    scene.stops_answering(2);
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
