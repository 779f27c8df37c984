//! Clusters that begin with the data of a backup.

use std::time::Duration;

use evenkeel_api::conditions::Reason;
use evenkeel_runtime::{Engine, Observed, Plan, Requeue, UnixTime};
use serde_json::{Value, json};

use crate::actions::ActionContext;
use crate::decide::Etcd;
use crate::facts::{
    EtcdFacts, RestoreFailure, RestorePodFacts, RestorePodState, RestoreStep, RestoredVolume,
    SourceProblem, SourceState, StartMode,
};
use crate::identity::{Identity, RestoreOrigin, SeedStorage, Uid};
use crate::names::{Epoch, Serial};
use crate::plan::{EtcdCreate, EtcdDisruption, EtcdPatch, EtcdWait, IdentityChange, RestorePodEnd};
use crate::testing::{NOW, Scene, claim_uid, pod_uid};
use crate::view::ClusterView;

const RESTORE_POD: Uid = Uid(0x3_0000);

fn origin() -> RestoreOrigin {
    RestoreOrigin::bootstrap("nightly")
}

fn from(backup: &str) -> Value {
    json!({ "bootstrap": { "from": { "backup": backup } } })
}

/// Returns a cluster in bootstrap whose seed has a claim and is to begin with a backup.
fn scene() -> Scene {
    let mut scene = Scene::with(0, from("nightly"));
    scene.turn(|identity| {
        identity.bootstrapped = false;
        identity.cluster_id = None;
        identity.seed_storage = None;
        identity.next_serial = Serial(1);
        identity.restore = Some(origin());
    });
    scene.state = Default::default();
    scene.add_claim(0, false);
    scene
}

/// Returns the facts of a cluster in bootstrap with a usable backup.
fn facts(scene: &Scene) -> EtcdFacts {
    EtcdFacts {
        source: Some(SourceState::Usable),
        ..scene.facts()
    }
}

fn restore_pod(state: RestorePodState) -> RestorePodFacts {
    RestorePodFacts {
        serial: Serial(0),
        epoch: Epoch::FIRST,
        uid: RESTORE_POD,
        claim: claim_uid(0),
        restore: origin().id,
        created_at: NOW,
        state,
        template_hash: None,
        is_idle: false,
        is_terminating: false,
        problem: None,
    }
}

fn failed(step: RestoreStep, at: UnixTime, is_transient: bool) -> RestorePodFacts {
    restore_pod(RestorePodState::Failed(RestoreFailure {
        at,
        step,
        is_transient,
        message: "The backup is damaged. Use another one.".to_owned(),
    }))
}

fn with_pod(scene: &Scene, pod: RestorePodFacts) -> EtcdFacts {
    EtcdFacts {
        restore_pods: vec![pod],
        ..facts(scene)
    }
}

/// Records on the seed's claim that it was restored.
fn mark_restored(facts: &mut EtcdFacts, restored: RestoredVolume) {
    for claim in facts.claims.present_mut().into_iter().flatten() {
        claim.restored = Some(restored);
        claim.last_version = Some(facts.cluster.version);
    }
}

fn restored() -> RestoredVolume {
    RestoredVolume {
        restore: origin().id,
        claim: claim_uid(0),
        volume: Uid::of_name("pv-0"),
    }
}

fn new_epoch(plan: &Plan<Etcd>) -> Option<(&Identity, IdentityChange)> {
    match &plan.disruption {
        Some(EtcdDisruption::UpdateIdentity { from, to, why }) if to.epoch > from.epoch => {
            Some((to, *why))
        }
        _ => None,
    }
}

#[test]
fn the_identity_of_a_new_cluster_names_its_backup() {
    let plan = Etcd::decide(&Scene::nothing(from("nightly")).facts());
    let [EtcdCreate::Identity(identity)] = &plan.create[..] else {
        panic!("{plan:?}")
    };
    assert_eq!(identity.restore, Some(origin()));
}

#[test]
fn the_volume_is_filled_before_the_seed_has_a_pod() {
    let scene = scene();
    let plan = Etcd::decide(&facts(&scene));
    let [EtcdCreate::RestorePod { claim, restore, .. }] = &plan.create[..] else {
        panic!("{plan:?}")
    };
    assert_eq!((*claim, restore), (claim_uid(0), &origin()));

    let plan = Etcd::decide(&with_pod(&scene, restore_pod(RestorePodState::Held)));
    assert_eq!(
        plan.patch,
        [EtcdPatch::ReleaseRestorePod { pod: RESTORE_POD }]
    );
    let running = RestorePodState::Running(RestoreStep::Restore);
    let plan = Etcd::decide(&with_pod(&scene, restore_pod(running)));
    assert!(plan.create.is_empty() && plan.patch.is_empty(), "{plan:?}");
    assert_eq!(plan.waits, [EtcdWait::Restore(Serial(0))]);

    let mut facts = with_pod(&scene, restore_pod(RestorePodState::Succeeded));
    let plan = Etcd::decide(&facts);
    let record = EtcdPatch::RecordRestored {
        claim: claim_uid(0),
        volume: Uid::of_name("pv-0"),
        restore: origin().id,
    };
    assert_eq!(plan.patch, [record]);
    assert!(plan.create.is_empty(), "the seed waits for the record");

    mark_restored(&mut facts, restored());
    let plan = Etcd::decide(&facts);
    let delete = EtcdDisruption::DeleteRestorePod {
        pod: RESTORE_POD,
        serial: Serial(0),
        why: RestorePodEnd::NotNeeded,
    };
    assert_eq!(plan.disruption, Some(delete));
    facts.restore_pods.clear();
    let plan = Etcd::decide(&facts);
    let [EtcdCreate::Pod { start_mode, .. }] = &plan.create[..] else {
        panic!("{plan:?}")
    };
    assert_eq!(*start_mode, StartMode::Held);
}

