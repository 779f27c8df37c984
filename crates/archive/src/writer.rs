//! Writing a backup: plain bytes are hashed, compressed, hashed again and uploaded in parts, with bounded memory. The backup
//! exists once its manifest was written.

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use object_store::{MultipartUpload, ObjectStoreExt, PutPayload};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::task::JoinSet;
use zstd::stream::raw::{CParameter, Encoder, InBuffer, Operation, OutBuffer};

use crate::error::StoreError;
use crate::layout::{BackupLocation, BackupPlace, hex};
use crate::manifest::{COMPRESSION, ClusterInfo, Content, FORMAT_VERSION, Manifest};
use crate::prune::delete_backup;
use crate::reader::read_manifest_at;
use crate::store::{ArchiveStore, Created};
use crate::tasks::FailureReason;

/// The size of the parts of an upload in bytes. S3 requires at least 5 MiB for all but the last.
pub const PART_BYTES: usize = 8 << 20;
/// The number of parts that are uploaded at the same time, while the next one is filled.
const MAX_PARTS_IN_FLIGHT: usize = 2;
/// The largest number of parts that S3 allows.
const MAX_PARTS: u32 = 10_000;
/// The level of compression: faster than the member sends, and about as small as higher levels.
const COMPRESSION_LEVEL: i32 = 3;
/// The time that cleaning up after a failure may take.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(10);

/// The facts of a manifest that only the caller knows. The writer adds the sizes, the hashes and the place.
#[derive(Clone, Debug)]
pub struct ManifestDraft {
    /// The version of the application that the data was read from.
    pub engine_version: String,
    /// The application's own ID of the cluster.
    pub cluster_id: String,
    /// The member that the data was read from.
    pub member: String,
    /// The position in the cluster's history.
    pub position: Value,
    /// The position for people.
    pub position_text: String,
    /// When reading began.
    pub started_at: Timestamp,
    /// The engine's own facts for verification.
    pub verification: Value,
    /// The resource that described the cluster, without its status.
    pub resource: Value,
    /// The version of the program that writes the backup.
    pub written_by: String,
}

/// Sizes and hashes of the bytes that were written so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The bytes that the caller wrote.
    pub plain: Content,
    /// The compressed bytes.
    pub stored: Content,
}

/// A backup that is being written. After an error or `abort`, no object of it remains in the store, unless the store cannot be
/// reached; then an unfinished upload remains, which never counts as a backup.
pub struct BackupWriter {
    target: Target,
    upload: Box<dyn MultipartUpload>,
    in_flight: JoinSet<Result<(), object_store::Error>>,
    parts: u32,
    encoder: Encoder<'static>,
    part: Vec<u8>,
    plain: Counter,
    stored: Counter,
    is_over: bool,
}

impl BackupWriter {
    /// Begins a backup. Call [`find_attempt`] first if the attempt may have been made before.
    pub async fn begin(store: &ArchiveStore, place: BackupPlace) -> Result<Self, StoreError> {
        let location = place.location(Timestamp::now())?;
        let encoder = encoder().map_err(|error| StoreError::io("start the compression", &error))?;
        let upload = store
            .objects()
            .put_multipart(&store.path(&location.data()))
            .await
            .map_err(|error| StoreError::of("begin an upload", &error))?;
        Ok(Self {
            target: Target {
                store: store.clone(),
                place,
                location,
            },
            upload,
            in_flight: JoinSet::new(),
            parts: 0,
            encoder,
            part: Vec::new(),
            plain: Counter::default(),
            stored: Counter::default(),
            is_over: false,
        })
    }

    /// Returns the place of the backup in the store.
    pub fn location(&self) -> &BackupLocation {
        &self.target.location
    }

    /// Returns the number of plain bytes and of compressed bytes so far.
    pub fn sizes(&self) -> (u64, u64) {
        (self.plain.size, self.stored.size)
    }

