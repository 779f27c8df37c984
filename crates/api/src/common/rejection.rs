//! The error of validation: the field that was rejected, and the reason.

use std::fmt;

/// A field of a resource that cannot be accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The path of the field, such as `spec.version`.
    pub field: &'static str,
    /// The rule that the value violates, and the remedy. Several sentences, without a period at the end.
    pub reason: String,
}

impl Rejection {
    pub(crate) fn new(field: &'static str, reason: impl Into<String>) -> Self {
        Self {
            field,
            reason: reason.into(),
        }
    }

    /// Rejects a value because of a rule such as `must be a host name`.
    pub(crate) fn invalid(field: &'static str, value: impl fmt::Display, rule: &str) -> Self {
        Self::new(field, invalid_value(value, rule))
    }
}

/// Returns the reason that names the value and the rule that it violates, in the words of the API server.
pub(crate) fn invalid_value(value: impl fmt::Display, rule: &str) -> String {
    format!("invalid value \"{value}\": {rule}")
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.reason)
    }
}

impl std::error::Error for Rejection {}
