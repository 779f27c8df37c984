//! Members that are out of date.

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

/// So many members, all well, on the former version; the first one leads.
fn outdated(members: u16) -> Scene {
    let mut scene = Scene::converged(members);
    leads(&mut scene, 0);
    scene.is_edited(json!({ "version": "3.7.3" }));
    scene
}

fn leads(scene: &mut Scene, leader: u16) {
    for (serial, health) in &mut scene.state.health {
        if let Observed::Present(health) = health {
            health.is_leader = *serial == Serial(leader);
        }
    }
    scene.state.leader = Some(id(leader));
}

#[test]
fn followers_are_restarted_one_by_one_and_whoever_leads_comes_last_and_hands_over() {
    let mut scene = outdated(3);
    assert_eq!(scene.plan().disruption, restart(1, None, true));
    scene.is_rebuilt(1);
    assert_eq!(scene.plan().disruption, restart(2, None, true));
    scene.is_rebuilt(2);
    assert_eq!(scene.plan().disruption, restart(0, Some(1), true));
    scene.is_rebuilt(0);
    assert!(
        scene.plan().disruption.is_none() && scene.plan().waits.is_empty(),
        "{:?}",
        scene.plan()
    );
}

#[test]
fn nobody_is_restarted_before_everybody_else_is_well_in_everybodys_eyes() {
    let unready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } });
    let unrouted = json!({ "metadata": { "labels": { labels::ROLE: null } } });
    for how in [unready, unrouted] {
        let mut scene = outdated(3);
        scene.is_rebuilt(2);
        change(scene.pod(2), how);
        let plan = scene.plan();
        assert!(
            plan.disruption.is_none() && plan.waits.contains(&EtcdWait::UnhealthyMember(Serial(2))),
            "{plan:?}"
        );
    }
    let mut scene = outdated(3);
    scene.stops_answering(2);
    assert!(scene.plan().disruption.is_none());
}

#[test]
fn one_or_two_members_are_restarted_without_being_spared_and_only_when_all_are_well() {
    assert_eq!(outdated(1).plan().disruption, restart(0, None, false));
    let mut scene = outdated(2);
    assert_eq!(scene.plan().disruption, restart(1, None, false));
    scene.stops_answering(0);
    assert!(scene.plan().disruption.is_none(), "{:?}", scene.plan());
}

#[test]
fn a_strangers_vote_is_not_counted_on() {
    let mut scene = outdated(3);
    scene.has_stranger(99, true);
    let plan = scene.plan();
    assert!(
        plan.disruption.is_none() && plan.waits.contains(&EtcdWait::TooFewVoters),
        "{plan:?}"
    );
}

#[test]
fn a_newcomer_that_no_node_takes_holds_up_no_restart_and_is_itself_built_anew() {
    let mut scene = Scene::with_newcomer();
    change(scene.pod(3), json!({ "spec": { "nodeName": null } }));
    scene.is_edited(json!({ "version": "3.7.3" }));
    let anew = EtcdDisruption::DeletePod {
        pod: pod_uid(3),
        serial: Serial(3),
        why: DeleteReason::Outdated,
    };
    assert_eq!(scene.plan().disruption, Some(anew));
    scene.observed.pods.remove(&pod_uid(3));
    let plan = scene.plan();
    assert_eq!(
        (plan.create.len(), plan.disruption),
        (1, None),
        "its pod first"
    );
}

#[test]
fn one_that_does_not_start_ends_it_and_is_waited_for_however_long_that_takes() {
    let mut scene = outdated(3);
    scene.is_rebuilt(1);
    scene.lacks_its_image(1, 100_000);
    let plan = scene.plan();
    assert!(
        plan.disruption.is_none(),
        "nobody is replaced for what the spec says: {plan:?}"
    );
    assert!(
        plan.waits.contains(&EtcdWait::UnhealthyMember(Serial(1))),
        "{plan:?}"
    );
    // Where others run on the very same it is this one's own trouble.
    let mut scene = outdated(3);
    scene.is_rebuilt(1);
    scene.is_rebuilt(2);
    scene.lacks_its_image(1, 100_000);
    assert!(
        scene
            .asked()
            .is_some_and(|intent| intent.change == MembershipChange::Remove(Serial(1)))
    );
}

