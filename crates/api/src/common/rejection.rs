//! The error of validation: the field that was rejected, and the reason.

use std::fmt;

/// A field of a resource that cannot be accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The path of the field, such as `spec.version`.
    pub field: &'static str,
    /// What is wrong with the value, and what to write instead.
    pub reason: String,
}

impl Rejection {
    pub(crate) fn new(field: &'static str, reason: impl Into<String>) -> Self {
        Self {
            field,
            reason: reason.into(),
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.reason)
    }
}

impl std::error::Error for Rejection {}
