//! Deleting backups. The order makes every crash safe: the tombstone is written, then the manifest is deleted, then the data,
//! then the tombstone. While the manifest exists, so does the data.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use jiff::Timestamp;

use crate::error::StoreError;
use crate::layout::{BackupLocation, DATA, LineagePath};
use crate::list::{Found, find};
use crate::store::{ArchiveStore, Deletion};
use crate::tasks::PruneTask;

/// The age in seconds at which data without a manifest is deleted: twice the longest deadline of a backup.
const UNFINISHED_SECONDS: i64 = 48 * 3600;

/// The result of a prune.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// The number of requested backups that do not exist any more.
    pub deleted: u32,
    /// The requested backups that the store does not allow to be deleted yet: positions in the task. They stay complete.
    pub locked: Vec<u32>,
    /// When the first of them can be deleted, if the store says so.
    pub locked_until: Option<Timestamp>,
    /// The number of unfinished backups and interrupted deletions that were cleaned up.
    pub cleaned: u32,
}

/// Whether a backup was deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    Deleted,
    /// The backup stays complete, until this time if the store says so.
    Locked(Option<Timestamp>),
    /// The manifest is deleted, so that the backup does not exist any more. A later prune deletes the data.
    DataLocked,
}

/// Deletes the backups of a task. All locations are verified first: if one is of another cluster or lineage, none is deleted.
/// Deletions that were interrupted after the manifest was deleted are finished; those that were interrupted before are undone,
/// unless the task requests them again. Data older than two days without a manifest is deleted.
pub async fn prune(
    store: &ArchiveStore,
    task: &PruneTask,
    now: Timestamp,
) -> Result<Pruned, StoreError> {
    let lineage = LineagePath::new(&task.engine, &task.namespace, &task.name, &task.lineage)?;
    let requested = requested(task, &lineage)?;
    let mut pruned = Pruned::default();
    for location in &requested {
        match delete_backup(store, location).await? {
            Removal::Deleted | Removal::DataLocked => pruned.deleted += 1,
            Removal::Locked(until) => {
                pruned.locked.extend(positions(task, location));
                pruned.locked_until = pruned.locked_until.into_iter().chain(until).min();
            }
        }
    }
    for (location, found) in find(store, &lineage.to_string()).await? {
        if *location.lineage() == lineage
            && !requested.contains(&location)
            && clean(store, &location, found, now).await?
        {
            pruned.cleaned += 1;
        }
    }
    if let Some(directory) = store.directory() {
        remove_staged_files(&directory.join(lineage.to_string()), UNFINISHED_SECONDS);
    }
    Ok(pruned)
}

/// Returns the positions of a backup in the task.
fn positions(task: &PruneTask, location: &BackupLocation) -> impl Iterator<Item = u32> {
    let location = location.to_string();
    let places = (0..).zip(&task.delete);
    places.filter_map(move |(position, place)| (*place == location).then_some(position))
}

fn requested(
    task: &PruneTask,
    lineage: &LineagePath,
) -> Result<BTreeSet<BackupLocation>, StoreError> {
    let mut requested = BTreeSet::new();
    for text in &task.delete {
        let location = BackupLocation::parse(text)?;
        if location.lineage() != lineage {
            return Err(StoreError::request(format!(
                "{location} is not a backup of {lineage}. No backup was deleted"
            )));
        }
        requested.insert(location);
    }
    Ok(requested)
}

/// Deletes one backup.
pub(crate) async fn delete_backup(
    store: &ArchiveStore,
    location: &BackupLocation,
) -> Result<Removal, StoreError> {
    let has_manifest = store.head(&location.manifest()).await?.is_some();
    let has_data = store.head(&location.data()).await?.is_some();
    if !has_manifest && !has_data {
        store.delete(&location.tombstone()).await?;
        return Ok(Removal::Deleted);
    }
    store
        .put(&location.tombstone(), Bytes::from_static(b"{}\n"))
        .await?;
    if let Deletion::Denied(error) = store.delete(&location.manifest()).await? {
        tracing::info!(%location, %error, "backup is locked");
        // The backup stays complete, so its tombstone goes.
        store.delete(&location.tombstone()).await?;
        return Ok(Removal::Locked(
            store.locked_until(&location.manifest()).await,
        ));
    }
    finish_deletion(store, location).await
}

/// Deletes the data of a backup whose manifest is gone, then the tombstone.
async fn finish_deletion(
    store: &ArchiveStore,
    location: &BackupLocation,
) -> Result<Removal, StoreError> {
    if let Deletion::Denied(error) = store.delete(&location.data()).await? {
        // The tombstone stays: the next prune tries again.
        tracing::info!(%location, %error, "data of a deleted backup is locked");
        return Ok(Removal::DataLocked);
    }
    store.delete(&location.tombstone()).await?;
    if let Some(directory) = store.directory() {
        // An empty directory is no backup. Removing it is a courtesy.
        let _ = fs::remove_dir(directory.join(location.to_string()));
    }
    Ok(Removal::Deleted)
}

/// Finishes or undoes an interrupted deletion, and deletes old data without a manifest. Returns true if objects were deleted.
async fn clean(
    store: &ArchiveStore,
    location: &BackupLocation,
    found: Found,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let Found {
        data,
        has_manifest,
        has_tombstone,
    } = found;
    if has_manifest {
        if has_tombstone {
            store.delete(&location.tombstone()).await?;
        }
        return Ok(false);
    }
    if has_tombstone {
        return Ok(finish_deletion(store, location).await? == Removal::Deleted);
    }
    let Some((_, changed)) = data else {
        return Ok(false);
    };
    if now.as_second().saturating_sub(changed) < UNFINISHED_SECONDS {
        return Ok(false);
    }
    Ok(delete_backup(store, location).await? == Removal::Deleted)
}

/// Deletes the files of uploads that were interrupted by a crash: `data.zst#1` in the directory of a backup. Listings do not
/// contain them.
fn remove_staged_files(directory: &Path, seconds: i64) {
    let age = Duration::from_secs(seconds.unsigned_abs());
    for epoch in entries(&directory.join("epochs")) {
        for base in entries(&epoch.join("bases")) {
            for file in entries(&base) {
                let is_staged = file
                    .file_name()
                    .and_then(|name| name.to_str())
                    .and_then(|name| name.strip_prefix(DATA))
                    .and_then(|rest| rest.strip_prefix('#'))
                    .is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
                if is_staged && is_older(&file, age) {
                    let _ = fs::remove_file(&file);
                }
            }
        }
    }
}

fn entries(directory: &Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .collect()
}

fn is_older(file: &Path, age: Duration) -> bool {
    fs::symlink_metadata(file)
        .and_then(|metadata| metadata.modified())
        .ok()
        .and_then(|changed| SystemTime::now().duration_since(changed).ok())
        .is_some_and(|since| since > age)
}

#[cfg(test)]
#[path = "prune_tests.rs"]
mod tests;
