//! Validates an `EtcdCluster` in the operator, with the same rules as the schema: a resource may have been admitted by an
//! older schema. Returns the parsed values of a valid spec.

use std::time::Duration;

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::backup::MUST_BE_BACKUP_NAME;
use crate::common::cel::MUST_BE_DURATION;
use crate::common::duration;
use crate::common::names::{is_host_name, is_label_key, is_label_value, is_subdomain};
use crate::common::quantity::bytes;
use crate::common::rejection::Rejection;
use crate::common::resources::EffectiveResources;
use crate::common::scheduling::Scheduling;
use crate::common::storage::{INVALID_KEEP_REMOVED_FOR, NO_CLASS_IF_EPHEMERAL, SIZE_TOO_SMALL};
use crate::common::windows::Windows;
use crate::etcd::cluster::{EtcdClusterSpec, Image};
use crate::etcd::options::Options;
use crate::etcd::releases::check_supported;
use crate::etcd::version::Version;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Object names are derived from the cluster's name and must fit into 63 characters; the longest suffixes have about 20.
const MAX_NAME_LENGTH: usize = 40;
const MAX_BACKUP_NAME_LENGTH: usize = 63;
const MIN_VOLUME_BYTES: u64 = GIB;
const MIN_QUOTA_BYTES: u64 = 16 * MIB;
/// etcd's documentation advises against a larger database.
const MAX_DEFAULT_QUOTA_BYTES: u64 = 8 * GIB;
const MIN_REPLACE_AFTER: Duration = Duration::from_secs(30);

// The messages, which the rules of the schema use as well.

pub(crate) const NAME_TOO_LONG: &str =
    "must be no more than 40 characters: the names of pods and certificates are derived from it";
pub(crate) const NAME_WITH_DOT: &str =
    "must not contain dots: host names are derived from it. Use hyphens instead";
pub(crate) const NAME_WITHOUT_LETTER: &str =
    "must start with a letter: the names of Services are derived from it";
pub(crate) const TOO_FEW_MEMBERS: &str = "must be at least 1. To pause the operator, set \
    spec.paused; to remove the cluster, delete the resource";
pub(crate) const TOO_MANY_MEMBERS: &str =
    "must be at most 7: every write waits for a majority, so more members make writes slower";
pub(crate) const REPOSITORY_WITH_DIGEST: &str =
    "must not contain a digest. Move the part after the @ to spec.image.digest";
pub(crate) const REPOSITORY_WITH_TAG: &str =
    "must not contain a tag: the tag is derived from spec.version. Remove the tag";
pub(crate) const MUST_BE_IMAGE_NAME: &str =
    "must be an image name such as gcr.io/etcd-development/etcd, without https://";
pub(crate) const MUST_BE_DIGEST: &str = "must be sha256: and 64 hexadecimal digits in lower case";
pub(crate) const QUOTA_TOO_SMALL: &str =
    "must be at least 16Mi. The suffix m means thousandths; use Mi for mebibytes";
pub(crate) const QUOTA_ABOVE_SIZE: &str = "must not exceed spec.storage.size, or the volume is \
    full before etcd rejects writes. Lower the quota, or raise spec.storage.size";
pub(crate) const MUST_BE_HOST_NAMES: &str = "must be host names in lower case, such as \
    etcd.corp.example or *.corp.example. IP addresses, ports and URLs are not supported";
pub(crate) const INVALID_AUTO_COMPACTION: &str =
    "must be a duration such as 1h, 30m or 1h30m, or \"0\" to disable automatic compaction";
pub(crate) const RESTORE_NEEDS_VOLUME: &str = "must not be set if spec.storage.ephemeral is true: the data of a backup is \
    restored onto a volume. Remove spec.bootstrap.from or spec.storage.ephemeral";
/// The rule for keys of labels, annotations and taints, which the schema does not have.
const MUST_BE_KEY: &str = "must be a key that Kubernetes accepts, such as example.com/name";
pub(crate) const REPLACE_AFTER_TOO_SHORT: &str =
    "must be at least 30s: a pod that is rescheduled, or a node that restarts, needs that long";

