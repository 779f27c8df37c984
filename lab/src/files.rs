//! File operations that leave either the old or the new file after a crash, never a partial file.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Writes a file atomically, readable by its owner only, and creates missing parent directories.
pub fn write(path: &Path, text: &str) -> Result<()> {
    let dir = path
        .parent()
        .with_context(|| format!("{} has no parent directory", path.display()))?;
    fs::create_dir_all(dir)
        .with_context(|| format!("cannot create directory {}", dir.display()))?;
    let temporary = temporary_path(path);
    let mut file = fs::OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&temporary)
        .with_context(|| format!("cannot write {}", temporary.display()))?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .with_context(|| format!("cannot write {}", path.display()))?;
    fs::rename(&temporary, path).with_context(|| format!("cannot write {}", path.display()))
}

/// Returns a path in the same directory that no other process or thread uses.
fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(
        ".{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    path.with_file_name(name)
}

/// Removes a file or a directory tree; does nothing when the path does not exist.
pub fn remove(path: &Path) -> Result<()> {
    let result = if path.is_dir() && !path.is_symlink() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    };
    match result {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Links `to` to the file `from`; copies the file when both paths are on different file systems.
pub fn link(from: &Path, to: &Path) -> Result<()> {
    let temporary = temporary_path(to);
    remove(&temporary)?;
    if fs::hard_link(from, &temporary).is_err() {
        fs::copy(from, &temporary)
            .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    }
    // rename(2) does nothing when both paths are hard links to the same file, so `to` is removed first.
    remove(to)?;
    fs::rename(&temporary, to).with_context(|| format!("cannot write {}", to.display()))
}
