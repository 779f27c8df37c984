//! The status of a BackupStore.

use evenkeel_api::{BackupStore, BackupStoreSpec, BackupStoreStatus};
use evenkeel_archive::tasks::{FailureReason, Outcome, TaskFailure, TaskResult};
use evenkeel_runtime::{Error, UnixTime};

use super::decide::{CHECK_INTERVAL, StoreStep, StoreWait};
use super::facts::{MissingInput, StoreFacts};
use super::listing;
use crate::conditions::{self, NewCondition};
use crate::outcome::AgentState;
use crate::pod_facts::OwnPod;
use crate::texts;

/// The type of the condition.
pub(crate) const READY: &str = "Ready";

/// Returns the place of a store as a URL.
pub(crate) fn location(spec: &BackupStoreSpec) -> String {
    let join = |scheme: &str, root: &str, path: Option<&String>| match path {
        Some(path) => format!("{scheme}://{root}/{path}"),
        None => format!("{scheme}://{root}"),
    };
    match (&spec.s3, &spec.volume) {
        (Some(s3), _) => join("s3", &s3.bucket, s3.prefix.as_ref()),
        (None, Some(volume)) => join("pvc", &volume.claim, volume.path.as_ref()),
        (None, None) => String::new(),
    }
}

/// Returns the status of a store. `error` is the rejection of the check's pod.
pub(super) fn status(
    store: &BackupStore,
    facts: &StoreFacts,
    step: &StoreStep,
    error: Option<&Error>,
) -> BackupStoreStatus {
    let old = store.status.clone().unwrap_or_default();
    let generation = store.metadata.generation;
    let mut new = BackupStoreStatus {
        location: location(&store.spec),
        observed_generation: generation,
        listed_request: listing::answered(facts),
        ..old.clone()
    };
    let condition = match (error, step) {
        (Some(error), _) => {
            let (reason, message) = texts::write_error(error);
            Some(unready(reason, message))
        }
        (None, StoreStep::Record(pod)) => {
            let condition = record(&mut new, pod, facts.now);
            new.conditions = conditions::set(&old.conditions, condition, generation, facts.now);
            return new;
        }
        (None, StoreStep::Checking(Some(problem))) => {
            Some(unready(&problem.reason, problem.message.clone()))
        }
        (None, StoreStep::Wait(StoreWait::AgentImage)) => Some(unready(
            "AgentImageMissing",
            "The operator does not know the image of the agent, so it cannot check the store or take backups. Start the \
             operator with --agent-image.",
        )),
        (None, StoreStep::Wait(StoreWait::Input(missing))) => Some(missing_input(missing)),
        (None, StoreStep::Wait(StoreWait::PodName)) => Some(unready(
            "NameConflict",
            format!(
                "A Pod {} of another owner exists, so the store cannot be checked. Delete the Pod.",
                super::observe::pod_name(store)
            ),
        )),
        (
            None,
            StoreStep::Checking(None)
            | StoreStep::DeletePod { .. }
            | StoreStep::Check
            | StoreStep::Checked(_)
            | StoreStep::Wait(StoreWait::Check | StoreWait::Deletion),
        ) => None,
    };
    let is_described = facts
        .last_check
        .as_ref()
        .is_some_and(|last| last.inputs == facts.inputs);
    let condition = match condition {
        // A condition that does not come from a check: the next check describes the store again.
        Some(condition) => {
            new.checked_inputs = String::new();
            condition
        }
        // The last check is valid until the next one ends.
        None if is_described => return new_generation(new, generation),
        None => NewCondition {
            type_: READY,
            status: "Unknown",
            reason: "Checking".to_owned(),
            message: "The store is being checked: a test object is written, read and deleted."
                .to_owned(),
        },
    };
    new.conditions = conditions::set(&old.conditions, condition, generation, facts.now);
    new
}

/// Returns the status with unchanged conditions, for this generation of the spec.
fn new_generation(mut status: BackupStoreStatus, generation: Option<i64>) -> BackupStoreStatus {
    for condition in &mut status.conditions {
        condition.observed_generation = generation;
    }
    status
}

/// Writes the outcome of a check to the status, and returns the condition.
fn record(status: &mut BackupStoreStatus, pod: &OwnPod, now: UnixTime) -> NewCondition {
    let (outcome, at) = match &pod.state {
        AgentState::Finished { outcome, at } => (Some(outcome), *at),
        AgentState::Pending { .. } | AgentState::Running => (None, None),
    };
    // Not before the creation of the pod: the clocks of kubelet and API server may differ.
    status.checked_at = Some(conditions::time(at.unwrap_or(now).max(pod.created_at)));
    status.checked_inputs.clone_from(&pod.inputs);
    match outcome {
        Some(Outcome::Succeeded(TaskResult::StoreChecked { conditional_writes })) => {
            status.conditional_writes = Some(*conditional_writes);
            let hours = CHECK_INTERVAL.as_secs() / 3600;
            let text = if *conditional_writes {
                format!(
                    "A test object was written, read and deleted. The operator checks again every {hours} h."
                )
            } else {
                format!(
                    "A test object was written, read and deleted. The store does not support conditional writes, so the \
                     agent lists before it writes. The operator checks again every {hours} h."
                )
            };
            NewCondition {
                type_: READY,
                status: "True",
                reason: "Available".to_owned(),
                message: text,
            }
        }
        Some(Outcome::Failed(TaskFailure { reason, message })) => {
            unready(&word(*reason), message.clone())
        }
        Some(Outcome::Succeeded(_)) | None => unready(
            &word(FailureReason::InvalidRequest),
            "The agent reported the result of another task: the agent and the operator are of different versions. Start \
             the operator with the --agent-image of its own version.",
        ),
    }
}

/// Returns a failure reason as conditions have it.
pub(crate) fn word(reason: FailureReason) -> String {
    format!("{reason:?}")
}

fn unready(reason: &str, message: impl Into<String>) -> NewCondition {
    NewCondition {
        type_: READY,
        status: "False",
        reason: reason.to_owned(),
        message: message.into(),
    }
}

fn missing_input(missing: &MissingInput) -> NewCondition {
    match missing {
        MissingInput::Secret(name) => unready(
            "SecretNotFound",
            format!(
                "The Secret {name} does not exist. Create it with the keys accessKeyID and secretAccessKey, or change \
                 spec.s3.credentials.secret."
            ),
        ),
        MissingInput::SecretKey { secret, key } => unready(
            "InvalidSecret",
            format!("The Secret {secret} has no value for the key {key}. Add it."),
        ),
        MissingInput::ConfigMap(name) => unready(
            "ConfigMapNotFound",
            format!(
                "The ConfigMap {name} does not exist. Create it with the key ca.crt, or change spec.s3.ca.configMap."
            ),
        ),
        MissingInput::ConfigMapKey(name) => unready(
            "InvalidConfigMap",
            format!("The ConfigMap {name} has no certificate in PEM in its key ca.crt. Add it."),
        ),
        MissingInput::Claim(name) => unready(
            "VolumeNotFound",
            format!(
                "The PersistentVolumeClaim {name} does not exist, is being deleted, or has lost its volume. Create it, or \
                 change spec.volume.claim."
            ),
        ),
        MissingInput::Place => unready(
            "InvalidSpec",
            "The spec names neither a bucket with credentials nor a volume. Set spec.s3 or spec.volume.",
        ),
    }
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