#[test]
fn what_is_taken_back_is_taken_back_at_once_with_or_without_a_quorum() {
    for members in [1, 2, 3, 5] {
        let mut scene = outdated(members);
        let first = if members == 1 { 0 } else { 1 };
        scene.is_rebuilt(first);
        scene.lacks_its_image(first, 10);
        if members <= 2 {
            scene.state.membership = Observed::Unknown;
        }
        scene.is_edited(json!({ "version": "3.6.16" }));
        let anew = EtcdDisruption::DeletePod {
            pod: pod_uid(first),
            serial: Serial(first),
            why: DeleteReason::Outdated,
        };
        assert_eq!(scene.plan().disruption, Some(anew), "{members}");
        scene.observed.pods.remove(&pod_uid(first));
        assert_eq!(scene.plan().create.len(), 1, "{members}");
    }
}

#[test]
fn a_restart_is_asked_for_by_an_annotation_and_taking_that_away_asks_for_nothing() {
    let mut scene = Scene::converged(3);
    leads(&mut scene, 0);
    scene.observed.desired.restart = Some("on monday".to_owned());
    assert_eq!(scene.plan().disruption, restart(1, None, true));
    for serial in [0, 1, 2] {
        scene.is_rebuilt(serial);
    }
    assert!(scene.plan().disruption.is_none());
    scene.observed.desired.restart = None;
    assert!(scene.plan().disruption.is_none());
}

#[test]
fn the_version_that_a_member_runs_is_written_on_its_volume_once_it_answers() {
    let mut scene = outdated(3);
    scene.has_pod(1, &StartMode::ExistingData);
    scene.state(1);
    let marks = |scene: &Scene| {
        let version = scene.observed.desired.version;
        scene.plan().patch.contains(&EtcdPatch::RecordVersion {
            claim: claim_uid(1),
            version,
        })
    };
    assert!(marks(&scene));
    scene.stops_answering(1);
    assert!(
        !marks(&scene),
        "one that never came up has rewritten nothing"
    );
}

#[test]
fn how_many_members_are_wanted_makes_nobody_out_of_date() {
    let mut scene = Scene::converged(3);
    scene.is_edited(
        json!({ "members": 5, "heal": { "replaceAfter": "9m" }, "storage": { "onDelete": "Delete" } }),
    );
    assert!(
        scene
            .asked()
            .is_some_and(|intent| intent.change == MembershipChange::Add(Serial(3)))
    );
}

#[test]
fn data_that_is_in_pods_stays_by_a_member_more_that_joins_before_one_goes() {
    let mut scene = Scene::with(3, json!({ "members": 3, "storage": { "ephemeral": true } }));
    scene.turn(|identity| identity.seed_storage = Some(SeedStorage::Pod(pod_uid(0))));
    leads(&mut scene, 0);
    scene.is_edited(json!({ "version": "3.7.3" }));
    let adds = scene
        .asked()
        .is_some_and(|intent| intent.change == MembershipChange::Add(Serial(3)));
    assert!(adds, "{:?}", scene.plan());
    scene.turn(|identity| identity.next_serial = Serial(4));
    scene.is_rebuilt_anew(3);
    let goes = scene.plan();
    assert_eq!(
        goes.patch,
        [EtcdPatch::DetachClients { pod: pod_uid(2) }],
        "{goes:?}"
    );
}

#[test]
fn a_cluster_of_three_that_has_two_left_is_not_restarted_into_the_loss_of_its_quorum() {
    let mut scene = outdated(2);
    scene.observed.desired.members = 3;
    // Its third is on its way, and no node takes it.
    scene.turn(|identity| identity.next_serial = Serial(3));
    scene.has_claim(2, false);
    scene.has_pod(
        2,
        &StartMode::Join([Serial(0), Serial(1), Serial(2)].into()),
    );
    scene.is_listed(2, true, false);
    change(scene.pod(2), json!({ "spec": { "nodeName": null } }));
    let plan = scene.plan();
    assert!(
        plan.disruption.is_none() && plan.waits.contains(&EtcdWait::TooFewVoters),
        "{plan:?}"
    );
}

