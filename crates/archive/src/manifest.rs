//! The manifest of a backup: the last object that is written, and the proof that the backup is complete.
//! A manifest ends with the SHA-256 of all bytes before that field, so that damage is noticed.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::error::StoreError;
use crate::layout::{BackupLocation, LineagePath, hex, is_hex};
use crate::tasks::FailureReason;

/// The version of the layout and of manifests that this crate writes. A reader rejects newer ones.
pub const FORMAT_VERSION: u32 = 1;
/// The largest manifest in bytes.
pub const MAX_MANIFEST_BYTES: usize = 1 << 20;
/// The compression of all backups of this version.
pub const COMPRESSION: &str = "zstd";

/// The text between the hashed bytes and the digits of the hash.
const CHECKSUM_START: &str = ",\"sha256\":\"";
const CHECKSUM_END: &str = "\"}\n";
const CHECKSUM_DIGITS: usize = 64;
/// The largest text of a field in bytes.
const MAX_TEXT_BYTES: usize = 256;

/// The description of a complete backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Manifest {
    /// The version of the format.
    pub format_version: u32,
    /// The engine, such as `etcd`.
    pub engine: String,
    /// The version of the application that the data was read from, such as `3.6.16`.
    pub engine_version: String,
    /// The cluster.
    pub cluster: ClusterInfo,
    /// The number of the bootstrap or restore that the data belongs to.
    pub epoch: u32,
    /// The position in the cluster's history. Only the engine can compare positions.
    pub position: Value,
    /// The position for people, such as `revision 4711`.
    pub position_text: String,
    /// When reading began, in RFC 3339.
    pub started_at: String,
    /// When all data was stored, in RFC 3339.
    pub finished_at: String,
    /// The data before compression.
    pub plain: Content,
    /// The data as it is stored.
    pub stored: Content,
    /// The compression, `zstd`.
    pub compression: String,
    /// The engine's own facts, such as hashes and sampled keys, for verification and drills.
    pub verification: Value,
    /// The resource that described the cluster, without its status.
    pub resource: Value,
    /// The version of the program that wrote the backup.
    pub written_by: String,
}

/// The cluster that a backup is from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClusterInfo {
    /// The namespace of the resource.
    pub namespace: String,
    /// The name of the resource.
    pub name: String,
    /// The random identifier of the cluster's history.
    pub lineage: String,
    /// The application's own ID of the cluster.
    pub cluster_id: String,
    /// The member that the data was read from.
    pub member: String,
}

/// The size and checksum of a content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Content {
    /// The number of bytes.
    pub size: u64,
    /// The SHA-256 in hexadecimal digits.
    pub sha256: String,
}

impl Manifest {
    /// Returns the bytes that are stored.
    pub fn encode(&self) -> Result<Vec<u8>, StoreError> {
        let mut bytes = serde_json::to_vec(self).map_err(|error| {
            StoreError::request(format!("the manifest cannot be written as JSON: {error}"))
        })?;
        bytes.pop();
        let hash = hex(&Sha256::digest(&bytes));
        bytes.extend_from_slice(CHECKSUM_START.as_bytes());
        bytes.extend_from_slice(hash.as_bytes());
        bytes.extend_from_slice(CHECKSUM_END.as_bytes());
        if bytes.len() > MAX_MANIFEST_BYTES {
            return Err(StoreError::request(format!(
                "the manifest has {} bytes, and {MAX_MANIFEST_BYTES} are allowed: the resource or the facts of the engine are too large",
                bytes.len()
            )));
        }
        Ok(bytes)
    }

    /// Reads and validates a manifest that is stored at the location.
    pub fn decode(bytes: &[u8], location: &BackupLocation) -> Result<Self, StoreError> {
        let manifest = Self::decode_anywhere(bytes)?;
        manifest.validate()?;
        manifest.require_location(location)?;
        Ok(manifest)
    }

    fn decode_anywhere(bytes: &[u8]) -> Result<Self, StoreError> {
        if bytes.len() > MAX_MANIFEST_BYTES {
            return Err(too_large(bytes.len() as u64));
        }
        let checked = without_checksum(bytes);
        // A newer format may be protected in another way, so its version is read first.
        if let Some(version) = version_of(bytes)
            && version != u64::from(FORMAT_VERSION)
        {
            return Err(StoreError::new(
                FailureReason::NotSupported,
                format!(
                    "the manifest has the format version {version}, and this program reads version {FORMAT_VERSION} only. \
                     Use a newer version of Evenkeel"
                ),
            ));
        }
        let mut json = checked?.to_vec();
        json.push(b'}');
        serde_json::from_slice(&json)
            .map_err(|error| StoreError::damaged(format!("the manifest is not valid: {error}")))
    }

