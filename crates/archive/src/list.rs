//! Listing the backups of a store, without any knowledge but the layout.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt};

use crate::error::StoreError;
use crate::layout::{BackupLocation, LineagePath, Part, ROOT, parse_key};
use crate::manifest::Manifest;
use crate::reader::read_manifest_at;
use crate::store::ArchiveStore;
use crate::tasks::FailureReason;

/// The number of manifests that are read at the same time.
const MANIFESTS_IN_FLIGHT: usize = 8;

/// A backup in a store.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedBackup {
    /// Its place.
    pub location: BackupLocation,
    /// Its state.
    pub state: BackupState,
}

/// The state of a backup in a store.
#[derive(Clone, Debug, PartialEq)]
pub enum BackupState {
    /// The manifest is valid and the data exists with the right size. The hashes were not computed.
    Complete(Box<Manifest>),
    /// The backup has no manifest: it is being written, or its writer has failed.
    Unfinished,
    /// The manifest or the data is damaged or missing.
    Damaged(StoreError),
    /// The backup is of a newer format.
    NotSupported(StoreError),
    /// The deletion of the backup was begun.
    BeingDeleted,
}

/// The objects of one backup that a listing has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// The size of the data and the time of its last change, in seconds since 1970.
    pub(crate) data: Option<(u64, i64)>,
    pub(crate) has_manifest: bool,
    pub(crate) has_tombstone: bool,
}

/// Lists all backups of the store, by location. Objects that are not part of a backup are ignored.
pub async fn list(store: &ArchiveStore) -> Result<Vec<ListedBackup>, StoreError> {
    list_as(store, |backup| backup).await
}

/// Lists all backups of the store, by location, each converted at once: a manifest can be large.
pub async fn list_as<T>(
    store: &ArchiveStore,
    convert: impl Fn(ListedBackup) -> T,
) -> Result<Vec<T>, StoreError> {
    read_all(store, find(store, ROOT).await?, convert).await
}

/// Lists the backups of one history of one cluster.
pub async fn list_lineage(
    store: &ArchiveStore,
    lineage: &LineagePath,
) -> Result<Vec<ListedBackup>, StoreError> {
    read_all(store, find(store, &lineage.to_string()).await?, |it| it).await
}

/// Finds the objects of all backups below a key.
pub(crate) async fn find(
    store: &ArchiveStore,
    key: &str,
) -> Result<BTreeMap<BackupLocation, Found>, StoreError> {
    let mut found: BTreeMap<BackupLocation, Found> = BTreeMap::new();
    let mut objects = std::pin::pin!(store.list(key));
    while let Some(object) = objects.try_next().await? {
        let Some((location, part)) = store.key(&object.location).and_then(parse_key) else {
            continue;
        };
        let found = found.entry(location).or_default();
        match part {
            Part::Data => found.data = Some((object.size, object.last_modified.timestamp())),
            Part::Manifest => found.has_manifest = true,
            Part::Tombstone => found.has_tombstone = true,
        }
    }
    Ok(found)
}

async fn read_all<T>(
    store: &ArchiveStore,
    found: BTreeMap<BackupLocation, Found>,
    convert: impl Fn(ListedBackup) -> T,
) -> Result<Vec<T>, StoreError> {
    let convert = &convert;
    futures::stream::iter(found)
        .map(|(location, found)| async move {
            Ok(convert(ListedBackup {
                state: state(store, &location, found).await?,
                location,
            }))
        })
        .buffered(MANIFESTS_IN_FLIGHT)
        .try_collect()
        .await
}

async fn state(
    store: &ArchiveStore,
    location: &BackupLocation,
    found: Found,
) -> Result<BackupState, StoreError> {
    if found.has_tombstone {
        return Ok(BackupState::BeingDeleted);
    }
    if !found.has_manifest {
        return Ok(BackupState::Unfinished);
    }
    let manifest = match read_manifest_at(store, location).await {
        Ok(manifest) => manifest,
        Err(error) => {
            return match error.reason {
                FailureReason::BackupDamaged => Ok(BackupState::Damaged(error)),
                FailureReason::NotSupported => Ok(BackupState::NotSupported(error)),
                // The backup was deleted after the listing.
                FailureReason::BackupNotFound => Ok(BackupState::BeingDeleted),
                _ => Err(error),
            };
        }
    };
    let size = found.data.map(|(size, _)| size);
    if size != Some(manifest.stored.size) {
        return Ok(BackupState::Damaged(StoreError::damaged(format!(
            "the data has {} bytes, and the manifest says {}",
            size.unwrap_or_default(),
            manifest.stored.size
        ))));
    }
    Ok(BackupState::Complete(Box::new(manifest)))
}

#[cfg(test)]
#[path = "list_tests.rs"]
mod tests;
