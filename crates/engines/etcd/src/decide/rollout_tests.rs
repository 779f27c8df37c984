//! Rollouts, forced snapshots, resized volumes and moved members.

use evenkeel_api::labels;
use evenkeel_runtime::Observed;
use serde_json::json;

use crate::facts::StartMode;
use crate::identity::{MembershipChange, SeedStorage};
use crate::names::Serial;
use crate::plan::{DeleteReason, EtcdDisruption, EtcdPatch, EtcdWait};
use crate::testing::{NOW, Scene, change, claim_uid, id, pod_uid};

fn restart(serial: u16, transfer_to: Option<u16>, via_eviction: bool) -> Option<EtcdDisruption> {
    Some(EtcdDisruption::RestartMember {
        pod: pod_uid(serial),
        serial: Serial(serial),
        transfer_to: transfer_to.map(Serial),
        via_eviction,
    })
}

/// A cluster of healthy members on the previous version; the first member leads.
fn outdated(members: u16) -> Scene {
    let mut scene = Scene::converged(members);
    set_leader(&mut scene, 0);
    scene.edit_spec(json!({ "version": "3.7.3" }));
    scene
}

fn set_leader(scene: &mut Scene, leader: u16) {
    for (serial, health) in &mut scene.state.health {
        if let Observed::Present(health) = health {
            health.is_leader = *serial == Serial(leader);
        }
    }
    scene.state.leader = Some(id(leader));
}

#[test]
fn followers_are_restarted_first_and_the_leader_last_after_a_transfer() {
    let mut scene = outdated(3);
    assert_eq!(scene.plan().disruption, restart(1, None, true));
    scene.rebuild_pod(1);
    assert_eq!(scene.plan().disruption, restart(2, None, true));
    scene.rebuild_pod(2);
    assert_eq!(scene.plan().disruption, restart(0, Some(1), true));
    scene.rebuild_pod(0);
    assert!(
        scene.plan().disruption.is_none() && scene.plan().waits.is_empty(),
        "{:?}",
        scene.plan()
    );
}

#[test]
fn no_member_is_restarted_before_all_others_are_ready_and_routed() {
    let unready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } });
    let unrouted = json!({ "metadata": { "labels": { labels::ROLE: null } } });
    for how in [unready, unrouted] {
        let mut scene = outdated(3);
        scene.rebuild_pod(2);
        change(scene.pod(2), how);
        let plan = scene.plan();
        assert!(
            plan.disruption.is_none() && plan.waits.contains(&EtcdWait::UnhealthyMember(Serial(2))),
            "{plan:?}"
        );
    }
    let mut scene = outdated(3);
    scene.stop_answering(2);
    assert!(scene.plan().disruption.is_none());
}

#[test]
fn one_or_two_members_are_restarted_by_deletion_when_all_are_healthy() {
    assert_eq!(outdated(1).plan().disruption, restart(0, None, false));
    let mut scene = outdated(2);
    assert_eq!(scene.plan().disruption, restart(1, None, false));
    scene.stop_answering(0);
    assert!(scene.plan().disruption.is_none(), "{:?}", scene.plan());
}

#[test]
fn an_unknown_voter_does_not_count_as_healthy_for_a_restart() {
    let mut scene = outdated(3);
    scene.add_unknown_member(99, true);
    let plan = scene.plan();
    assert!(
        plan.disruption.is_none() && plan.waits.contains(&EtcdWait::TooFewVoters),
        "{plan:?}"
    );
}

#[test]
fn an_unscheduled_learner_is_recreated_from_the_current_template() {
    let mut scene = Scene::with_newcomer();
    change(scene.pod(3), json!({ "spec": { "nodeName": null } }));
    scene.edit_spec(json!({ "version": "3.7.3" }));
    let recreate = EtcdDisruption::DeletePod {
        pod: pod_uid(3),
        serial: Serial(3),
        why: DeleteReason::Outdated,
    };
    assert_eq!(scene.plan().disruption, Some(recreate));
    scene.observed.pods.remove(&pod_uid(3));
    let plan = scene.plan();
    assert_eq!(
        (plan.create.len(), plan.disruption),
        (1, None),
        "the pod comes first"
    );
}