#[test]
fn a_restored_seed_starts_on_existing_data_and_never_as_a_new_cluster() {
    let mut scene = scene();
    scene.add_pod(0, &StartMode::Held);
    scene.turn(|identity| identity.seed_storage = Some(SeedStorage::Claim(claim_uid(0))));
    let mut facts = facts(&scene);
    mark_restored(&mut facts, restored());
    let release = EtcdPatch::SetStartMode {
        pod: pod_uid(0),
        from: StartMode::Held,
        to: StartMode::Restored,
    };
    assert!(Etcd::decide(&facts).patch.contains(&release));
    // The volume is another one, or the record is of another claim: the seed is not released.
    for other in [
        RestoredVolume {
            claim: Uid(9),
            ..restored()
        },
        RestoredVolume {
            volume: Uid(9),
            ..restored()
        },
        RestoredVolume {
            restore: Uid(9),
            ..restored()
        },
    ] {
        mark_restored(&mut facts, other);
        let plan = Etcd::decide(&facts);
        assert!(new_epoch(&plan).is_some(), "{plan:?}");
        assert!(!plan.patch.contains(&release), "{plan:?}");
    }
}

#[test]
fn a_restore_pod_of_another_claim_is_replaced() {
    let pod = RestorePodFacts {
        claim: Uid(9),
        ..restore_pod(RestorePodState::Succeeded)
    };
    let plan = Etcd::decide(&with_pod(&scene(), pod));
    let delete = EtcdDisruption::DeleteRestorePod {
        pod: RESTORE_POD,
        serial: Serial(0),
        why: RestorePodEnd::OtherVolume,
    };
    assert_eq!(plan.disruption, Some(delete));
    assert!(plan.patch.is_empty(), "{plan:?}");
}

#[test]
fn another_backup_begins_a_new_epoch_until_bootstrap_is_finished() {
    let mut scene = scene();
    scene.edit_spec(from("weekly"));
    let plan = Etcd::decide(&facts(&scene));
    let (identity, why) = new_epoch(&plan).unwrap();
    assert_eq!(why, IdentityChange::SourceChanged);
    assert_eq!(identity.restore, Some(RestoreOrigin::bootstrap("weekly")));
    assert!(identity.seed > Serial(0));

    for edit in [from("weekly"), json!({ "bootstrap": null })] {
        let mut finished = Scene::with(3, from("nightly"));
        finished.turn(|identity| identity.restore = Some(origin()));
        finished.edit_spec(edit);
        let mut facts = finished.facts();
        facts.spec_recorded = true;
        assert!(Etcd::decide(&facts).is_noop(), "{:?}", Etcd::decide(&facts));
    }
}

#[test]
fn a_failed_restore_is_tried_again_with_growing_delays() {
    let scene = scene();
    let retry_at = |step, since_claim: i64, is_transient| {
        let mut facts = with_pod(&scene, failed(step, NOW, is_transient));
        for claim in facts.claims.present_mut().into_iter().flatten() {
            claim.created_at = UnixTime(NOW.0 - since_claim);
        }
        let plan = Etcd::decide(&facts);
        let [EtcdWait::RestoreRetry(_, at)] = plan.waits[..] else {
            panic!("{plan:?}")
        };
        assert!(matches!(plan.requeue, Requeue::At(time) if time <= at));
        let later = |at: UnixTime| EtcdFacts {
            now: at,
            ..facts.clone()
        };
        let plan = Etcd::decide(&later(at));
        match step {
            RestoreStep::Fetch => assert!(
                matches!(
                    plan.disruption,
                    Some(EtcdDisruption::DeleteRestorePod {
                        why: RestorePodEnd::Failed,
                        ..
                    })
                ),
                "{plan:?}"
            ),
            RestoreStep::Restore | RestoreStep::Install => {
                assert!(new_epoch(&plan).is_some(), "a new volume: {plan:?}");
            }
        }
        at.since(NOW)
    };
    let seconds = Duration::from_secs;
    assert_eq!(retry_at(RestoreStep::Fetch, 4, true), seconds(10));
    assert_eq!(retry_at(RestoreStep::Fetch, 100, true), seconds(50));
    assert_eq!(retry_at(RestoreStep::Fetch, 9000, true), seconds(300));
    assert_eq!(retry_at(RestoreStep::Fetch, 4, false), seconds(300));
    assert_eq!(retry_at(RestoreStep::Install, 4, true), seconds(10));
    assert_eq!(retry_at(RestoreStep::Restore, 4, false), seconds(300));
}