#[test]
fn pods_that_do_not_say_from_what_they_were_built_are_not_restarted_but_marked() {
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
fn a_lone_member_that_crashes_is_built_anew_when_the_spec_is_mended_though_others_run_on_the_former()
 {
    let mut scene = outdated(3);
    scene.crashes(2, 30);
    let anew = EtcdDisruption::DeletePod {
        pod: pod_uid(2),
        serial: Serial(2),
        why: DeleteReason::Outdated,
    };
    assert_eq!(scene.plan().disruption, Some(anew));
}

#[test]
fn one_that_runs_and_says_nothing_for_a_minute_is_built_anew_too() {
    for (since, anew) in [(59, false), (60, true)] {
        let mut scene = outdated(3);
        scene.is_out_of_reach(2, since);
        let step = scene.plan().disruption;
        assert_eq!(
            matches!(
                step,
                Some(EtcdDisruption::DeletePod {
                    serial: Serial(2),
                    ..
                })
            ),
            anew,
            "{since} s: {step:?}"
        );
    }
}

#[test]
fn an_image_with_another_etcd_in_it_than_the_spec_says_stops_the_roll_at_its_first_member() {
    let mut scene = outdated(3);
    scene.is_rebuilt(1);
    let says = evenkeel_api::Version::new(3, 6, 16);
    if let Some(Observed::Present(health)) = scene.state.health.get_mut(&Serial(1)) {
        health.version = Some(says);
    }
    let plan = scene.plan();
    assert!(
        plan.disruption.is_none()
            && plan
                .waits
                .contains(&EtcdWait::VersionMismatch(Serial(1), says)),
        "{plan:?}"
    );
    assert!(
        plan.patch.contains(&EtcdPatch::RecordVersion {
            claim: claim_uid(1),
            version: says
        }) || {
            scene
                .observed
                .claims
                .values()
                .all(|claim| crate::observe::version(&claim.metadata) == Some(says))
        }
    );
}

#[test]
fn logs_are_renewed_when_all_are_well_before_a_version_that_reads_no_old_ones() {
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
    scene.stops_answering(2);
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
        "it still writes what is not read"
    );
}

