//! Bootstraps that fail, restart or finish with fewer members.

use std::collections::BTreeSet;

use evenkeel_runtime::{Requeue, UnixTime};
use serde_json::json;

use super::bootstrap::BootstrapFailure;
use crate::facts::StartMode;
use crate::identity::MembershipChange;
use crate::names::{Epoch, Serial};
use crate::observe::etcd::EtcdState;
use crate::plan::{DeleteReason, EtcdDisruption, EtcdWait, IdentityChange};
use crate::testing::{NOW, Scene, change, claim_uid, pod_uid};
use crate::view::ClusterView;

/// A cluster whose seed waits for a volume of a class and a size that do not exist.
fn with_pending_volume() -> Scene {
    let mut scene = Scene::with(
        0,
        json!({ "storage": { "class": "fsat", "size": "900Gi" } }),
    );
    scene.turn(|identity| {
        identity.bootstrapped = false;
        identity.cluster_id = None;
    });
    scene.state = EtcdState::default();
    scene.add_claim(0, false);
    let unbound = json!({ "spec": { "volumeName": null }, "status": { "phase": "Pending" } });
    change(scene.claim(0), unbound);
    scene.add_pod(0, &StartMode::Bootstrap);
    scene
}

fn restarts_bootstrap(scene: &Scene) -> bool {
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
                "no object has the name of the new seed"
            );
            true
        }
        _ => false,
    }
}

#[test]
fn a_corrected_storage_spec_restarts_a_bootstrap_without_a_volume() {
    let mut scene = with_pending_volume();
    assert!(
        !restarts_bootstrap(&scene),
        "the volume may still be provisioned"
    );
    scene.edit_spec(json!({ "storage": { "class": "fast", "size": "900Gi" } }));
    assert!(restarts_bootstrap(&scene), "{:?}", scene.plan());
    let mut scene = with_pending_volume();
    scene.edit_spec(json!({ "storage": { "class": "fsat", "size": "9Gi" } }));
    assert!(restarts_bootstrap(&scene), "{:?}", scene.plan());
    let mut scene = with_pending_volume();
    scene.edit_spec(json!({ "storage": { "class": "fsat", "size": "901Gi" } }));
    assert!(
        !restarts_bootstrap(&scene),
        "a provisioned volume may be larger than requested, and can be resized"
    );
}

#[test]
fn a_corrected_storage_spec_abandons_no_member_that_has_joined() {
    let edited = || {
        let mut scene = with_pending_volume();
        scene.edit_spec(json!({ "storage": { "class": "fast", "size": "900Gi" } }));
        scene
    };
    let mut scene = edited();
    scene.add_claim(1, true);
    assert!(
        !restarts_bootstrap(&scene),
        "a member has joined: the identity is outdated"
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
        !restarts_bootstrap(&scene),
        "an admission webhook may have set another class, and its volume may be provisioned"
    );
}

#[test]
fn a_seed_with_a_volume_keeps_it_when_the_spec_asks_for_less() {
    let mut scene = with_pending_volume();
    change(
        scene.claim(0),
        json!({ "spec": { "volumeName": "pv-0" }, "status": { "phase": "Bound" } }),
    );
    scene.edit_spec(json!({ "storage": { "class": "fsat", "size": "9Gi" } }));
    assert!(!restarts_bootstrap(&scene), "{:?}", scene.plan());
}

/// A cluster whose seed serves, and whose learners were added long ago and never started.
fn with_unstarted(learners: &[u16], next: u16) -> Scene {
    let mut scene = Scene::with(
        1,
        json!({ "members": 3, "storage": { "onDelete": "Delete" } }),
    );
    scene.make_bootstrap_unfinished();
    scene.turn(|identity| identity.next_serial = Serial(next));
    let list: BTreeSet<Serial> = learners.iter().copied().chain([0]).map(Serial).collect();
    for serial in learners {
        scene.add_claim(*serial, false);
        scene.add_pod(*serial, &StartMode::Join(list.clone()));
        scene.list_member(*serial, true, false);
    }
    scene
}

