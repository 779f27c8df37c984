//! The names of objects. Keys are built from validated parts, never from the content of a store; parsing is strict, so that a
//! location that parses is one that this crate has built.

use std::fmt;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use sha2::{Digest, Sha256};

use crate::error::StoreError;
use crate::tasks::FailureReason;

/// The first segment of all keys: the layout and its version.
pub const ROOT: &str = "evenkeel-v1";
/// The segment of test objects, outside of the root.
pub(crate) const CHECK_ROOT: &str = "evenkeel-check";
/// The name of the compressed data.
pub(crate) const DATA: &str = "data.zst";
/// The name of the manifest.
pub(crate) const MANIFEST: &str = "manifest.json";

/// The longest location in bytes: S3 allows keys of 1,024 bytes, of which the prefix may have 256.
const MAX_LOCATION_BYTES: usize = 700;
const MAX_SEGMENT_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 32;
const ATTEMPT_DIGITS: usize = 16;
const RANDOM_DIGITS: usize = 8;

/// The path of all backups of one history of one cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LineagePath {
    engine: String,
    namespace: String,
    name: String,
    lineage: String,
}

impl LineagePath {
    /// Validates the parts: lower-case letters, digits, dashes and dots, as in names of Kubernetes.
    pub fn new(
        engine: &str,
        namespace: &str,
        name: &str,
        lineage: &str,
    ) -> Result<Self, StoreError> {
        for (what, text) in [
            ("engine", engine),
            ("namespace", namespace),
            ("cluster", name),
            ("lineage", lineage),
        ] {
            if !is_name(text) {
                return Err(StoreError::request(format!(
                    "the {what} {text:?} is not a name: lower-case letters, digits, dashes and single dots, at most \
                     {MAX_SEGMENT_BYTES} characters"
                )));
            }
        }
        Ok(Self {
            engine: engine.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            lineage: lineage.to_owned(),
        })
    }

    /// The engine.
    pub fn engine(&self) -> &str {
        &self.engine
    }

    /// The namespace of the cluster.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name of the cluster.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The lineage of the cluster.
    pub fn lineage(&self) -> &str {
        &self.lineage
    }

    pub(crate) fn bases(&self, epoch: u32) -> String {
        format!("{self}/epochs/{epoch}/bases")
    }

    pub(crate) fn tombstones(&self) -> String {
        format!("{self}/tombstones")
    }
}

impl fmt::Display for LineagePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            engine,
            namespace,
            name,
            lineage,
        } = self;
        write!(f, "{ROOT}/{engine}/{namespace}/{name}/{lineage}")
    }
}

/// The facts from which the location of a new backup is built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupPlace {
    /// The cluster.
    pub lineage: LineagePath,
    /// The number of the bootstrap or restore that the data belongs to.
    pub epoch: u32,
    /// The position that was known when reading began, as up to 32 digits and lower-case letters. It is for people and for
    /// the order of listings.
    pub label: String,
    /// The name of the attempt. A second attempt with the same name does not create a second backup.
    pub attempt: String,
}

impl BackupPlace {
    /// Returns the 16 hexadecimal digits that all locations of the attempt contain.
    pub(crate) fn attempt_digits(&self) -> String {
        let mut digits = hex(&Sha256::digest(self.attempt.as_bytes()));
        digits.truncate(ATTEMPT_DIGITS);
        digits
    }

    /// Builds a location that no other run has.
    pub(crate) fn location(&self, now: Timestamp) -> Result<BackupLocation, StoreError> {
        if !is_label(&self.label) {
            return Err(StoreError::request(format!(
                "the label {:?} is not 1 to {MAX_LABEL_BYTES} digits and lower-case letters",
                self.label
            )));
        }
        if self.attempt.is_empty() {
            return Err(StoreError::request("the name of the attempt is empty"));
        }
        let base = format!(
            "{}-{}-{}{}",
            utc(now),
            self.label,
            self.attempt_digits(),
            random_digits()?
        );
        let location = BackupLocation {
            lineage: self.lineage.clone(),
            epoch: self.epoch,
            base,
        };
        if location.to_string().len() > MAX_LOCATION_BYTES {
            return Err(StoreError::request(format!(
                "the names of engine, namespace, cluster and lineage are too long: the location has more than \
                 {MAX_LOCATION_BYTES} characters"
            )));
        }
        Ok(location)
    }
}

/// The place of one backup in a store, relative to the prefix of the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BackupLocation {
    lineage: LineagePath,
    epoch: u32,
    base: String,
}

impl BackupLocation {
    /// Parses a location. Only a text that `to_string` returns is accepted.
    pub fn parse(text: &str) -> Result<Self, StoreError> {
        Self::parse_strictly(text).ok_or_else(|| {
            StoreError::new(
                FailureReason::InvalidRequest,
                format!(
                    "{:?} is not the location of a backup. List the backups in the store, and copy a location",
                    crate::error::printable(text, 200)
                ),
            )
        })
    }

