//! A store of backups: a bucket of S3, or a directory on a volume.

use std::fs::File;
use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt};
use jiff::Timestamp;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutPayload};

use crate::addresses::AddressPolicy;
use crate::error::{StoreError, is_already_there, is_conflict, is_not_found, is_not_implemented};
use crate::http::RetainedUntil;
use crate::s3;
use crate::tasks::{FailureReason, StoreConfig};

/// The longest prefix in bytes.
const MAX_PREFIX_BYTES: usize = 256;
/// The delays before a conditional write is repeated that conflicts with a concurrent one.
const CONFLICT_DELAYS: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_millis(600),
    Duration::from_secs(1),
];

/// A store of backups. Clones share connections.
#[derive(Clone, Debug)]
pub struct ArchiveStore {
    objects: Arc<dyn ObjectStore>,
    prefix: String,
    directory: Option<Directory>,
}

/// The directory of a volume store.
#[derive(Clone, Debug)]
struct Directory {
    path: PathBuf,
    /// Synchronizes the entries of a directory to the disk. Tests replace it.
    sync: fn(&FilePath) -> io::Result<()>,
}

/// Whether an object was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Created {
    /// The object was created.
    New,
    /// The object existed before, and was not changed.
    Existed,
}

impl ArchiveStore {
    /// Opens a store. No request is sent. `deadline` is the time that the whole task may take: retries and timeouts of
    /// requests are derived from it.
    pub fn open(config: &StoreConfig, deadline: Duration) -> Result<Self, StoreError> {
        Self::open_with(config, deadline, false)
    }

    /// Opens a store that may be on a loopback address, for tests.
    #[doc(hidden)]
    pub fn open_on_loopback(config: &StoreConfig, deadline: Duration) -> Result<Self, StoreError> {
        Self::open_with(config, deadline, true)
    }

    fn open_with(
        config: &StoreConfig,
        deadline: Duration,
        allow_loopback: bool,
    ) -> Result<Self, StoreError> {
        match config {
            StoreConfig::S3(config) => {
                let prefix = valid_prefix(&config.prefix)?;
                let policy = AddressPolicy {
                    allow_private: config.allow_private_addresses,
                    allow_loopback,
                };
                let bucket = s3::open(config, policy, deadline)?;
                Ok(Self {
                    objects: Arc::new(bucket),
                    prefix,
                    directory: None,
                })
            }
            StoreConfig::Directory(path) => Self::open_directory(path),
        }
    }

    fn open_directory(path: &FilePath) -> Result<Self, StoreError> {
        if !path.is_dir() {
            return Err(StoreError::new(
                FailureReason::BucketNotFound,
                format!(
                    "the directory {} does not exist on the volume. Create the directory, or correct spec.volume.path",
                    path.display()
                ),
            ));
        }
        let objects = LocalFileSystem::new_with_prefix(path)
            .map_err(|error| StoreError::of("open the directory of the store", &error))?
            .with_fsync(true);
        Ok(Self {
            objects: Arc::new(objects),
            prefix: String::new(),
            directory: Some(Directory {
                path: path.to_owned(),
                sync: sync_directory,
            }),
        })
    }

    /// Returns a store on another implementation, for tests.
    #[doc(hidden)]
    pub fn on(objects: Arc<dyn ObjectStore>, prefix: &str) -> Result<Self, StoreError> {
        Ok(Self {
            objects,
            prefix: valid_prefix(prefix)?,
            directory: None,
        })
    }

    /// Returns the directory, if the store is one.
    pub(crate) fn directory(&self) -> Option<&FilePath> {
        self.directory.as_ref().map(|it| it.path.as_path())
    }

    pub(crate) fn objects(&self) -> &dyn ObjectStore {
        &self.objects
    }

    /// Returns the full path of a key.
    pub(crate) fn path(&self, key: &str) -> Path {
        if self.prefix.is_empty() {
            Path::from(key)
        } else {
            Path::from(format!("{}/{key}", self.prefix))
        }
    }