#[test]
fn a_member_that_does_not_start_stops_the_rollout() {
    let mut scene = outdated(3);
    scene.rebuild_pod(1);
    scene.lose_image(1, 100_000);
    let plan = scene.plan();
    assert!(
        plan.disruption.is_none(),
        "a bad spec replaces no member: {plan:?}"
    );
    assert!(
        plan.waits.contains(&EtcdWait::UnhealthyMember(Serial(1))),
        "{plan:?}"
    );
    // If the template works elsewhere, the problem is in this member.
    let mut scene = outdated(3);
    scene.rebuild_pod(1);
    scene.rebuild_pod(2);
    scene.lose_image(1, 100_000);
    assert!(
        scene
            .asked()
            .is_some_and(|intent| intent.change == MembershipChange::Remove(Serial(1)))
    );
}

#[test]
fn a_reverted_edit_recreates_the_failed_pod_with_or_without_a_quorum() {
    for members in [1, 2, 3, 5] {
        let mut scene = outdated(members);
        let first = if members == 1 { 0 } else { 1 };
        scene.rebuild_pod(first);
        scene.lose_image(first, 10);
        if members <= 2 {
            scene.state.membership = Observed::Unknown;
        }
        scene.edit_spec(json!({ "version": "3.6.16" }));
        let recreate = EtcdDisruption::DeletePod {
            pod: pod_uid(first),
            serial: Serial(first),
            why: DeleteReason::Outdated,
        };
        assert_eq!(scene.plan().disruption, Some(recreate), "{members}");
        scene.observed.pods.remove(&pod_uid(first));
        assert_eq!(scene.plan().create.len(), 1, "{members}");
    }
}

#[test]
fn an_annotation_requests_a_restart_and_its_removal_does_not() {
    let mut scene = Scene::converged(3);
    set_leader(&mut scene, 0);
    scene.observed.desired.restart = Some("on monday".to_owned());
    assert_eq!(scene.plan().disruption, restart(1, None, true));
    for serial in [0, 1, 2] {
        scene.rebuild_pod(serial);
    }
    assert!(scene.plan().disruption.is_none());
    scene.observed.desired.restart = None;
    assert!(scene.plan().disruption.is_none());
}

#[test]
fn the_version_of_a_member_is_recorded_once_it_answers() {
    let mut scene = outdated(3);
    scene.add_pod(1, &StartMode::ExistingData);
    scene.state(1);
    let records_version = |scene: &Scene| {
        let version = scene.observed.desired.version;
        scene.plan().patch.contains(&EtcdPatch::RecordVersion {
            claim: claim_uid(1),
            version,
        })
    };
    assert!(records_version(&scene));
    scene.stop_answering(1);
    assert!(
        !records_version(&scene),
        "a version that never started has not rewritten the data"
    );
}

#[test]
fn another_number_of_members_makes_no_member_outdated() {
    let mut scene = Scene::converged(3);
    scene.edit_spec(
        json!({ "members": 5, "heal": { "replaceAfter": "9m" }, "storage": { "onDelete": "Delete" } }),
    );
    assert!(
        scene
            .asked()
            .is_some_and(|intent| intent.change == MembershipChange::Add(Serial(3)))
    );
}

#[test]
fn ephemeral_members_are_replaced_one_by_one_by_new_members() {
    let mut scene = Scene::with(3, json!({ "members": 3, "storage": { "ephemeral": true } }));
    scene.turn(|identity| identity.seed_storage = Some(SeedStorage::Pod(pod_uid(0))));
    set_leader(&mut scene, 0);
    scene.edit_spec(json!({ "version": "3.7.3" }));
    let adds = scene
        .asked()
        .is_some_and(|intent| intent.change == MembershipChange::Add(Serial(3)));
    assert!(adds, "{:?}", scene.plan());
    scene.turn(|identity| identity.next_serial = Serial(4));
    scene.add_current_voter(3);
    let plan = scene.plan();
    assert_eq!(
        plan.patch,
        [EtcdPatch::DetachClients { pod: pod_uid(2) }],
        "{plan:?}"
    );
}

#[test]
fn a_cluster_of_three_with_two_voters_is_not_restarted() {
    let mut scene = outdated(2);
    scene.observed.desired.members = 3;
    // The third member is a learner without a node.
    scene.turn(|identity| identity.next_serial = Serial(3));
    scene.add_claim(2, false);
    scene.add_pod(
        2,
        &StartMode::Join([Serial(0), Serial(1), Serial(2)].into()),
    );
    scene.list_member(2, true, false);
    change(scene.pod(2), json!({ "spec": { "nodeName": null } }));
    let plan = scene.plan();
    assert!(
        plan.disruption.is_none() && plan.waits.contains(&EtcdWait::TooFewVoters),
        "{plan:?}"
    );
}

