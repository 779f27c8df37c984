//! The second line: everything the schema refuses, refused again, for a spec that came by an older schema; and the
//! text of a valid spec as the numbers it stands for.

use std::fmt;
use std::time::Duration;

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::common::duration as retention;
use crate::common::names::{is_key, is_subdomain, is_value};
use crate::common::quantity::bytes;
use crate::common::resources::SettledResources;
use crate::common::scheduling::Scheduling;
use crate::common::storage::default_quota;
use crate::common::windows::Windows;
use crate::etcd::cluster::{EtcdClusterSpec, Heal, Image};
use crate::etcd::options::Options;
use crate::etcd::releases::runnable;
use crate::etcd::version::Version;

/// Names made from a cluster's must fit into 63 characters; the longest suffixes have about 20.
const LONGEST_NAME: usize = 40;
const LEAST_SIZE: u64 = 1 << 30;
const LEAST_QUOTA: u64 = 16 << 20;
const LEAST_REPLACE_AFTER: Duration = Duration::from_secs(30);

/// What a valid spec stands for where it is not plain to see. Where members run and how clients reach them is read
/// from the spec itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// The version of etcd.
    pub version: Version,
    /// How many members.
    pub members: u8,
    /// The size of each member's volume, in bytes.
    pub size: u64,
    /// How large etcd may let its data grow, in bytes.
    pub quota: u64,
    /// For how long etcd keeps past values; nothing if it never compacts of its own accord.
    pub auto_compaction: Option<Duration>,
    /// Further flags of etcd, as [`crate::etcd::options::flags`] takes them.
    pub options: Options,
    /// What each member is given, defaults included.
    pub resources: SettledResources,
    /// For how long the volume of a member that was removed is kept.
    pub keep_removed_for: Duration,
    /// How long a member that may come back is waited for before it is replaced.
    pub replace_after: Duration,
    /// When changes that disturb members may happen.
    pub windows: Windows,
}

/// Which field cannot be accepted, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Its path, such as `spec.version`.
    pub field: &'static str,
    /// What is wrong with it, and what to do.
    pub why: String,
}

