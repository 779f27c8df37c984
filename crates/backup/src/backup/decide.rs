//! The steps of a Backup. Each step is derived from the objects alone, so that an operator that crashed continues. An outcome
//! is written to the status before its pod is deleted. All attempts of a Backup have the same name in the store, so that an
//! attempt after one whose report was lost finds the backup of that one instead of creating a second.

use std::time::Duration;

use evenkeel_archive::tasks::{BackupSummary, FailureReason, Outcome, TaskResult};
use evenkeel_runtime::{Engine, Plan, Requeue, UnixTime};
use serde::{Deserialize, Serialize};

use super::facts::{BackupFacts, FailedFacts, SourceFacts, StoreState};
use crate::outcome::{AgentState, PodProblem};
use crate::pod_facts::{OwnPod, PodFacts};
use crate::store::word;

/// The number of attempts.
pub const MAX_ATTEMPTS: u32 = 3;
/// The delays before the second attempt and before the third.
const RETRY_DELAYS: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(60)];
/// The remaining time with which no attempt is started any more.
const MIN_ATTEMPT: Duration = Duration::from_secs(20);
/// The interval at which objects without a watch are read again.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// The interval at which the end of another Backup's pod is looked for.
const TURN_INTERVAL: Duration = Duration::from_secs(3);

/// The knowledge of how a Backup is taken.
pub struct BackupControl;

/// The creation of the pod of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupCreate {
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The member to read; empty for an import.
    pub member: String,
}

/// The deletion of the pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupPatch {
    /// Whether Kubernetes does not wait for the kubelet.
    pub by_force: bool,
}

/// The reason why a Backup waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BackupWait {
    /// The operator does not know the image of the agent.
    AgentImage,
    /// The BackupStore does not exist.
    StoreNotFound,
    /// The BackupStore is not Ready.
    StoreNotReady,
    /// The cluster does not exist.
    ClusterNotFound,
    /// No member of the cluster can be read.
    ClusterNotReady,
    /// Another Backup of the same cluster runs.
    AnotherBackup(String),
    /// A pod of another owner has the name of the Backup's pod.
    PodName,
    /// The last attempt has failed, and the next one follows at this time.
    Retry(UnixTime),
    /// The pod of the last attempt is being deleted.
    Deletion,
    /// The pod has not ended.
    Pod,
    /// The remaining time is too short for another attempt.
    Deadline,
}

/// The next step of a Backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackupStep {
    /// The Backup has ended, and its pod is gone.
    Finished,
    /// The pod is not needed any more.
    DeletePod {
        /// Whether Kubernetes does not wait for the kubelet.
        by_force: bool,
    },
    /// The backup is complete, which is to be written to the status.
    Complete {
        /// The place in the store.
        location: String,
        /// The summary of the manifest.
        summary: BackupSummary,
    },
    /// The Backup has failed, which is to be written to the status.
    Fail {
        /// The reason in one word.
        reason: String,
        /// The problem and its remedy.
        message: String,
    },
    /// An attempt has failed, which is to be written to the status before the next one.
    RecordFailure(FailedFacts),
    /// The pod has not ended.
    Running {
        /// The pod.
        pod: OwnPod,
        /// The problem that keeps it from starting.
        problem: Option<PodProblem>,
    },
    /// The Backup waits.
    Wait(BackupWait),
    /// The next step depends on the cluster, which has not been read.
    ReadSource,
    /// An attempt starts.
    Start(BackupCreate),
}

/// Returns the next step.
pub fn step(facts: &BackupFacts) -> BackupStep {
    let own = match &facts.pod {
        PodFacts::Own(pod) => Some(pod),
        PodFacts::Absent | PodFacts::Foreign { .. } => None,
    };
    if facts.is_final {
        return own.map_or(BackupStep::Finished, |pod| {
            delete(pod).unwrap_or(BackupStep::Finished)
        });
    }
    if let Some(pod) = own
        && let AgentState::Finished { outcome, at } = &pod.state
    {
        // The clocks of kubelet and API server may differ.
        let at = at.unwrap_or(facts.now).max(pod.created_at);
        return finished(facts, pod, outcome, at);
    }
    if facts.now >= facts.deadline {
        return at_deadline(facts);
    }
    match &facts.pod {
        PodFacts::Own(pod) if pod.is_terminating => {
            delete(pod).unwrap_or(BackupStep::Wait(BackupWait::Deletion))
        }
        PodFacts::Own(pod) => BackupStep::Running {
            problem: match &pod.state {
                AgentState::Pending { problem } => problem.clone(),
                AgentState::Running | AgentState::Finished { .. } => None,
            },
            pod: pod.clone(),
        },
        PodFacts::Foreign {
            is_expired: true, ..
        } => BackupStep::DeletePod { by_force: true },
        PodFacts::Foreign {
            backup: Some(name), ..
        } => BackupStep::Wait(BackupWait::AnotherBackup(name.clone())),
        PodFacts::Foreign { backup: None, .. } => BackupStep::Wait(BackupWait::PodName),
        PodFacts::Absent => without_pod(facts),
    }
}

