//! The result of a drill, from its pod. Only evidence about the data counts as damage: an agent that reports it, or an
//! application that rejects the data. Everything else means that the drill could not run.

use evenkeel_api::DrillResult;
use evenkeel_archive::tasks::{FailureReason, Outcome, TaskFailure, TaskResult};
use evenkeel_kit::pods;
use evenkeel_runtime::UnixTime;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, Pod};

use super::facts::{DrillPodState, DrillRecord};

/// The init container that downloads the backup.
pub const FETCH: &str = "fetch";
/// The init container of the engine that restores the data.
pub const RESTORE: &str = "restore";
/// The container of the engine that serves the restored data.
pub const SERVE: &str = "serve";
/// The container that compares the data.
pub const DRILL: &str = "drill";

/// The exit codes of a process that was killed: by SIGKILL, as by the kernel or the kubelet, and by SIGTERM.
const KILLED: [i32; 2] = [137, 143];
/// The longest text of the application in a message, in characters.
const MAX_TEXT_CHARS: usize = 600;

/// Returns the state of a drill.
pub fn state(pod: &Pod, backup: &str, now: UnixTime) -> DrillPodState {
    let finished = |result, seconds, message: String| {
        DrillPodState::Finished(DrillRecord {
            backup: backup.to_owned(),
            at: ended_at(pod, now),
            result,
            seconds,
            message,
        })
    };
    match verdict(pod) {
        Some(Verdict::Proven { seconds }) => finished(
            DrillResult::Proven,
            i64::try_from(seconds).unwrap_or(i64::MAX),
            String::new(),
        ),
        Some(Verdict::Damaged(message)) => finished(DrillResult::Damaged, 0, message),
        Some(Verdict::NotRun(message)) => finished(DrillResult::NotRun, 0, message),
        None if has_started(pod) => DrillPodState::Running,
        None => DrillPodState::Pending(problem(pod)),
    }
}

enum Verdict {
    Proven { seconds: u64 },
    Damaged(String),
    NotRun(String),
}

fn verdict(pod: &Pod) -> Option<Verdict> {
    if let Some(ended) = terminated(pod, DRILL)
        && let Some(outcome) = report(ended)
    {
        return Some(compared(pod, outcome));
    }
    if let Some(ended) = failed(pod, FETCH)
        && let Some(outcome) = report(ended)
    {
        return Some(match outcome {
            Outcome::Failed(failure) => failure_verdict(&failure),
            Outcome::Succeeded(_) => {
                Verdict::NotRun("The agent reported success and failed.".to_owned())
            }
        });
    }
    // Evicted, DeadlineExceeded, NodeLost: the containers were killed.
    if let Some(reason) = pod
        .status
        .as_ref()
        .and_then(|status| status.reason.as_deref())
        && pods::is_finished(pod)
    {
        let message = pod
            .status
            .as_ref()
            .and_then(|status| status.message.as_deref());
        return Some(Verdict::NotRun(sentence(&format!(
            "The pod was ended: {reason}: {}",
            message.unwrap_or("Kubernetes gives no message")
        ))));
    }
    if let Some(ended) = failed(pod, RESTORE) {
        return Some(application_verdict(RESTORE, ended));
    }
    // The container that compares the data ends, too, and reports more.
    if let Some(ended) = failed(pod, SERVE).filter(|_| terminated(pod, DRILL).is_some()) {
        return Some(application_verdict(SERVE, ended));
    }
    for container in [FETCH, DRILL] {
        if let Some(ended) =
            terminated(pod, container).filter(|it| container == DRILL || it.exit_code != 0)
        {
            return Some(Verdict::NotRun(format!(
                "The agent ended with exit code {} and without a report that can be read ({}).",
                ended.exit_code,
                ended.reason.as_deref().unwrap_or("no reason")
            )));
        }
    }
    pods::is_finished(pod)
        .then(|| Verdict::NotRun("The pod ended before the drill did.".to_owned()))
}

/// Returns the verdict of the container that compares the data. If it could not read, the application may have rejected
/// the data.
fn compared(pod: &Pod, outcome: Outcome) -> Verdict {
    match outcome {
        Outcome::Succeeded(TaskResult::Proven { seconds, .. }) => Verdict::Proven { seconds },
        Outcome::Succeeded(_) => Verdict::NotRun(
            "The agent reported the result of another task: the agent and the operator may be of different versions."
                .to_owned(),
        ),
        Outcome::Failed(failure) => match failure_verdict(&failure) {
            Verdict::NotRun(message) => match failed(pod, SERVE) {
                Some(ended) => application_verdict(SERVE, ended),
                None => Verdict::NotRun(message),
            },
            verdict => verdict,
        },
    }
}

