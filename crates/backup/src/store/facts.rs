//! The facts about a BackupStore. They contain no secret: objects are identified by their uids and resourceVersions, since a
//! hash of a weak password could be reversed.

use evenkeel_api::BackupStore;
use evenkeel_runtime::UnixTime;
use serde::{Deserialize, Serialize};

use super::listing::ListingFacts;
use crate::conditions;
use crate::pod_facts::PodFacts;

/// The facts about a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreFacts {
    /// The time of the observation.
    pub now: UnixTime,
    /// Whether the operator knows the image of the agent.
    pub has_agent_image: bool,
    /// The first referenced object that is missing or unusable.
    pub missing: Option<MissingInput>,
    /// The hash of the spec and of the versions of the referenced objects.
    pub inputs: String,
    /// The last check that the status describes.
    pub last_check: Option<LastCheck>,
    /// The pod of the check.
    pub pod: PodFacts,
    /// The listing that a user asked for.
    #[serde(default)]
    pub listing: ListingFacts,
}

/// A referenced object that is missing or unusable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MissingInput {
    /// The Secret does not exist.
    Secret(String),
    /// The Secret has no value for a key.
    SecretKey {
        /// The name of the Secret.
        secret: String,
        /// The key.
        key: String,
    },
    /// The ConfigMap does not exist.
    ConfigMap(String),
    /// The ConfigMap has no certificate in its key `ca.crt`.
    ConfigMapKey(String),
    /// The PersistentVolumeClaim does not exist or is being deleted.
    Claim(String),
    /// The spec names no place. The schema rejects it.
    Place,
}

/// The last check of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastCheck {
    /// The hash of the inputs that were checked.
    pub inputs: String,
    /// When the check ended.
    pub at: UnixTime,
    /// Since when checks have failed; `None` if the last check succeeded.
    pub failing_since: Option<UnixTime>,
}

impl LastCheck {
    /// Returns the last check that the status of a store describes.
    pub(crate) fn of(store: &BackupStore) -> Option<Self> {
        let status = store.status.as_ref()?;
        if status.checked_inputs.is_empty() {
            return None;
        }
        let ready = conditions::find(&status.conditions, super::status::READY)?;
        let since = conditions::unix(&ready.last_transition_time);
        Some(Self {
            inputs: status.checked_inputs.clone(),
            at: conditions::unix(status.checked_at.as_ref()?),
            failing_since: (ready.status != "True").then_some(since),
        })
    }
}
