//! Warnings about specs that are valid and probably not what the user wants. The API server returns them to `kubectl apply`
//! by a ValidatingAdmissionPolicy with the action Warn, which is generated from [`admission_validations`].
//! [`EtcdClusterSpec::warnings`] returns the same texts, for previews.

use serde::Serialize;

use crate::common::cel::quoted;
use crate::etcd::cluster::EtcdClusterSpec;
use crate::etcd::releases::{cel, unknown_patch, unknown_patch_message};
use crate::etcd::version::Version;

const CPU_LIMIT: &str = "spec.resources.limits.cpu is set: a leader that is throttled misses its heartbeats, which causes \
    elections and slow responses. Remove the limit unless a policy requires it.";
const EPHEMERAL: &str = "spec.storage.ephemeral is true: a member loses its data with its pod, and if a majority of the \
    pods is lost at once, all data is lost. Use it for caches and tests only.";
const NO_TOLERANCE: &str = "A cluster of one or two members tolerates no failure, and each restart for maintenance \
    interrupts its clients. Use 3 members in production.";

/// A validation of a ValidatingAdmissionPolicy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionValidation {
    /// The CEL expression that is false if the user is warned. `object` is the resource.
    pub expression: String,
    /// The warning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The warning as a CEL expression.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_expression: Option<String>,
}

impl AdmissionValidation {
    fn new(expression: impl Into<String>, message: &str) -> Self {
        Self {
            expression: expression.into(),
            message: Some(message.to_owned()),
            message_expression: None,
        }
    }
}

/// Returns the validations of the policy, one per warning. A field that an older object lacks causes no warning.
pub fn admission_validations() -> Vec<AdmissionValidation> {
    let members = "object.spec.members";
    vec![
        known_patch(),
        AdmissionValidation::new(
            "!has(object.spec.resources) || !has(object.spec.resources.limits) || \
             !has(object.spec.resources.limits.cpu)",
            CPU_LIMIT,
        ),
        AdmissionValidation {
            expression: format!("!has({members}) || {members} % 2 == 1 || {members} < 3"),
            message: None,
            message_expression: Some(even_message(
                &format!("string({members})"),
                &format!("string({members} - 1)"),
            )),
        },
        AdmissionValidation::new(
            "!has(object.spec.storage) || !has(object.spec.storage.ephemeral) || !object.spec.storage.ephemeral",
            EPHEMERAL,
        ),
        AdmissionValidation::new(format!("!has({members}) || {members} > 2"), NO_TOLERANCE),
    ]
}

/// Warns of a patch release that is newer than every known one.
fn known_patch() -> AdmissionValidation {
    const VERSION: &str = "object.spec.version";
    let (is_unknown, newest) = cel::unknown_patch(VERSION);
    // The placeholders are replaced by expressions between the literals.
    let message = quoted(&unknown_patch_message("<version>", "<newest>"));
    let message_expression = message
        .replace("<version>", &format!("' + {VERSION} + '"))
        .replace("<newest>", &format!("' + ({newest}) + '"));
    AdmissionValidation {
        expression: format!("!({is_unknown})"),
        message: None,
        message_expression: Some(message_expression),
    }
}

/// Returns the expression for the warning about an even number of members.
fn even_message(members: &str, one_less: &str) -> String {
    quoted(&even_members_message("<members>", "<less>"))
        .replace("'<members>", &format!("{members} + '"))
        .replace("<less>", &format!("' + {one_less} + '"))
}

fn even_members_message(members: &str, one_less: &str) -> String {
    format!(
        "{members} members tolerate no more failures than {one_less}, and each write waits for one more of them. Use an odd \
         number."
    )
}

impl EtcdClusterSpec {
    /// Returns the warnings that the API server gives about this spec.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let version = self.version.parse::<Version>().ok();
        warnings.extend(version.and_then(unknown_patch));
        if self.resources.limits.cpu.is_some() {
            warnings.push(CPU_LIMIT.to_owned());
        }
        if self.members > 2 && self.members % 2 == 0 {
            let (members, less) = (self.members.to_string(), (self.members - 1).to_string());
            warnings.push(even_members_message(&members, &less));
        }
        if self.storage.ephemeral {
            warnings.push(EPHEMERAL.to_owned());
        }
        if self.members < 3 {
            warnings.push(NO_TOLERANCE.to_owned());
        }
        warnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_spec_has_no_warning() {
        let spec = EtcdClusterSpec::with_version("3.6.16");
        assert_eq!(spec.warnings(), [""; 0]);
    }

    #[test]
    fn every_doubtful_setting_has_its_own_warning() {
        let mut spec = EtcdClusterSpec::with_version("3.6.99");
        spec.members = 4;
        spec.storage.ephemeral = true;
        let warnings = spec.warnings();
        assert_eq!(warnings.len(), 3, "{warnings:?}");
        assert!(warnings[0].starts_with("etcd 3.6.99 is not known"));
        assert!(
            warnings[1].starts_with("4 members tolerate no more failures than 3,"),
            "{warnings:?}"
        );
        spec.members = 2;
        assert!(spec.warnings()[2].starts_with("A cluster of one or two members"));
    }
}
