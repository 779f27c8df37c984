//! The check of a store: test objects are written, read and deleted, by the same operations as those of backups.

use bytes::Bytes;
use object_store::{ObjectStoreExt, PutMode, PutPayload};

use crate::error::{StoreError, is_already_there, is_conflict, is_not_implemented};
use crate::layout::{CHECK_ROOT, random_digits};
use crate::store::{ArchiveStore, Deletion};
use crate::tasks::FailureReason;

const CONTENT: &[u8] =
    b"This object was written by Evenkeel to check the store. It can be deleted.\n";

/// The facts that a check has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckedStore {
    /// Whether the store creates an object only if it does not exist.
    pub conditional_writes: bool,
}

/// Writes, reads, lists and deletes test objects. Nothing remains after a success.
pub async fn check(store: &ArchiveStore) -> Result<CheckedStore, StoreError> {
    let directory = format!("{CHECK_ROOT}/{}{}", random_digits()?, random_digits()?);
    let object = format!("{directory}/object");
    let upload = format!("{directory}/upload");
    let result = exercise(store, &directory, &object, &upload).await;
    let object = store.delete(&object).await;
    let upload = store.delete(&upload).await;
    let checked = result?;
    for deletion in [object?, upload?] {
        if let Deletion::Denied(error) = deletion {
            return Err(error);
        }
    }
    if let Some(root) = store.directory() {
        let _ = std::fs::remove_dir(root.join(&directory));
        let _ = std::fs::remove_dir(root.join(CHECK_ROOT));
    }
    Ok(checked)
}

async fn exercise(
    store: &ArchiveStore,
    directory: &str,
    object: &str,
    upload: &str,
) -> Result<CheckedStore, StoreError> {
    store.put(object, Bytes::from_static(CONTENT)).await?;
    require_content(store, object).await?;
    let conditional_writes = has_conditional_writes(store, object).await?;
    upload_in_parts(store, upload).await?;
    require_content(store, upload).await?;
    let mut listed = 0;
    let mut objects = std::pin::pin!(store.list(directory));
    while let Some(found) = futures::TryStreamExt::try_next(&mut objects).await? {
        listed += u32::from(store.key(&found.location).is_some());
    }
    if listed != 2 {
        return Err(StoreError::new(
            FailureReason::StoreFailed,
            format!(
                "two test objects were written to {directory}, and the store lists {listed}. Use a store with consistent listings"
            ),
        ));
    }
    Ok(CheckedStore { conditional_writes })
}

/// Tries to create an object that exists.
async fn has_conditional_writes(store: &ArchiveStore, key: &str) -> Result<bool, StoreError> {
    let payload = PutPayload::from_static(CONTENT);
    let result = store
        .objects()
        .put_opts(&store.path(key), payload, PutMode::Create.into())
        .await;
    match result {
        Ok(_) => Ok(false),
        // A store that reports a conflict evaluates the condition.
        Err(error) if is_already_there(&error) || is_conflict(&error) => Ok(true),
        Err(error) if is_not_implemented(&error) => Ok(false),
        Err(error) => Err(StoreError::of(&format!("write {key}"), &error)),
    }
}

async fn upload_in_parts(store: &ArchiveStore, key: &str) -> Result<(), StoreError> {
    let failed = |error| StoreError::of(&format!("upload {key} in parts"), &error);
    let mut upload = store
        .objects()
        .put_multipart(&store.path(key))
        .await
        .map_err(failed)?;
    let part = upload.put_part(PutPayload::from_static(CONTENT)).await;
    let result = match part {
        Ok(()) => upload.complete().await.map(drop),
        Err(error) => Err(error),
    };
    if result.is_err() {
        // The first error says more than one of the clean-up.
        let _ = upload.abort().await;
    }
    result.map_err(failed)
}

async fn require_content(store: &ArchiveStore, key: &str) -> Result<(), StoreError> {
    let found = store.get_small(key, CONTENT.len()).await?;
    if found.as_deref() == Some(CONTENT) {
        return Ok(());
    }
    Err(StoreError::new(
        FailureReason::StoreFailed,
        format!("the test object {key} was written, and reads differently. Check the server"),
    ))
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
