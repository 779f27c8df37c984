//! Writing files so that a crash leaves the old or the new one, never half of one.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Writes a file for its owner alone, whole or not at all, making the directories above it.
pub fn write(path: &Path, text: &str) -> Result<()> {
    let dir = path
        .parent()
        .with_context(|| format!("{} has no directory", path.display()))?;
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let temporary = beside(path);
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

/// A name of this process' own for what will replace a file.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(
        ".{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    path.with_file_name(name)
}

/// Removes a file or a whole directory; one that is not there is fine.
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

/// Makes `to` hold what `from` holds: a hard link where both are on one file system, else a copy.
pub fn link(from: &Path, to: &Path) -> Result<()> {
    let temporary = beside(to);
    remove(&temporary)?;
    if fs::hard_link(from, &temporary).is_err() {
        fs::copy(from, &temporary)
            .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    }
    // Renaming one hard link onto another of the same file does nothing and leaves both names.
    remove(to)?;
    fs::rename(&temporary, to).with_context(|| format!("cannot write {}", to.display()))
}