impl Refusal {
    pub(crate) fn of(field: &'static str, why: impl Into<String>) -> Self {
        Self {
            field,
            why: why.into(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.why)
    }
}

impl std::error::Error for Refusal {}

/// Whether a cluster may have this name: the names of pods, Services and certificates are made from it.
pub fn checked_name(name: &str) -> Result<(), Refusal> {
    let refuse = |why: &str| Err(Refusal::of("metadata.name", why));
    if name.len() > LONGEST_NAME {
        return refuse("longer than 40 characters");
    }
    if name.contains('.') {
        return refuse("has a dot in it: use a hyphen");
    }
    if !name.starts_with(|first: char| first.is_ascii_lowercase()) {
        return refuse("does not begin with a letter");
    }
    Ok(())
}

impl EtcdClusterSpec {
    /// What the spec stands for, or the first field that cannot be accepted.
    pub fn checked(&self) -> Result<Checked, Refusal> {
        // Named one by one, so that a new field cannot be forgotten here.
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

        let version = checked_version(version)?;
        let members = match u8::try_from(*members) {
            Ok(members @ 1..=7) => members,
            _ => {
                return Err(Refusal::of(
                    "spec.members",
                    format!("{members} is not between 1 and 7"),
                ));
            }
        };
        checked_image(image)?;
        if storage.ephemeral && storage.class.is_some() {
            return Err(Refusal::of(
                "spec.storage.class",
                "ephemeral data has no volume, and so no storage class",
            ));
        }
        let size = amount("spec.storage.size", &storage.size, LEAST_SIZE)?;
        let quota = match &etcd.quota {
            Some(quota) => amount("spec.etcd.quota", quota, LEAST_QUOTA)?,
            None => default_quota(size),
        };
        if quota > size {
            return Err(Refusal::of(
                "spec.etcd.quota",
                "more than spec.storage.size",
            ));
        }
        checked_scheduling(scheduling)?;
        if let Some(key) = service.annotations.keys().find(|key| !is_key(key)) {
            return Err(Refusal::of(
                "spec.service.annotations",
                format!("{key:?} is not a key that Kubernetes takes"),
            ));
        }
        if let Some(name) = tls.client.extra_names.iter().find(|name| !is_host(name)) {
            return Err(Refusal::of(
                "spec.tls.client.extraNames",
                format!("{name:?} is not a host name"),
            ));
        }
        let auto_compaction = retention::parse(&etcd.auto_compaction)
            .map_err(|why| Refusal::of("spec.etcd.autoCompaction", why.to_string()))?;
        let options = Options::checked(&etcd.options, version)
            .map_err(|why| Refusal::of("spec.etcd.options", why))?;
        let keep_removed_for = retention::parse(&storage.keep_removed_for)
            .map_err(|why| Refusal::of("spec.storage.keepRemovedFor", why.to_string()))?;
        Ok(Checked {
            version,
            members,
            size,
            quota,
            auto_compaction,
            options,
            resources: resources.settled()?,
            keep_removed_for: keep_removed_for.unwrap_or_default(),
            replace_after: checked_replace_after(heal)?,
            windows: maintenance.checked()?,
        })
    }
}

/// What Kubernetes would refuse in a pod.
fn checked_scheduling(scheduling: &Scheduling) -> Result<(), Refusal> {
    let Scheduling {
        spread: _,
        node_selector,
        tolerations,
        priority_class,
    } = scheduling;
    let wrong = node_selector
        .iter()
        .find(|(key, value)| !is_key(key) || !is_value(value));
    if let Some((key, value)) = wrong {
        let why = format!("no node can have the label {key}={value}");
        return Err(Refusal::of("spec.scheduling.nodeSelector", why));
    }
    for Toleration {
        key,
        operator,
        value,
        effect,
        toleration_seconds,
    } in tolerations
    {
        let refuse = |why: String| Err(Refusal::of("spec.scheduling.tolerations", why));
        let exists = match operator.as_deref() {
            None | Some("" | "Equal") => false,
            Some("Exists") => true,
            Some(other) => {
                return refuse(format!(
                    "the operator {other:?} is neither Exists nor Equal"
                ));
            }
        };
        let has = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        match effect.as_deref() {
            None | Some("" | "NoSchedule" | "PreferNoSchedule" | "NoExecute") => {}
            Some(other) => {
                return refuse(format!(
                    "the effect {other:?} is none of NoSchedule, PreferNoSchedule and NoExecute"
                ));
            }
        }
        if has(key) && !key.as_deref().is_some_and(is_key) {
            return refuse(format!(
                "{:?} is not a key that Kubernetes takes",
                key.as_deref().unwrap_or_default()
            ));
        }
        if exists && has(value) {
            return refuse("with the operator Exists there is no value".to_owned());
        }
        if !exists && !has(key) {
            return refuse("without a key the operator is Exists".to_owned());
        }
        if !value.as_deref().is_none_or(is_value) {
            return refuse(format!(
                "{:?} is not a value that a taint can have",
                value.as_deref().unwrap_or_default()
            ));
        }
        if toleration_seconds.is_some() && effect.as_deref() != Some("NoExecute") {
            return refuse("tolerationSeconds goes with the effect NoExecute only".to_owned());
        }
    }
    match priority_class {
        Some(class) if !is_subdomain(class) => Err(Refusal::of(
            "spec.scheduling.priorityClass",
            format!("{class:?} is not a name that Kubernetes takes"),
        )),
        _ => Ok(()),
    }
}

fn checked_replace_after(heal: &Heal) -> Result<Duration, Refusal> {
    let refuse = |why: String| Refusal::of("spec.heal.replaceAfter", why);
    let after = retention::parse(&heal.replace_after).map_err(|why| refuse(why.to_string()))?;
    let after = after.filter(|after| *after >= LEAST_REPLACE_AFTER);
    after.ok_or_else(|| refuse(format!("{:?} is less than 30s", heal.replace_after)))
}

fn checked_version(text: &str) -> Result<Version, Refusal> {
    let version: Version = text
        .parse()
        .map_err(|why| Refusal::of("spec.version", format!("{why}")))?;
    runnable(version).map_err(|why| Refusal::of("spec.version", why))?;
    Ok(version)
}

fn checked_image(image: &Image) -> Result<(), Refusal> {
    let Image {
        repository,
        digest,
        pull_secrets: _,
    } = image;
    if !is_repository(repository) {
        let why = format!("{repository:?} is not an image's name without tag and digest");
        return Err(Refusal::of("spec.image.repository", why));
    }
    let is_digest = |text: &str| {
        text.strip_prefix("sha256:").is_some_and(|hex| {
            hex.len() == 64
                && hex
                    .bytes()
                    .all(|it| it.is_ascii_digit() || (b'a'..=b'f').contains(&it))
        })
    };
    match digest {
        Some(digest) if !is_digest(digest) => Err(Refusal::of(
            "spec.image.digest",
            "write sha256: and 64 hexadecimal digits, in lower case",
        )),
        _ => Ok(()),
    }
}

/// Only the first part of several, which is a host, may have a colon in it.
fn is_repository(text: &str) -> bool {
    let (host, path) = text.split_once('/').unwrap_or(("-", text));
    let is_name = |part: &str, also: &[u8]| {
        !part.is_empty()
            && part
                .bytes()
                .all(|it| it.is_ascii_alphanumeric() || b"._-".contains(&it) || also.contains(&it))
    };
    is_name(host, b":") && path.split('/').all(|part| is_name(part, b""))
}

fn amount(field: &'static str, quantity: &Quantity, least: u64) -> Result<u64, Refusal> {
    let amount = bytes(quantity).map_err(|why| Refusal::of(field, why.to_string()))?;
    if amount < least {
        return Err(Refusal::of(
            field,
            format!("{} is less than {}Mi", quantity.0, least >> 20),
        ));
    }
    Ok(amount)
}

/// A host name in lower case, perhaps with a star for its first label; its last label begins with a letter, which no
/// address does.
fn is_host(name: &str) -> bool {
    let labels = name.strip_prefix("*.").unwrap_or(name);
    let last = labels.rsplit('.').next().unwrap_or_default();
    name.len() <= 253
        && is_subdomain(labels)
        && labels.split('.').all(|label| label.len() <= 63)
        && last.starts_with(|it: char| it.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::maintenance::MaintenanceWindow;

    fn spec() -> EtcdClusterSpec {
        EtcdClusterSpec::of_version("3.6.16")
    }

    #[test]
    fn the_smallest_spec_stands_for_these_numbers() {
        let checked = spec().checked().unwrap();
        assert_eq!(checked.version, Version::new(3, 6, 16));
        assert_eq!(checked.members, 3);
        assert_eq!(checked.size, 4 << 30);
        assert_eq!(checked.quota, 3 << 30);
        assert_eq!(checked.auto_compaction, Some(Duration::from_secs(3600)));
        assert_eq!(checked.resources.memory_limit.0, "2Gi");
        assert_eq!(checked.keep_removed_for, Duration::from_secs(86_400));
        assert_eq!(checked.replace_after, Duration::from_secs(300));
        assert_eq!(checked.windows, Windows::default());
    }

    #[test]
    fn each_field_that_cannot_be_accepted_is_named() {
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
            assert_eq!(spec.checked().unwrap_err().field, field);
        }
    }

    #[test]
    fn a_mirror_with_a_port_has_no_tag() {
        let mut spec = spec();
        spec.image.repository = "mirror.example:5000/etcd".to_owned();
        assert!(spec.checked().is_ok());
    }

    #[test]
    fn a_quota_may_take_the_whole_volume_but_no_more() {
        let mut spec = spec();
        spec.etcd.quota = Some(Quantity("4096Mi".to_owned()));
        assert_eq!(spec.checked().unwrap().quota, 4 << 30);
    }

    #[test]
    fn host_names_are_told_from_everything_else() {
        for name in [
            "etcd.corp.example",
            "*.corp.example",
            "etcd",
            "9.etcd.example",
            "xn--bcher-kva.example",
        ] {
            assert!(is_host(name), "{name}");
        }
        for name in [
            "",
            "10.0.0.1",
            "::1",
            "Etcd.example",
            "etcd.example:2379",
            "https://etcd",
            "*",
            "a.*.b",
            "-a",
            "a..b",
        ] {
            assert!(!is_host(name), "{name}");
        }
    }

    #[test]
    fn a_name_is_a_label_that_begins_with_a_letter_and_leaves_room() {
        assert!(checked_name("orders").is_ok());
        assert!(checked_name(&"a".repeat(40)).is_ok());
        for name in [
            "a".repeat(41),
            "a.b".to_owned(),
            "1a".to_owned(),
            String::new(),
        ] {
            assert_eq!(checked_name(&name).unwrap_err().field, "metadata.name");
        }
    }
}