#[test]
fn a_renewal_waits_for_a_newcomer_only_if_some_node_takes_it() {
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
fn volumes_that_are_smaller_than_wanted_grow_and_nobody_is_restarted() {
    let mut scene = Scene::with(3, json!({ "members": 3, "etcd": { "quota": "1Gi" } }));
    scene.is_edited(json!({ "storage": { "size": "8Gi" }, "etcd": { "quota": "1Gi" } }));
    let plan = scene.plan();
    let grown = [0, 1, 2].map(|serial| EtcdPatch::ResizeVolume {
        claim: claim_uid(serial),
        to: 8 << 30,
    });
    assert_eq!((plan.disruption, &plan.patch[..3]), (None, &grown[..]));
}

#[test]
fn nobody_is_restarted_for_a_larger_quota_before_all_volumes_have_grown() {
    let mut scene = Scene::converged(3);
    scene.is_edited(json!({ "storage": { "size": "8Gi" } }));
    let plan = scene.plan();
    assert!(
        plan.disruption.is_none() && plan.waits.contains(&EtcdWait::VolumeResize(Serial(0))),
        "{plan:?}"
    );
    for serial in 0..3 {
        // That was refused for the last, say.
        assert!(
            scene.plan().disruption.is_none(),
            "{serial}: {:?}",
            scene.plan()
        );
        larger(&mut scene, serial, "8Gi", "8Gi");
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
fn to_another_class_members_move_by_one_more_that_joins_before_one_goes() {
    let mut scene = Scene::converged(3);
    leads(&mut scene, 0);
    for serial in 0..3 {
        change(
            scene.claim(serial),
            json!({ "spec": { "storageClassName": "slow" } }),
        );
    }
    assert!(
        scene.plan().disruption.is_none(),
        "a spec that names no class leaves them where they are"
    );
    scene.is_edited(json!({ "storage": { "class": "fast" } }));
    let adds = scene
        .asked()
        .is_some_and(|intent| intent.change == MembershipChange::Add(Serial(3)));
    assert!(adds, "{:?}", scene.plan());
    scene.turn(|identity| identity.next_serial = Serial(4));
    scene.is_rebuilt_anew(3);
    change(
        scene.claim(3),
        json!({ "spec": { "storageClassName": "fast" } }),
    );
    let goes = scene.plan();
    assert_eq!(
        goes.patch,
        [EtcdPatch::DetachClients { pod: pod_uid(2) }],
        "{goes:?}"
    );
}

#[test]
fn a_member_that_is_down_where_it_is_not_to_be_is_replaced_in_time() {
    let mut scene = Scene::converged(3);
    leads(&mut scene, 0);
    scene.is_edited(json!({ "scheduling": { "nodeSelector": { "zone": "b" } } }));
    scene.is_rebuilt(2);
    scene.is_out_of_reach(2, 400);
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
    assert!(scene.asked().is_none(), "where it may be nobody knows");
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
fn a_newcomer_that_waits_for_a_volume_of_a_class_that_is_no_longer_wanted_makes_way() {
    let mut scene = Scene::with_newcomer();
    change(
        scene.claim(3),
        json!({ "spec": { "storageClassName": "fsat", "volumeName": null } }),
    );
    change(scene.pod(3), json!({ "spec": { "nodeName": null } }));
    let goes = |scene: &Scene| {
        scene
            .asked()
            .is_some_and(|intent| intent.change == MembershipChange::Remove(Serial(3)))
    };
    scene.is_edited(json!({ "members": 4, "storage": { "class": "fsat" } }));
    assert!(!goes(&scene), "it is what is wanted: {:?}", scene.plan());
    scene.is_edited(json!({ "members": 4, "storage": { "class": "fast" } }));
    assert!(goes(&scene), "{:?}", scene.plan());
}

#[test]
fn whoever_is_where_it_was_told_to_be_stays_though_its_node_loses_its_label() {
    let mut scene = Scene::converged(3);
    leads(&mut scene, 0);
    for serial in 0..3 {
        scene
            .observed
            .misplaced
            .insert(crate::testing::name(serial));
    }
    assert!(scene.plan().disruption.is_none(), "{:?}", scene.plan());
    // Told to be elsewhere, it goes; by one more that joins first.
    scene.is_edited(json!({ "scheduling": { "nodeSelector": { "zone": "b" } } }));
    assert!(
        scene
            .asked()
            .is_some_and(|intent| intent.change == MembershipChange::Add(Serial(3))),
        "{:?}",
        scene.plan()
    );
}

fn larger(scene: &mut Scene, serial: u16, asked: &str, given: &str) {
    let larger = json!({ "spec": { "resources": { "requests": { "storage": asked } } },
        "status": { "capacity": { "storage": given } } });
    change(scene.claim(serial), larger);
}

#[test]
fn a_newcomer_that_has_no_volume_yet_holds_up_no_restart_when_volumes_are_to_grow() {
    let mut scene = Scene::with_newcomer();
    change(
        scene.claim(3),
        json!({ "spec": { "volumeName": null }, "status": { "phase": "Pending" } }),
    );
    scene.is_edited(json!({ "members": 4, "storage": { "size": "8Gi" } }));
    scene.has_pod(
        3,
        &StartMode::Join([Serial(0), Serial(1), Serial(2), Serial(3)].into()),
    );
    change(scene.pod(3), json!({ "spec": { "nodeName": null } }));
    (0..3).for_each(|serial| larger(&mut scene, serial, "8Gi", "8Gi"));
    let plan = scene.plan();
    assert!(
        matches!(plan.disruption, Some(EtcdDisruption::RestartMember { .. })),
        "{plan:?}"
    );
    assert!(
        !plan
            .patch
            .iter()
            .any(|mark| matches!(mark, EtcdPatch::ResizeVolume { .. })),
        "{plan:?}"
    );
}

#[test]
fn growth_that_was_asked_for_and_taken_back_is_not_waited_for() {
    let mut scene = Scene::with(3, json!({ "members": 3, "storage": { "size": "4Gi" } }));
    (0..3).for_each(|serial| larger(&mut scene, serial, "8Gi", "4Gi"));
    scene.is_edited(json!({ "version": "3.7.3" }));
    assert!(
        matches!(
            scene.plan().disruption,
            Some(EtcdDisruption::RestartMember { .. })
        ),
        "{:?}",
        scene.plan()
    );
    scene.is_edited(json!({ "storage": { "size": "8Gi" } }));
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
fn who_came_in_a_move_and_is_down_gets_its_time_and_nobody_who_is_well_goes_meanwhile() {
    let mut scene = Scene::converged(3);
    leads(&mut scene, 0);
    (0..3).for_each(|serial| {
        change(
            scene.claim(serial),
            json!({ "spec": { "storageClassName": "slow" } }),
        )
    });
    scene.is_edited(json!({ "storage": { "class": "fast" } }));
    scene.turn(|identity| identity.next_serial = Serial(4));
    scene.is_rebuilt_anew(3);
    scene.is_out_of_reach(3, 10);
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
    scene.is_out_of_reach(3, 400);
    let replaced = scene.asked().unwrap();
    assert_eq!(
        (replaced.change, replaced.is_replacement),
        (MembershipChange::Remove(Serial(3)), true)
    );
    // Of those who are to go, one that is down goes first.
    scene.state(3);
    scene.has_pod(3, &StartMode::ExistingData);
    scene.is_out_of_reach(1, 10);
    let plan = scene.plan();
    assert!(
        plan.patch
            .contains(&EtcdPatch::DetachClients { pod: pod_uid(1) }),
        "{plan:?}"
    );
}

#[test]
fn a_pod_that_a_kubelet_called_idle_and_whose_member_answers_is_not_deleted() {
    let mut scene = outdated(3);
    scene.lacks_its_image(1, 90);
    let anew = EtcdDisruption::DeletePod {
        pod: pod_uid(1),
        serial: Serial(1),
        why: DeleteReason::Outdated,
    };
    assert_eq!(scene.plan().disruption, Some(anew));
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
fn of_several_that_nobody_hears_the_next_is_built_anew_when_the_last_has_come_back() {
    let mut scene = outdated(5);
    scene.is_out_of_reach(1, 90);
    scene.is_out_of_reach(2, 90);
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
    // Whether the leader hears it nobody knows; those who are well do without it.
    let mut scene = outdated(3);
    scene.is_out_of_reach(1, 90);
    scene.state.unreachable_since.clear();
    assert!(matches!(
        scene.plan().disruption,
        Some(EtcdDisruption::DeletePod {
            serial: Serial(1),
            ..
        })
    ));
    scene.is_out_of_reach(2, 90);
    scene.state.unreachable_since.clear();
    assert!(
        scene.plan().disruption.is_none(),
        "they may be what the leader's quorum is of: {:?}",
        scene.plan()
    );
}

#[test]
fn nobody_moves_for_a_class_that_somebody_puts_into_every_claim() {
    let mut scene = Scene::with(3, json!({ "members": 3, "storage": { "class": "fast" } }));
    (0..3).for_each(|serial| {
        change(
            scene.claim(serial),
            json!({ "spec": { "storageClassName": "gold" } }),
        )
    });
    assert!(
        scene.plan().is_noop(),
        "that class was asked for: {:?}",
        scene.plan()
    );
    scene.is_edited(json!({ "storage": { "class": "gold" } }));
    assert!(
        scene.plan().disruption.is_none(),
        "it has that: {:?}",
        scene.plan()
    );
    scene.is_edited(json!({ "storage": { "class": "slow" } }));
    assert!(
        scene
            .asked()
            .is_some_and(|intent| intent.change == MembershipChange::Add(Serial(3)))
    );
}
