//! In-place restores of a converged cluster, step by step.

use evenkeel_runtime::{Engine, Observed, Plan, UnixTime};
use serde_json::json;

use crate::decide::Etcd;
use crate::facts::{ClaimFacts, EtcdFacts, RestoreRequest, RestoredVolume, SourceState, StartMode};
use crate::identity::{ClusterId, Identity, RestoreOrigin, Uid};
use crate::names::{Epoch, Serial};
use crate::plan::{
    DeleteReason, EtcdApply, EtcdCreate, EtcdDisruption, EtcdPatch, EtcdWait, IdentityChange,
};
use crate::testing::{NOW, Scene, pod_uid};

const NEXT_CLAIM: Uid = Uid(0x4_0000);
const NEXT_VOLUME: Uid = Uid(0x4_0001);

fn origin(cluster: ClusterId) -> RestoreOrigin {
    RestoreOrigin::in_place("undo-the-mistake", "nightly", cluster)
}

/// Returns a converged cluster that a Restore asks to replace.
fn requested() -> EtcdFacts {
    let facts = Scene::converged(3).facts();
    let replaces = identity(&facts).cluster_id.unwrap();
    EtcdFacts {
        source: Some(SourceState::Usable),
        restore_request: Some(RestoreRequest {
            origin: origin(replaces),
            replaces,
            keep_seconds: 3600,
            undo: false,
        }),
        ..facts
    }
}

fn identity(facts: &EtcdFacts) -> Identity {
    facts.identity.present().unwrap().clone()
}

/// Returns the change of the identity that a plan contains.
fn change(plan: &Plan<Etcd>) -> Option<(IdentityChange, Identity)> {
    match &plan.disruption {
        Some(EtcdDisruption::UpdateIdentity { to, why, .. }) => Some((*why, to.clone())),
        _ => None,
    }
}

/// Executes the change of the identity that is decided, and returns its reason.
fn turn(facts: &mut EtcdFacts) -> IdentityChange {
    let (why, to) = change(&Etcd::decide(facts)).unwrap();
    facts.identity = Observed::Present(to);
    why
}

fn claims(facts: &mut EtcdFacts) -> &mut Vec<ClaimFacts> {
    facts.claims.present_mut().unwrap()
}

/// Adds the claim of the next seed, whose volume is filled.
fn add_filled_claim(facts: &mut EtcdFacts) {
    let next = identity(facts).next_epoch.unwrap();
    let template = claims(facts)[0].clone();
    claims(facts).push(ClaimFacts {
        serial: next.seed,
        epoch: next.epoch,
        uid: NEXT_CLAIM,
        volume: Some(NEXT_VOLUME),
        joined_on: None,
        restored: Some(RestoredVolume {
            restore: next.restore.id,
            claim: NEXT_CLAIM,
            volume: NEXT_VOLUME,
        }),
        ..template
    });
}

/// Returns a cluster that was replaced a moment ago: its pods still exist.
fn replaced() -> EtcdFacts {
    let mut facts = requested();
    assert_eq!(turn(&mut facts), IdentityChange::PrepareRestore);
    add_filled_claim(&mut facts);
    assert_eq!(turn(&mut facts), IdentityChange::ReplaceCluster);
    facts
}

/// Returns the restored cluster once its bootstrap is finished, with one member that is not looked at.
fn finished() -> EtcdFacts {
    let mut facts = replaced();
    facts.pods = Observed::Present(Vec::new());
    let epoch = identity(&facts).epoch;
    for claim in claims(&mut facts) {
        if claim.epoch == epoch {
            claim.joined_on = Some((NEXT_CLAIM, NEXT_VOLUME));
        } else {
            claim.replaced_until = Some(NOW.after(std::time::Duration::from_secs(3600)));
        }
    }
    if let Observed::Present(identity) = &mut facts.identity {
        identity.bootstrapped = true;
        identity.cluster_id = Some(ClusterId(77));
    }
    facts
}

fn undo(facts: &mut EtcdFacts) {
    facts.restore_request.as_mut().unwrap().undo = true;
}

#[test]
fn an_epoch_and_a_serial_are_reserved_before_a_volume_is_filled() {
    let mut facts = requested();
    let before = identity(&facts);
    assert_eq!(turn(&mut facts), IdentityChange::PrepareRestore);
    let after = identity(&facts);
    let next = after.next_epoch.clone().unwrap();
    assert_eq!(next.epoch, before.epoch.next());
    assert_eq!(next.seed, before.next_serial);
    assert_eq!(after.next_serial, before.next_serial.next());
    assert_eq!(after.epoch, before.epoch, "the cluster serves");
    let plan = Etcd::decide(&facts);
    assert_eq!(
        plan.create,
        [EtcdCreate::Claim {
            serial: next.seed,
            epoch: next.epoch,
            owned: false
        }]
    );
    assert!(plan.disruption.is_none());
}