#[test]
fn pods_without_a_template_hash_get_one_and_are_not_restarted() {
    let mut scene = Scene::converged(3);
    for serial in 0..3 {
        change(
            scene.pod(serial),
            json!({ "metadata": { "annotations": { labels::POD_TEMPLATE_HASH: null } } }),
        );
    }
    let plan = scene.plan();
    let patches = [0, 1, 2].map(|serial| EtcdPatch::RecordTemplateHash {
        pod: pod_uid(serial),
        template_hash: scene.observed.desired.inputs,
        version: scene.observed.desired.version,
    });
    assert_eq!((plan.disruption, plan.patch), (None, patches.to_vec()));
}

#[test]
fn a_crashing_member_is_recreated_when_the_spec_changes() {
    let mut scene = outdated(3);
    scene.crashes(2, 30);
    let recreate = EtcdDisruption::DeletePod {
        pod: pod_uid(2),
        serial: Serial(2),
        why: DeleteReason::Outdated,
    };
    assert_eq!(scene.plan().disruption, Some(recreate));
}

#[test]
fn an_outdated_pod_is_recreated_after_a_minute_without_an_answer() {
    for (since, is_recreated) in [(59, false), (60, true)] {
        let mut scene = outdated(3);
        scene.make_unreachable(2, since);
        let disruption = scene.plan().disruption;
        assert_eq!(
            matches!(
                disruption,
                Some(EtcdDisruption::DeletePod {
                    serial: Serial(2),
                    ..
                })
            ),
            is_recreated,
            "{since} s: {disruption:?}"
        );
    }
}

#[test]
fn an_image_with_another_version_stops_the_rollout_at_its_first_member() {
    let mut scene = outdated(3);
    scene.rebuild_pod(1);
    let reported = evenkeel_api::Version::new(3, 6, 16);
    if let Some(Observed::Present(health)) = scene.state.health.get_mut(&Serial(1)) {
        health.version = Some(reported);
    }
    let plan = scene.plan();
    assert!(
        plan.disruption.is_none()
            && plan
                .waits
                .contains(&EtcdWait::VersionMismatch(Serial(1), reported)),
        "{plan:?}"
    );
    assert!(
        plan.patch.contains(&EtcdPatch::RecordVersion {
            claim: claim_uid(1),
            version: reported
        }) || {
            scene
                .observed
                .claims
                .values()
                .all(|claim| crate::observe::version(&claim.metadata) == Some(reported))
        }
    );
}

#[test]
fn a_snapshot_is_forced_when_all_members_are_healthy() {
    let next = Some(evenkeel_api::Version::new(3, 7, 3));
    let mut scene = Scene::converged(3);
    scene.observed.desired.next = next;
    let plan = scene.plan();
    let Some(EtcdDisruption::ForceSnapshot { from, to }) = &plan.disruption else {
        panic!("{plan:?}")
    };
    assert_eq!(
        (from.snapshotted_version, to.snapshotted_version),
        (None, Some(scene.observed.desired.version))
    );
    scene.stop_answering(2);
    let plan = scene.plan();
    assert!(
        plan.disruption.is_none() && plan.waits.contains(&EtcdWait::SnapshotBlocked(Serial(2))),
        "{plan:?}"
    );
    let mut scene = Scene::converged(3);
    scene.observed.desired.next = next;
    if let Some(Observed::Present(health)) = scene.state.health.get_mut(&Serial(1)) {
        health.version = Some(evenkeel_api::Version::new(3, 5, 35));
    }
    assert!(
        scene
            .plan()
            .waits
            .contains(&EtcdWait::SnapshotBlocked(Serial(1))),
        "it still writes entries of the earlier minor"
    );
}

#[test]
fn a_forced_snapshot_does_not_wait_for_an_unscheduled_learner() {
    let mut scene = Scene::with_newcomer();
    scene.observed.desired.next = Some(evenkeel_api::Version::new(3, 7, 3));
    assert!(
        scene
            .plan()
            .waits
            .contains(&EtcdWait::SnapshotBlocked(Serial(3))),
        "{:?}",
        scene.plan()
    );
    change(scene.pod(3), json!({ "spec": { "nodeName": null } }));
    assert!(
        matches!(
            scene.plan().disruption,
            Some(EtcdDisruption::ForceSnapshot { .. })
        ),
        "{:?}",
        scene.plan()
    );
}

