//! What is known of etcd's releases as rules of the schema, so that `kubectl apply` refuses what the rules in Rust
//! do. They are made from the same data, and cannot disagree with it.

use kube::core::{Message, Rule};

use super::{Minor, RELEASES, RETIRED, downgrade, known_bad, skips, too_early, too_old, unknown};
use crate::common::cel::{either, first_of, none_of, quoted};

/// Three numbers with dots between, no zeros in front.
const EXACT: &str = "^(0|[1-9][0-9]{0,3})[.](0|[1-9][0-9]{0,3})[.](0|[1-9][0-9]{0,3})$";
/// What is wanted, seen from the resource.
const WANTED: &str = "self.spec.version";
/// What the hindmost members run.
const RUN: &str = "oldSelf.status.version";

/// For `spec.version`: a v in front is answered with what to write.
pub(crate) fn without_v() -> Rule {
    Rule::new("!self.startsWith('v')").message(Message::Expression(
        "'write ' + self.substring(1) + ', without the v'".to_owned(),
    ))
}

/// For `spec.version`: it is exact.
pub(crate) fn exact() -> Rule {
    Rule::new(format!("self.startsWith('v') || self.matches('{EXACT}')")).message(
        "write one exact version, all three numbers of it, such as 3.6.16: what 3.6 or latest stands for moves, and \
         that would be an upgrade nobody asked for",
    )
}

/// For `spec.version`: its minor is not one of the past.
pub(crate) fn not_retired() -> Rule {
    let cases: Vec<_> = RETIRED
        .iter()
        .map(|(minor, why)| (is_of("self", *minor), (*why).to_owned()))
        .collect();
    refuses("", &cases)
}

/// For `spec.version`: its minor is known.
pub(crate) fn known_minor() -> Rule {
    let minors = RELEASES
        .iter()
        .map(|release| release.minor)
        .chain(RETIRED.iter().map(|(minor, _)| *minor));
    let known: Vec<_> = minors.map(|minor| is_of("self", minor)).collect();
    Rule::new(format!(
        "!self.matches('{EXACT}') || {}",
        known.join(" || ")
    ))
    .message(&*unknown())
}

/// For `spec.version`: its patch is not too old.
pub(crate) fn recent_enough() -> Rule {
    let old = RELEASES
        .iter()
        .filter(|release| release.lowest.0 > 0)
        .map(|release| {
            let older = format!(
                "{} && {} < {}",
                is_of("self", release.minor),
                patch("self"),
                release.lowest.0
            );
            (older, too_old(release))
        });
    refuses(
        &format!("!self.matches('{EXACT}') || "),
        &old.collect::<Vec<_>>(),
    )
}

/// For the resource: the version is not known to be bad, unless members run it.
pub(crate) fn not_bad() -> Rule {
    let bad = RELEASES
        .iter()
        .flat_map(|release| release.bad.iter().map(move |bad| (release, bad)));
    let bad = bad.map(|(release, bad)| {
        let (minor, patch) = (is_of(WANTED, release.minor), patch(WANTED));
        let within = format!(
            "{minor} && {patch} >= {} && {patch} <= {}",
            bad.first, bad.last
        );
        (within, known_bad(release, bad))
    });
    let stays = "oldSelf.hasValue() && (oldSelf.value().spec.version == self.spec.version || \
        has(oldSelf.value().status) && has(oldSelf.value().status.version) && \
        oldSelf.value().status.version == self.spec.version)";
    refuses(
        &format!("!{WANTED}.matches('{EXACT}') || {stays} || "),
        &bad.collect::<Vec<_>>(),
    )
    .field_path(".spec.version")
    .optional_old_self(true)
}

/// For the resource: no minor is skipped.
pub(crate) fn no_skip() -> Rule {
    of_an_edit(&from_to(|from, to| to > from.next()), skips)
}

/// For the resource: no way back.
pub(crate) fn no_downgrade() -> Rule {
    of_an_edit(&from_to(|from, to| to < from), downgrade)
}

/// For the resource: the next minor is entered from a patch that is late enough.
pub(crate) fn late_enough() -> Rule {
    let rows = RELEASES
        .iter()
        .filter_map(|release| Some((release, release.leaves_from?.0)));
    let cases = rows.map(|(release, least)| {
        let (from, to) = (release.minor, release.minor.next());
        let early = format!("{} && {} < {least}", goes(from, to), patch(RUN));
        (
            early,
            format!("{RUN} + {}", quoted(&too_early("", to, release))),
        )
    });
    unless_it_stays(&cases.collect::<Vec<_>>())
}

/// The pairs of known minors for which this holds.
fn from_to(holds: impl Fn(Minor, Minor) -> bool) -> Vec<(Minor, Minor)> {
    let minors = || RELEASES.iter().map(|release| release.minor);
    minors()
        .flat_map(|from| minors().map(move |to| (from, to)))
        .filter(|(from, to)| holds(*from, *to))
        .collect()
}

/// Whether an edit is one from this minor to that.
fn goes(from: Minor, to: Minor) -> String {
    format!("{} && {}", is_of(RUN, from), is_of(WANTED, to))
}

/// Refuses an edit that goes from one minor to another as these do.
fn of_an_edit(pairs: &[(Minor, Minor)], words: fn(Minor, Minor) -> String) -> Rule {
    let cases = pairs
        .iter()
        .map(|(from, to)| (goes(*from, *to), quoted(&words(*from, *to))));
    unless_it_stays(&cases.collect::<Vec<_>>())
}

/// Refuses what may not follow what the hindmost members run: these cases, each with its words as CEL. Whatever else is
/// edited, and every status, passes. Words are not put together from numbers: the API server thinks that these could
/// be of any length, and refuses what they might cost.
fn unless_it_stays(cases: &[(String, String)]) -> Rule {
    Rule::new(format!(
        "{WANTED} == oldSelf.spec.version || !has(oldSelf.status) || !has({RUN}) || \
         !{WANTED}.matches('{EXACT}') || !{RUN}.matches('{EXACT}') || {}",
        none_of(cases)
    ))
    .message(Message::Expression(first_of(cases)))
    .field_path(".spec.version")
}

/// Refuses each of these cases with its words, unless something else holds.
fn refuses(unless: &str, cases: &[(String, String)]) -> Rule {
    let rule = Rule::new(format!("{unless}{}", none_of(cases)));
    match cases {
        [(_, only)] => rule.message(&**only),
        _ => rule.message(Message::Expression(either(cases))),
    }
}

fn is_of(version: &str, minor: Minor) -> String {
    format!("{version}.startsWith('{minor}.')")
}

fn patch(version: &str) -> String {
    format!("int({version}.split('.')[2])")
}