fn failure_verdict(failure: &TaskFailure) -> Verdict {
    let message = sentence(&failure.message);
    match failure.reason {
        FailureReason::BackupNotFound
        | FailureReason::BackupDamaged
        | FailureReason::DataDiffers => Verdict::Damaged(message),
        FailureReason::BucketNotFound
        | FailureReason::InvalidCredentials
        | FailureReason::AccessDenied
        | FailureReason::WrongRegion
        | FailureReason::Unreachable
        | FailureReason::InvalidCertificate
        | FailureReason::AddressNotAllowed
        | FailureReason::StoreFull
        | FailureReason::StoreFailed
        | FailureReason::DeadlineExceeded
        | FailureReason::NoProgress
        | FailureReason::MemberTooFull
        | FailureReason::SourceFailed
        | FailureReason::NotSupported
        | FailureReason::NoSpace
        | FailureReason::InvalidRequest
        | FailureReason::Other => Verdict::NotRun(message),
    }
}

/// Returns the verdict of a container of the application that has failed.
fn application_verdict(container: &str, ended: &ContainerStateTerminated) -> Verdict {
    let text: String = ended
        .message
        .as_deref()
        .unwrap_or_default()
        .trim()
        .chars()
        .collect();
    let skipped = text.chars().count().saturating_sub(MAX_TEXT_CHARS);
    // The end of a log names the reason.
    let text: String = text.chars().skip(skipped).collect();
    let reason = ended.reason.as_deref().unwrap_or_default();
    let is_killed = KILLED.contains(&ended.exit_code)
        || ended.signal.is_some_and(|signal| signal != 0)
        || matches!(
            reason,
            "OOMKilled" | "ContainerCannotRun" | "StartError" | "Evicted"
        );
    let has_no_space =
        text.contains("no space left on device") || text.contains("disk quota exceeded");
    let message = sentence(&format!(
        "The container {container} ended with exit code {} ({reason}): {text}",
        ended.exit_code
    ));
    if is_killed || has_no_space {
        Verdict::NotRun(message)
    } else {
        Verdict::Damaged(message)
    }
}

fn report(ended: &ContainerStateTerminated) -> Option<Outcome> {
    let message = ended.message.as_deref().unwrap_or_default();
    let outcome: Outcome = serde_json::from_str(message.trim()).ok()?;
    let is_consistent = matches!(outcome, Outcome::Failed(_)) || ended.exit_code == 0;
    is_consistent.then_some(outcome)
}

fn statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.iter();
    status.flat_map(|status| {
        let init = status.init_container_statuses.iter().flatten();
        init.chain(status.container_statuses.iter().flatten())
    })
}

fn container_state<'p>(pod: &'p Pod, container: &str) -> Option<&'p ContainerState> {
    statuses(pod)
        .find(|status| status.name == container)?
        .state
        .as_ref()
}

fn terminated<'p>(pod: &'p Pod, container: &str) -> Option<&'p ContainerStateTerminated> {
    container_state(pod, container)?.terminated.as_ref()
}

fn failed<'p>(pod: &'p Pod, container: &str) -> Option<&'p ContainerStateTerminated> {
    terminated(pod, container).filter(|ended| ended.exit_code != 0)
}

/// Returns true if any container of a pod has started.
pub fn has_started(pod: &Pod) -> bool {
    statuses(pod)
        .filter_map(|status| status.state.as_ref())
        .any(|state| state.running.is_some() || state.terminated.is_some())
}

/// Returns when a pod that has a result ended: a time that later observations give again.
pub fn ended_at(pod: &Pod, now: UnixTime) -> UnixTime {
    let ended = |container: &str| {
        let time = terminated(pod, container)?.finished_at.as_ref()?;
        Some(UnixTime(time.0.as_second()))
    };
    // The container that serves is killed after the others have ended.
    let result = ended(DRILL)
        .or_else(|| ended(RESTORE))
        .or_else(|| ended(FETCH));
    if let Some(result) = result {
        return result;
    }
    let conditions = pod
        .status
        .iter()
        .filter_map(|status| status.conditions.as_ref());
    let changed = conditions
        .flatten()
        .filter_map(|condition| condition.last_transition_time.as_ref());
    changed
        .map(|time| UnixTime(time.0.as_second()))
        .max()
        .unwrap_or_else(|| pods::created_at(pod, now))
}

fn problem(pod: &Pod) -> String {
    pods::problem(pod, "the drill").map_or_else(String::new, |text| {
        let mut chars = text.chars();
        let first = chars.next().map(|first| first.to_uppercase().to_string());
        sentence(&format!("{}{}", first.unwrap_or_default(), chars.as_str()))
    })
}

fn sentence(text: &str) -> String {
    format!("{}.", text.trim().trim_end_matches(['.', ':', ' ']))
}

#[cfg(test)]
#[path = "drill_pod_tests.rs"]
mod tests;
