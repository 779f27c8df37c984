//! The CEL rules that several fields share.
//!
//! Nothing that needs members to be replaced one by one can be changed yet. A rule with `oldSelf` on a field runs
//! only where the field was set before and still is, so a field that may be left out is watched from its parent.

use kube::core::Rule;

/// For a field that always has a value.
pub(crate) fn unchanged(field: &str) -> Rule {
    Rule::new("self == oldSelf").message(&*not_yet(field))
}

/// For the field `name` of `parent`, which may be left out. The rule stands on the parent.
pub(crate) fn unchanged_if_set(parent: &str, name: &str) -> Rule {
    Rule::new(format!("{} && (!has(self.{name}) || self.{name} == oldSelf.{name})", still_set(name)))
        .message(&*not_yet(&format!("{parent}.{name}")))
        .field_path(format!(".{name}"))
}

/// The same for an amount: `1Gi` and `1024Mi` are one and the same.
pub(crate) fn same_amount_if_set(parent: &str, name: &str) -> Rule {
    Rule::new(format!(
        "{} && (!has(self.{name}) || !isQuantity(string(self.{name})) || !isQuantity(string(oldSelf.{name})) || \
         quantity(string(self.{name})).compareTo(quantity(string(oldSelf.{name}))) == 0)",
        still_set(name)
    ))
    .message(&*not_yet(&format!("{parent}.{name}")))
    .field_path(format!(".{name}"))
}

fn still_set(name: &str) -> String {
    format!("has(self.{name}) == has(oldSelf.{name})")
}

fn not_yet(field: &str) -> String {
    format!("{field} cannot be changed yet: rolling changes come with a later release")
}

/// A duration, or `0`.
pub(crate) fn duration_or_nought(nought: &str) -> Rule {
    Rule::new(format!("self == '0' || ({})", is_duration()))
        .message(&*format!("write a duration such as 1h, 30m or 1h30m, or \"0\" {nought}"))
}

/// A duration.
pub(crate) fn duration() -> Rule {
    Rule::new(is_duration()).message("write a duration such as 5m, 90s or 1h30m")
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