#[test]
fn smaller_volumes_are_resized_without_a_restart() {
    let mut scene = Scene::with(3, json!({ "members": 3, "etcd": { "quota": "1Gi" } }));
    scene.edit_spec(json!({ "storage": { "size": "8Gi" }, "etcd": { "quota": "1Gi" } }));
    let plan = scene.plan();
    let resized = [0, 1, 2].map(|serial| EtcdPatch::ResizeVolume {
        claim: claim_uid(serial),
        to: 8 << 30,
    });
    assert_eq!((plan.disruption, &plan.patch[..3]), (None, &resized[..]));
}

#[test]
fn full_volumes_are_resized_without_a_quorum() {
    let mut scene = Scene::converged(1);
    scene.edit_spec(json!({ "storage": { "size": "8Gi" } }));
    scene.crashes(0, 60);
    scene.lose_quorum(&[0]);
    let resized = EtcdPatch::ResizeVolume {
        claim: claim_uid(0),
        to: 8 << 30,
    };
    assert!(scene.plan().patch.contains(&resized), "{:?}", scene.plan());
    let mut lost = Scene::converged(3);
    lost.edit_spec(json!({ "storage": { "size": "8Gi" } }));
    lost.lose_quorum(&[0, 1]);
    change(
        lost.claim(1),
        json!({ "spec": { "volumeName": "another" } }),
    );
    let patched = |claim| {
        let plan = lost.plan();
        let mut patches = plan.patch.iter();
        patches.any(
            |patch| matches!(patch, EtcdPatch::ResizeVolume { claim: uid, .. } if *uid == claim),
        )
    };
    assert!(
        patched(claim_uid(0)) && !patched(claim_uid(1)),
        "only intact data"
    );
}

#[test]
fn no_member_is_restarted_before_all_volumes_are_resized() {
    let mut scene = Scene::converged(3);
    scene.edit_spec(json!({ "storage": { "size": "8Gi" } }));
    let plan = scene.plan();
    assert!(
        plan.disruption.is_none() && plan.waits.contains(&EtcdWait::VolumeResize(Serial(0))),
        "{plan:?}"
    );
    for serial in 0..3 {
        // Kubernetes may have rejected the resize of the last volume.
        assert!(
            scene.plan().disruption.is_none(),
            "{serial}: {:?}",
            scene.plan()
        );
        resize(&mut scene, serial, "8Gi", "8Gi");
    }
    assert!(
        matches!(
            scene.plan().disruption,
            Some(EtcdDisruption::RestartMember { .. })
        ),
        "{:?}",
        scene.plan()
    );
}

#[test]
fn members_move_to_another_class_by_new_members() {
    let mut scene = Scene::converged(3);
    set_leader(&mut scene, 0);
    for serial in 0..3 {
        change(
            scene.claim(serial),
            json!({ "spec": { "storageClassName": "slow" } }),
        );
    }
    assert!(
        scene.plan().disruption.is_none(),
        "a spec without a class moves no member"
    );
    scene.edit_spec(json!({ "storage": { "class": "fast" } }));
    let adds = scene
        .asked()
        .is_some_and(|intent| intent.change == MembershipChange::Add(Serial(3)));
    assert!(adds, "{:?}", scene.plan());
    scene.turn(|identity| identity.next_serial = Serial(4));
    scene.add_current_voter(3);
    change(
        scene.claim(3),
        json!({ "spec": { "storageClassName": "fast" } }),
    );
    let plan = scene.plan();
    assert_eq!(
        plan.patch,
        [EtcdPatch::DetachClients { pod: pod_uid(2) }],
        "{plan:?}"
    );
}

