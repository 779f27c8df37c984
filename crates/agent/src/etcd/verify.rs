//! The verification of a snapshot file against the manifest of its backup, before anything is restored from it.

use std::fs::File;
use std::os::unix::fs::FileExt;

use evenkeel_archive::manifest::Manifest;
use evenkeel_archive::tasks::FailureReason;
use serde::{Deserialize, Serialize};

use super::bolt::BoltError;
use super::contents::SnapshotContents;
use super::trailer::TrailerCheck;
use crate::AgentFailure;

/// The bytes that are read at once.
const BLOCK_BYTES: usize = 1 << 20;

/// The facts of etcd in a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EtcdVerification {
    /// The contents of the snapshot.
    #[serde(flatten)]
    pub contents: SnapshotContents,
    /// The member's hash over all keys.
    pub hash_kv: KvHashResult,
}

/// The hash over all keys, or why there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", untagged)]
pub enum KvHashResult {
    /// The hash.
    Known(KvHash),
    /// There is no hash.
    Missing {
        /// Why not.
        reason: String,
    },
}

/// etcd's hash over all keys and values from the last compaction up to a revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KvHash {
    /// The revision.
    pub revision: i64,
    /// The revision of the last compaction, 0 if there was none.
    pub compact_revision: i64,
    /// The CRC-32C.
    pub hash: u32,
}

impl EtcdVerification {
    /// Returns the facts of a manifest.
    pub fn of(manifest: &Manifest) -> Result<Self, AgentFailure> {
        serde_json::from_value(manifest.verification.clone()).map_err(|error| {
            damaged(format!(
                "The manifest of the backup does not describe a snapshot of etcd: {error}. Use another backup."
            ))
        })
    }
}

/// Verifies a snapshot file: its checksum, its pages, and that it contains what the manifest says.
pub fn verify(file: &File, manifest: &Manifest) -> Result<(), AgentFailure> {
    let expected = EtcdVerification::of(manifest)?.contents;
    let database = check_trailer(file)?;
    let found = SnapshotContents::read(file, database).map_err(|error| match error {
        BoltError::Io(error) => AgentFailure::new(
            FailureReason::Other,
            format!("failed to read the fetched snapshot: {error}"),
        ),
        BoltError::Damaged { .. } => damaged(format!(
            "The snapshot in the backup is damaged: {error}. Use another backup."
        )),
    })?;
    let differences = differences(&expected, &found);
    if differences.is_empty() {
        return Ok(());
    }
    Err(damaged(format!(
        "The snapshot in the backup differs from its manifest: {}. Use another backup.",
        differences.join(", ")
    )))
}

fn check_trailer(file: &File) -> Result<u64, AgentFailure> {
    let (mut check, mut block, mut offset) = (TrailerCheck::default(), vec![0; BLOCK_BYTES], 0);
    loop {
        let length = file.read_at(&mut block, offset).map_err(|error| {
            AgentFailure::new(
                FailureReason::Other,
                format!("failed to read the fetched snapshot: {error}"),
            )
        })?;
        if length == 0 {
            break;
        }
        check.update(block.get(..length).unwrap_or_default());
        offset += length as u64;
    }
    check.finish().map_err(|problem| {
        damaged(format!(
            "The file in the backup is not a complete snapshot of etcd: {problem}. Use another backup."
        ))
    })
}

/// Returns the facts that differ, for people. Samples are compared by drills.
fn differences(expected: &SnapshotContents, found: &SnapshotContents) -> Vec<String> {
    let SnapshotContents {
        revision,
        compact_revision,
        keys,
        records,
        leases,
        users,
        roles,
        has_auth,
        alarms,
        storage_version,
        samples: _,
    } = expected;
    let keys = keys.map_or(0, u64::cast_signed);
    let found_keys = found.keys.map_or(0, u64::cast_signed);
    let counts = [
        ("revision", *revision, found.revision),
        (
            "compact revision",
            *compact_revision,
            found.compact_revision,
        ),
        ("keys", keys, found_keys),
        (
            "records",
            records.cast_signed(),
            found.records.cast_signed(),
        ),
        ("leases", leases.cast_signed(), found.leases.cast_signed()),
        ("users", users.cast_signed(), found.users.cast_signed()),
        ("roles", roles.cast_signed(), found.roles.cast_signed()),
        (
            "authentication",
            i64::from(*has_auth),
            i64::from(found.has_auth),
        ),
        ("alarms", alarms.cast_signed(), found.alarms.cast_signed()),
    ];
    let mut differences: Vec<String> = counts
        .into_iter()
        .filter(|(_, expected, found)| expected != found)
        .map(|(what, expected, found)| format!("{what} {found} instead of {expected}"))
        .collect();
    if *storage_version != found.storage_version {
        differences.push("another storage version".to_owned());
    }
    differences
}

fn damaged(message: String) -> AgentFailure {
    AgentFailure::new(FailureReason::BackupDamaged, message)
}
