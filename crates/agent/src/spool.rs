//! A temporary file between a source and a store: the source is read at its own speed, so that a slow store does not keep a
//! read transaction of the application open. The upload follows the file while it grows.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::watch;

use crate::AgentFailure;

/// The bytes that are written and read at once.
const BLOCK_BYTES: usize = 1 << 20;

/// The part of the file that is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Written {
    bytes: u64,
    is_complete: bool,
}

/// The writing end of the spool.
pub(crate) struct SpoolWriter {
    file: Arc<File>,
    dir: PathBuf,
    block: Vec<u8>,
    bytes: u64,
    written: watch::Sender<Written>,
}

/// The reading end of the spool.
pub(crate) struct SpoolReader {
    file: Arc<File>,
    dir: PathBuf,
    offset: u64,
    written: watch::Receiver<Written>,
}

/// Creates a spool in a directory. Its file has no name, so that a crash leaves no file behind.
pub(crate) fn create(dir: &Path) -> Result<(SpoolWriter, SpoolReader), AgentFailure> {
    let file = tempfile::tempfile_in(dir)
        .map_err(|error| AgentFailure::file("create a file in", dir, &error))?;
    let (file, (sender, receiver)) = (Arc::new(file), watch::channel(Written::default()));
    let writer = SpoolWriter {
        file: Arc::clone(&file),
        dir: dir.to_owned(),
        block: Vec::with_capacity(BLOCK_BYTES),
        bytes: 0,
        written: sender,
    };
    let reader = SpoolReader {
        file,
        dir: dir.to_owned(),
        offset: 0,
        written: receiver,
    };
    Ok((writer, reader))
}

impl SpoolWriter {
    /// Appends bytes.
    pub(crate) async fn write(&mut self, mut bytes: &[u8]) -> Result<(), AgentFailure> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK_BYTES - self.block.len()));
            self.block.extend_from_slice(now);
            bytes = later;
            if self.block.len() == BLOCK_BYTES {
                self.flush().await?;
            }
        }
        Ok(())
    }

    /// Writes the rest and ends the spool. Returns the file and its size in bytes.
    pub(crate) async fn finish(mut self) -> Result<(Arc<File>, u64), AgentFailure> {
        self.flush().await?;
        self.written
            .send_modify(|written| written.is_complete = true);
        Ok((self.file, self.bytes))
    }

    async fn flush(&mut self) -> Result<(), AgentFailure> {
        let (file, block) = (Arc::clone(&self.file), std::mem::take(&mut self.block));
        let offset = self.bytes;
        let written = blocking(move || {
            let result = file.write_all_at(&block, offset);
            (result, block)
        });
        let (result, block) = written.await?;
        result.map_err(|error| AgentFailure::file("write a file in", &self.dir, &error))?;
        self.bytes += block.len() as u64;
        self.block = block;
        self.block.clear();
        let bytes = self.bytes;
        self.written.send_modify(|written| written.bytes = bytes);
        Ok(())
    }
}

impl SpoolReader {
    /// Returns the next block, or `None` at the end of a complete file. A spool whose writer failed never ends: its caller
    /// knows the failure.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, AgentFailure> {
        let length = loop {
            let written = *self.written.borrow_and_update();
            let available = written.bytes - self.offset;
            if available >= BLOCK_BYTES as u64 || written.is_complete {
                break available.min(BLOCK_BYTES as u64);
            }
            if self.written.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        if length == 0 {
            return Ok(None);
        }
        let (file, offset) = (Arc::clone(&self.file), self.offset);
        let read = blocking(move || {
            let mut block = vec![0; length as usize];
            file.read_exact_at(&mut block, offset).map(|()| block)
        });
        let block = read
            .await?
            .map_err(|error| AgentFailure::file("read a file in", &self.dir, &error))?;
        self.offset += length;
        Ok(Some(block))
    }
}

/// Runs a function on a thread for blocking calls, so that deadlines and signals are handled meanwhile.
pub(crate) async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<T, AgentFailure> {
    let handle = tokio::task::spawn_blocking(call);
    handle.await.map_err(|error| {
        AgentFailure::new(
            evenkeel_archive::tasks::FailureReason::Other,
            format!("a thread failed: {error}"),
        )
    })
}