#[test]
fn an_unschedulable_member_with_a_misplaced_volume_is_replaced_in_time() {
    let mut scene = Scene::converged(3);
    set_leader(&mut scene, 0);
    scene.edit_spec(json!({ "scheduling": { "nodeSelector": { "zone": "b" } } }));
    scene.rebuild_pod(2);
    scene.make_unreachable(2, 400);
    let since = jiff::Timestamp::from_second(NOW.0 - 400)
        .unwrap()
        .to_string();
    let conditions = json!([
        { "type": labels::GATE_JOINED, "status": "True" },
        { "type": "Ready", "status": "False", "lastTransitionTime": since },
        { "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": since },
    ]);
    change(
        scene.pod(2),
        json!({ "spec": { "nodeName": null }, "status": { "conditions": conditions } }),
    );
    assert!(
        scene.asked().is_none(),
        "its volume is not known to be misplaced"
    );
    scene.observed.misplaced.insert(crate::testing::name(2));
    assert!(
        scene
            .asked()
            .is_some_and(|intent| intent.change == MembershipChange::Remove(Serial(2))),
        "{:?}",
        scene.plan()
    );
}

#[test]
fn a_learner_that_waits_for_a_volume_of_the_wrong_class_is_removed() {
    let mut scene = Scene::with_newcomer();
    change(
        scene.claim(3),
        json!({ "spec": { "storageClassName": "fsat", "volumeName": null } }),
    );
    change(scene.pod(3), json!({ "spec": { "nodeName": null } }));
    let is_removed = |scene: &Scene| {
        scene
            .asked()
            .is_some_and(|intent| intent.change == MembershipChange::Remove(Serial(3)))
    };
    scene.edit_spec(json!({ "members": 4, "storage": { "class": "fsat" } }));
    assert!(
        !is_removed(&scene),
        "the class is the desired one: {:?}",
        scene.plan()
    );
    scene.edit_spec(json!({ "members": 4, "storage": { "class": "fast" } }));
    assert!(is_removed(&scene), "{:?}", scene.plan());
}

#[test]
fn a_running_member_stays_when_its_node_loses_the_label() {
    let mut scene = Scene::converged(3);
    set_leader(&mut scene, 0);
    for serial in 0..3 {
        scene
            .observed
            .misplaced
            .insert(crate::testing::name(serial));
    }
    assert!(scene.plan().disruption.is_none(), "{:?}", scene.plan());
    // An edited selector moves it: a new member joins first.
    scene.edit_spec(json!({ "scheduling": { "nodeSelector": { "zone": "b" } } }));
    assert!(
        scene
            .asked()
            .is_some_and(|intent| intent.change == MembershipChange::Add(Serial(3))),
        "{:?}",
        scene.plan()
    );
}

fn resize(scene: &mut Scene, serial: u16, requested: &str, capacity: &str) {
    let sizes = json!({ "spec": { "resources": { "requests": { "storage": requested } } },
        "status": { "capacity": { "storage": capacity } } });
    change(scene.claim(serial), sizes);
}

#[test]
fn a_learner_without_a_volume_holds_up_no_restart_for_a_resize() {
    let mut scene = Scene::with_newcomer();
    change(
        scene.claim(3),
        json!({ "spec": { "volumeName": null }, "status": { "phase": "Pending" } }),
    );
    scene.edit_spec(json!({ "members": 4, "storage": { "size": "8Gi" } }));
    scene.add_pod(
        3,
        &StartMode::Join([Serial(0), Serial(1), Serial(2), Serial(3)].into()),
    );
    change(scene.pod(3), json!({ "spec": { "nodeName": null } }));
    (0..3).for_each(|serial| resize(&mut scene, serial, "8Gi", "8Gi"));
    let plan = scene.plan();
    assert!(
        matches!(plan.disruption, Some(EtcdDisruption::RestartMember { .. })),
        "{plan:?}"
    );
    assert!(
        !plan
            .patch
            .iter()
            .any(|patch| matches!(patch, EtcdPatch::ResizeVolume { .. })),
        "{plan:?}"
    );
}

#[test]
fn a_reverted_resize_does_not_hold_up_the_rollout() {
    let mut scene = Scene::with(3, json!({ "members": 3, "storage": { "size": "4Gi" } }));
    (0..3).for_each(|serial| resize(&mut scene, serial, "8Gi", "4Gi"));
    scene.edit_spec(json!({ "version": "3.7.3" }));
    assert!(
        matches!(
            scene.plan().disruption,
            Some(EtcdDisruption::RestartMember { .. })
        ),
        "{:?}",
        scene.plan()
    );
    scene.edit_spec(json!({ "storage": { "size": "8Gi" } }));
    assert!(
        scene
            .plan()
            .waits
            .contains(&EtcdWait::VolumeResize(Serial(0))),
        "{:?}",
        scene.plan()
    );
}

