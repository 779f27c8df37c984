//! What was built is kept outside the source tree, under a key made of all that it was built from: a second run, or
//! another checkout, builds nothing again, and a change builds anew.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::command::Cmd;
use crate::files;

/// What a thing in the cache was made of.
#[derive(Debug, Default)]
pub struct Key(Sha256);

impl Key {
    /// Takes a piece of text into the key.
    #[must_use]
    pub fn text(mut self, text: &str) -> Self {
        self.0.update((text.len() as u64).to_le_bytes());
        self.0.update(text);
        self
    }

    /// Takes every file below a directory into the key, names and contents; Go's tests apart, which change nothing.
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

/// The SHA-256 of some bytes, in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The directory of what is built: `EVENKEEL_CACHE`, else below the user's cache.
pub fn dir() -> Result<PathBuf> {
    let from = |variable: &str| {
        std::env::var_os(variable)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    from("EVENKEEL_CACHE")
        .or_else(|| from("XDG_CACHE_HOME").map(|dir| dir.join("evenkeel")))
        .or_else(|| from("HOME").map(|dir| dir.join(".cache/evenkeel")))
        .context("neither HOME nor EVENKEEL_CACHE says where to keep what is built")
}

/// The directory of the thing `name` made of `key`; where it is missing, `make` fills it. It is there whole or not at
/// all, whoever is interrupted, and two processes do not make it twice.
pub fn get(name: &str, key: Key, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let (root, entry) = (dir()?, format!("{name}-{}", key.finish()));
    let finished = root.join(&entry);
    if finished.is_dir() {
        return Ok(finished);
    }
    fs::create_dir_all(&root).with_context(|| format!("cannot make {}", root.display()))?;
    let lock = File::create(root.join(format!(".{entry}.lock")))?;
    lock.lock()
        .with_context(|| format!("cannot lock {entry} in the cache"))?;
    if finished.is_dir() {
        return Ok(finished);
    }
    let temporary = root.join(format!(".{entry}.making"));
    files::remove(&temporary)?;
    fs::create_dir_all(&temporary)?;
    make(&temporary)?;
    // A power cut must not leave an empty program under a finished name.
    Cmd::new("sync").arg("-f").arg(&temporary).run()?;
    fs::rename(&temporary, &finished)
        .with_context(|| format!("cannot keep {}", finished.display()))?;
    Ok(finished)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_of(dir: &Path) -> String {
        Key::default().tree(dir).unwrap().finish()
    }

    #[test]
    fn a_key_changes_with_every_name_and_every_byte_and_with_nothing_else() {
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
    fn pieces_of_text_do_not_run_into_each_other() {
        assert_ne!(
            Key::default().text("ab").text("c").finish(),
            Key::default().text("a").text("bc").finish()
        );
    }
}
