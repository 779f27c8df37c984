//! Reading a backup: nothing is accepted before its sizes and hashes were verified.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures::StreamExt;
use object_store::ObjectStoreExt;
use tokio::sync::mpsc;
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use crate::error::{StoreError, is_not_found};
use crate::layout::BackupLocation;
use crate::manifest::{Content, MAX_MANIFEST_BYTES, Manifest};
use crate::store::ArchiveStore;
use crate::tasks::FailureReason;
use crate::writer::Counter;

/// The number of chunks between the download and the decompression.
const CHUNKS_IN_FLIGHT: usize = 8;
/// The size of the buffer for plain bytes.
const BUFFER_BYTES: usize = 1 << 20;
/// The largest window of the compression, as a power of two: 8 MiB, as of `zstd -19`.
const MAX_WINDOW_LOG: u32 = 23;

/// Reads and validates the manifest of a backup.
pub async fn read_manifest(store: &ArchiveStore, location: &str) -> Result<Manifest, StoreError> {
    read_manifest_at(store, &BackupLocation::parse(location)?).await
}

pub(crate) async fn read_manifest_at(
    store: &ArchiveStore,
    location: &BackupLocation,
) -> Result<Manifest, StoreError> {
    let bytes = store
        .get_small(&location.manifest(), MAX_MANIFEST_BYTES)
        .await?
        .ok_or_else(|| {
            StoreError::new(
                FailureReason::BackupNotFound,
                format!(
                    "the store has no complete backup at {location}: its manifest does not exist. List the backups in the store"
                ),
            )
        })?;
    Manifest::decode(&bytes, location)
}

/// Downloads a backup, verifies it and writes its plain data to a file. `progress` is called with the number of downloaded bytes
/// and their total. The file appears under its name only if all sizes and hashes are right; a failed or cancelled call leaves
/// nothing behind.
pub async fn fetch(
    store: &ArchiveStore,
    location: &str,
    path: &Path,
    mut progress: impl FnMut(u64, u64) + Send,
) -> Result<Manifest, StoreError> {
    let location = BackupLocation::parse(location)?;
    let manifest = read_manifest_at(store, &location).await?;
    let key = location.data();
    let result = match store.objects().get(&store.path(&key)).await {
        Ok(result) => result,
        Err(error) if is_not_found(&error) => {
            return Err(StoreError::damaged(format!(
                "the data of the backup does not exist: {key}. Use another backup"
            )));
        }
        Err(error) => return Err(StoreError::of(&format!("read {key}"), &error)),
    };
    if result.meta.size != manifest.stored.size {
        return Err(StoreError::damaged(format!(
            "{key} has {} bytes, and the manifest says {}. Use another backup",
            result.meta.size, manifest.stored.size
        )));
    }

    let (sender, receiver) = mpsc::channel(CHUNKS_IN_FLIGHT);
    let expected = Expected {
        plain: manifest.plain.clone(),
        stored: manifest.stored.clone(),
    };
    let output = PartialFile::create(path)?;
    let unpacking = tokio::task::spawn_blocking(move || unpack(receiver, output, &expected));

    let mut stream = result.into_stream();
    let mut done = 0;
    let mut downloaded = Ok(());
    while let Some(chunk) = stream.next().await {
        let chunk = match chunk {
            Ok(chunk) => chunk,
            Err(error) => {
                downloaded = Err(StoreError::of(&format!("read {key}"), &error));
                break;
            }
        };
        done += chunk.len() as u64;
        if sender.send(chunk).await.is_err() {
            // The other side has found a problem, which it returns.
            break;
        }
        progress(done, manifest.stored.size);
    }
    drop(sender);
    // The other side deletes its file before it ends.
    let unpacked = unpacking.await.map_err(|error| {
        StoreError::new(
            FailureReason::Other,
            format!("failed to unpack the backup: {error}"),
        )
    })?;
    downloaded?;
    let output = unpacked?;
    output.persist()?;
    Ok(manifest)
}

/// The sizes and hashes of a manifest.
struct Expected {
    plain: Content,
    stored: Content,
}

/// Verifies and decompresses chunks into a file.
fn unpack(
    mut chunks: mpsc::Receiver<Bytes>,
    mut output: PartialFile,
    expected: &Expected,
) -> Result<PartialFile, StoreError> {
    let mut unpacker = Unpacker::new(expected)?;
    while let Some(chunk) = chunks.blocking_recv() {
        unpacker.push(&chunk, &mut output.file)?;
    }
    unpacker.finish()?;
    output
        .file
        .sync_all()
        .map_err(|error| StoreError::io("write the data to the disk", &error))?;
    Ok(output)
}

/// The decompression of one frame with limits.
struct Unpacker<'e> {
    expected: &'e Expected,
    decoder: Decoder<'static>,
    buffer: Vec<u8>,
    plain: Counter,
    stored: Counter,
    is_frame_over: bool,
}

impl<'e> Unpacker<'e> {
    fn new(expected: &'e Expected) -> Result<Self, StoreError> {
        let start = || {
            let mut decoder = Decoder::new()?;
            decoder.set_parameter(DParameter::WindowLogMax(MAX_WINDOW_LOG))?;
            Ok(decoder)
        };
        let decoder = start()
            .map_err(|error: io::Error| StoreError::io("start the decompression", &error))?;
        Ok(Self {
            expected,
            decoder,
            buffer: Vec::with_capacity(BUFFER_BYTES),
            plain: Counter::default(),
            stored: Counter::default(),
            is_frame_over: false,
        })
    }