    /// Writes plain bytes. The call waits while too many parts are being uploaded. After an error the upload was aborted.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.require_open()?;
        let result = self.compress(bytes).await;
        self.abort_if_failed(result).await
    }

    /// Completes the upload, and commits the backup by its manifest. Returns the place and the manifest of the backup. If
    /// another run of the same attempt has committed a backup, that one is returned.
    pub async fn commit(
        mut self,
        draft: ManifestDraft,
    ) -> Result<(BackupLocation, Manifest), StoreError> {
        self.require_open()?;
        let result = self.finish().await;
        let written = self.abort_if_failed(result).await?;
        self.is_over = true;
        let target = self.target;
        match target.commit(draft, written).await {
            Ok(committed) => Ok(committed),
            Err(Uncommitted { error, is_final }) => {
                if is_final {
                    target.delete_data().await;
                }
                Err(error)
            }
        }
    }

    /// Ends the upload without a backup.
    pub async fn abort(mut self) {
        self.end_upload().await;
    }

    fn require_open(&self) -> Result<(), StoreError> {
        if self.is_over {
            return Err(StoreError::new(
                FailureReason::Other,
                "the upload was aborted before",
            ));
        }
        Ok(())
    }

    async fn abort_if_failed<T>(&mut self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if result.is_err() {
            self.end_upload().await;
        }
        result
    }

    async fn end_upload(&mut self) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        self.in_flight.shutdown().await;
        match tokio::time::timeout(CLEANUP_TIMEOUT, self.upload.abort()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "failed to abort the upload"),
            Err(_) => tracing::warn!("failed to abort the upload in time"),
        }
    }

    async fn compress(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.plain.update(bytes);
        let mut input = InBuffer::around(bytes);
        while input.pos() < input.src.len() {
            self.make_room().await?;
            let start = self.part.len();
            let mut output = OutBuffer::around_pos(&mut self.part, start);
            self.encoder
                .run(&mut input, &mut output)
                .map_err(|error| StoreError::io("compress the data", &error))?;
            self.stored.update(&self.part[start..]);
        }
        Ok(())
    }

    /// Ends the compressed frame, uploads the last part and completes the upload.
    async fn finish(&mut self) -> Result<Written, StoreError> {
        loop {
            self.make_room().await?;
            let start = self.part.len();
            let mut output = OutBuffer::around_pos(&mut self.part, start);
            let remaining = self
                .encoder
                .finish(&mut output, true)
                .map_err(|error| StoreError::io("compress the data", &error))?;
            self.stored.update(&self.part[start..]);
            if remaining == 0 {
                break;
            }
        }
        if !self.part.is_empty() {
            self.send_part().await?;
        }
        while !self.in_flight.is_empty() {
            self.wait_for_part().await?;
        }
        self.upload
            .complete()
            .await
            .map_err(|error| StoreError::of("complete the upload", &error))?;
        Ok(Written {
            plain: self.plain.content(),
            stored: self.stored.content(),
        })
    }

    /// Makes sure that the current part has spare capacity.
    async fn make_room(&mut self) -> Result<(), StoreError> {
        if self.part.len() >= PART_BYTES {
            self.send_part().await?;
        }
        if self.part.capacity() == 0 {
            self.part.reserve_exact(PART_BYTES);
        }
        Ok(())
    }

    async fn send_part(&mut self) -> Result<(), StoreError> {
        if self.parts == MAX_PARTS {
            return Err(StoreError::new(
                FailureReason::NotSupported,
                format!(
                    "the compressed data has more than {MAX_PARTS} parts of {PART_BYTES} bytes"
                ),
            ));
        }
        while self.in_flight.len() >= MAX_PARTS_IN_FLIGHT {
            self.wait_for_part().await?;
        }
        self.parts += 1;
        let part = Bytes::from(std::mem::take(&mut self.part));
        let upload = self.upload.put_part(PutPayload::from_bytes(part));
        self.in_flight.spawn(upload);
        Ok(())
    }

    async fn wait_for_part(&mut self) -> Result<(), StoreError> {
        match self.in_flight.join_next().await {
            None | Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(error))) => Err(StoreError::of("upload a part", &error)),
            Some(Err(error)) => Err(StoreError::new(
                FailureReason::Other,
                format!("failed to upload a part: {error}"),
            )),
        }
    }
}

/// The place of a backup whose data is stored and whose manifest is not.
struct Target {
    store: ArchiveStore,
    place: BackupPlace,
    location: BackupLocation,
}

