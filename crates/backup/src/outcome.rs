//! The state of an agent's pod. Only a readable report with exit code 0 counts as success; a report that is missing, cut or
//! invalid is a failure, whatever the phase of the pod is.

use std::time::Duration;

use evenkeel_archive::tasks::{FailureReason, Outcome, TaskFailure};
use evenkeel_kit::pods;
use evenkeel_runtime::UnixTime;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use crate::agent_pod::MEMORY_LIMIT;

/// How long a scheduled pod may take to start its container before that is a problem: pulling the image and attaching a
/// volume take time.
const START_GRACE: Duration = Duration::from_secs(60);

/// The state of an agent's pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AgentState {
    /// The container has not started.
    Pending {
        /// The problem that keeps it from starting, if Kubernetes reports one.
        problem: Option<PodProblem>,
    },
    /// The agent runs.
    Running,
    /// The agent has ended.
    Finished {
        /// The outcome.
        outcome: Outcome,
        /// When the container ended, if Kubernetes reports it.
        at: Option<UnixTime>,
    },
}

/// A problem that keeps a pod from starting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodProblem {
    /// The reason in one word, Kubernetes' own where it has one.
    pub reason: String,
    /// The problem and its remedy. The text stays the same while the problem does.
    pub message: String,
}

/// Returns the state of a pod whose outcome is reported by this container.
pub fn state(pod: &Pod, container: &str, now: UnixTime) -> AgentState {
    if let Some(terminated) = container_state(pod, container).and_then(|it| it.terminated.as_ref())
    {
        return AgentState::Finished {
            outcome: outcome_of(terminated),
            at: unix_time(terminated.finished_at.as_ref()),
        };
    }
    if pods::is_finished(pod) {
        return AgentState::Finished {
            outcome: outcome_without_container(pod),
            at: None,
        };
    }
    let is_running = container_state(pod, container).is_some_and(|state| state.running.is_some());
    if is_running {
        return AgentState::Running;
    }
    AgentState::Pending {
        problem: problem(pod, now),
    }
}

/// Returns the outcome of a container that has ended.
fn outcome_of(terminated: &ContainerStateTerminated) -> Outcome {
    let message = terminated.message.as_deref().unwrap_or_default().trim();
    let (code, reason) = (
        terminated.exit_code,
        terminated.reason.as_deref().unwrap_or_default(),
    );
    match serde_json::from_str::<Outcome>(message) {
        Ok(Outcome::Failed(failure)) => Outcome::Failed(failure),
        Ok(Outcome::Succeeded(result)) if code == 0 => Outcome::Succeeded(result),
        // The memory limit of the container, or the memory of the node.
        Ok(Outcome::Succeeded(_)) | Err(_) if reason == "OOMKilled" => failure(format!(
            "The agent was killed because it used more memory than its limit of {MEMORY_LIMIT}."
        )),
        Ok(Outcome::Succeeded(_)) => failure(format!(
            "The agent reported success, but ended with exit code {code}."
        )),
        Err(_) if message.is_empty() => failure(format!(
            "The agent ended with exit code {code} and without a report. Its log in the pod may name the reason."
        )),
        Err(_) => failure(format!(
            "The agent ended with exit code {code}, and its report cannot be read: the agent and the operator may be of \
             different versions."
        )),
    }
}

/// Returns the outcome of a pod that ended before or without its container, for example because it was evicted.
fn outcome_without_container(pod: &Pod) -> Outcome {
    let status = pod.status.as_ref();
    let reason = status.and_then(|status| status.reason.as_deref());
    let message = status.and_then(|status| status.message.as_deref());
    let because = match (reason, message) {
        (Some(reason), Some(message)) => format!(" ({reason}: {})", message.trim()),
        (Some(reason), None) => format!(" ({reason})"),
        (None, _) => String::new(),
    };
    let text = format!("The pod of the agent ended without a report{because}.");
    match reason {
        Some("DeadlineExceeded") => Outcome::Failed(TaskFailure {
            reason: FailureReason::DeadlineExceeded,
            message: text,
        }),
        _ => failure(text),
    }
}

fn failure(message: String) -> Outcome {
    Outcome::Failed(TaskFailure {
        reason: FailureReason::Other,
        message,
    })
}

/// Returns the problem of a pod whose container has not started.
fn problem(pod: &Pod, now: UnixTime) -> Option<PodProblem> {
    let text = pods::problem(pod, "the agent");
    if pods::unschedulable_since(pod, now).is_some() {
        return Some(PodProblem {
            reason: "Unschedulable".to_owned(),
            message: format!(
                "No node can run the pod of the agent: {}",
                sentence(text.as_deref().unwrap_or("the scheduler gives no reason"))
            ),
        });
    }
    if pods::is_image_missing(pod) {
        return Some(PodProblem {
            reason: "ImagePullFailed".to_owned(),
            message: format!(
                "{} Check the flag --agent-image of the operator, and the registry.",
                sentence(&capitalized(
                    text.as_deref().unwrap_or("the image cannot be pulled")
                ))
            ),
        });
    }
    if let Some(text) = text {
        let (reason, _) = text.split_once(':').unwrap_or(("ContainerNotStarted", ""));
        let is_word = !reason.is_empty() && reason.bytes().all(|it| it.is_ascii_alphanumeric());
        let reason = if is_word {
            reason
        } else {
            "ContainerNotStarted"
        };
        return Some(PodProblem {
            reason: reason.to_owned(),
            message: format!("The agent does not start: {}", sentence(&text)),
        });
    }
    let scheduled = pods::scheduled_at(pod)?;
    (now.since(scheduled) > START_GRACE).then(|| PodProblem {
        reason: "ContainerNotStarted".to_owned(),
        message: "The agent does not start although its pod has a node: a volume may not be attached or mounted. \
                  The events of the pod name the reason."
            .to_owned(),
    })
}

/// Returns the text with one full stop at its end.
fn sentence(text: &str) -> String {
    format!("{}.", text.trim().trim_end_matches('.'))
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}

fn container_state<'p>(pod: &'p Pod, container: &str) -> Option<&'p ContainerState> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    let status = statuses.iter().find(|status| status.name == container)?;
    status.state.as_ref()
}

fn unix_time(time: Option<&Time>) -> Option<UnixTime> {
    time.map(|time| UnixTime(time.0.as_second()))
}

#[cfg(test)]
#[path = "outcome_tests.rs"]
mod tests;
