//! A bootstrap that cannot succeed begins again when the spec is put right.

use std::collections::BTreeSet;

use evenkeel_runtime::{Requeue, UnixTime};
use serde_json::json;

use crate::facts::StartMode;
use crate::identity::MembershipChange;
use crate::names::{Epoch, Serial};
use crate::observe::etcd::EtcdState;
use crate::plan::{DeleteReason, EtcdDisruption, EtcdWait, IdentityChange};
use crate::testing::{NOW, Scene, change};

/// A cluster whose first member waits for a volume of a class, and of a size, that cannot be had.
fn waits_for_its_volume() -> Scene {
    let mut scene = Scene::with(
        0,
        json!({ "storage": { "class": "fsat", "size": "900Gi" } }),
    );
    scene.turn(|identity| (identity.bootstrapped, identity.cluster_id) = (false, None));
    scene.state = EtcdState::default();
    scene.has_claim(0, false);
    let unbound = json!({ "spec": { "volumeName": null }, "status": { "phase": "Pending" } });
    change(scene.claim(0), unbound);
    scene.has_pod(0, &StartMode::Bootstrap);
    scene
}

fn begins_again(scene: &Scene) -> bool {
    match scene.plan().disruption {
        Some(EtcdDisruption::UpdateIdentity {
            to,
            why: IdentityChange::SeedStorageChanged,
            ..
        }) => {
            assert_eq!(
                (to.epoch, to.seed_storage, to.bootstrapped),
                (Epoch::FIRST.next(), None, false)
            );
            assert!(
                to.seed > Serial(0),
                "nothing is called by the name of the new first member"
            );
            true
        }
        _ => false,
    }
}

#[test]
fn a_class_or_size_that_cannot_be_had_can_be_put_right_before_there_is_a_cluster() {
    let mut scene = waits_for_its_volume();
    assert!(!begins_again(&scene), "it may yet get it");
    scene.is_edited(json!({ "storage": { "class": "fast", "size": "900Gi" } }));
    assert!(begins_again(&scene), "{:?}", scene.plan());
    let mut scene = waits_for_its_volume();
    scene.is_edited(json!({ "storage": { "class": "fsat", "size": "9Gi" } }));
    assert!(begins_again(&scene), "{:?}", scene.plan());
    let mut scene = waits_for_its_volume();
    scene.is_edited(json!({ "storage": { "class": "fsat", "size": "901Gi" } }));
    assert!(
        !begins_again(&scene),
        "what is given may be larger than asked for, and grow"
    );
}

#[test]
fn nobody_who_was_there_is_given_up_for_another_class() {
    let edited = || {
        let mut scene = waits_for_its_volume();
        scene.is_edited(json!({ "storage": { "class": "fast", "size": "900Gi" } }));
        scene
    };
    let mut scene = edited();
    scene.has_claim(1, true);
    assert!(
        !begins_again(&scene),
        "somebody has joined: the identity is an older one"
    );
    let mut scene = edited();
    let just_now = jiff::Timestamp::from_second(NOW.0 - 20)
        .unwrap()
        .to_string();
    change(
        scene.pod(0),
        json!({ "metadata": { "creationTimestamp": just_now } }),
    );
    assert!(
        !begins_again(&scene),
        "somebody may have put another class into it, and it may get a volume of that"
    );
}

#[test]
fn a_first_member_that_has_its_volume_keeps_it_though_less_is_wanted_by_now() {
    let mut scene = waits_for_its_volume();
    change(
        scene.claim(0),
        json!({ "spec": { "volumeName": "pv-0" }, "status": { "phase": "Bound" } }),
    );
    scene.is_edited(json!({ "storage": { "class": "fsat", "size": "9Gi" } }));
    assert!(!begins_again(&scene), "{:?}", scene.plan());
}

/// A cluster whose first member serves, and whose next ones were added long ago and never started.
fn never_start(learners: &[u16], next: u16) -> Scene {
    let mut scene = Scene::with(1, json!({ "members": 3 }));
    scene.is_unsealed();
    scene.turn(|identity| identity.next_serial = Serial(next));
    let list: BTreeSet<Serial> = learners.iter().copied().chain([0]).map(Serial).collect();
    for serial in learners {
        scene.has_claim(*serial, false);
        scene.has_pod(*serial, &StartMode::Join(list.clone()));
        scene.is_listed(*serial, true, false);
    }
    scene
}

