//! Validates an `EtcdCluster` in the operator, with the same rules as the schema: a resource may have been admitted by an
//! older schema. Returns the parsed values of a valid spec.

use std::time::Duration;

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::common::duration;
use crate::common::names::{is_host_name, is_label_key, is_label_value, is_subdomain};
use crate::common::quantity::bytes;
use crate::common::rejection::Rejection;
use crate::common::resources::EffectiveResources;
use crate::common::scheduling::Scheduling;
use crate::common::windows::Windows;
use crate::etcd::cluster::{EtcdClusterSpec, Heal, Image};
use crate::etcd::options::Options;
use crate::etcd::releases::check_supported;
use crate::etcd::version::Version;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Object names are derived from the cluster's name and must fit into 63 characters; the longest suffixes have about 20.
const MAX_NAME_LENGTH: usize = 40;
const MIN_VOLUME_BYTES: u64 = GIB;
const MIN_QUOTA_BYTES: u64 = 16 * MIB;
/// etcd's authors advise against a larger database.
const MAX_DEFAULT_QUOTA_BYTES: u64 = 8 * GIB;
const MIN_REPLACE_AFTER: Duration = Duration::from_secs(30);

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
    /// When disruptive changes may begin.
    pub windows: Windows,
}

/// Checks a cluster's name. The names of pods, Services and certificates are derived from it.
pub fn validate_name(name: &str) -> Result<(), Rejection> {
    let reject = |reason: &str| Err(Rejection::new("metadata.name", reason));
    if name.len() > MAX_NAME_LENGTH {
        return reject("longer than 40 characters");
    }
    if name.contains('.') {
        return reject("has a dot in it: use a hyphen");
    }
    if !name.starts_with(|first: char| first.is_ascii_lowercase()) {
        return reject("does not begin with a letter");
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
        } = self;

        let version = validate_version(version)?;
        let members = match u8::try_from(*members) {
            Ok(members @ 1..=7) => members,
            _ => {
                return Err(Rejection::new(
                    "spec.members",
                    format!("{members} is not between 1 and 7"),
                ));
            }
        };
        validate_image(image)?;
        if storage.ephemeral && storage.class.is_some() {
            return Err(Rejection::new(
                "spec.storage.class",
                "ephemeral data has no volume, and so no storage class",
            ));
        }
        let size = validate_bytes("spec.storage.size", &storage.size, MIN_VOLUME_BYTES)?;
        let quota = match &etcd.quota {
            Some(quota) => validate_bytes("spec.etcd.quota", quota, MIN_QUOTA_BYTES)?,
            None => default_quota(size),
        };
        if quota > size {
            return Err(Rejection::new(
                "spec.etcd.quota",
                "more than spec.storage.size",
            ));
        }
        validate_scheduling(scheduling)?;
        if let Some(key) = service.annotations.keys().find(|key| !is_label_key(key)) {
            return Err(Rejection::new(
                "spec.service.annotations",
                format!("{key:?} is not a key that Kubernetes takes"),
            ));
        }
        if let Some(name) = tls
            .client
            .extra_names
            .iter()
            .find(|name| !is_host_name(name))
        {
            return Err(Rejection::new(
                "spec.tls.client.extraNames",
                format!("{name:?} is not a host name"),
            ));
        }
        let auto_compaction = duration::parse(&etcd.auto_compaction)
            .map_err(|error| Rejection::new("spec.etcd.autoCompaction", error.to_string()))?;
        let options = Options::validate(&etcd.options, version)
            .map_err(|reason| Rejection::new("spec.etcd.options", reason))?;
        let keep_removed_for = duration::parse(&storage.keep_removed_for)
            .map_err(|error| Rejection::new("spec.storage.keepRemovedFor", error.to_string()))?;
        Ok(ValidatedSpec {
            version,
            members,
            size,
            quota,
            auto_compaction,
            options,
            resources: resources.validate()?,
            keep_removed_for: keep_removed_for.unwrap_or_default(),
            replace_after: validate_replace_after(heal)?,
            windows: maintenance.validate()?,
        })
    }
}

