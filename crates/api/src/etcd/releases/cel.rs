//! The CEL rules of `spec.version`, generated from the same table as the checks in Rust.

use kube::core::{Message, Rule};

use super::{
    Minor, RELEASES, RETIRED, downgrade_message, known_defect_message, skipped_minor_message,
    too_old_message, unsupported_message, upgrade_too_early_message,
};
use crate::common::cel::{Case, first_message, first_message_expression, none_of, quoted};
use crate::etcd::version::MUST_BE_EXACT;

/// Three numbers with dots between them and without leading zeros.
const EXACT: &str = "^(0|[1-9][0-9]{0,3})[.](0|[1-9][0-9]{0,3})[.](0|[1-9][0-9]{0,3})$";
/// The desired version, as a field of the resource.
const DESIRED: &str = "self.spec.version";
/// The lowest version that members run, as a field of the resource.
const RUNNING: &str = "oldSelf.status.version";

/// Rejects a leading v in `spec.version`.
pub(crate) fn no_leading_v() -> Rule {
    Rule::new("!self.startsWith('v')").message(Message::Expression(
        "'must not start with v. Use ' + self.substring(1)".to_owned(),
    ))
}

/// Requires an exact version in `spec.version`.
pub(crate) fn exact_version() -> Rule {
    Rule::new(format!("self.startsWith('v') || self.matches('{EXACT}')")).message(MUST_BE_EXACT)
}

/// Rejects retired minor releases in `spec.version`.
pub(crate) fn not_retired() -> Rule {
    let cases: Vec<_> = RETIRED
        .iter()
        .map(|(minor, reason)| Case::new(is_minor("self", *minor), *reason))
        .collect();
    reject("", &cases)
}

/// Rejects unknown minor releases in `spec.version`.
pub(crate) fn known_minor() -> Rule {
    let minors = RELEASES
        .iter()
        .map(|release| release.minor)
        .chain(RETIRED.iter().map(|(minor, _)| *minor));
    let is_known: Vec<_> = minors.map(|minor| is_minor("self", minor)).collect();
    Rule::new(format!(
        "!self.matches('{EXACT}') || {}",
        is_known.join(" || ")
    ))
    .message(&*unsupported_message())
}

/// Rejects patch releases below the supported minimum in `spec.version`.
pub(crate) fn min_patch() -> Rule {
    let cases: Vec<_> = RELEASES
        .iter()
        .filter(|release| release.min_patch.patch > 0)
        .map(|release| {
            let is_older = format!(
                "{} && {} < {}",
                is_minor("self", release.minor),
                patch_of("self"),
                release.min_patch.patch
            );
            Case::new(is_older, too_old_message(release))
        })
        .collect();
    reject(&format!("!self.matches('{EXACT}') || "), &cases)
}

/// Rejects versions with a known defect, unless members run them already. A rule of the resource.
pub(crate) fn no_known_defect() -> Rule {
    let defective_patches = RELEASES.iter().flat_map(|release| {
        release
            .defective_patches
            .iter()
            .map(move |defective| (release, defective))
    });
    let cases: Vec<_> = defective_patches
        .map(|(release, defective)| {
            let (is_minor, patch) = (is_minor(DESIRED, release.minor), patch_of(DESIRED));
            let is_defective = format!(
                "{is_minor} && {patch} >= {} && {patch} <= {}",
                defective.first, defective.last
            );
            Case::new(is_defective, known_defect_message(release, defective))
        })
        .collect();
    let is_unchanged = "oldSelf.hasValue() && (oldSelf.value().spec.version == self.spec.version || \
        has(oldSelf.value().status) && has(oldSelf.value().status.version) && \
        oldSelf.value().status.version == self.spec.version)";
    reject(
        &format!("!{DESIRED}.matches('{EXACT}') || {is_unchanged} || "),
        &cases,
    )
    .field_path(".spec.version")
    .optional_old_self(true)
}

/// Rejects an upgrade that skips a minor release. A rule of the resource.
pub(crate) fn no_skipped_minor() -> Rule {
    reject_edits(
        &minor_pairs(|from, to| to > from.next()),
        skipped_minor_message,
    )
}