impl Target {
    async fn delete_data(&self) {
        let key = self.location.data();
        let deletion = self.store.delete(&key);
        match tokio::time::timeout(CLEANUP_TIMEOUT, deletion).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "failed to delete the data of a failed backup")
            }
            Err(_) => tracing::warn!("failed to delete the data of a failed backup in time"),
        }
    }

    async fn commit(
        &self,
        draft: ManifestDraft,
        written: Written,
    ) -> Result<(BackupLocation, Manifest), Uncommitted> {
        let manifest = self.manifest(draft, written);
        manifest
            .validate()
            .map_err(|error| Uncommitted::finally(StoreError::request(error.message)))?;
        let bytes = manifest.encode().map_err(Uncommitted::finally)?;
        self.require_stored(manifest.stored.size)
            .await
            .map_err(Uncommitted::finally)?;
        let earlier = find_attempt(&self.store, &self.place)
            .await
            .map_err(Uncommitted::finally)?;
        if let Some(earlier) = earlier {
            self.delete_data().await;
            return Ok(earlier);
        }
        self.put_manifest(bytes).await?;
        self.settle(manifest).await
    }

    /// Requires that the store reports the size of the uploaded data.
    async fn require_stored(&self, size: u64) -> Result<(), StoreError> {
        let key = self.location.data();
        let found = self.store.head(&key).await?.map(|meta| meta.size);
        if found == Some(size) {
            return Ok(());
        }
        Err(StoreError::new(
            FailureReason::StoreFailed,
            format!(
                "the store confirmed an upload of {size} bytes, and reports {found:?} bytes for {key}. Check the server"
            ),
        ))
    }

    /// Writes the manifest. If the result is unknown, the data must stay: the manifest may exist or appear later.
    async fn put_manifest(&self, bytes: Vec<u8>) -> Result<(), Uncommitted> {
        let key = self.location.manifest();
        let bytes = Bytes::from(bytes);
        match self.store.create(&key, bytes.clone()).await {
            Ok(Created::New) => return Ok(()),
            Ok(Created::Existed) => {}
            Err(error) => {
                return Err(Uncommitted {
                    is_final: crate::error::is_definite(&error),
                    error,
                });
            }
        }
        // A request that was repeated after a lost answer finds its own manifest.
        let found = self
            .store
            .get_small(&key, bytes.len())
            .await
            .map_err(Uncommitted::unknown)?;
        if found.as_ref() == Some(&bytes) {
            return Ok(());
        }
        Err(Uncommitted::unknown(StoreError::new(
            FailureReason::StoreFailed,
            format!("{key} exists with another content"),
        )))
    }

    /// Deletes this backup if another run of the attempt has committed one at the same time. The smallest location stays.
    async fn settle(&self, manifest: Manifest) -> Result<(BackupLocation, Manifest), Uncommitted> {
        let own = (self.location.clone(), manifest);
        match find_attempt(&self.store, &self.place).await {
            Ok(Some(other)) if other.0 < self.location => {
                match delete_backup(&self.store, &self.location).await {
                    Ok(_) => Ok(other),
                    Err(_) => Ok(own),
                }
            }
            // The backup is committed. A failed listing does not change that.
            Ok(_) | Err(_) => Ok(own),
        }
    }

    fn manifest(&self, draft: ManifestDraft, written: Written) -> Manifest {
        let ManifestDraft {
            engine_version,
            cluster_id,
            member,
            position,
            position_text,
            started_at,
            verification,
            resource,
            written_by,
        } = draft;
        let lineage = &self.place.lineage;
        Manifest {
            format_version: FORMAT_VERSION,
            engine: lineage.engine().to_owned(),
            engine_version,
            cluster: ClusterInfo {
                namespace: lineage.namespace().to_owned(),
                name: lineage.name().to_owned(),
                lineage: lineage.lineage().to_owned(),
                cluster_id,
                member,
            },
            epoch: self.place.epoch,
            position,
            position_text,
            started_at: rfc3339(started_at),
            finished_at: rfc3339(Timestamp::now().max(started_at)),
            plain: written.plain,
            stored: written.stored,
            compression: COMPRESSION.to_owned(),
            verification,
            resource,
            written_by,
        }
    }
}

/// A failure after the upload was completed.
struct Uncommitted {
    error: StoreError,
    /// Whether it is certain that no manifest exists or will appear, so that the data can be deleted.
    is_final: bool,
}

impl Uncommitted {
    fn finally(error: StoreError) -> Self {
        Self {
            error,
            is_final: true,
        }
    }

    fn unknown(error: StoreError) -> Self {
        Self {
            error,
            is_final: false,
        }
    }
}

/// Returns the complete backup of an attempt with the same name, if there is one.
pub async fn find_attempt(
    store: &ArchiveStore,
    place: &BackupPlace,
) -> Result<Option<(BackupLocation, Manifest)>, StoreError> {
    let digits = place.attempt_digits();
    let mut locations: Vec<BackupLocation> = store
        .list_directories(&place.lineage.bases(place.epoch))
        .await?
        .iter()
        .filter_map(|key| BackupLocation::parse(key).ok())
        .filter(|location| location.is_of_attempt(&digits))
        .collect();
    locations.sort_unstable();
    for location in locations {
        match read_manifest_at(store, &location).await {
            Ok(manifest) => return Ok(Some((location, manifest))),
            // An unfinished or damaged backup is no result of the attempt.
            Err(error)
                if matches!(
                    error.reason,
                    FailureReason::BackupNotFound
                        | FailureReason::BackupDamaged
                        | FailureReason::NotSupported
                ) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn encoder() -> std::io::Result<Encoder<'static>> {
    let mut encoder = Encoder::new(COMPRESSION_LEVEL)?;
    encoder.set_parameter(CParameter::ChecksumFlag(true))?;
    Ok(encoder)
}

/// Returns a time in RFC 3339, in whole seconds.
fn rfc3339(time: Timestamp) -> String {
    let seconds = Timestamp::from_second(time.as_second()).unwrap_or(time);
    seconds.to_string()
}

/// The size and the hash of bytes.
#[derive(Clone, Default)]
pub(crate) struct Counter {
    pub(crate) size: u64,
    hash: Sha256,
}

impl Counter {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.size += bytes.len() as u64;
        self.hash.update(bytes);
    }

    pub(crate) fn content(&self) -> Content {
        Content {
            size: self.size,
            sha256: hex(&self.hash.clone().finalize()),
        }
    }
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
