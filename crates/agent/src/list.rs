//! The listing of a store: one line of JSON per backup.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::io::{self, Write};

use evenkeel_archive::ArchiveStore;
use evenkeel_archive::list::{BackupState, ListedBackup, list_as};
use evenkeel_archive::manifest::ClusterInfo;
use evenkeel_archive::tasks::{BackupSummary, FailureReason, TaskResult};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::AgentFailure;
use crate::etcd::contents::hex;

/// The largest listing in bytes. The kubelet keeps 10 MiB of a log by default, and rotates more.
const MAX_LISTING_BYTES: usize = 8 << 20;
/// The bytes that the container runtime adds to each line of a log: time, stream and tag.
const LOG_PREFIX_BYTES: usize = 48;

/// A backup in a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupLine {
    /// Its place in the store.
    pub location: String,
    /// Its state.
    pub state: BackupLineState,
    /// The problem of a backup that is damaged or not supported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The engine of a complete backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// The cluster of a complete backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterInfo>,
    /// The epoch of a complete backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u32>,
    /// A summary of the manifest of a complete backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<BackupSummary>,
}

/// The state of a backup in a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BackupLineState {
    /// The manifest is valid and the data exists.
    Complete,
    /// The backup is being written, or its writer has failed.
    Unfinished,
    /// The manifest or the data is damaged or missing.
    Damaged,
    /// The backup is of a newer format.
    NotSupported,
    /// The deletion of the backup was begun.
    BeingDeleted,
}

impl From<ListedBackup> for BackupLine {
    fn from(listed: ListedBackup) -> Self {
        let (state, problem, manifest) = match listed.state {
            BackupState::Complete(manifest) => (BackupLineState::Complete, None, Some(manifest)),
            BackupState::Unfinished => (BackupLineState::Unfinished, None, None),
            BackupState::Damaged(error) => (BackupLineState::Damaged, Some(error.message), None),
            BackupState::NotSupported(error) => {
                (BackupLineState::NotSupported, Some(error.message), None)
            }
            BackupState::BeingDeleted => (BackupLineState::BeingDeleted, None, None),
        };
        Self {
            location: listed.location.to_string(),
            state,
            problem,
            summary: manifest.as_deref().map(BackupSummary::of),
            epoch: manifest.as_ref().map(|manifest| manifest.epoch),
            engine: manifest.as_ref().map(|manifest| manifest.engine.clone()),
            cluster: manifest.map(|manifest| manifest.cluster),
        }
    }
}

/// Prints the backups of a store. The outcome has the number of lines and their checksum: the kubelet rotates large logs, and a
/// log without its beginning looks like a shorter one.
pub(crate) async fn print(store: &ArchiveStore) -> Result<TaskResult, AgentFailure> {
    let failed = |error: io::Error| {
        AgentFailure::new(
            FailureReason::Other,
            format!("failed to write to the standard output: {error}"),
        )
    };
    let lines = list_as(store, line).await?;
    let lines = lines.into_iter().collect::<io::Result<Vec<_>>>();
    write_lines(
        lines.map_err(failed)?,
        MAX_LISTING_BYTES,
        &mut io::stdout().lock(),
    )
    .map_err(failed)
}

/// A line, and when its backup began.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    began: String,
    text: String,
}

fn line(backup: ListedBackup) -> io::Result<Line> {
    // The last segment of a location begins with the time, whose text has the order of times.
    let location = backup.location.to_string();
    let began = location.rsplit('/').next().unwrap_or_default().to_owned();
    let mut text = serde_json::to_string(&BackupLine::from(backup))?;
    text.push('\n');
    Ok(Line { began, text })
}

/// Writes the newest lines that fit, in their order.
fn write_lines(
    lines: Vec<Line>,
    max_bytes: usize,
    output: &mut dyn Write,
) -> io::Result<TaskResult> {
    let mut newest: Vec<usize> = (0..lines.len()).collect();
    newest.sort_by_key(|index| lines.get(*index).map(|line| Reverse(&line.began)));
    let mut bytes = 0;
    let fitting = newest.iter().take_while(|index| {
        let length = lines.get(**index).map_or(0, |line| line.text.len());
        bytes += length + LOG_PREFIX_BYTES;
        bytes <= max_bytes
    });
    let fitting: BTreeSet<usize> = fitting.copied().collect();
    let (mut hash, mut listed, mut omitted) = (Sha256::new(), 0, 0);
    for (index, line) in lines.iter().enumerate() {
        if !fitting.contains(&index) {
            omitted += 1;
            continue;
        }
        hash.update(&line.text);
        output.write_all(line.text.as_bytes())?;
        listed += 1;
    }
    output.flush()?;
    Ok(TaskResult::Listed {
        listed,
        omitted,
        sha256: hex(&hash.finalize()),
    })
}

#[cfg(test)]
#[path = "list_tests.rs"]
mod tests;