    /// Returns the key of a full path, or `None` for a path outside of the prefix.
    pub(crate) fn key<'p>(&self, path: &'p Path) -> Option<&'p str> {
        let path = path.as_ref();
        if self.prefix.is_empty() {
            return Some(path);
        }
        path.strip_prefix(self.prefix.as_str())?.strip_prefix('/')
    }

    /// Lists all objects below a key.
    pub(crate) fn list(
        &self,
        key: &str,
    ) -> impl Stream<Item = Result<ObjectMeta, StoreError>> + use<> {
        self.objects.list(Some(&self.path(key))).map(|item| {
            item.map_err(|error| StoreError::of("list the objects of the store", &error))
        })
    }

    /// Lists the directories directly below a key, as keys.
    pub(crate) async fn list_directories(&self, key: &str) -> Result<Vec<String>, StoreError> {
        let listed = self
            .objects
            .list_with_delimiter(Some(&self.path(key)))
            .await;
        let listed = match listed {
            Ok(listed) => listed,
            Err(error) if is_not_found(&error) => return Ok(Vec::new()),
            Err(error) => return Err(StoreError::of("list the objects of the store", &error)),
        };
        Ok(listed
            .common_prefixes
            .iter()
            .filter_map(|path| self.key(path))
            .map(str::to_owned)
            .collect())
    }

    /// Returns the facts of an object, or `None` if it does not exist.
    pub(crate) async fn head(&self, key: &str) -> Result<Option<ObjectMeta>, StoreError> {
        match self.objects.head(&self.path(key)).await {
            Ok(meta) => Ok(Some(meta)),
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(StoreError::of(&format!("find {key}"), &error)),
        }
    }

    /// Returns until when the store retains an object, if it says so. Only S3 does, to those who may read the retention.
    pub(crate) async fn locked_until(&self, key: &str) -> Option<Timestamp> {
        let options = GetOptions {
            head: true,
            ..GetOptions::default()
        };
        let found = self.objects.get_opts(&self.path(key), options).await;
        found.ok()?.extensions.get::<RetainedUntil>().map(|it| it.0)
    }

    /// Reads a small object, or returns `None` if it does not exist. A larger object is an error.
    pub(crate) async fn get_small(
        &self,
        key: &str,
        max_bytes: usize,
    ) -> Result<Option<Bytes>, StoreError> {
        let failed = |error| StoreError::of(&format!("read {key}"), &error);
        let result = match self.objects.get(&self.path(key)).await {
            Ok(result) => result,
            Err(error) if is_not_found(&error) => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let too_large = || {
            StoreError::damaged(format!(
                "{key} has more than {max_bytes} bytes, which no program of Evenkeel writes"
            ))
        };
        if result.meta.size > max_bytes as u64 {
            return Err(too_large());
        }
        let mut stream = result.into_stream();
        let mut bytes = BytesMut::new();
        while let Some(chunk) = stream.next().await {
            let chunk = chunk.map_err(failed)?;
            if bytes.len() + chunk.len() > max_bytes {
                return Err(too_large());
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(Some(bytes.freeze()))
    }

    /// Creates an object that must not exist. A store without conditional writes is asked for the object before. A write that
    /// conflicts with a concurrent one is repeated.
    pub(crate) async fn create(&self, key: &str, bytes: Bytes) -> Result<Created, StoreError> {
        let path = self.path(key);
        let payload = PutPayload::from_bytes(bytes);
        let failed = |error| StoreError::of(&format!("write {key}"), &error);
        let mut delays = CONFLICT_DELAYS.into_iter();
        loop {
            let result = self
                .objects
                .put_opts(&path, payload.clone(), PutMode::Create.into())
                .await;
            let error = match result {
                Ok(_) => return Ok(Created::New),
                Err(error) => error,
            };
            if is_conflict(&error) {
                let Some(delay) = delays.next() else {
                    return Err(failed(error));
                };
                tracing::info!(key, "conditional write conflicts with another one");
                tokio::time::sleep(delay).await;
                continue;
            }
            if is_already_there(&error) {
                return Ok(Created::Existed);
            }
            if !is_not_implemented(&error) {
                return Err(failed(error));
            }
            if self.head(key).await?.is_some() {
                return Ok(Created::Existed);
            }
            return match self.objects.put(&path, payload).await {
                Ok(_) => Ok(Created::New),
                Err(error) => Err(failed(error)),
            };
        }
    }

    /// Writes an object, whether it exists or not.
    pub(crate) async fn put(&self, key: &str, bytes: Bytes) -> Result<(), StoreError> {
        self.objects
            .put(&self.path(key), PutPayload::from_bytes(bytes))
            .await
            .map(drop)
            .map_err(|error| StoreError::of(&format!("write {key}"), &error))
    }

    /// Deletes an object. An object that does not exist is no error.
    pub(crate) async fn delete(&self, key: &str) -> Result<Deletion, StoreError> {
        match self.objects.delete(&self.path(key)).await {
            Ok(()) => {}
            // The run that deleted the object may have ended before it synchronized the directory.
            Err(error) if is_not_found(&error) => {}
            Err(error) if crate::error::is_denied(&error) => {
                return Ok(Deletion::Denied(StoreError::of(
                    &format!("delete {key}"),
                    &error,
                )));
            }
            Err(error) => return Err(StoreError::of(&format!("delete {key}"), &error)),
        }
        self.sync_directory_of(key).await?;
        Ok(Deletion::Done)
    }

    /// Synchronizes the directory of an object on a volume, so that a deletion survives a power failure: a manifest must not
    /// come back without its data. The file system of `object_store` synchronizes only writes.
    async fn sync_directory_of(&self, key: &str) -> Result<(), StoreError> {
        let Some(Directory { path, sync }) = &self.directory else {
            return Ok(());
        };
        let file = path.join(key);
        let Some(directory) = file.parent().map(FilePath::to_owned) else {
            return Ok(());
        };
        let sync = *sync;
        let synced = tokio::task::spawn_blocking(move || sync(&directory)).await;
        synced
            .unwrap_or_else(|error| Err(error.into()))
            .map_err(|error| StoreError::io(&format!("synchronize the deletion of {key}"), &error))
    }
}

/// Synchronizes the entries of a directory. One that does not exist has none.
fn sync_directory(path: &FilePath) -> io::Result<()> {
    match File::open(path) {
        Ok(directory) => directory.sync_all(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// The result of a deletion that the store answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deletion {
    /// The object does not exist any more.
    Done,
    /// The store does not allow the deletion, as under a retention lock.
    Denied(StoreError),
}

/// Returns the prefix if it is empty or a path as `spec.s3.prefix` allows it.
fn valid_prefix(prefix: &str) -> Result<String, StoreError> {
    let is_segment = |segment: &str| {
        !segment.is_empty()
            && !segment.starts_with('.')
            && segment
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
    };
    if prefix.is_empty() || (prefix.len() <= MAX_PREFIX_BYTES && prefix.split('/').all(is_segment))
    {
        return Ok(prefix.to_owned());
    }
    Err(StoreError::request(format!(
        "the prefix {prefix:?} is not a path: letters, digits, dots, dashes and underscores between slashes"
    )))
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
