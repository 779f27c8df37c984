//! The rules of the schema for further flags of etcd, made from the same data.
//!
//! Names of options have no bound that the API server knows of, so rules do nothing with them but compare.

use kube::core::{Message, Rule};
use schemars::Schema;

use super::table::{
    ELECTION, HEARTBEAT, HEARTBEATS, KNOWN, Known, REFUSED, Refused, UNKNOWN, Value,
};
use super::too_few_heartbeats;
use crate::common::cel::{either, none_of, quoted};

/// A number as there is one way to write it.
const NUMBER: &str = "^(0|[1-9][0-9]{0,9})$";

/// Puts a rule for each option, and for each group that is refused, on the map of options.
pub(crate) fn ruled(schema: &mut Schema) {
    let of_values = KNOWN
        .iter()
        .map(|known| Rule::new(takes(known)).message(&*known.wrong()));
    let of_names = REFUSED.iter().map(|refused| {
        Rule::new(format!("!self.exists(name, {})", fits(refused))).message(&*told(refused))
    });
    for rule in of_names
        .chain([known()])
        .chain(of_values)
        .chain([enough_heartbeats()])
    {
        // A rule is plain strings, which can always be written.
        let _ = kube::core::validate(schema, rule);
    }
}

/// For the spec: the version has all of the options.
pub(crate) fn exist() -> Rule {
    let lacks = KNOWN.iter().flat_map(|known| {
        known
            .elsewhere
            .iter()
            .filter(|it| it.name.is_none() || it.since > 0)
            .map(move |elsewhere| {
                let since = elsewhere.since;
                let patch = match elsewhere.name {
                    Some(_) => format!(" && int(self.version.split('.')[2]) < {since}"),
                    None => String::new(),
                };
                let minor = elsewhere.minor;
                let used = format!("'{}' in self.etcd.options", known.name);
                (
                    format!(
                        "{used} && self.version.matches('^{}[.]{}[.][0-9]+$'){patch}",
                        minor.0, minor.1
                    ),
                    known.missing(),
                )
            })
    });
    let lacks: Vec<_> = lacks.collect();
    Rule::new(format!("!has(self.etcd.options) || {}", none_of(&lacks)))
        .message(Message::Expression(either(&lacks)))
        .field_path(".etcd.options")
}

/// What is neither known nor refused for a reason.
fn known() -> Rule {
    let names: Vec<_> = KNOWN.iter().map(|known| known.name).collect();
    let refused: Vec<_> = REFUSED.iter().map(fits).collect();
    Rule::new(format!(
        "self.all(name, name in {} || {})",
        list(&names),
        refused.join(" || ")
    ))
    .message(UNKNOWN)
}

fn enough_heartbeats() -> Rule {
    let set = |(name, default): (&str, u64)| {
        format!("('{name}' in self ? int(self['{name}']) : {default})")
    };
    let odd =
        |(name, _): (&str, u64)| format!("'{name}' in self && !self['{name}'].matches('{NUMBER}')");
    let (heartbeat, election) = (set(HEARTBEAT), set(ELECTION));
    let enough = format!("{HEARTBEATS} * {heartbeat} <= {election}");
    Rule::new(format!(
        "{} || {} || {enough}",
        odd(HEARTBEAT),
        odd(ELECTION)
    ))
    .message(&*too_few_heartbeats())
}

/// Whether an option, if set, has a value that it takes.
fn takes(known: &Known) -> String {
    let value = format!("self['{}']", known.name);
    let good = match &known.value {
        Value::Number(least, most) => {
            format!(
                "{value}.matches('{NUMBER}') && int({value}) >= {least} && int({value}) <= {most}"
            )
        }
        Value::Duration(least, most) => format!(
            "{value}.matches('^(0|[1-9][0-9]{{0,5}})(ms|s|m|h)$') && \
             duration({value}) >= duration('{least}') && duration({value}) <= duration('{most}')"
        ),
        Value::Word(words) => format!("{value} in {}", list(words)),
    };
    format!("!('{}' in self) || {good}", known.name)
}

fn fits(refused: &Refused) -> String {
    let names = (!refused.names.is_empty()).then(|| format!("name in {}", list(refused.names)));
    let prefixes = refused
        .prefixes
        .iter()
        .map(|prefix| format!("name.startsWith('{prefix}')"));
    names
        .into_iter()
        .chain(prefixes)
        .collect::<Vec<_>>()
        .join(" || ")
}

/// Which, and why.
fn told(refused: &Refused) -> String {
    let prefixes = refused.prefixes.iter().map(|prefix| format!("{prefix}…"));
    let which: Vec<_> = refused
        .names
        .iter()
        .map(|name| (*name).to_owned())
        .chain(prefixes)
        .collect();
    format!("{}: {}", which.join(", "), refused.why)
}

fn list(words: &[&str]) -> String {
    format!(
        "[{}]",
        words
            .iter()
            .map(|word| quoted(word))
            .collect::<Vec<_>>()
            .join(", ")
    )
}