#[test]
fn no_healthy_member_is_removed_while_its_successor_is_down() {
    let mut scene = Scene::converged(3);
    set_leader(&mut scene, 0);
    (0..3).for_each(|serial| {
        change(
            scene.claim(serial),
            json!({ "spec": { "storageClassName": "slow" } }),
        )
    });
    scene.edit_spec(json!({ "storage": { "class": "fast" } }));
    scene.turn(|identity| identity.next_serial = Serial(4));
    scene.add_current_voter(3);
    scene.make_unreachable(3, 10);
    let plan = scene.plan();
    assert!(
        plan.disruption.is_none() && plan.patch.is_empty(),
        "{plan:?}"
    );
    assert_eq!(
        plan.waits
            .iter()
            .filter(|wait| **wait == EtcdWait::UnhealthyMember(Serial(3)))
            .count(),
        1
    );
    change(
        scene.pod(2),
        json!({ "metadata": { "labels": { labels::ROLE: null } } }),
    );
    assert_eq!(
        scene.plan().patch,
        [EtcdPatch::AttachClients { pod: pod_uid(2) }],
        "clients are served meanwhile"
    );
    scene.make_unreachable(3, 400);
    let intent = scene.asked().unwrap();
    assert_eq!(
        (intent.change, intent.is_replacement),
        (MembershipChange::Remove(Serial(3)), true)
    );
    // Of the members to be replaced, one that is down is removed first.
    scene.state(3);
    scene.add_pod(3, &StartMode::ExistingData);
    scene.make_unreachable(1, 10);
    let plan = scene.plan();
    assert!(
        plan.patch
            .contains(&EtcdPatch::DetachClients { pod: pod_uid(1) }),
        "{plan:?}"
    );
}

#[test]
fn an_idle_pod_whose_member_answers_is_not_deleted() {
    let mut scene = outdated(3);
    scene.lose_image(1, 90);
    let recreate = EtcdDisruption::DeletePod {
        pod: pod_uid(1),
        serial: Serial(1),
        why: DeleteReason::Outdated,
    };
    assert_eq!(scene.plan().disruption, Some(recreate));
    scene.state(1);
    assert!(
        !matches!(
            scene.plan().disruption,
            Some(EtcdDisruption::DeletePod { .. })
        ),
        "{:?}",
        scene.plan()
    );
}

#[test]
fn unresponsive_pods_are_recreated_one_at_a_time() {
    let mut scene = outdated(5);
    scene.make_unreachable(1, 90);
    scene.make_unreachable(2, 90);
    assert!(matches!(
        scene.plan().disruption,
        Some(EtcdDisruption::DeletePod {
            serial: Serial(1),
            ..
        })
    ));
    change(
        scene.pod(1),
        json!({ "metadata": { "deletionTimestamp": "2027-01-15T08:00:00Z" } }),
    );
    assert!(scene.plan().disruption.is_none(), "{:?}", scene.plan());
    // The leader does not report whether it reaches the member; the healthy voters have a quorum
    // without it.
    let mut scene = outdated(3);
    scene.make_unreachable(1, 90);
    scene.state.unreachable_since.clear();
    assert!(matches!(
        scene.plan().disruption,
        Some(EtcdDisruption::DeletePod {
            serial: Serial(1),
            ..
        })
    ));
    scene.make_unreachable(2, 90);
    scene.state.unreachable_since.clear();
    assert!(
        scene.plan().disruption.is_none(),
        "they may be part of the leader's quorum: {:?}",
        scene.plan()
    );
}

#[test]
fn a_class_that_an_admission_webhook_sets_moves_no_member() {
    let mut scene = Scene::with(3, json!({ "members": 3, "storage": { "class": "fast" } }));
    (0..3).for_each(|serial| {
        change(
            scene.claim(serial),
            json!({ "spec": { "storageClassName": "gold" } }),
        )
    });
    assert!(
        scene.plan().is_noop(),
        "the claims were created with that class: {:?}",
        scene.plan()
    );
    scene.edit_spec(json!({ "storage": { "class": "gold" } }));
    assert!(
        scene.plan().disruption.is_none(),
        "the claims have that class: {:?}",
        scene.plan()
    );
    scene.edit_spec(json!({ "storage": { "class": "slow" } }));
    assert!(
        scene
            .asked()
            .is_some_and(|intent| intent.change == MembershipChange::Add(Serial(3)))
    );
}