/// Rejects a downgrade to an earlier minor release. A rule of the resource.
pub(crate) fn no_downgrade() -> Rule {
    reject_edits(&minor_pairs(|from, to| to < from), downgrade_message)
}

/// Rejects an upgrade to the next minor release from a patch release that is too low. A rule of the resource.
pub(crate) fn min_patch_for_upgrade() -> Rule {
    let bounds = RELEASES
        .iter()
        .filter_map(|release| Some((release, release.min_patch_for_upgrade.as_ref()?)));
    let cases: Vec<_> = bounds
        .map(|(release, bound)| {
            let (from, to) = (release.minor, release.minor.next());
            let is_too_early = format!(
                "{} && {} < {}",
                is_edit(from, to),
                patch_of(RUNNING),
                bound.patch
            );
            let message = quoted(&upgrade_too_early_message("", to, release));
            Case::new(is_too_early, format!("{RUNNING} + {message}"))
        })
        .collect();
    reject_unless_unchanged(&cases)
}

/// Returns the pairs of supported minor releases for which the predicate holds.
fn minor_pairs(predicate: impl Fn(Minor, Minor) -> bool) -> Vec<(Minor, Minor)> {
    let minors = || RELEASES.iter().map(|release| release.minor);
    minors()
        .flat_map(|from| minors().map(move |to| (from, to)))
        .filter(|(from, to)| predicate(*from, *to))
        .collect()
}

/// Returns the expression that an edit changes the minor release in this way.
fn is_edit(from: Minor, to: Minor) -> String {
    format!("{} && {}", is_minor(RUNNING, from), is_minor(DESIRED, to))
}

/// Rejects these changes of the minor release.
fn reject_edits(pairs: &[(Minor, Minor)], message: fn(Minor, Minor) -> String) -> Rule {
    let cases: Vec<_> = pairs
        .iter()
        .map(|(from, to)| Case::new(is_edit(*from, *to), quoted(&message(*from, *to))))
        .collect();
    reject_unless_unchanged(&cases)
}

/// Rejects versions that may not follow the running one, by cases whose messages are CEL expressions. Edits of other
/// fields and updates of the status pass.
///
/// The messages are not composed from numbers in CEL: the API server assumes that such strings have any length, and
/// rejects the rule because of its estimated cost.
fn reject_unless_unchanged(cases: &[Case]) -> Rule {
    Rule::new(format!(
        "{DESIRED} == oldSelf.spec.version || !has(oldSelf.status) || !has({RUNNING}) || \
         !{DESIRED}.matches('{EXACT}') || !{RUNNING}.matches('{EXACT}') || {}",
        none_of(cases)
    ))
    .message(Message::Expression(first_message_expression(cases)))
    .field_path(".spec.version")
}

/// Rejects each case with its message, unless the expression `unless` holds.
fn reject(unless: &str, cases: &[Case]) -> Rule {
    let rule = Rule::new(format!("{unless}{}", none_of(cases)));
    match cases {
        [only] => rule.message(&*only.message),
        _ => rule.message(Message::Expression(first_message(cases))),
    }
}

/// Returns the expression that a version is newer than every known patch release of its minor release, and the expression
/// for the newest one. `version` is an expression for an exact version of a supported minor release.
pub(crate) fn unknown_patch(version: &str) -> (String, String) {
    let is_unknown: Vec<_> = RELEASES
        .iter()
        .map(|release| {
            let (is_minor, patch) = (is_minor(version, release.minor), patch_of(version));
            format!("{is_minor} && {patch} > {}", release.newest_patch)
        })
        .collect();
    let newest: Vec<_> = RELEASES
        .iter()
        .map(|release| Case::new(is_minor(version, release.minor), release.newest()))
        .collect();
    let is_exact = format!("{version}.matches('{EXACT}')");
    (
        format!("{is_exact} && ({})", is_unknown.join(" || ")),
        first_message(&newest),
    )
}

fn is_minor(version: &str, minor: Minor) -> String {
    format!("{version}.startsWith('{minor}.')")
}

fn patch_of(version: &str) -> String {
    format!("int({version}.split('.')[2])")
}