#[test]
fn a_bootstrap_in_which_several_never_start_tries_one_more_and_ends() {
    let asked = |scene: &Scene| scene.asked().map(|intent| intent.change);
    assert_eq!(
        asked(&never_start(&[1, 2], 3)),
        Some(MembershipChange::Remove(Serial(2))),
        "one learner at most stays"
    );
    assert_eq!(
        asked(&never_start(&[1], 3)),
        Some(MembershipChange::Add(Serial(3))),
        "another one may do better"
    );
    let plan = never_start(&[1], 4).plan();
    assert!(
        matches!(
            plan.disruption,
            Some(EtcdDisruption::UpdateIdentity {
                why: IdentityChange::FinishBootstrap,
                ..
            })
        ),
        "{plan:?}"
    );
}

#[test]
fn a_voter_that_is_lost_before_the_seal_does_not_keep_clients_out_when_patience_is_over() {
    let mut scene = Scene::with(4, json!({ "members": 5 }));
    scene.is_unsealed();
    scene.turn(|identity| identity.next_serial = Serial(6));
    scene.has_claim(4, false);
    scene.has_pod(4, &StartMode::Join((0..5).map(Serial).collect()));
    scene.is_listed(4, true, false);
    change(scene.pod(4), json!({ "spec": { "nodeName": null } }));
    let sealed = |scene: &Scene| {
        matches!(
            scene.plan().disruption,
            Some(EtcdDisruption::UpdateIdentity {
                why: IdentityChange::FinishBootstrap,
                ..
            })
        )
    };
    assert!(sealed(&scene), "{:?}", scene.plan());
    scene.is_out_of_reach(1, 400);
    assert!(sealed(&scene), "three of four agree: {:?}", scene.plan());
    scene.has_pod(1, &StartMode::Join((0..5).map(Serial).collect()));
    scene.is_out_of_reach(1, 400);
    assert!(
        !sealed(&scene),
        "it could start on something else: {:?}",
        scene.plan()
    );
}

#[test]
fn a_moments_silence_of_the_first_member_is_no_end_though_another_one_was_removed() {
    let mut scene = never_start(&[1], 4);
    scene.loses_its_quorum(&[0]);
    let lost = |scene: &Scene| {
        matches!(
            scene.plan().disruption,
            Some(EtcdDisruption::UpdateIdentity {
                why: IdentityChange::SeedLost,
                ..
            })
        )
    };
    scene.is_out_of_reach(0, 3);
    assert!(!lost(&scene), "{:?}", scene.plan());
    assert_eq!(
        scene.plan().requeue,
        Requeue::At(UnixTime(NOW.0 + 57)),
        "nobody else tells that it takes too long"
    );
    scene.is_out_of_reach(0, 60);
    assert!(
        lost(&scene),
        "whoever is missing may have had a vote: {:?}",
        scene.plan()
    );
}

// Earlier operators named a cluster in its status as soon as it was formed.
#[test]
fn a_bootstrap_that_an_earlier_operator_has_begun_again_goes_on() {
    let told = || evenkeel_api::EtcdClusterStatus {
        cluster_id: "1f".to_owned(),
        ..Default::default()
    };
    let mut scene = Scene::with(1, json!({ "members": 3 }));
    scene.is_unsealed();
    scene.turn(|identity| {
        (identity.epoch, identity.cluster_id, identity.seed_storage) =
            (Epoch::FIRST.next(), None, None);
        (identity.seed, identity.next_serial) = (Serial(1), Serial(2));
    });
    scene.was_told(told());
    let plan = scene.plan();
    assert!(
        matches!(
            plan.disruption,
            Some(EtcdDisruption::DeletePod {
                why: DeleteReason::OldEpoch,
                ..
            })
        ),
        "{plan:?}"
    );
    // And one whose first member is about to found it.
    let mut scene = waits_for_its_volume();
    scene.was_told(told());
    let plan = scene.plan();
    assert!(
        !plan.waits.contains(&EtcdWait::InconsistentObjects),
        "{plan:?}"
    );
}