    fn parse_strictly(text: &str) -> Option<Self> {
        if text.len() > MAX_LOCATION_BYTES {
            return None;
        }
        let parts: Vec<&str> = text.split('/').collect();
        let [
            root,
            engine,
            namespace,
            name,
            lineage,
            "epochs",
            epoch,
            "bases",
            base,
        ] = parts[..]
        else {
            return None;
        };
        if root != ROOT || !is_base(base) {
            return None;
        }
        Some(Self {
            lineage: LineagePath::new(engine, namespace, name, lineage).ok()?,
            epoch: decimal(epoch)?,
            base: base.to_owned(),
        })
    }

    /// The cluster.
    pub fn lineage(&self) -> &LineagePath {
        &self.lineage
    }

    /// The number of the bootstrap or restore that the data belongs to.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    pub(crate) fn data(&self) -> String {
        format!("{self}/{DATA}")
    }

    pub(crate) fn manifest(&self) -> String {
        format!("{self}/{MANIFEST}")
    }

    pub(crate) fn tombstone(&self) -> String {
        format!("{}/{}/{}", self.lineage.tombstones(), self.epoch, self.base)
    }

    /// Returns true if the location was built for the attempt with these digits.
    pub(crate) fn is_of_attempt(&self, digits: &str) -> bool {
        self.base
            .rsplit('-')
            .next()
            .is_some_and(|last| last.get(..ATTEMPT_DIGITS) == Some(digits))
    }
}

impl fmt::Display for BackupLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.lineage.bases(self.epoch), self.base)
    }
}

/// An object of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Data,
    Manifest,
    Tombstone,
}

/// Parses the key of an object, relative to the prefix of the store. Returns `None` for any object that is not part of a
/// backup.
pub(crate) fn parse_key(key: &str) -> Option<(BackupLocation, Part)> {
    if let Some(location) = key.strip_suffix("/data.zst") {
        return Some((BackupLocation::parse_strictly(location)?, Part::Data));
    }
    if let Some(location) = key.strip_suffix("/manifest.json") {
        return Some((BackupLocation::parse_strictly(location)?, Part::Manifest));
    }
    let parts: Vec<&str> = key.split('/').collect();
    let [
        root,
        engine,
        namespace,
        name,
        lineage,
        "tombstones",
        epoch,
        base,
    ] = parts[..]
    else {
        return None;
    };
    if root != ROOT || !is_base(base) {
        return None;
    }
    let location = BackupLocation {
        lineage: LineagePath::new(engine, namespace, name, lineage).ok()?,
        epoch: decimal(epoch)?,
        base: base.to_owned(),
    };
    Some((location, Part::Tombstone))
}

/// Returns true for `<utc>-<label>-<24 hexadecimal digits>`.
fn is_base(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [time, label, random] = parts[..] else {
        return false;
    };
    is_utc(time)
        && is_label(label)
        && random.len() == ATTEMPT_DIGITS + RANDOM_DIGITS
        && is_hex(random)
}

/// Returns true for a time such as `20261118T112345Z`.
fn is_utc(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() == 16
        && bytes.iter().enumerate().all(|(index, byte)| match index {
            8 => *byte == b'T',
            15 => *byte == b'Z',
            _ => byte.is_ascii_digit(),
        })
}

fn is_label(text: &str) -> bool {
    (1..=MAX_LABEL_BYTES).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase())
}

/// Returns true for a name as of Kubernetes: labels of lower-case letters, digits and inner dashes, between single dots.
pub(crate) fn is_name(text: &str) -> bool {
    text.len() <= MAX_SEGMENT_BYTES
        && text.split('.').all(|label| {
            !label.is_empty()
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label
                    .bytes()
                    .all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase() || byte == b'-')
        })
}

/// Parses a decimal number without sign and leading zeros.
fn decimal(text: &str) -> Option<u32> {
    let number: u32 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

pub(crate) fn is_hex(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Returns lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| char::from(DIGITS[usize::from(digit)]))
        .collect()
}

/// Returns eight random hexadecimal digits.
pub(crate) fn random_digits() -> Result<String, StoreError> {
    let mut bytes = [0_u8; RANDOM_DIGITS / 2];
    getrandom::fill(&mut bytes).map_err(|error| {
        StoreError::new(
            FailureReason::Other,
            format!("failed to read random bytes: {error}"),
        )
    })?;
    Ok(hex(&bytes))
}

fn utc(time: Timestamp) -> String {
    let time = time.to_zoned(TimeZone::UTC).datetime();
    format!(
        "{:04}{:02}{:02}T{:02}{:02}{:02}Z",
        time.year().max(0),
        time.month(),
        time.day(),
        time.hour(),
        time.minute(),
        time.second()
    )
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