/// The parsed values of a valid spec. Scheduling and the client Service are read from the spec itself.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidatedSpec {
    /// The version of etcd.
    pub version: Version,
    /// The number of members.
    pub members: u8,
    /// The size of each member's volume, in bytes.
    pub size: u64,
    /// The quota of etcd's database, in bytes.
    pub quota: u64,
    /// How long etcd keeps old revisions. `None` if automatic compaction is disabled.
    pub auto_compaction: Option<Duration>,
    /// Additional flags of etcd, for [`crate::etcd::options::flags`].
    pub options: Options,
    /// The resources of each member, defaults included.
    pub resources: EffectiveResources,
    /// How long the volume of a removed member is kept.
    pub keep_removed_for: Duration,
    /// How long a member may be unreachable or crash-looping before it is replaced.
    pub replace_after: Duration,
    /// How long a member may be unreachable while its node is cordoned before it is replaced. At least `replace_after`.
    pub replace_drained_after: Duration,
    /// When disruptive changes may begin.
    pub windows: Windows,
}

/// Checks a cluster's name. The names of pods, Services and certificates are derived from it.
pub fn validate_name(name: &str) -> Result<(), Rejection> {
    let reject = |reason: &str| Err(Rejection::new("metadata.name", reason));
    if name.len() > MAX_NAME_LENGTH {
        return reject(NAME_TOO_LONG);
    }
    if name.contains('.') {
        return reject(NAME_WITH_DOT);
    }
    if !name.starts_with(|first: char| first.is_ascii_lowercase()) {
        return reject(NAME_WITHOUT_LETTER);
    }
    Ok(())
}

/// Returns the default quota in bytes for a volume of `volume_bytes`: three quarters, since the log, snapshots and a
/// defragmentation need space as well, and at most 8Gi.
pub fn default_quota(volume_bytes: u64) -> u64 {
    (volume_bytes / 4 * 3).min(MAX_DEFAULT_QUOTA_BYTES)
}

impl EtcdClusterSpec {
    /// Validates the spec. Returns its parsed values, or the first field that cannot be accepted.
    pub fn validate(&self) -> Result<ValidatedSpec, Rejection> {
        // An exhaustive pattern, so that a new field cannot be forgotten here.
        let Self {
            version,
            members,
            paused: _,
            image,
            storage,
            resources,
            scheduling,
            service,
            tls,
            etcd,
            heal,
            maintenance,
            // The BackupSchedule that is created from it reports what the schema cannot check.
            backup: _,
            bootstrap,
        } = self;

        let version = validate_version(version)?;
        let members = match u8::try_from(*members) {
            Ok(members @ 1..=7) => members,
            _ => {
                let rule = if *members < 1 {
                    TOO_FEW_MEMBERS
                } else {
                    TOO_MANY_MEMBERS
                };
                let reason = format!("invalid value {members}: {rule}");
                return Err(Rejection::new("spec.members", reason));
            }
        };
        validate_image(image)?;
        if storage.ephemeral && storage.class.is_some() {
            return Err(Rejection::new("spec.storage.class", NO_CLASS_IF_EPHEMERAL));
        }
        let size = validate_bytes(
            "spec.storage.size",
            &storage.size,
            MIN_VOLUME_BYTES,
            SIZE_TOO_SMALL,
        )?;
        let quota = match &etcd.quota {
            Some(quota) => {
                validate_bytes("spec.etcd.quota", quota, MIN_QUOTA_BYTES, QUOTA_TOO_SMALL)?
            }
            None => default_quota(size),
        };
        if quota > size {
            return Err(Rejection::new("spec.etcd.quota", QUOTA_ABOVE_SIZE));
        }
        if let Some(from) = &bootstrap.from {
            if storage.ephemeral {
                return Err(Rejection::new("spec.bootstrap.from", RESTORE_NEEDS_VOLUME));
            }
            if !is_backup_name(&from.backup) {
                return Err(Rejection::invalid(
                    "spec.bootstrap.from.backup",
                    &from.backup,
                    MUST_BE_BACKUP_NAME,
                ));
            }
        }
        validate_scheduling(scheduling)?;
        if let Some(key) = service.annotations.keys().find(|key| !is_label_key(key)) {
            return Err(Rejection::invalid(
                "spec.service.annotations",
                key,
                MUST_BE_KEY,
            ));
        }
        if let Some(name) = tls
            .client
            .extra_names
            .iter()
            .find(|name| !is_host_name(name))
        {
            return Err(Rejection::invalid(
                "spec.tls.client.extraNames",
                name,
                MUST_BE_HOST_NAMES,
            ));
        }
        let auto_compaction = duration::parse(&etcd.auto_compaction).map_err(|_| {
            Rejection::invalid(
                "spec.etcd.autoCompaction",
                &etcd.auto_compaction,
                INVALID_AUTO_COMPACTION,
            )
        })?;
        let options = Options::validate(&etcd.options, version)
            .map_err(|reason| Rejection::new("spec.etcd.options", reason))?;
        let keep_removed_for = duration::parse(&storage.keep_removed_for).map_err(|_| {
            Rejection::invalid(
                "spec.storage.keepRemovedFor",
                &storage.keep_removed_for,
                INVALID_KEEP_REMOVED_FOR,
            )
        })?;
        let replace_after = validate_replace_after("spec.heal.replaceAfter", &heal.replace_after)?;
        let replace_drained_after =
            validate_replace_after("spec.heal.replaceDrainedAfter", &heal.replace_drained_after)?;
        Ok(ValidatedSpec {
            version,
            members,
            size,
            quota,
            auto_compaction,
            options,
            resources: resources.validate()?,
            keep_removed_for: keep_removed_for.unwrap_or_default(),
            replace_after,
            replace_drained_after: replace_drained_after.max(replace_after),
            windows: maintenance.validate()?,
        })
    }
}

