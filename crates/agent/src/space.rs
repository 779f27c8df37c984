//! The free space of volumes.

use std::path::Path;

use evenkeel_archive::tasks::FailureReason;
use nix::sys::statvfs::statvfs;

use crate::AgentFailure;

/// Fails if the file system of a directory has fewer free bytes than needed. `remedy` is a sentence.
pub(crate) fn require_free(dir: &Path, needed: u64, remedy: &str) -> Result<(), AgentFailure> {
    let stat = statvfs(dir)
        .map_err(|error| AgentFailure::file("read the free space of", dir, &error.into()))?;
    let free = stat.blocks_available().saturating_mul(stat.fragment_size());
    if free >= needed {
        return Ok(());
    }
    Err(AgentFailure::new(
        FailureReason::NoSpace,
        format!(
            "The volume of {} has {} MiB of free space, and {} MiB are needed. {remedy}",
            dir.display(),
            mebibytes(free),
            mebibytes(needed),
        ),
    ))
}

fn mebibytes(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}
