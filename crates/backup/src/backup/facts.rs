//! The facts about a Backup.

use std::time::Duration;

use evenkeel_api::{Backup, BackupPhase, BackupStore, duration};
use evenkeel_runtime::UnixTime;
use serde::{Deserialize, Serialize};

use crate::ClusterSource;
use crate::conditions;
use crate::pod_facts::PodFacts;

/// The deadline of a Backup whose deadline cannot be parsed, which the schema rejects.
const DEFAULT_DEADLINE: Duration = Duration::from_secs(1800);

/// The facts about a Backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupFacts {
    /// The time of the observation.
    pub now: UnixTime,
    /// The time at which the Backup has failed if it is not complete.
    pub deadline: UnixTime,
    /// Whether the Backup represents an existing backup in the store.
    pub is_import: bool,
    /// Whether the status has a final phase, or one that this operator does not know.
    pub is_final: bool,
    /// The number of attempts in the status.
    pub attempts: u32,
    /// The member of the last attempt in the status.
    pub member: String,
    /// The failed attempts in the status, in the order of time.
    pub failed: Vec<FailedFacts>,
    /// Whether the operator knows the image of the agent.
    pub has_agent_image: bool,
    /// The store.
    pub store: StoreState,
    /// The cluster; `None` if it was not read, because nothing depends on it.
    pub source: Option<SourceFacts>,
    /// The pod.
    pub pod: PodFacts,
}

/// An attempt that has failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedFacts {
    /// When it ended.
    pub at: UnixTime,
    /// The member that was read.
    pub member: String,
    /// The reason in one word.
    pub reason: String,
    /// The problem and its remedy.
    pub message: String,
}

/// The state of the store of a Backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoreState {
    /// The BackupStore does not exist.
    Absent,
    /// The BackupStore is not Ready.
    NotReady {
        /// The reason of its condition.
        reason: String,
        /// The message of its condition.
        message: String,
    },
    /// The BackupStore is Ready.
    Ready,
}

/// The cluster of a Backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SourceFacts {
    /// The resource does not exist.
    NotFound,
    /// No member can be read.
    NotReady {
        /// Why, for people.
        problem: String,
    },
    /// The names of the members that can be read, the most suitable first.
    Members(Vec<String>),
}

impl StoreState {
    pub(super) fn of(store: Option<&BackupStore>) -> Self {
        let existing = store.filter(|store| store.metadata.deletion_timestamp.is_none());
        let Some(store) = existing else {
            return Self::Absent;
        };
        let status = store.status.as_ref();
        let ready = status.and_then(|status| {
            conditions::find(&status.conditions, crate::store::READY)
                .filter(|ready| ready.observed_generation == store.metadata.generation)
        });
        match ready {
            Some(ready) if ready.status == "True" => Self::Ready,
            Some(ready) => Self::NotReady {
                reason: ready.reason.clone(),
                message: ready.message.clone(),
            },
            None => Self::NotReady {
                reason: "Checking".to_owned(),
                message: "The store has not been checked yet.".to_owned(),
            },
        }
    }
}

impl SourceFacts {
    pub(super) fn of(source: Option<&ClusterSource>) -> Self {
        match source {
            None => Self::NotFound,
            Some(source) if source.members.is_empty() => Self::NotReady {
                problem: source.problem.clone(),
            },
            Some(source) => {
                let members = source.members.iter();
                Self::Members(members.map(|it| it.cluster.member.clone()).collect())
            }
        }
    }
}

impl BackupFacts {
    /// Returns the facts in the resource. Those about other objects are for the caller to set.
    pub(super) fn of(backup: &Backup, now: UnixTime) -> Self {
        let status = backup.status.clone().unwrap_or_default();
        let created = backup.metadata.creation_timestamp.as_ref();
        let created = created.map_or(now, conditions::unix);
        let limit = duration::parse(&backup.spec.deadline).ok().flatten();
        let failed = status.failed_attempts.into_iter();
        Self {
            now,
            deadline: created.after(limit.unwrap_or(DEFAULT_DEADLINE)),
            is_import: backup.spec.existing.is_some(),
            // A phase of a newer operator is none that this one may change.
            is_final: status.phase.is_final() || status.phase == BackupPhase::Unknown,
            attempts: u32::try_from(status.attempts).unwrap_or_default(),
            member: status.member,
            failed: failed
                .map(|failed| FailedFacts {
                    at: conditions::unix(&failed.at),
                    member: failed.member,
                    reason: failed.reason,
                    message: failed.message,
                })
                .collect(),
            has_agent_image: true,
            store: StoreState::Absent,
            source: None,
            pod: PodFacts::Absent,
        }
    }
}
