//! CEL rules that several fields use, and helpers to compose CEL expressions.
//!
//! The API server evaluates a rule with `oldSelf` on a field only if the field was set before and still is. A rule about
//! an optional field is therefore put on its parent.

use kube::core::Rule;

use crate::common::quantity::MUST_BE_QUANTITY;

/// A condition in CEL that rejects a value, and the message to reject it with.
pub(crate) struct Case {
    /// The CEL expression that is true if the value is rejected.
    pub(crate) condition: String,
    /// The message: plain text for [`first_message`], a CEL expression for [`first_message_expression`].
    pub(crate) message: String,
}

impl Case {
    pub(crate) fn new(condition: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            condition: condition.into(),
            message: message.into(),
        }
    }
}

/// Requires a duration or `0`. The message states the effect of `0`.
pub(crate) fn duration_or_zero(message: &str) -> Rule {
    Rule::new(format!("self == '0' || ({IS_DURATION})")).message(message)
}

/// The message of [`duration`].
pub(crate) const MUST_BE_DURATION: &str = "must be a duration such as 5m, 90s or 1h30m";

/// Requires a duration.
pub(crate) fn duration() -> Rule {
    Rule::new(IS_DURATION).message(MUST_BE_DURATION)
}

/// Requires a duration of at least `minimum`. A text that is not a duration passes, since [`duration`] rejects it.
pub(crate) fn duration_at_least(minimum: &str, message: &str) -> Rule {
    compare_duration(&format!(">= duration('{minimum}')"), message)
}

/// Requires a duration of at most `maximum`. A text that is not a duration passes, since [`duration`] rejects it.
pub(crate) fn duration_at_most(maximum: &str, message: &str) -> Rule {
    compare_duration(&format!("<= duration('{maximum}')"), message)
}

fn compare_duration(comparison: &str, message: &str) -> Rule {
    Rule::new(format!(
        "!self.matches('^([0-9]+h)?([0-9]+m)?([0-9]+s)?$') || self == '' || duration(self) {comparison}"
    ))
    .message(message)
}

const IS_DURATION: &str =
    "self != '' && self.matches('^([1-9][0-9]{0,4}h)?([1-9][0-9]{0,4}m)?([1-9][0-9]{0,4}s)?$')";

/// Requires a quantity.
pub(crate) fn quantity() -> Rule {
    Rule::new("isQuantity(string(self))").message(MUST_BE_QUANTITY)
}

/// Requires a quantity of at least `minimum`. A text that is not a quantity passes, since [`quantity`] rejects it.
pub(crate) fn quantity_at_least(minimum: &str, message: &str) -> Rule {
    Rule::new(format!(
        "!isQuantity(string(self)) || quantity(string(self)).compareTo(quantity('{minimum}')) >= 0"
    ))
    .message(message)
}

/// Returns a text as a CEL string literal.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// Returns the expression that no case applies.
pub(crate) fn none_of(cases: &[Case]) -> String {
    if cases.is_empty() {
        return "true".to_owned();
    }
    cases
        .iter()
        .map(|case| format!("!({})", case.condition))
        .collect::<Vec<_>>()
        .join(" && ")
}

/// Returns the expression for the message of the first case that applies. The messages are plain text.
pub(crate) fn first_message(cases: &[Case]) -> String {
    let quoted_cases: Vec<_> = cases
        .iter()
        .map(|case| Case::new(&*case.condition, quoted(&case.message)))
        .collect();
    first_message_expression(&quoted_cases)
}

/// Returns the expression for the message of the first case that applies. The messages are CEL expressions.
pub(crate) fn first_message_expression(cases: &[Case]) -> String {
    match cases {
        [] => "''".to_owned(),
        [only] => only.message.clone(),
        [first, rest @ ..] => format!(
            "{} ? {} : {}",
            first.condition,
            first.message,
            first_message_expression(rest)
        ),
    }
}