#[test]
fn the_cluster_is_healed_while_a_volume_is_filled() {
    let mut facts = requested();
    turn(&mut facts);
    facts
        .pods
        .present_mut()
        .unwrap()
        .retain(|pod| pod.uid != pod_uid(2));
    let created: Vec<_> = Etcd::decide(&facts)
        .create
        .iter()
        .map(|create| match create {
            EtcdCreate::Pod { serial, .. } => format!("pod {}", serial.0),
            EtcdCreate::Claim { serial, .. } => format!("claim {}", serial.0),
            _ => String::new(),
        })
        .collect();
    assert_eq!(created, ["pod 2", "claim 3"]);
}

#[test]
fn a_backup_that_cannot_be_restored_changes_nothing() {
    use crate::facts::SourceProblem;
    let mut facts = requested();
    facts.source = Some(SourceState::Unusable(SourceProblem::BackupMissing));
    let plan = Etcd::decide(&facts);
    assert!(plan.is_noop(), "{plan:?}");
    assert_eq!(
        plan.waits,
        [EtcdWait::RestoreSource(SourceProblem::BackupMissing)]
    );
}

#[test]
fn another_cluster_id_is_not_replaced() {
    let mut facts = requested();
    facts.restore_request.as_mut().unwrap().replaces = ClusterId(1);
    assert!(Etcd::decide(&facts).is_noop());
}

#[test]
fn members_without_volumes_are_not_replaced() {
    let mut scene = Scene::with(3, json!({ "storage": { "ephemeral": true } }));
    scene.turn(|_| {});
    let requested = requested();
    let facts = EtcdFacts {
        source: requested.source,
        restore_request: requested.restore_request,
        ..scene.facts()
    };
    let plan = Etcd::decide(&facts);
    assert!(change(&plan).is_none(), "{plan:?}");
    assert!(
        plan.waits
            .iter()
            .any(|wait| wait.name() == "restore-source")
    );
}

#[test]
fn a_deleted_restore_is_cancelled_before_the_cluster_is_replaced() {
    let mut facts = requested();
    turn(&mut facts);
    add_filled_claim(&mut facts);
    facts.restore_request = None;
    assert_eq!(turn(&mut facts), IdentityChange::CancelRestore);
    assert!(identity(&facts).next_epoch.is_none());
    // The volume is deleted like those of an abandoned bootstrap.
    assert_eq!(
        Etcd::decide(&facts).disruption,
        Some(EtcdDisruption::DeleteClaim {
            claim: NEXT_CLAIM,
            serial: Serial(3),
            why: DeleteReason::OldEpoch
        })
    );
}

#[test]
fn a_volume_that_is_being_deleted_is_not_used() {
    let mut facts = requested();
    turn(&mut facts);
    add_filled_claim(&mut facts);
    claims(&mut facts).last_mut().unwrap().is_terminating = true;
    let before = identity(&facts).next_epoch.unwrap();
    assert_eq!(turn(&mut facts), IdentityChange::RestartPreparation);
    let after = identity(&facts).next_epoch.unwrap();
    assert!(after.epoch > before.epoch && after.seed > before.seed);
}

#[test]
fn all_members_of_the_replaced_cluster_stop_before_the_new_seed_starts() {
    let mut facts = replaced();
    let current = identity(&facts);
    assert_eq!((current.epoch, current.bootstrapped), (Epoch(2), false));
    for serial in 0..3 {
        assert_eq!(
            Etcd::decide(&facts).disruption,
            Some(EtcdDisruption::DeletePod {
                pod: pod_uid(serial),
                serial: Serial(serial),
                why: DeleteReason::Replaced
            })
        );
        facts.pods.present_mut().unwrap()[usize::from(serial)].is_terminating = true;
    }
    let plan = Etcd::decide(&facts);
    assert_eq!(plan.waits, [EtcdWait::OldEpochDeletion]);
    assert!(plan.is_noop(), "{plan:?}");
}

