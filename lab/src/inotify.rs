//! The inotify limit of the machine. Every kubelet, containerd and API server creates inotify instances, and the kernel
//! limits them per user (128 by default; a lab with three nodes uses 40). A kubelet that gets none keeps running but
//! never sees the socket of the CSI driver. The first lab therefore raises the limit, and the last lab restores it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::files;
use crate::state::Lab;

/// The kernel setting that limits the inotify instances of a user.
const LIMIT_FILE: &str = "/proc/sys/fs/inotify/max_user_instances";
/// The number of inotify instances that suffices for many labs.
const RAISED_LIMIT: u32 = 4096;

/// Returns the path of the file that holds the original limit of the machine.
fn original_limit_file() -> PathBuf {
    Lab::labs_dir().join(".watchers")
}

fn read(path: &Path) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Raises the limit and records the original value.
pub(crate) fn raise_limit() -> Result<()> {
    let _shared_lock = Lab::lock_shared()?;
    let Some(limit) = read(Path::new(LIMIT_FILE)).filter(|limit| *limit < RAISED_LIMIT) else {
        return Ok(());
    };
    files::write(&original_limit_file(), &limit.to_string())?;
    if let Err(error) = fs::write(LIMIT_FILE, RAISED_LIMIT.to_string()) {
        // Not fatal: the current limit suffices for a small lab.
        eprintln!(
            "  cannot raise {LIMIT_FILE} from {limit} to {RAISED_LIMIT}: {error}; a lab with many nodes may fail to start"
        );
    }
    Ok(())
}

/// Restores the original limit when no lab is left, unless another program has changed the limit since.
pub(crate) fn restore_limit() -> Result<()> {
    let _shared_lock = Lab::lock_shared()?;
    let Some(original) =
        read(&original_limit_file()).filter(|_| Lab::all().is_ok_and(|labs| labs.is_empty()))
    else {
        return Ok(());
    };
    if read(Path::new(LIMIT_FILE)) == Some(RAISED_LIMIT) {
        fs::write(LIMIT_FILE, original.to_string())
            .with_context(|| format!("cannot write {LIMIT_FILE}"))?;
    }
    files::remove(&original_limit_file())
}