/// Returns true if a Backup can have this name.
fn is_backup_name(name: &str) -> bool {
    let is_alphanumeric = |one: char| one.is_ascii_lowercase() || one.is_ascii_digit();
    !name.is_empty()
        && name.len() <= MAX_BACKUP_NAME_LENGTH
        && name.chars().all(|one| is_alphanumeric(one) || one == '-')
        && name.starts_with(is_alphanumeric)
        && name.ends_with(is_alphanumeric)
}

/// Checks the fields that the API server would reject only in a pod.
fn validate_scheduling(scheduling: &Scheduling) -> Result<(), Rejection> {
    let Scheduling {
        spread: _,
        node_selector,
        tolerations,
        priority_class,
    } = scheduling;
    let invalid_label = node_selector
        .iter()
        .find(|(key, value)| !is_label_key(key) || !is_label_value(value));
    if let Some((key, value)) = invalid_label {
        return Err(Rejection::invalid(
            "spec.scheduling.nodeSelector",
            format!("{key}={value}"),
            "must be a label key and value that Kubernetes accepts, such as disk=ssd",
        ));
    }
    for toleration in tolerations {
        validate_toleration(toleration)
            .map_err(|reason| Rejection::new("spec.scheduling.tolerations", reason))?;
    }
    match priority_class {
        Some(class) if !is_subdomain(class) => Err(Rejection::invalid(
            "spec.scheduling.priorityClass",
            class,
            "must be the name of a PriorityClass: lower-case letters, digits, dashes and dots",
        )),
        _ => Ok(()),
    }
}

fn validate_toleration(toleration: &Toleration) -> Result<(), String> {
    let key = toleration.key.as_deref().unwrap_or_default();
    let value = toleration.value.as_deref().unwrap_or_default();
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let is_exists = match toleration.operator.as_deref() {
        None | Some("" | "Equal") => false,
        Some("Exists") => true,
        Some(other) => {
            return Err(format!(
                "invalid operator {other:?}: must be Exists or Equal"
            ));
        }
    };
    if !["", "NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
        return Err(format!(
            "invalid effect {effect:?}: must be NoSchedule, PreferNoSchedule or NoExecute"
        ));
    }
    if !key.is_empty() && !is_label_key(key) {
        return Err(format!("invalid key {key:?}: {MUST_BE_KEY}"));
    }
    if is_exists && !value.is_empty() {
        return Err("value must be empty if operator is Exists. Remove value".to_owned());
    }
    if !is_exists && key.is_empty() {
        return Err("operator must be Exists if key is empty. Set operator or key".to_owned());
    }
    if !is_label_value(value) {
        return Err(format!(
            "invalid value {value:?}: must be the value of a taint, such as etcd"
        ));
    }
    if toleration.toleration_seconds.is_some() && effect != "NoExecute" {
        return Err(
            "effect must be NoExecute if tolerationSeconds is set. Set effect, or remove tolerationSeconds".to_owned(),
        );
    }
    Ok(())
}