    /// Rejects values that this crate never writes.
    pub fn validate(&self) -> Result<(), StoreError> {
        let Self {
            format_version,
            engine: _,
            engine_version,
            cluster,
            epoch: _,
            position: _,
            position_text,
            started_at,
            finished_at,
            plain,
            stored,
            compression,
            verification: _,
            resource: _,
            written_by,
        } = self;
        if *format_version != FORMAT_VERSION {
            return Err(StoreError::damaged(format!(
                "the manifest has the format version {format_version}"
            )));
        }
        self.lineage()?;
        for (field, text) in [
            ("engineVersion", engine_version),
            ("cluster.clusterId", &cluster.cluster_id),
            ("cluster.member", &cluster.member),
            ("positionText", position_text),
            ("writtenBy", written_by),
        ] {
            if !is_text(text) {
                return Err(invalid(
                    field,
                    "is empty, too long or unprintable, or a path",
                ));
            }
        }
        let started = parse_time("startedAt", started_at)?;
        let finished = parse_time("finishedAt", finished_at)?;
        if finished < started {
            return Err(invalid("finishedAt", "is before startedAt"));
        }
        if compression != COMPRESSION {
            return Err(invalid("compression", "is not zstd"));
        }
        plain.validate("plain")?;
        stored.validate("stored")
    }

    /// Returns the path of the cluster's backups.
    pub fn lineage(&self) -> Result<LineagePath, StoreError> {
        let ClusterInfo {
            namespace,
            name,
            lineage,
            ..
        } = &self.cluster;
        LineagePath::new(&self.engine, namespace, name, lineage).map_err(|error| {
            StoreError::damaged(format!("the manifest is not valid: {}", error.message))
        })
    }

    /// Rejects a manifest that was copied from the place of another backup.
    fn require_location(&self, location: &BackupLocation) -> Result<(), StoreError> {
        if self.lineage()? != *location.lineage() || self.epoch != location.epoch() {
            return Err(StoreError::damaged(format!(
                "the manifest is of cluster {} in namespace {}, lineage {}, epoch {}, and was found at {location}",
                self.cluster.name, self.cluster.namespace, self.cluster.lineage, self.epoch
            )));
        }
        Ok(())
    }
}

impl Content {
    fn validate(&self, field: &str) -> Result<(), StoreError> {
        if self.size == 0 || self.size > i64::MAX as u64 {
            return Err(invalid(field, "has an impossible size"));
        }
        if self.sha256.len() != CHECKSUM_DIGITS || !is_hex(&self.sha256) {
            return Err(invalid(
                field,
                "has a sha256 that is not 64 lower-case hexadecimal digits",
            ));
        }
        Ok(())
    }
}

pub(crate) fn too_large(size: u64) -> StoreError {
    StoreError::damaged(format!(
        "the manifest has {size} bytes, and {MAX_MANIFEST_BYTES} are allowed"
    ))
}

fn invalid(field: &str, problem: &str) -> StoreError {
    StoreError::damaged(format!("the manifest is not valid: {field} {problem}"))
}

/// Verifies the checksum and returns the bytes before it.
fn without_checksum(bytes: &[u8]) -> Result<&[u8], StoreError> {
    let damaged =
        || StoreError::damaged("the manifest is damaged: its checksum is missing or wrong");
    let rest = bytes
        .strip_suffix(CHECKSUM_END.as_bytes())
        .ok_or_else(damaged)?;
    let split = rest
        .len()
        .checked_sub(CHECKSUM_DIGITS)
        .ok_or_else(damaged)?;
    let (rest, digits) = rest.split_at(split);
    let content = rest
        .strip_suffix(CHECKSUM_START.as_bytes())
        .ok_or_else(damaged)?;
    if hex(&Sha256::digest(content)).as_bytes() != digits {
        return Err(damaged());
    }
    Ok(content)
}

/// Returns the version of any JSON object that has one.
fn version_of(bytes: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Versioned {
        format_version: u64,
    }
    let Versioned { format_version } = serde_json::from_slice(bytes).ok()?;
    Some(format_version)
}

/// Returns true for a short printable text that no program can mistake for a path outside of a directory.
fn is_text(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= MAX_TEXT_BYTES
        && !text.chars().any(char::is_control)
        && !text.starts_with(['/', '\\', '~'])
        && !text.split(['/', '\\']).any(|segment| segment == "..")
}

fn parse_time(field: &str, text: &str) -> Result<Timestamp, StoreError> {
    text.parse()
        .map_err(|_| invalid(field, "is not a time in RFC 3339"))
}

#[cfg(test)]
#[path = "manifest_tests.rs"]
mod tests;
