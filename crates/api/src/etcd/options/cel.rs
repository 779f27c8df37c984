//! The CEL rules of `spec.etcd.options`, generated from the same table as the validation in Rust.
//!
//! The API server assumes that the keys of a map have any length. Rules therefore only compare them, and messages contain
//! one key, which is cheap. Joining all of them exceeds the cost limit (tried with the validation of Kubernetes 1.35.4).

use kube::core::{Message, Rule};
use schemars::Schema;

use super::table::{
    ALLOWED, AllowedFlag, ELECTION_TIMEOUT, FORBIDDEN, FlagValue, ForbiddenFlags,
    HEARTBEAT_INTERVAL, MIN_HEARTBEATS_PER_ELECTION, NumericFlag, UNKNOWN_FLAG,
};
use super::too_few_heartbeats_message;
use crate::common::cel::{Case, first_message, none_of, quoted};

/// A number without leading zeros.
const NUMBER: &str = "^(0|[1-9][0-9]{0,9})$";

/// Adds the rules to the schema of the map: one for each group of forbidden flags, one for unknown flags, one for each
/// allowed flag, and one for the election timeout.
pub(crate) fn add_rules(schema: &mut Schema) {
    let forbidden = FORBIDDEN
        .iter()
        .map(|forbidden| no_flag(&matches_name(forbidden), forbidden.reason));
    let values = ALLOWED
        .iter()
        .map(|flag| Rule::new(accepts_value(flag)).message(&*flag.invalid_value_message()));
    for rule in forbidden
        .chain([no_unknown_flag()])
        .chain(values)
        .chain([enough_heartbeats()])
    {
        // A rule consists of strings, which always serialize.
        let _ = kube::core::validate(schema, rule);
    }
}

/// Requires, for the whole spec, that the version has all flags that are set.
pub(crate) fn exist_in_version() -> Rule {
    let cases: Vec<_> = ALLOWED.iter().flat_map(missing_cases).collect();
    Rule::new(format!("!has(self.etcd.options) || {}", none_of(&cases)))
        .message(Message::Expression(first_message(&cases)))
        .field_path(".etcd.options")
}

fn missing_cases(flag: &AllowedFlag) -> impl Iterator<Item = Case> {
    flag.differences
        .iter()
        .filter(|difference| difference.name.is_none() || difference.since_patch > 0)
        .map(|difference| {
            let is_earlier_patch = match difference.name {
                Some(_) => format!(
                    " && int(self.version.split('.')[2]) < {}",
                    difference.since_patch
                ),
                None => String::new(),
            };
            let minor = difference.minor;
            let condition = format!(
                "'{}' in self.etcd.options && self.version.matches('^{}[.]{}[.][0-9]+$'){is_earlier_patch}",
                flag.name, minor.0, minor.1
            );
            Case::new(condition, flag.missing_message())
        })
}

/// Rejects flags that are in neither table.
fn no_unknown_flag() -> Rule {
    let allowed: Vec<_> = ALLOWED.iter().map(|flag| flag.name).collect();
    let forbidden: Vec<_> = FORBIDDEN.iter().map(matches_name).collect();
    let is_unknown = format!(
        "!(name in {} || {})",
        list(&allowed),
        forbidden.join(" || ")
    );
    no_flag(&is_unknown, UNKNOWN_FLAG)
}

/// Rejects flags whose name fulfils a condition. The message names one of them.
fn no_flag(condition: &str, reason: &str) -> Rule {
    let message = format!(
        "{} + self.filter(name, {condition})[0] + {}",
        quoted("option \""),
        quoted(&format!("\" {reason}"))
    );
    Rule::new(format!("!self.exists(name, {condition})")).message(Message::Expression(message))
}

fn enough_heartbeats() -> Rule {
    let value = |flag: &NumericFlag| {
        format!(
            "('{name}' in self ? int(self['{name}']) : {default})",
            name = flag.name,
            default = flag.default
        )
    };
    // A value that is not a number is rejected by the rule of its flag.
    let is_not_a_number = |flag: &NumericFlag| {
        format!(
            "'{name}' in self && !self['{name}'].matches('{NUMBER}')",
            name = flag.name
        )
    };
    let is_enough = format!(
        "{MIN_HEARTBEATS_PER_ELECTION} * {} <= {}",
        value(&HEARTBEAT_INTERVAL),
        value(&ELECTION_TIMEOUT)
    );
    Rule::new(format!(
        "{} || {} || {is_enough}",
        is_not_a_number(&HEARTBEAT_INTERVAL),
        is_not_a_number(&ELECTION_TIMEOUT)
    ))
    .message(&*too_few_heartbeats_message())
}

/// Returns the expression that a flag, if set, has an accepted value.
fn accepts_value(flag: &AllowedFlag) -> String {
    let value = format!("self['{}']", flag.name);
    let is_accepted = match &flag.value {
        FlagValue::Number { min, max } => {
            format!("{value}.matches('{NUMBER}') && int({value}) >= {min} && int({value}) <= {max}")
        }
        FlagValue::Duration { min, max } => format!(
            "{value}.matches('^(0|[1-9][0-9]{{0,5}})(ms|s|m|h)$') && \
             duration({value}) >= duration('{min}') && duration({value}) <= duration('{max}')"
        ),
        FlagValue::OneOf(words) => format!("{value} in {}", list(words)),
    };
    format!("!('{}' in self) || {is_accepted}", flag.name)
}

/// Returns the expression that the variable `name` is one of these flags.
fn matches_name(forbidden: &ForbiddenFlags) -> String {
    let names = (!forbidden.names.is_empty()).then(|| format!("name in {}", list(forbidden.names)));
    let prefixes = forbidden
        .prefixes
        .iter()
        .map(|prefix| format!("name.startsWith('{prefix}')"));
    names
        .into_iter()
        .chain(prefixes)
        .collect::<Vec<_>>()
        .join(" || ")
}

fn list(words: &[&str]) -> String {
    let quoted_words: Vec<_> = words.iter().map(|word| quoted(word)).collect();
    format!("[{}]", quoted_words.join(", "))
}
