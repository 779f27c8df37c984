//! The status of a Backup, and its events.

use evenkeel_api::{Backup, BackupPhase, BackupStatus, FailedAttempt};
use evenkeel_archive::tasks::BackupSummary;
use evenkeel_runtime::{Error, EventSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::decide::{BackupCreate, BackupStep, BackupWait, MAX_ATTEMPTS};
use super::facts::{BackupFacts, SourceFacts, StoreState};
use crate::conditions::{self, NewCondition};
use crate::texts;

/// The type of the condition.
pub(crate) const COMPLETE: &str = "Complete";

/// Returns the status of a Backup; `None` to leave it unchanged. `error` is the rejection of its pod.
pub(super) fn status(
    backup: &Backup,
    facts: &BackupFacts,
    step: &BackupStep,
    error: Option<&Error>,
) -> Option<BackupStatus> {
    let old = backup.status.clone().unwrap_or_default();
    let generation = backup.metadata.generation;
    let mut new = BackupStatus {
        observed_generation: generation,
        ..old.clone()
    };
    let condition = match step {
        BackupStep::Finished | BackupStep::ReadSource => return None,
        // A final phase is never changed, and the failure of the last attempt stays until the next one.
        BackupStep::DeletePod { .. } | BackupStep::Start(_) => {
            let (reason, message) = texts::write_error(error?);
            incomplete(reason, message)
        }
        BackupStep::Complete { location, summary } => {
            record_complete(&mut new, location, summary, facts);
            NewCondition {
                type_: COMPLETE,
                status: "True",
                reason: "Complete".to_owned(),
                message: complete_text(&new),
            }
        }
        BackupStep::Fail { reason, message } => {
            new.phase = BackupPhase::Failed;
            new.finished_at = Some(conditions::time(facts.now));
            incomplete(
                reason,
                format!("{message} The backup is not tried again: create another Backup."),
            )
        }
        BackupStep::RecordFailure(failed) => {
            new.phase = BackupPhase::Running;
            new.failed_attempts.push(FailedAttempt {
                at: conditions::time(failed.at),
                member: failed.member.clone(),
                reason: failed.reason.clone(),
                message: failed.message.clone(),
            });
            let count = new.failed_attempts.len();
            new.attempts = new.attempts.max(i32::try_from(count).unwrap_or(i32::MAX));
            incomplete(
                &failed.reason,
                format!(
                    "{} Attempt {count} of {MAX_ATTEMPTS} has failed. The operator tries again.",
                    failed.message
                ),
            )
        }
        BackupStep::Running { pod, problem } => {
            new.phase = BackupPhase::Running;
            let attempt = i32::try_from(pod.attempt).unwrap_or(i32::MAX);
            new.attempts = new.attempts.max(attempt);
            new.member.clone_from(&pod.member);
            let started = || conditions::time(pod.created_at);
            new.started_at = Some(new.started_at.take().unwrap_or_else(started));
            match problem {
                Some(problem) => incomplete(&problem.reason, problem.message.clone()),
                None if facts.is_import => incomplete(
                    "Running",
                    "The agent reads the manifest of the backup from the store.",
                ),
                None => incomplete(
                    "Running",
                    format!(
                        "The agent reads the data of member {} and writes it to the store.",
                        pod.member
                    ),
                ),
            }
        }
        BackupStep::Wait(wait) => {
            let (reason, message) = wait_text(backup, facts, wait)?;
            incomplete(reason, message)
        }
    };
    new.conditions = conditions::set(&old.conditions, condition, generation, facts.now);
    Some(new)
}

fn record_complete(
    status: &mut BackupStatus,
    location: &str,
    summary: &BackupSummary,
    facts: &BackupFacts,
) {
    let BackupSummary {
        position,
        engine_version,
        cluster_id,
        member,
        size,
        stored_size,
        keys,
        started_at,
        finished_at,
    } = summary;
    let parse = |text: &str| text.parse::<Timestamp>().ok().map(whole_seconds);
    let now = conditions::time(facts.now);
    status.phase = BackupPhase::Complete;
    status.location = location.to_owned();
    status.position.clone_from(position);
    status.engine_version.clone_from(engine_version);
    status.cluster_id.clone_from(cluster_id);
    status.member.clone_from(member);
    status.size = texts::size(*size);
    status.stored_size = texts::size(*stored_size);
    status.keys = keys.and_then(|keys| i64::try_from(keys).ok());
    status.started_at = parse(started_at).or(status.started_at.take());
    status.finished_at = Some(parse(finished_at).unwrap_or(now));
}

/// Returns a time as the API server stores it.
fn whole_seconds(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

fn complete_text(status: &BackupStatus) -> String {
    format!(
        "The store has the data of {} up to {}: {}, {} in the store.",
        status.member, status.position, status.size, status.stored_size
    )
}

fn incomplete(reason: &str, message: impl Into<String>) -> NewCondition {
    NewCondition {
        type_: COMPLETE,
        status: "False",
        reason: reason.to_owned(),
        message: message.into(),
    }
}

/// Returns the reason and the message of a wait; `None` to leave the condition unchanged.
fn wait_text(
    backup: &Backup,
    facts: &BackupFacts,
    wait: &BackupWait,
) -> Option<(&'static str, String)> {
    let (store, cluster) = (&backup.spec.store, &backup.spec.cluster);
    let until = "The backup waits for it until spec.deadline.";
    Some(match wait {
        // The failure of the last attempt is shown.
        BackupWait::Retry(_) | BackupWait::Deletion | BackupWait::Pod | BackupWait::Deadline => {
            return None;
        }
        BackupWait::AgentImage => (
            "AgentImageMissing",
            "The operator does not know the image of the agent, so it cannot take backups. Start the operator with \
             --agent-image."
                .to_owned(),
        ),
        BackupWait::StoreNotFound => (
            "StoreNotFound",
            format!("The BackupStore {store} does not exist. {until} Create the BackupStore."),
        ),
        BackupWait::StoreNotReady => {
            let text = match &facts.store {
                StoreState::NotReady { reason, message } => format!(" ({reason}): {message}"),
                StoreState::Absent | StoreState::Ready => ".".to_owned(),
            };
            (
                "StoreNotReady",
                format!("The BackupStore {store} is not Ready{text} {until}"),
            )
        }
        BackupWait::ClusterNotFound => (
            "ClusterNotFound",
            format!(
                "The {} {} does not exist. {until} Create it, or create a Backup of another cluster.",
                cluster.kind, cluster.name
            ),
        ),
        BackupWait::ClusterNotReady => {
            let problem = match &facts.source {
                Some(SourceFacts::NotReady { problem }) => problem.as_str(),
                Some(SourceFacts::NotFound | SourceFacts::Members(_)) | None => {
                    "No member can be read."
                }
            };
            (
                "ClusterNotReady",
                format!(
                    "The {} {} cannot be backed up now. {problem} {until}",
                    cluster.kind, cluster.name
                ),
            )
        }
        BackupWait::AnotherBackup(name) => (
            "AnotherBackupRunning",
            format!(
                "The Backup {name} of the same cluster runs. {until} Two snapshots at once would slow the members down."
            ),
        ),
        BackupWait::PodName => (
            "NameConflict",
            "A Pod of another owner has the name of the Backup's pod, so the backup cannot start. Delete that Pod."
                .to_owned(),
        ),
    })
}

/// Returns the event for the start of an attempt.
pub(super) fn start_event(create: &BackupCreate) -> EventSpec {
    let BackupCreate { attempt, member } = create;
    let note = if member.is_empty() {
        format!("Reading the manifest of the backup, attempt {attempt} of {MAX_ATTEMPTS}")
    } else {
        format!("Reading the data of member {member}, attempt {attempt} of {MAX_ATTEMPTS}")
    };
    EventSpec::normal("BackupStarted", "Backup", note)
}

/// Returns the events about an outcome.
pub(super) fn outcome_events(
    backup: &Backup,
    facts: &BackupFacts,
    step: &BackupStep,
) -> Vec<EventSpec> {
    let message = || {
        let status = status(backup, facts, step, None)?;
        Some(
            conditions::find(&status.conditions, COMPLETE)?
                .message
                .clone(),
        )
    };
    let event = match step {
        BackupStep::Complete { .. } => {
            message().map(|text| EventSpec::normal("BackupComplete", "Backup", text))
        }
        BackupStep::Fail { .. } => {
            message().map(|text| EventSpec::warning("BackupFailed", "Backup", text))
        }
        BackupStep::RecordFailure(_) => {
            message().map(|text| EventSpec::warning("BackupAttemptFailed", "Backup", text))
        }
        BackupStep::Finished
        | BackupStep::DeletePod { .. }
        | BackupStep::Running { .. }
        | BackupStep::Wait(_)
        | BackupStep::ReadSource
        | BackupStep::Start(_) => None,
    };
    event.into_iter().collect()
}
