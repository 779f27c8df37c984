//! Listings: a user asks for the backups in a store by an annotation on the BackupStore, and reads them from the log of the
//! agent's pod. The status records which request was answered, so that a request is answered once.

use std::time::Duration;

use evenkeel_runtime::UnixTime;
use serde::{Deserialize, Serialize};

use super::facts::StoreFacts;
use crate::outcome::AgentState;
use crate::pod_facts::PodFacts;

/// How long the pod of a listing stays after it was created, so that its log can be read.
const LOG_RETENTION: Duration = Duration::from_secs(600);

/// The facts about the listing of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListingFacts {
    /// The identifier of the last request.
    pub request: Option<String>,
    /// The identifier of the request that was answered last, as recorded in the status.
    pub answered: String,
    /// The pod of the listing. Its inputs are the identifier of the request.
    pub pod: PodFacts,
}

/// The next step of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListingStep {
    /// Nothing is requested, or the listing runs.
    None,
    /// The pod for this request is created.
    Create(String),
    /// The pod stays until this time.
    KeepUntil(UnixTime),
    /// The pod is not needed any more.
    DeletePod {
        /// Whether Kubernetes does not wait for the kubelet.
        by_force: bool,
    },
}

/// Returns the next step.
pub(super) fn step(facts: &StoreFacts) -> ListingStep {
    let ListingFacts {
        request,
        answered,
        pod,
    } = &facts.listing;
    let pod = match pod {
        PodFacts::Own(pod) => pod,
        PodFacts::Foreign {
            is_expired: true, ..
        } => return ListingStep::DeletePod { by_force: true },
        PodFacts::Foreign { .. } => return ListingStep::None,
        PodFacts::Absent => {
            let can_start = facts.has_agent_image && facts.missing.is_none();
            return match request {
                Some(request) if request != answered && can_start => {
                    ListingStep::Create(request.clone())
                }
                Some(_) | None => ListingStep::None,
            };
        }
    };
    if pod.is_terminating {
        return if pod.is_expired {
            ListingStep::DeletePod { by_force: true }
        } else {
            ListingStep::None
        };
    }
    if Some(&pod.inputs) != request.as_ref() {
        return ListingStep::DeletePod { by_force: false };
    }
    match &pod.state {
        AgentState::Pending { .. } | AgentState::Running => ListingStep::None,
        // The status is written first.
        AgentState::Finished { .. } if pod.inputs != *answered => ListingStep::None,
        AgentState::Finished { .. } => {
            let until = pod.created_at.after(LOG_RETENTION);
            if facts.now < until {
                ListingStep::KeepUntil(until)
            } else {
                ListingStep::DeletePod { by_force: false }
            }
        }
    }
}

/// Returns the identifier of the request whose listing has ended, whatever its outcome is.
pub(super) fn answered(facts: &StoreFacts) -> String {
    match &facts.listing.pod {
        PodFacts::Own(pod) if matches!(pod.state, AgentState::Finished { .. }) => {
            pod.inputs.clone()
        }
        PodFacts::Own(_) | PodFacts::Foreign { .. } | PodFacts::Absent => {
            facts.listing.answered.clone()
        }
    }
}

#[cfg(test)]
#[path = "listing_tests.rs"]
mod tests;
