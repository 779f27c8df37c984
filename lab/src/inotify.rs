//! Every kubelet, containerd and API server watches files, and the kernel lets a user have only so many watchers (128
//! by default; a lab of three nodes takes 40). A kubelet that gets none runs on and never sees its volumes' driver.
//! So the first lab raises the limit, and the last one puts it back.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::files;
use crate::state::Lab;

const LIMIT: &str = "/proc/sys/fs/inotify/max_user_instances";
const ENOUGH: u32 = 4096;

/// Where the limit that the machine had is written down.
fn note() -> PathBuf {
    Lab::home().join(".watchers")
}

fn read(path: &Path) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Lets there be enough watchers for many labs.
pub(crate) fn allow() -> Result<()> {
    let _one_at_a_time = Lab::hold_shared()?;
    let Some(limit) = read(Path::new(LIMIT)).filter(|limit| *limit < ENOUGH) else {
        return Ok(());
    };
    files::write(&note(), &limit.to_string())?;
    if let Err(error) = fs::write(LIMIT, ENOUGH.to_string()) {
        // It may suffice.
        eprintln!(
            "  only {limit} file watchers are allowed here ({LIMIT}), and it cannot be raised: {error}"
        );
    }
    Ok(())
}

/// Puts the limit back when no lab is left, unless somebody else has changed it.
pub(crate) fn restore() -> Result<()> {
    let _one_at_a_time = Lab::hold_shared()?;
    let Some(before) = read(&note()).filter(|_| Lab::all().is_ok_and(|labs| labs.is_empty()))
    else {
        return Ok(());
    };
    if read(Path::new(LIMIT)) == Some(ENOUGH) {
        fs::write(LIMIT, before.to_string()).with_context(|| format!("cannot write {LIMIT}"))?;
    }
    files::remove(&note())
}
