//! The CEL rules that several fields share, and what they are written with.
//!
//! A rule with `oldSelf` on a field runs only where the field was set before and still is, so a field that may be left
//! out is watched from its parent.

use kube::core::Rule;

/// A duration, or `0`.
pub(crate) fn duration_or_nought(nought: &str) -> Rule {
    Rule::new(format!("self == '0' || ({})", is_duration())).message(&*format!(
        "write a duration such as 1h, 30m or 1h30m, or \"0\" {nought}"
    ))
}

/// A duration.
pub(crate) fn duration() -> Rule {
    Rule::new(is_duration()).message("write a duration such as 5m, 90s or 1h30m")
}

/// A duration of no less than this. What is none at all is another rule's business.
pub(crate) fn lasts_at_least(least: &str, message: &str) -> Rule {
    compared(&format!(">= duration('{least}')"), message)
}

/// A duration of no more than this.
pub(crate) fn lasts_at_most(most: &str, message: &str) -> Rule {
    compared(&format!("<= duration('{most}')"), message)
}

fn compared(with: &str, message: &str) -> Rule {
    Rule::new(format!(
        "!self.matches('^([0-9]+h)?([0-9]+m)?([0-9]+s)?$') || self == '' || duration(self) {with}"
    ))
    .message(message)
}

fn is_duration() -> &'static str {
    "self != '' && self.matches('^([1-9][0-9]{0,4}h)?([1-9][0-9]{0,4}m)?([1-9][0-9]{0,4}s)?$')"
}

/// An amount as Kubernetes writes them.
pub(crate) fn amount() -> Rule {
    Rule::new("isQuantity(string(self))").message("write an amount such as 4Gi or 512Mi")
}

/// No less than this. What is no amount at all is another rule's business.
pub(crate) fn at_least(least: &str, message: &str) -> Rule {
    Rule::new(format!(
        "!isQuantity(string(self)) || quantity(string(self)).compareTo(quantity('{least}')) >= 0"
    ))
    .message(message)
}

/// A text as CEL takes it.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// That none of these cases holds.
pub(crate) fn none_of(cases: &[(String, String)]) -> String {
    if cases.is_empty() {
        return "true".to_owned();
    }
    cases
        .iter()
        .map(|(case, _)| format!("!({case})"))
        .collect::<Vec<_>>()
        .join(" && ")
}

/// The words of the first case that holds.
pub(crate) fn either(cases: &[(String, String)]) -> String {
    first_of(
        &cases
            .iter()
            .map(|(case, words)| (case.clone(), quoted(words)))
            .collect::<Vec<_>>(),
    )
}

/// The same of words that are CEL themselves.
pub(crate) fn first_of(cases: &[(String, String)]) -> String {
    match cases {
        [] => "''".to_owned(),
        [(_, only)] => only.clone(),
        [(case, words), rest @ ..] => format!("{case} ? {words} : {}", first_of(rest)),
    }
}
