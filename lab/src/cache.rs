//! The cache of built programs and images, outside the source tree. The key of an entry is a hash of all its inputs, so
//! a second run or another checkout reuses the entry, and a changed input creates a new one.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::command::Cmd;
use crate::files;

/// The key of a cache entry: a hash of the inputs of its build.
#[derive(Debug, Default)]
pub struct CacheKey(Sha256);

impl CacheKey {
    /// Adds a text to the key.
    #[must_use]
    pub fn text(mut self, text: &str) -> Self {
        self.0.update((text.len() as u64).to_le_bytes());
        self.0.update(text);
        self
    }

    /// Adds the names and contents of all files below a directory to the key, except `*_test.go`, which is not built.
    pub fn tree(self, dir: &Path) -> Result<Self> {
        let mut entries: Vec<_> = fs::read_dir(dir)
            .with_context(|| format!("cannot read {}", dir.display()))?
            .collect::<std::io::Result<Vec<_>>>()?;
        entries.retain(|entry| !entry.file_name().to_string_lossy().ends_with("_test.go"));
        entries.sort_by_key(fs::DirEntry::file_name);
        let mut key = self;
        for entry in entries {
            let path = entry.path();
            key = key.text(&entry.file_name().to_string_lossy());
            key = if path.is_dir() {
                key.tree(&path)?
            } else {
                key.file(&path)?
            };
        }
        Ok(key)
    }

    fn file(mut self, path: &Path) -> Result<Self> {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
        Ok(self)
    }

    fn finish(self) -> String {
        hex(&self.0.finalize())[..16].to_owned()
    }
}

/// Returns the SHA-256 of the bytes in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the directory of the cache: `EVENKEEL_CACHE`, or `evenkeel` in the cache directory of the user.
pub fn dir() -> Result<PathBuf> {
    let from = |variable: &str| {
        std::env::var_os(variable)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    from("EVENKEEL_CACHE")
        .or_else(|| from("XDG_CACHE_HOME").map(|dir| dir.join("evenkeel")))
        .or_else(|| from("HOME").map(|dir| dir.join(".cache/evenkeel")))
        .context("cannot determine the cache directory: set HOME or EVENKEEL_CACHE")
}

/// Returns the directory of the cache entry `name` with this key; calls `build` to fill it when it is missing. An
/// interrupted build leaves no entry, and two processes do not build the same entry at the same time.
pub fn get_or_build(
    name: &str,
    key: CacheKey,
    build: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let (root, entry) = (dir()?, format!("{name}-{}", key.finish()));
    let finished = root.join(&entry);
    if finished.is_dir() {
        return Ok(finished);
    }
    fs::create_dir_all(&root)
        .with_context(|| format!("cannot create directory {}", root.display()))?;
    let lock = File::create(root.join(format!(".{entry}.lock")))?;
    lock.lock()
        .with_context(|| format!("cannot lock cache entry {entry}"))?;
    if finished.is_dir() {
        return Ok(finished);
    }
    let temporary = root.join(format!(".{entry}.making"));
    files::remove(&temporary)?;
    fs::create_dir_all(&temporary)?;
    build(&temporary)?;
    // Without the sync, a power cut could leave an entry with empty files.
    Cmd::new("sync").arg("-f").arg(&temporary).run()?;
    fs::rename(&temporary, &finished)
        .with_context(|| format!("cannot write cache entry {}", finished.display()))?;
    Ok(finished)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_of(dir: &Path) -> String {
        CacheKey::default().tree(dir).unwrap().finish()
    }

    #[test]
    fn a_key_depends_on_file_names_and_contents() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), "one").unwrap();
        let first = key_of(dir.path());
        assert_eq!(first, key_of(dir.path()));
        fs::write(dir.path().join("a"), "onf").unwrap();
        let changed = key_of(dir.path());
        fs::rename(dir.path().join("a"), dir.path().join("b")).unwrap();
        let renamed = key_of(dir.path());
        assert!(first != changed && changed != renamed && first != renamed);
    }

    #[test]
    fn a_key_separates_its_texts() {
        assert_ne!(
            CacheKey::default().text("ab").text("c").finish(),
            CacheKey::default().text("a").text("bc").finish()
        );
    }
}