#[test]
fn a_restored_seed_that_crashes_begins_a_new_epoch_after_a_while() {
    let mut scene = scene();
    scene.add_pod(0, &StartMode::Restored);
    scene.turn(|identity| identity.seed_storage = Some(SeedStorage::Claim(claim_uid(0))));
    let mut facts = facts(&scene);
    mark_restored(&mut facts, restored());
    for pod in facts.pods.present_mut().into_iter().flatten() {
        assert_eq!(pod.start_mode, StartMode::Restored);
        pod.crashing_since = Some(NOW);
    }
    let plan = Etcd::decide(&facts);
    assert!(new_epoch(&plan).is_none());
    let deadline = NOW.after(facts.cluster.bootstrap_timeout);
    assert!(
        matches!(plan.requeue, Requeue::At(at) if at <= deadline) || plan.requeue == Requeue::Poll
    );
    facts.now = deadline;
    assert!(new_epoch(&Etcd::decide(&facts)).is_some());
}

#[test]
fn an_earlier_version_does_not_start_on_data_of_a_later_one() {
    let mut facts = facts(&scene());
    mark_restored(&mut facts, restored());
    facts.cluster.version = "3.5.35".parse().unwrap();
    assert!(new_epoch(&Etcd::decide(&facts)).is_some());
}

#[test]
fn a_restore_pod_that_an_operator_created_late_is_deleted() {
    let mut facts = Scene::converged(3).facts();
    facts.restore_pods = vec![restore_pod(RestorePodState::Held)];
    let plan = Etcd::decide(&facts);
    assert!(
        matches!(
            plan.disruption,
            Some(EtcdDisruption::DeleteRestorePod { .. })
        ),
        "{plan:?}"
    );
}

fn degraded(scene: &Scene, facts: &EtcdFacts) -> (Option<Reason>, String, String) {
    let plan = Etcd::decide(facts);
    let view = ClusterView::from_facts(facts).unwrap();
    let context = ActionContext::new(&scene.observed, facts, Some(&view));
    let [wait] = &plan.waits[..] else {
        panic!("{plan:?}")
    };
    let problem = wait.problem(&context);
    (
        wait.degraded_reason(&context),
        wait.describe(&context),
        format!("{} {}", problem.message, problem.advice),
    )
}

#[test]
fn a_backup_that_cannot_be_restored_is_named_with_its_remedy() {
    let scene = scene();
    let with = |problem: SourceProblem, age: i64| {
        let mut facts = facts(&scene);
        facts.source = Some(SourceState::Unusable(problem));
        facts.cluster.created_at = UnixTime(NOW.0 - age);
        assert!(Etcd::decide(&facts).is_noop());
        degraded(&scene, &facts)
    };
    let (reason, wait, _) = with(SourceProblem::BackupMissing, 10);
    assert_eq!(
        (reason, wait.as_str()),
        (None, "Backup nightly to be created")
    );
    let (reason, _, text) = with(SourceProblem::BackupMissing, 100);
    assert_eq!(reason, Some(Reason::RestoreFailed));
    assert_eq!(
        text,
        "Backup nightly does not exist. The cluster is not created before it can be restored. Create it, or correct \
         spec.bootstrap.from.backup."
    );
    let (reason, _, text) = with(SourceProblem::NewerVersion("3.7.3".to_owned()), 0);
    assert_eq!(reason, Some(Reason::RestoreFailed));
    assert!(
        text.contains("is of etcd 3.7.3, and spec.version is 3.6.16."),
        "{text}"
    );
}

#[test]
fn a_permanent_failure_of_a_restore_degrades_the_cluster_at_once() {
    let scene = scene();
    let with = |is_transient| {
        let mut facts = with_pod(&scene, failed(RestoreStep::Fetch, NOW, is_transient));
        facts.cluster.created_at = NOW;
        degraded(&scene, &facts)
    };
    assert_eq!(with(true).0, None);
    let (reason, wait, text) = with(false);
    assert_eq!(reason, Some(Reason::RestoreFailed));
    assert!(
        wait.ends_with(": The backup is damaged. Use another one"),
        "{wait}"
    );
    assert!(
        text.starts_with(
            "The restore of Backup nightly has failed: The backup is damaged. Use another one."
        ),
        "{text}"
    );
}

#[test]
fn an_identity_that_is_lost_during_a_restore_is_not_rebuilt_as_bootstrapped() {
    let mut scene = scene();
    scene.add_pod(0, &StartMode::Restored);
    let mut facts = facts(&scene);
    mark_restored(&mut facts, restored());
    facts.identity = Observed::Absent;
    let plan = Etcd::decide(&facts);
    let [EtcdCreate::Identity(identity)] = &plan.create[..] else {
        panic!("{plan:?}")
    };
    assert!(!identity.bootstrapped && identity.epoch > Epoch::FIRST);
    assert_eq!(identity.restore, Some(origin()));
}
