//! The error of validation: the field that was rejected, and the reason.

use std::fmt;

/// A field of a resource that cannot be accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The path of the field, such as `spec.version`.
    pub field: &'static str,
    /// The rule that the value violates, and the remedy. Several sentences, without a period at the end.
    pub reason: String,
    /// What the operator does until the field is corrected.
    pub effect: RejectionEffect,
}

/// What an operator does while a field is rejected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RejectionEffect {
    /// It uses the value that was accepted last.
    #[default]
    KeepsAccepted,
    /// It creates no cluster: no value was ever accepted.
    NotCreated,
    /// It manages the cluster, but restarts and replaces no member for an edit: no maintenance windows were ever accepted.
    DelaysDisruptions,
    /// It does nothing: the spec that was accepted last is not valid any more.
    Unmanaged,
}

impl RejectionEffect {
    /// Returns the effect as a sentence.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::KeepsAccepted => "The last accepted value stays in effect.",
            Self::NotCreated => "The cluster is not created until the field is corrected.",
            Self::DelaysDisruptions => {
                "Edits that restart or replace members wait until the field is corrected."
            }
            Self::Unmanaged => {
                "The members keep running, and the operator changes nothing until the field is corrected."
            }
        }
    }
}

impl Rejection {
    /// Rejects a field for a reason. By default, the value that was accepted last stays in effect.
    pub fn new(field: &'static str, reason: impl Into<String>) -> Self {
        Self {
            field,
            reason: reason.into(),
            effect: RejectionEffect::default(),
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
