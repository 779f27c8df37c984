use evenkeel_runtime::UnixTime;
use serde_json::{Value, json};

use super::super::decide::step;
use super::super::facts::LastCheck;
use super::*;
use crate::pod_facts::PodFacts;

const NOW: UnixTime = UnixTime(1_800_000_000);

fn store(status: Value) -> BackupStore {
    serde_json::from_value(json!({
        "apiVersion": "evenkeel.dev/v1alpha1",
        "kind": "BackupStore",
        "metadata": { "name": "prod", "namespace": "shop", "generation": 2 },
        "spec": { "s3": { "bucket": "backups", "prefix": "eu1", "credentials": { "secret": "s3-keys" } } },
        "status": status,
    }))
    .unwrap()
}

fn facts(store: &BackupStore, pod: PodFacts) -> StoreFacts {
    StoreFacts {
        now: NOW,
        has_agent_image: true,
        missing: None,
        inputs: "a".to_owned(),
        last_check: LastCheck::of(store),
        pod,
        listing: crate::store::ListingFacts::default(),
    }
}

fn ended(outcome: Outcome) -> PodFacts {
    PodFacts::Own(OwnPod {
        attempt: 1,
        member: String::new(),
        inputs: "a".to_owned(),
        state: AgentState::Finished {
            outcome,
            at: Some(UnixTime(NOW.0 - 1)),
        },
        created_at: UnixTime(NOW.0 - 5),
        is_terminating: false,
        is_expired: false,
    })
}

fn ready(status: &BackupStoreStatus) -> (&str, &str) {
    let ready = conditions::find(&status.conditions, READY).unwrap();
    assert_eq!(ready.observed_generation, Some(2));
    (&ready.status, &ready.reason)
}

/// Writes the status as the API server does, and returns the store with it.
fn written(status: &BackupStoreStatus) -> BackupStore {
    store(serde_json::to_value(status).unwrap())
}

fn succeeded() -> Outcome {
    Outcome::Succeeded(TaskResult::StoreChecked {
        conditional_writes: true,
    })
}

#[test]
fn a_store_is_ready_only_after_a_successful_check_of_its_inputs() {
    let new = store(json!({}));
    let facts_new = facts(&new, PodFacts::Absent);
    let checking = status(&new, &facts_new, &step(&facts_new), None);
    assert_eq!(ready(&checking), ("Unknown", "Checking"));
    assert_eq!(checking.location, "s3://backups/eu1");
    let checking = written(&checking);
    let facts_ended = facts(&checking, ended(succeeded()));
    let done = status(&checking, &facts_ended, &step(&facts_ended), None);
    assert_eq!(ready(&done), ("True", "Available"));
    assert_eq!(done.conditional_writes, Some(true));
    assert_eq!(done.checked_inputs, "a");
    // The pod is deleted next, and the status stays.
    let done = written(&done);
    let facts_recorded = facts(&done, ended(succeeded()));
    assert_eq!(
        step(&facts_recorded),
        StoreStep::DeletePod { by_force: false }
    );
    let facts_deleted = facts(&done, PodFacts::Absent);
    let stays = status(&done, &facts_deleted, &step(&facts_deleted), None);
    assert_eq!(Some(stays), done.status);
    let changed = StoreFacts {
        inputs: "b".to_owned(),
        ..facts_deleted
    };
    let again = status(&done, &changed, &step(&changed), None);
    assert_eq!(ready(&again), ("Unknown", "Checking"));
}

#[test]
fn a_failed_check_is_reported_with_its_reason() {
    let failure = Outcome::Failed(TaskFailure {
        reason: FailureReason::WrongRegion,
        message: "The bucket is in eu-west-1. Set spec.s3.region.".to_owned(),
    });
    let store = store(json!({}));
    let facts = facts(&store, ended(failure));
    let failed = status(&store, &facts, &step(&facts), None);
    assert_eq!(ready(&failed), ("False", "WrongRegion"));
    let last = LastCheck::of(&written(&failed)).unwrap();
    assert_eq!(last.failing_since, Some(NOW));
}

#[test]
fn the_result_of_another_task_is_not_a_successful_check() {
    let store = store(json!({}));
    let facts = facts(&store, ended(Outcome::Succeeded(TaskResult::Done)));
    let status = status(&store, &facts, &step(&facts), None);
    assert_eq!(ready(&status), ("False", "InvalidRequest"));
}

#[test]
fn a_missing_input_is_named_and_the_store_is_checked_again_when_it_is_back() {
    let ok = {
        let store = store(json!({}));
        let facts = facts(&store, ended(succeeded()));
        written(&status(&store, &facts, &step(&facts), None))
    };
    let cases = [
        (MissingInput::Secret("s3-keys".to_owned()), "SecretNotFound"),
        (
            MissingInput::SecretKey {
                secret: "s3-keys".to_owned(),
                key: "accessKeyID".to_owned(),
            },
            "InvalidSecret",
        ),
        (
            MissingInput::ConfigMap("ca".to_owned()),
            "ConfigMapNotFound",
        ),
        (
            MissingInput::ConfigMapKey("ca".to_owned()),
            "InvalidConfigMap",
        ),
        (MissingInput::Claim("backups".to_owned()), "VolumeNotFound"),
        (MissingInput::Place, "InvalidSpec"),
    ];
    for (missing, reason) in cases {
        let without = StoreFacts {
            missing: Some(missing),
            ..facts(&ok, PodFacts::Absent)
        };
        let reported = status(&ok, &without, &step(&without), None);
        assert_eq!(ready(&reported), ("False", reason));
        let back = written(&reported);
        assert_eq!(step(&facts(&back, PodFacts::Absent)), StoreStep::Check);
    }
}

#[test]
fn a_rejected_pod_is_reported() {
    let store = store(json!({}));
    let facts = facts(&store, PodFacts::Absent);
    let error = Error::other("create Pod prod-store-check", "exceeded quota");
    let status = status(&store, &facts, &step(&facts), Some(&error));
    assert_eq!(ready(&status), ("False", "WriteRejected"));
}

#[test]
fn a_volume_store_has_a_location_too() {
    let spec = json!({ "volume": { "claim": "backups" } });
    assert_eq!(
        location(&serde_json::from_value(spec).unwrap()),
        "pvc://backups"
    );
}