/// Returns the deletion of a pod; `None` while Kubernetes deletes it.
fn delete(pod: &OwnPod) -> Option<BackupStep> {
    let by_force = pod.is_terminating && pod.is_expired;
    (by_force || !pod.is_terminating).then_some(BackupStep::DeletePod { by_force })
}

/// Returns the step after a pod has ended.
fn finished(facts: &BackupFacts, pod: &OwnPod, outcome: &Outcome, at: UnixTime) -> BackupStep {
    let failure = match outcome {
        // Even after the deadline: the manifest is in the store.
        Outcome::Succeeded(TaskResult::Backup { location, summary }) => {
            return BackupStep::Complete {
                location: location.clone(),
                summary: summary.clone(),
            };
        }
        Outcome::Succeeded(_) => {
            return BackupStep::Fail {
                reason: word(FailureReason::InvalidRequest),
                message: "The agent reported the result of another task: the agent and the operator are of different \
                          versions. Start the operator with the --agent-image of its own version."
                    .to_owned(),
            };
        }
        Outcome::Failed(failure) => failure,
    };
    let may_retry = failure.reason.is_transient() && pod.attempt < MAX_ATTEMPTS;
    if !may_retry || facts.now >= facts.deadline {
        return BackupStep::Fail {
            reason: word(failure.reason),
            message: failure.message.clone(),
        };
    }
    let recorded = u32::try_from(facts.failed.len()).unwrap_or(u32::MAX);
    if recorded >= pod.attempt {
        return delete(pod).unwrap_or(BackupStep::Wait(BackupWait::Deletion));
    }
    BackupStep::RecordFailure(FailedFacts {
        at,
        member: pod.member.clone(),
        reason: word(failure.reason),
        message: failure.message.clone(),
    })
}

/// Returns the failure of a Backup whose deadline has passed.
fn at_deadline(facts: &BackupFacts) -> BackupStep {
    let last = match (&facts.pod, facts.failed.last()) {
        (PodFacts::Own(pod), _) => match &pod.state {
            AgentState::Pending {
                problem: Some(problem),
            } => problem.message.clone(),
            AgentState::Pending { problem: None } => "The agent had not started.".to_owned(),
            AgentState::Running | AgentState::Finished { .. } => {
                "The agent was still running.".to_owned()
            }
        },
        (PodFacts::Foreign { .. } | PodFacts::Absent, Some(failed)) => failed.message.clone(),
        (
            PodFacts::Foreign {
                backup: Some(name), ..
            },
            None,
        ) => format!("The Backup {name} of the same cluster was still running."),
        (PodFacts::Foreign { backup: None, .. }, None) => {
            "A Pod of another owner had the name of the Backup's pod.".to_owned()
        }
        (PodFacts::Absent, None) => match &facts.store {
            StoreState::Absent => "The BackupStore did not exist.".to_owned(),
            StoreState::NotReady { reason, message } => {
                format!("The BackupStore was not Ready ({reason}): {message}")
            }
            StoreState::Ready if facts.is_import => String::new(),
            StoreState::Ready => match &facts.source {
                // The last reason is read once more, so that the status names it.
                None => return BackupStep::ReadSource,
                Some(SourceFacts::NotFound) => "The cluster did not exist.".to_owned(),
                Some(SourceFacts::NotReady { problem }) => {
                    format!("The cluster could not be read: {problem}")
                }
                Some(SourceFacts::Members(_)) => String::new(),
            },
        },
    };
    let text = "The backup was not complete at its deadline (spec.deadline).";
    BackupStep::Fail {
        reason: word(FailureReason::DeadlineExceeded),
        message: format!("{text} {last}").trim_end().to_owned(),
    }
}