fn validate_replace_after(field: &'static str, text: &str) -> Result<Duration, Rejection> {
    let rule = match duration::parse(text) {
        Ok(Some(after)) if after >= MIN_REPLACE_AFTER => return Ok(after),
        Ok(Some(_)) => REPLACE_AFTER_TOO_SHORT,
        Ok(None) | Err(_) => MUST_BE_DURATION,
    };
    Err(Rejection::invalid(field, text, rule))
}

fn validate_version(text: &str) -> Result<Version, Rejection> {
    let version: Version = text
        .parse()
        .map_err(|error| Rejection::new("spec.version", format!("{error}")))?;
    check_supported(version).map_err(|reason| Rejection::new("spec.version", reason))?;
    Ok(version)
}

fn validate_image(image: &Image) -> Result<(), Rejection> {
    let Image {
        repository,
        digest,
        pull_secrets: _,
    } = image;
    if !is_repository(repository) {
        let rule = match repository.rsplit('/').next() {
            _ if repository.contains('@') => REPOSITORY_WITH_DIGEST,
            Some(last) if last.contains(':') => REPOSITORY_WITH_TAG,
            _ => MUST_BE_IMAGE_NAME,
        };
        return Err(Rejection::invalid(
            "spec.image.repository",
            repository,
            rule,
        ));
    }
    match digest {
        Some(digest) if !is_digest(digest) => Err(Rejection::invalid(
            "spec.image.digest",
            digest,
            MUST_BE_DIGEST,
        )),
        _ => Ok(()),
    }
}

fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|hex| {
        hex.len() == 64
            && hex
                .bytes()
                .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    })
}

/// Returns whether the text is an image name without tag. Only the first of several parts, the registry's host, may
/// contain a colon.
fn is_repository(text: &str) -> bool {
    let (host, path) = text.split_once('/').unwrap_or(("-", text));
    let is_part = |part: &str, also_allowed: &[u8]| {
        !part.is_empty()
            && part.bytes().all(|byte| {
                byte.is_ascii_alphanumeric()
                    || b"._-".contains(&byte)
                    || also_allowed.contains(&byte)
            })
    };
    is_part(host, b":") && path.split('/').all(|part| is_part(part, b""))
}