/// Checks the fields that the API server would reject in a pod.
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
        let reason = format!("no node can have the label {key}={value}");
        return Err(Rejection::new("spec.scheduling.nodeSelector", reason));
    }
    for toleration in tolerations {
        validate_toleration(toleration)
            .map_err(|reason| Rejection::new("spec.scheduling.tolerations", reason))?;
    }
    match priority_class {
        Some(class) if !is_subdomain(class) => Err(Rejection::new(
            "spec.scheduling.priorityClass",
            format!("{class:?} is not a name that Kubernetes takes"),
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
                "the operator {other:?} is neither Exists nor Equal"
            ));
        }
    };
    if !["", "NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
        return Err(format!(
            "the effect {effect:?} is none of NoSchedule, PreferNoSchedule and NoExecute"
        ));
    }
    if !key.is_empty() && !is_label_key(key) {
        return Err(format!("{key:?} is not a key that Kubernetes takes"));
    }
    if is_exists && !value.is_empty() {
        return Err("with the operator Exists there is no value".to_owned());
    }
    if !is_exists && key.is_empty() {
        return Err("without a key the operator is Exists".to_owned());
    }
    if !is_label_value(value) {
        return Err(format!("{value:?} is not a value that a taint can have"));
    }
    if toleration.toleration_seconds.is_some() && effect != "NoExecute" {
        return Err("tolerationSeconds goes with the effect NoExecute only".to_owned());
    }
    Ok(())
}

fn validate_replace_after(heal: &Heal) -> Result<Duration, Rejection> {
    let reject = |reason: String| Rejection::new("spec.heal.replaceAfter", reason);
    let after = duration::parse(&heal.replace_after).map_err(|error| reject(error.to_string()))?;
    let after = after.filter(|after| *after >= MIN_REPLACE_AFTER);
    after.ok_or_else(|| reject(format!("{:?} is less than 30s", heal.replace_after)))
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
        let reason = format!("{repository:?} is not an image's name without tag and digest");
        return Err(Rejection::new("spec.image.repository", reason));
    }
    match digest {
        Some(digest) if !is_digest(digest) => Err(Rejection::new(
            "spec.image.digest",
            "write sha256: and 64 hexadecimal digits, in lower case",
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
) -> Result<u64, Rejection> {
    let amount = bytes(quantity).map_err(|error| Rejection::new(field, error.to_string()))?;
    if amount < min_bytes {
        return Err(Rejection::new(
            field,
            format!("{} is less than {}Mi", quantity.0, min_bytes / MIB),
        ));
    }
    Ok(amount)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::maintenance::MaintenanceWindow;

    fn spec() -> EtcdClusterSpec {
        EtcdClusterSpec::with_version("3.6.16")
    }

    #[test]
    fn the_smallest_spec_gets_these_values() {
        let validated = spec().validate().unwrap();
        assert_eq!(validated.version, Version::new(3, 6, 16));
        assert_eq!(validated.members, 3);
        assert_eq!(validated.size, 4 << 30);
        assert_eq!(validated.quota, 3 << 30);
        assert_eq!(validated.auto_compaction, Some(Duration::from_secs(3600)));
        assert_eq!(validated.resources.memory_limit.0, "2Gi");
        assert_eq!(validated.keep_removed_for, Duration::from_secs(86_400));
        assert_eq!(validated.replace_after, Duration::from_secs(300));
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
        let edits: [(&str, Edit); 19] = [
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
                it.resources.limits.cpu = Some(Quantity("1".to_owned()))
            }),
        ];
        for (field, edit) in edits {
            let mut spec = spec();
            edit(&mut spec);
            assert_eq!(spec.validate().unwrap_err().field, field);
        }
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