#[test]
fn a_bootstrap_without_starting_learners_adds_one_more_and_finishes() {
    let asked = |scene: &Scene| scene.asked().map(|intent| intent.change);
    assert_eq!(
        asked(&with_unstarted(&[1, 2], 3)),
        Some(MembershipChange::Remove(Serial(2))),
        "at most one learner stays"
    );
    assert_eq!(
        asked(&with_unstarted(&[1], 3)),
        Some(MembershipChange::Add(Serial(3))),
        "another learner may start"
    );
    let plan = with_unstarted(&[1], 4).plan();
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
fn a_lost_voter_does_not_hold_up_bootstrap_after_the_timeout() {
    let mut scene = Scene::with(
        4,
        json!({ "members": 5, "storage": { "onDelete": "Delete" } }),
    );
    scene.make_bootstrap_unfinished();
    scene.turn(|identity| identity.next_serial = Serial(6));
    scene.add_claim(4, false);
    scene.add_pod(4, &StartMode::Join((0..5).map(Serial).collect()));
    scene.list_member(4, true, false);
    change(scene.pod(4), json!({ "spec": { "nodeName": null } }));
    let finishes = |scene: &Scene| {
        matches!(
            scene.plan().disruption,
            Some(EtcdDisruption::UpdateIdentity {
                why: IdentityChange::FinishBootstrap,
                ..
            })
        )
    };
    assert!(finishes(&scene), "{:?}", scene.plan());
    scene.make_unreachable(1, 400);
    assert!(
        finishes(&scene),
        "three of four voters have a quorum: {:?}",
        scene.plan()
    );
    scene.add_pod(1, &StartMode::Join((0..5).map(Serial).collect()));
    scene.make_unreachable(1, 400);
    assert!(
        !finishes(&scene),
        "it could start on an empty directory: {:?}",
        scene.plan()
    );
}

#[test]
fn an_unreachable_seed_fails_the_bootstrap_after_the_timeout_only() {
    let mut scene = with_unstarted(&[1], 4);
    scene.lose_quorum(&[0]);
    let lost = |scene: &Scene| {
        matches!(
            scene.plan().disruption,
            Some(EtcdDisruption::UpdateIdentity {
                why: IdentityChange::SeedLost,
                ..
            })
        )
    };
    scene.make_unreachable(0, 3);
    assert!(!lost(&scene), "{:?}", scene.plan());
    assert_eq!(
        scene.plan().requeue,
        Requeue::At(UnixTime(NOW.0 + 57)),
        "no watch event reports the timeout"
    );
    scene.make_unreachable(0, 60);
    assert!(
        lost(&scene),
        "the missing member may have been a voter: {:?}",
        scene.plan()
    );
}

// Earlier operators wrote the cluster ID to the status as soon as the seed had formed the cluster.
#[test]
fn a_bootstrap_that_an_earlier_operator_restarted_continues() {
    let old_status = || evenkeel_api::EtcdClusterStatus {
        cluster_id: "1f".to_owned(),
        ..Default::default()
    };
    let mut scene = Scene::with(1, json!({ "members": 3 }));
    scene.make_bootstrap_unfinished();
    scene.turn(|identity| {
        identity.epoch = Epoch::FIRST.next();
        identity.cluster_id = None;
        identity.seed_storage = None;
        identity.seed = Serial(1);
        identity.next_serial = Serial(2);
    });
    scene.set_status(old_status());
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
    // A seed that is about to form the cluster.
    let mut scene = with_pending_volume();
    scene.set_status(old_status());
    let plan = scene.plan();
    assert!(
        !plan.waits.contains(&EtcdWait::InconsistentObjects),
        "{plan:?}"
    );
}

/// A bootstrap whose members were added and whose etcd has not answered for this many seconds.
fn unanswered(seconds: i64) -> Scene {
    let mut scene = Scene::converged(3);
    scene.make_bootstrap_unfinished();
    scene.lose_quorum(&[0, 1, 2]);
    scene.make_unreachable(0, seconds);
    scene
}

fn failure(scene: &Scene) -> Option<BootstrapFailure> {
    let facts = scene.facts();
    let view = ClusterView::from_facts(&facts)?;
    BootstrapFailure::of(&view)
}

#[test]
fn a_bootstrap_fails_without_the_data_of_its_seed() {
    let mut scene = unanswered(3);
    scene.observed.claims.remove(&claim_uid(0));
    assert_eq!(failure(&scene), Some(BootstrapFailure::SeedLost));
}

#[test]
fn a_bootstrap_without_an_answer_fails_at_once_if_data_is_lost() {
    let mut scene = unanswered(3);
    assert_eq!(failure(&scene), None);
    change(
        scene.claim(1),
        json!({ "spec": { "volumeName": "another" } }),
    );
    assert_eq!(failure(&scene), Some(BootstrapFailure::DataLost));
}

#[test]
fn a_bootstrap_fails_after_the_timeout_if_a_member_has_no_pod_and_no_claim() {
    for (seconds, expected) in [(59, None), (60, Some(BootstrapFailure::MemberMissing))] {
        let mut scene = unanswered(seconds);
        scene.observed.claims.remove(&claim_uid(1));
        scene.observed.pods.remove(&pod_uid(1));
        assert_eq!(failure(&scene), expected, "{seconds} s");
    }
}

#[test]
fn a_bootstrap_fails_after_the_timeout_if_a_member_crashes() {
    for (seconds, expected) in [(59, None), (60, Some(BootstrapFailure::MemberCrashing))] {
        let mut scene = unanswered(seconds);
        scene.crashes(1, 30);
        assert_eq!(failure(&scene), expected, "{seconds} s");
    }
}

#[test]
fn a_bootstrap_fails_after_the_timeout_if_a_join_is_not_recorded() {
    assert_eq!(failure(&unanswered(59)), None);
    assert_eq!(
        failure(&unanswered(60)),
        Some(BootstrapFailure::JoinUnrecorded)
    );
}