/// Returns the step of a Backup without a pod.
fn without_pod(facts: &BackupFacts) -> BackupStep {
    let failed = u32::try_from(facts.failed.len()).unwrap_or(u32::MAX);
    if facts.attempts > failed {
        return BackupStep::RecordFailure(FailedFacts {
            at: facts.now,
            member: facts.member.clone(),
            reason: "PodDeleted".to_owned(),
            message: "The pod of the agent was deleted before its report was read.".to_owned(),
        });
    }
    if let Some(last) = facts.failed.last() {
        if failed >= MAX_ATTEMPTS {
            return BackupStep::Fail {
                reason: last.reason.clone(),
                message: last.message.clone(),
            };
        }
        let delay = RETRY_DELAYS[(facts.failed.len() - 1).min(RETRY_DELAYS.len() - 1)];
        let next = last.at.after(delay);
        if facts.now < next {
            return BackupStep::Wait(BackupWait::Retry(next));
        }
    }
    if !facts.has_agent_image {
        return BackupStep::Wait(BackupWait::AgentImage);
    }
    match &facts.store {
        StoreState::Absent => return BackupStep::Wait(BackupWait::StoreNotFound),
        StoreState::NotReady { .. } => return BackupStep::Wait(BackupWait::StoreNotReady),
        StoreState::Ready => {}
    }
    if facts.deadline.since(facts.now) < MIN_ATTEMPT {
        return BackupStep::Wait(BackupWait::Deadline);
    }
    let start = |member: &str| {
        BackupStep::Start(BackupCreate {
            attempt: failed + 1,
            member: member.to_owned(),
        })
    };
    if facts.is_import {
        return start("");
    }
    match &facts.source {
        None => BackupStep::ReadSource,
        Some(SourceFacts::NotFound) => BackupStep::Wait(BackupWait::ClusterNotFound),
        Some(SourceFacts::NotReady { .. }) => BackupStep::Wait(BackupWait::ClusterNotReady),
        Some(SourceFacts::Members(members)) => {
            // A member that failed once may fail again.
            let has_failed = |name: &&String| facts.failed.iter().any(|it| it.member == **name);
            let other = members.iter().find(|name| !has_failed(name));
            match other.or(members.first()) {
                Some(member) => start(member),
                None => BackupStep::Wait(BackupWait::ClusterNotReady),
            }
        }
    }
}

impl Engine for BackupControl {
    type Facts = BackupFacts;
    type Create = BackupCreate;
    type Apply = ();
    type Patch = BackupPatch;
    type Disruption = ();
    type Wait = BackupWait;

    fn decide(facts: &BackupFacts) -> Plan<Self> {
        // No watch reports that the deadline has passed.
        let within = |wait: Duration| {
            let end = if facts.now < facts.deadline {
                facts.deadline
            } else {
                facts.now.after(wait)
            };
            Requeue::At(facts.now.after(wait).min(end))
        };
        let waiting = |wait: BackupWait| Plan {
            requeue: match &wait {
                BackupWait::AnotherBackup(_) | BackupWait::Deletion => within(TURN_INTERVAL),
                BackupWait::Retry(at) => within(at.since(facts.now)),
                BackupWait::AgentImage
                | BackupWait::StoreNotFound
                | BackupWait::StoreNotReady
                | BackupWait::ClusterNotFound
                | BackupWait::ClusterNotReady
                | BackupWait::PodName
                | BackupWait::Pod
                | BackupWait::Deadline => within(POLL_INTERVAL),
            },
            waits: vec![wait],
            ..Plan::default()
        };
        match step(facts) {
            BackupStep::Finished => {
                let is_terminating = matches!(facts.pod, PodFacts::Own(_));
                let requeue = if is_terminating {
                    Requeue::At(facts.now.after(Duration::from_secs(60)))
                } else {
                    Requeue::OnChange
                };
                Plan {
                    requeue,
                    ..Plan::default()
                }
            }
            BackupStep::DeletePod { by_force } => Plan {
                patch: vec![BackupPatch { by_force }],
                ..Plan::default()
            },
            BackupStep::Start(create) => Plan {
                create: vec![create],
                ..Plan::default()
            },
            // The write of the status triggers the next reconcile; the timer does not depend on it.
            BackupStep::Complete { .. }
            | BackupStep::Fail { .. }
            | BackupStep::RecordFailure(_)
            | BackupStep::ReadSource => Plan {
                requeue: Requeue::At(facts.now.after(TURN_INTERVAL)),
                ..Plan::default()
            },
            BackupStep::Running { .. } => waiting(BackupWait::Pod),
            BackupStep::Wait(wait) => waiting(wait),
        }
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
