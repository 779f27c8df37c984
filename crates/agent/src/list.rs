//! The listing of a store: one line of JSON per backup.

use std::io::{self, Write};

use evenkeel_archive::ArchiveStore;
use evenkeel_archive::list::{BackupState, ListedBackup, list};
use evenkeel_archive::manifest::ClusterInfo;
use evenkeel_archive::tasks::{BackupSummary, FailureReason};
use serde::{Deserialize, Serialize};

use crate::AgentFailure;

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

/// Prints all backups of a store.
pub(crate) async fn print(store: &ArchiveStore) -> Result<(), AgentFailure> {
    let backups = list(store).await?;
    write_lines(backups, &mut io::stdout().lock()).map_err(|error| {
        AgentFailure::new(
            FailureReason::Other,
            format!("failed to write to the standard output: {error}"),
        )
    })
}

fn write_lines(backups: Vec<ListedBackup>, output: &mut dyn Write) -> io::Result<()> {
    for backup in backups {
        let line = serde_json::to_string(&BackupLine::from(backup))?;
        writeln!(output, "{line}")?;
    }
    output.flush()
}
