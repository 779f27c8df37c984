//! Failures of tasks: a machine-readable reason, and a message with the problem and its remedy.

use std::error::Error;
use std::io;
use std::path::Path;

use evenkeel_archive::StoreError;
use evenkeel_archive::tasks::{FailureReason, TaskFailure};

/// A failure of a task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AgentFailure {
    /// The machine-readable reason.
    pub reason: FailureReason,
    /// The problem and its remedy, for people.
    pub message: String,
}

impl AgentFailure {
    /// Returns a failure.
    pub fn new(reason: FailureReason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }

    /// Returns the failure of an operation on a file. `action` completes the sentence "failed to …".
    pub fn file(action: &str, path: &Path, error: &io::Error) -> Self {
        let reason = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FailureReason::NoSpace,
            _ => FailureReason::Other,
        };
        Self::new(
            reason,
            format!("failed to {action} {}: {error}", path.display()),
        )
    }

    /// Returns the failure of a member of the application.
    pub fn source(action: &str, error: &(dyn Error + 'static)) -> Self {
        Self::new(
            FailureReason::SourceFailed,
            format!("failed to {action}: {}", chain(error)),
        )
    }
}

impl From<StoreError> for AgentFailure {
    fn from(error: StoreError) -> Self {
        Self::new(error.reason, error.message)
    }
}

impl From<AgentFailure> for TaskFailure {
    fn from(failure: AgentFailure) -> Self {
        Self {
            reason: failure.reason,
            message: failure.message,
        }
    }
}

/// Returns the messages of an error and its sources, without repetitions.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let message = source.to_string();
        if !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        next = source.source();
    }
    text
}