#[test]
fn volumes_of_the_replaced_cluster_are_recorded_before_the_new_seed_starts() {
    let mut facts = replaced();
    facts.pods = Observed::Present(Vec::new());
    let plan = Etcd::decide(&facts);
    let until = NOW.after(std::time::Duration::from_secs(3600));
    let recorded = plan.patch.iter().filter(
        |patch| matches!(patch, EtcdPatch::RecordReplaced { until: Some(it), .. } if *it == until),
    );
    assert_eq!(recorded.count(), 3);
    assert!(plan.create.is_empty() && plan.disruption.is_none());
    for claim in claims(&mut facts) {
        if claim.epoch == Epoch::FIRST {
            claim.replaced_until = Some(until);
        }
    }
    let plan = Etcd::decide(&facts);
    let starts_seed = |create: &EtcdCreate| matches!(create, EtcdCreate::Pod { serial, start_mode: StartMode::Held, .. } if *serial == Serial(3));
    assert!(plan.create.iter().any(starts_seed), "{plan:?}");
}

#[test]
fn kept_volumes_are_deleted_only_after_their_time() {
    let mut facts = finished();
    facts.membership = Observed::Unknown;
    let deletes = |facts: &EtcdFacts| {
        matches!(
            Etcd::decide(facts).disruption,
            Some(EtcdDisruption::DeleteClaim { .. })
        )
    };
    assert!(!deletes(&facts));
    facts.now = NOW.after(std::time::Duration::from_secs(3601));
    assert!(
        !deletes(&facts),
        "not without a quorum of the restored cluster"
    );
}

#[test]
fn an_undo_makes_the_replaced_epoch_current_again() {
    let mut facts = finished();
    let old = requested();
    undo(&mut facts);
    facts.pdb_min_available = Observed::Present(Some(1));
    let plan = Etcd::decide(&facts);
    // Three members return at once: evictions must leave two of them.
    assert_eq!(
        plan.apply,
        [EtcdApply::PodDisruptionBudget {
            from: Observed::Present(Some(1)),
            min: 2
        }]
    );
    assert_eq!(turn(&mut facts), IdentityChange::UndoRestore);
    let (before, after) = (identity(&old), identity(&facts));
    assert_eq!(
        (after.epoch, after.cluster_id, after.bootstrapped),
        (before.epoch, before.cluster_id, true)
    );
    assert_eq!(after.highest_epoch(), Epoch(2));
    // The members start on their volumes, held at first, and the data that was restored is kept.
    let plan = Etcd::decide(&facts);
    assert_eq!(plan.patch.len(), 4, "{plan:?}");
    for claim in claims(&mut facts) {
        claim.replaced_until = (claim.epoch != Epoch::FIRST).then_some(UnixTime(i64::MAX));
    }
    let plan = Etcd::decide(&facts);
    assert_eq!(plan.create.len(), 3, "{plan:?}");
    assert!(plan.create.iter().all(|create| matches!(
        create,
        EtcdCreate::Pod {
            start_mode: StartMode::Held,
            ..
        }
    )));
    // A request that stays has no further effect.
    assert!(Etcd::decide(&facts).disruption.is_none());
}

#[test]
fn an_undo_is_not_possible_without_the_old_volumes() {
    let mut facts = finished();
    undo(&mut facts);
    facts.now = NOW.after(std::time::Duration::from_secs(3600));
    assert_ne!(
        change(&Etcd::decide(&facts)).map(|(why, _)| why),
        Some(IdentityChange::UndoRestore),
        "after their time"
    );
    facts.now = NOW;
    claims(&mut facts).retain(|claim| claim.epoch != Epoch::FIRST);
    assert_ne!(
        change(&Etcd::decide(&facts)).map(|(why, _)| why),
        Some(IdentityChange::UndoRestore),
        "deleted"
    );
}

#[test]
fn a_lost_identity_is_rebuilt_as_the_cluster_with_the_data_of_clients() {
    let rebuilt = |mut facts: EtcdFacts| {
        facts.cluster.status_cluster_id = Some(ClusterId(5));
        facts.identity = Observed::Absent;
        let plan = Etcd::decide(&facts);
        match plan.create.as_slice() {
            [EtcdCreate::Identity(identity)] => (
                identity.epoch.0,
                identity.highest_epoch().0,
                identity.bootstrapped,
            ),
            other => panic!("{other:?}"),
        }
    };
    let mut preparing = requested();
    turn(&mut preparing);
    add_filled_claim(&mut preparing);
    assert_eq!(rebuilt(preparing), (1, 2, true));
    assert_eq!(
        rebuilt(replaced()),
        (1, 2, true),
        "the new seed has not started"
    );
    assert_eq!(rebuilt(finished()), (2, 2, true));
}
