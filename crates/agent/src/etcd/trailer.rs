//! The end of a snapshot: 32 bytes with the SHA-256 of all bytes before. etcd sends it, and `etcdutl snapshot restore` checks it.

use sha2::{Digest, Sha256};

/// The bytes of the trailer.
pub(crate) const TRAILER_BYTES: usize = 32;
/// The size of a snapshot without its trailer is a multiple of this.
const SECTOR_BYTES: u64 = 512;

/// A check of a snapshot that is read in order.
#[derive(Default)]
pub(crate) struct TrailerCheck {
    hash: Sha256,
    /// The last bytes, which may be the trailer.
    tail: Vec<u8>,
    size: u64,
}

impl TrailerCheck {
    /// Adds the next bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.size += bytes.len() as u64;
        match bytes.len().checked_sub(TRAILER_BYTES) {
            Some(at) => {
                let (before, tail) = bytes.split_at(at);
                self.hash.update(&self.tail);
                self.hash.update(before);
                self.tail.clear();
                self.tail.extend_from_slice(tail);
            }
            None => {
                self.tail.extend_from_slice(bytes);
                let before = self.tail.len().saturating_sub(TRAILER_BYTES);
                self.hash.update(self.tail.drain(..before).as_slice());
            }
        }
    }

    /// Returns the size of the database, without the trailer, or what is wrong.
    pub(crate) fn finish(self) -> Result<u64, String> {
        let Some(database) = self.size.checked_sub(TRAILER_BYTES as u64) else {
            return Err(format!("it has {} bytes and no checksum", self.size));
        };
        if database == 0 || database % SECTOR_BYTES != 0 {
            return Err(format!(
                "its size of {} bytes is not that of a snapshot",
                self.size
            ));
        }
        if self.hash.finalize().as_slice() != self.tail {
            return Err("its SHA-256 is not that of its last 32 bytes".to_owned());
        }
        Ok(database)
    }
}

#[cfg(test)]
#[path = "trailer_tests.rs"]
mod tests;