    fn push(&mut self, chunk: &[u8], output: &mut impl Write) -> Result<(), StoreError> {
        self.stored.update(chunk);
        if self.stored.size > self.expected.stored.size {
            return Err(StoreError::damaged(
                "the stored data is larger than the manifest says. Use another backup",
            ));
        }
        let mut input = InBuffer::around(chunk);
        loop {
            let has_input = input.pos() < chunk.len();
            if self.is_frame_over {
                if has_input {
                    return Err(StoreError::damaged(
                        "bytes follow the end of the compressed data. Use another backup",
                    ));
                }
                return Ok(());
            }
            self.buffer.clear();
            let remaining = {
                let mut plain = OutBuffer::around(&mut self.buffer);
                self.decoder.run(&mut input, &mut plain).map_err(|error| {
                    StoreError::damaged(format!(
                        "the compressed data is damaged: {error}. Use another backup"
                    ))
                })?
            };
            self.is_frame_over = remaining == 0;
            self.write(output)?;
            if !has_input && self.buffer.is_empty() {
                return Ok(());
            }
        }
    }

    fn write(&mut self, output: &mut impl Write) -> Result<(), StoreError> {
        if self.plain.size + self.buffer.len() as u64 > self.expected.plain.size {
            return Err(StoreError::damaged(
                "the data is larger than the manifest says. Use another backup",
            ));
        }
        self.plain.update(&self.buffer);
        output
            .write_all(&self.buffer)
            .map_err(|error| StoreError::io("write the data of the backup", &error))
    }

    fn finish(self) -> Result<(), StoreError> {
        let differs = |what: &str| {
            StoreError::damaged(format!(
                "the {what} data of the backup is not the data that the manifest describes: its size or SHA-256 differs. Use \
                 another backup"
            ))
        };
        if self.stored.content() != self.expected.stored {
            return Err(differs("stored"));
        }
        if !self.is_frame_over {
            return Err(StoreError::damaged(
                "the compressed data ends too early. Use another backup",
            ));
        }
        if self.plain.content() != self.expected.plain {
            return Err(differs("decompressed"));
        }
        Ok(())
    }
}

/// A file under a temporary name. It is deleted unless it is persisted.
struct PartialFile {
    file: File,
    temporary: PathBuf,
    path: PathBuf,
    is_persisted: bool,
}

impl PartialFile {
    /// Creates the file. A file that an earlier call left behind is deleted, so that at most one exists.
    fn create(path: &Path) -> Result<Self, StoreError> {
        let name = path.file_name().ok_or_else(|| {
            StoreError::request(format!("{} is not the name of a file", path.display()))
        })?;
        let mut temporary_name = std::ffi::OsString::from(".");
        temporary_name.push(name);
        temporary_name.push(".partial");
        let temporary = path.with_file_name(temporary_name);
        let failed = |error| StoreError::io(&format!("create {}", temporary.display()), &error);
        match fs::remove_file(&temporary) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let file = File::create_new(&temporary).map_err(failed)?;
        Ok(Self {
            file,
            temporary,
            path: path.to_owned(),
            is_persisted: false,
        })
    }

    /// Renames the file, and makes the name durable.
    fn persist(mut self) -> Result<(), StoreError> {
        let failed = |error| {
            StoreError::io(
                &format!("rename the file to {}", self.path.display()),
                &error,
            )
        };
        fs::rename(&self.temporary, &self.path).map_err(failed)?;
        let directory = match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            Some(_) | None => Path::new("."),
        };
        File::open(directory)
            .and_then(|directory| directory.sync_all())
            .map_err(failed)?;
        self.is_persisted = true;
        Ok(())
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if !self.is_persisted
            && let Err(error) = fs::remove_file(&self.temporary)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "failed to delete a partial file");
        }
    }
}

/// Decodes a manifest from any bytes, for fuzzing. Returns whether the bytes are a manifest.
#[doc(hidden)]
pub fn fuzz_manifest(bytes: &[u8]) -> bool {
    let location = serde_json::from_slice::<serde_json::Value>(bytes).ok();
    let text = |pointer: &str| {
        location
            .as_ref()
            .and_then(|value| value.pointer(pointer))
            .and_then(|value| value.as_str().map(str::to_owned))
            .unwrap_or_default()
    };
    let epoch = location
        .as_ref()
        .and_then(|value| value.get("epoch"))
        .and_then(serde_json::Value::as_u64)
        .unwrap_or_default();
    let location = format!(
        "evenkeel-v1/{}/{}/{}/{}/epochs/{epoch}/bases/20260101T000000Z-0-{}",
        text("/engine"),
        text("/cluster/namespace"),
        text("/cluster/name"),
        text("/cluster/lineage"),
        "0".repeat(24)
    );
    BackupLocation::parse(&location)
        .and_then(|location| Manifest::decode(bytes, &location))
        .is_ok()
}

/// Unpacks data against the sizes and hashes of a manifest, for fuzzing. Returns the number of plain bytes if they are right.
#[doc(hidden)]
pub fn fuzz_fetch(manifest: &Manifest, data: &[u8]) -> Result<u64, StoreError> {
    let expected = Expected {
        plain: manifest.plain.clone(),
        stored: manifest.stored.clone(),
    };
    let mut unpacker = Unpacker::new(&expected)?;
    for chunk in data.chunks(1000) {
        unpacker.push(chunk, &mut io::sink())?;
    }
    let size = unpacker.plain.size;
    unpacker.finish()?;
    Ok(size)
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