fn validate_bytes(
    field: &'static str,
    quantity: &Quantity,
    min_bytes: u64,
    too_small: &str,
) -> Result<u64, Rejection> {
    let reject = |rule: &str| Rejection::invalid(field, &quantity.0, rule);
    let parsed = bytes(quantity).map_err(|error| reject(&error.to_string()))?;
    if parsed < min_bytes {
        return Err(reject(too_small));
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::maintenance::MaintenanceWindow;

    fn spec() -> EtcdClusterSpec {
        EtcdClusterSpec::with_version("3.6.16")
    }

    #[test]
    fn the_minimal_spec_gets_the_default_values() {
        let validated = spec().validate().unwrap();
        assert_eq!(validated.version, Version::new(3, 6, 16));
        assert_eq!(validated.members, 3);
        assert_eq!(validated.size, 4 << 30);
        assert_eq!(validated.quota, 3 << 30);
        assert_eq!(validated.auto_compaction, Some(Duration::from_secs(3600)));
        assert_eq!(validated.resources.memory_limit.0, "2Gi");
        assert_eq!(validated.keep_removed_for, Duration::from_secs(86_400));
        assert_eq!(validated.replace_after, Duration::from_secs(300));
        assert_eq!(validated.replace_drained_after, Duration::from_secs(3600));
        assert_eq!(validated.windows, Windows::default());
    }

    #[test]
    fn the_default_quota_is_three_quarters_of_the_volume_up_to_8gi() {
        assert_eq!(default_quota(4 * GIB), 3 * GIB);
        assert_eq!(default_quota(10 * GIB), 10 * GIB / 4 * 3);
        assert_eq!(default_quota(100 * GIB), 8 * GIB);
        assert_eq!(default_quota(u64::MAX), 8 * GIB);
    }

    #[test]
    fn an_invalid_field_is_named() {
        type Edit = fn(&mut EtcdClusterSpec);
        let edits: [(&str, Edit); 20] = [
            ("spec.version", |it| it.version = "v3.6.16".to_owned()),
            ("spec.version", |it| it.version = "3.4.37".to_owned()),
            ("spec.members", |it| it.members = 0),
            ("spec.members", |it| it.members = 8),
            ("spec.members", |it| it.members = -1),
            ("spec.image.repository", |it| {
                it.image.repository = "mirror.example/etcd:v3.6.16".to_owned()
            }),
            ("spec.image.digest", |it| {
                it.image.digest = Some("sha256:AB".to_owned())
            }),
            ("spec.storage.size", |it| {
                it.storage.size = Quantity("1G".to_owned())
            }),
            ("spec.storage.class", |it| {
                it.storage.ephemeral = true;
                it.storage.class = Some("fast".to_owned());
            }),
            ("spec.etcd.quota", |it| {
                it.etcd.quota = Some(Quantity("5Gi".to_owned()))
            }),
            ("spec.etcd.quota", |it| {
                it.etcd.quota = Some(Quantity("512m".to_owned()))
            }),
            ("spec.etcd.autoCompaction", |it| {
                it.etcd.auto_compaction = "1d".to_owned()
            }),
            ("spec.etcd.options", |it| {
                it.etcd
                    .options
                    .insert("data-dir".to_owned(), "/tmp".to_owned());
            }),
            ("spec.storage.keepRemovedFor", |it| {
                it.storage.keep_removed_for = "1d".to_owned()
            }),
            ("spec.heal.replaceAfter", |it| {
                it.heal.replace_after = "0".to_owned()
            }),
            ("spec.heal.replaceAfter", |it| {
                it.heal.replace_after = "29s".to_owned()
            }),
            ("spec.heal.replaceDrainedAfter", |it| {
                it.heal.replace_drained_after = "1d".to_owned()
            }),
            ("spec.tls.client.extraNames", |it| {
                it.tls.client.extra_names = vec!["10.0.0.1".to_owned()]
            }),
            ("spec.maintenance.windows", |it| {
                it.maintenance.windows = vec![MaintenanceWindow {
                    days: Vec::new(),
                    start: "02:00".to_owned(),
                    duration: "3h".to_owned(),
                    time_zone: "Europe/Atlantis".to_owned(),
                }];
            }),
            ("spec.resources.limits.cpu", |it| {
                it.resources.limits.cpu = Some(Quantity("-1".to_owned()))
            }),
        ];
        for (field, edit) in edits {
            let mut spec = spec();
            edit(&mut spec);
            assert_eq!(spec.validate().unwrap_err().field, field);
        }
    }

    #[test]
    fn a_member_on_a_drained_node_is_given_at_least_replace_after() {
        let mut spec = spec();
        spec.heal.replace_after = "2h".to_owned();
        let validated = spec.validate().unwrap();
        assert_eq!(validated.replace_drained_after, Duration::from_secs(7200));
    }

    #[test]
    fn the_port_of_a_mirror_is_not_a_tag() {
        let mut spec = spec();
        spec.image.repository = "mirror.example:5000/etcd".to_owned();
        assert!(spec.validate().is_ok());
    }

    #[test]
    fn the_quota_may_be_as_large_as_the_volume() {
        let mut spec = spec();
        spec.etcd.quota = Some(Quantity("4096Mi".to_owned()));
        assert_eq!(spec.validate().unwrap().quota, 4 << 30);
    }

    #[test]
    fn a_name_is_a_short_label_that_begins_with_a_letter() {
        assert!(validate_name("orders").is_ok());
        assert!(validate_name(&"a".repeat(40)).is_ok());
        for name in [
            "a".repeat(41),
            "a.b".to_owned(),
            "1a".to_owned(),
            String::new(),
        ] {
            assert_eq!(validate_name(&name).unwrap_err().field, "metadata.name");
        }
    }
}
