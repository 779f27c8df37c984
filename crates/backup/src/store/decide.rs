//! When a store is checked. The outcome of a check is written to the status before its pod is deleted, so that a crash
//! loses at most the time of one check.

use std::time::Duration;

use evenkeel_runtime::{Engine, Plan, Requeue, UnixTime};
use serde::{Deserialize, Serialize};

use super::facts::{LastCheck, MissingInput, StoreFacts};
use super::listing::{self, ListingStep};
use crate::outcome::{AgentState, PodProblem};
use crate::pod_facts::{OwnPod, PodFacts};

/// The interval of checks of a store that can be used.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_secs(6 * 3600);
/// The interval of the first checks after a failure. It grows with the time since the first failure.
const MIN_RETRY_INTERVAL: Duration = Duration::from_secs(30);
/// The interval of later checks after a failure.
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(3600);
/// The interval at which objects without a watch are read again while one is missing, and at which a pod that does not start
/// is looked at: no watch reports that time has passed.
const POLL_INTERVAL: Duration = Duration::from_secs(15);

/// The knowledge of when a store is checked.
pub struct StoreEngine;

/// The creation of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoreCreate {
    /// The pod that checks the store.
    CheckPod {
        /// The hash of the inputs.
        inputs: String,
    },
    /// The pod that lists the backups in the store.
    ListPod {
        /// The identifier of the request.
        request: String,
    },
}

/// The deletion of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StorePatch {
    /// The pod of a check.
    DeleteCheckPod {
        /// Whether Kubernetes does not wait for the kubelet.
        by_force: bool,
    },
    /// The pod of a listing.
    DeleteListPod {
        /// Whether Kubernetes does not wait for the kubelet.
        by_force: bool,
    },
}

/// The reason why a store is not checked now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoreWait {
    /// The operator does not know the image of the agent.
    AgentImage,
    /// A referenced object is missing.
    Input(MissingInput),
    /// A pod of another owner has the name of the check's pod.
    PodName,
    /// The check runs.
    Check,
    /// The pod of the last check is being deleted.
    Deletion,
}

/// The next step for a store.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one value per observation"
)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreStep {
    /// The store cannot be checked.
    Wait(StoreWait),
    /// The pod has not ended, and may have a problem.
    Checking(Option<PodProblem>),
    /// The outcome of this pod is to be written to the status.
    Record(OwnPod),
    /// The pod is not needed any more.
    DeletePod {
        /// Whether Kubernetes does not wait for the kubelet.
        by_force: bool,
    },
    /// A check is due.
    Check,
    /// The last check is recent; the next one is due at this time.
    Checked(UnixTime),
}

/// Returns the next step.
pub fn step(facts: &StoreFacts) -> StoreStep {
    if let PodFacts::Own(pod) = &facts.pod {
        return step_with_pod(facts, pod);
    }
    if !facts.has_agent_image {
        return StoreStep::Wait(StoreWait::AgentImage);
    }
    if let Some(missing) = &facts.missing {
        return StoreStep::Wait(StoreWait::Input(missing.clone()));
    }
    match &facts.pod {
        PodFacts::Foreign {
            is_expired: true, ..
        } => return StoreStep::DeletePod { by_force: true },
        PodFacts::Foreign { .. } => return StoreStep::Wait(StoreWait::PodName),
        PodFacts::Absent | PodFacts::Own(_) => {}
    }
    match &facts.last_check {
        Some(last) if last.inputs == facts.inputs && facts.now < next_check(last) => {
            StoreStep::Checked(next_check(last))
        }
        _ => StoreStep::Check,
    }
}

fn step_with_pod(facts: &StoreFacts, pod: &OwnPod) -> StoreStep {
    if pod.is_terminating {
        return if pod.is_expired {
            StoreStep::DeletePod { by_force: true }
        } else {
            StoreStep::Wait(StoreWait::Deletion)
        };
    }
    let is_current = pod.inputs == facts.inputs && facts.missing.is_none() && facts.has_agent_image;
    let is_recorded = facts
        .last_check
        .as_ref()
        .is_some_and(|last| last.inputs == pod.inputs && last.at >= pod.created_at);
    match &pod.state {
        AgentState::Finished { .. } if is_current && !is_recorded => StoreStep::Record(pod.clone()),
        AgentState::Pending { problem } if is_current => StoreStep::Checking(problem.clone()),
        AgentState::Running if is_current => StoreStep::Checking(None),
        AgentState::Finished { .. } | AgentState::Pending { .. } | AgentState::Running => {
            StoreStep::DeletePod { by_force: false }
        }
    }
}

/// Returns when the next check is due: after failures, the time since the first failure doubles.
fn next_check(last: &LastCheck) -> UnixTime {
    let interval = match last.failing_since {
        None => CHECK_INTERVAL,
        Some(since) => last
            .at
            .since(since)
            .clamp(MIN_RETRY_INTERVAL, MAX_RETRY_INTERVAL),
    };
    last.at.after(interval)
}

impl Engine for StoreEngine {
    type Facts = StoreFacts;
    type Create = StoreCreate;
    type Apply = ();
    type Patch = StorePatch;
    type Disruption = ();
    type Wait = StoreWait;

    fn decide(facts: &StoreFacts) -> Plan<Self> {
        let soon = Requeue::At(facts.now.after(POLL_INTERVAL));
        let waiting = |wait| Plan {
            waits: vec![wait],
            requeue: soon,
            ..Plan::default()
        };
        let mut plan = match step(facts) {
            StoreStep::Wait(wait) => waiting(wait),
            StoreStep::Checking(_) => waiting(StoreWait::Check),
            // The write of the status triggers the next reconcile; the timer does not depend on it.
            StoreStep::Record(_) => Plan {
                requeue: soon,
                ..Plan::default()
            },
            StoreStep::DeletePod { by_force } => Plan {
                patch: vec![StorePatch::DeleteCheckPod { by_force }],
                ..Plan::default()
            },
            StoreStep::Check => Plan {
                create: vec![StoreCreate::CheckPod {
                    inputs: facts.inputs.clone(),
                }],
                ..Plan::default()
            },
            StoreStep::Checked(next) => Plan {
                requeue: Requeue::At(next),
                ..Plan::default()
            },
        };
        match listing::step(facts) {
            ListingStep::None => {}
            ListingStep::Create(request) => plan.create.push(StoreCreate::ListPod { request }),
            ListingStep::KeepUntil(time) => plan.requeue = plan.requeue.or(Requeue::At(time)),
            ListingStep::DeletePod { by_force } => {
                plan.patch.push(StorePatch::DeleteListPod { by_force });
            }
        }
        plan
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
