//! Builds container images without a registry: one layer, in the archive format of `docker save`, which containerd
//! imports.

use std::fs::{self, File};
use std::io::{Cursor, Read};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;
use tar::{Builder, EntryType, Header};

use crate::cache::sha256;

/// A builder of container images.
pub struct ImageBuilder {
    layer: Builder<Vec<u8>>,
    config: serde_json::Value,
}

impl ImageBuilder {
    /// Creates an empty image with the default command `command` and the working directory `dir`.
    pub fn new(command: &[&str], dir: &str) -> Self {
        let config = json!({
            "Cmd": command,
            "WorkingDir": dir,
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
        });
        Self {
            layer: Builder::new(Vec::new()),
            config,
        }
    }

    /// Sets the entrypoint.
    pub fn entrypoint(&mut self, program: &[&str]) {
        self.config["Entrypoint"] = program.into();
    }

    /// Declares ports, for example `2379/tcp`.
    pub fn ports(&mut self, ports: &[&str]) {
        let ports: serde_json::Map<_, _> = ports
            .iter()
            .map(|port| ((*port).to_owned(), json!({})))
            .collect();
        self.config["ExposedPorts"] = ports.into();
    }

    /// Sets the user.
    pub fn user(&mut self, user: &str) {
        self.config["User"] = user.into();
    }

    /// Adds a directory.
    pub fn dir(&mut self, path: &str, mode: u32) -> Result<()> {
        self.entry(path, EntryType::Directory, mode, 0, std::io::empty())
    }

    /// Adds a text file.
    pub fn text(&mut self, path: &str, text: &str) -> Result<()> {
        self.entry(
            path,
            EntryType::Regular,
            0o644,
            text.len() as u64,
            text.as_bytes(),
        )
    }

    /// Adds a copy of the executable file `from`.
    pub fn program(&mut self, path: &str, from: &Path) -> Result<()> {
        self.copy(path, from, 0o755)
    }

    /// Adds a copy of the file `from`, readable by every user.
    pub fn file(&mut self, path: &str, from: &Path) -> Result<()> {
        self.copy(path, from, 0o644)
    }

    fn copy(&mut self, path: &str, from: &Path, mode: u32) -> Result<()> {
        let bytes = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
        self.entry(
            path,
            EntryType::Regular,
            mode,
            bytes.len() as u64,
            Cursor::new(bytes),
        )
    }

    /// Adds a symbolic link.
    pub fn symlink(&mut self, path: &str, target: &str) -> Result<()> {
        let mut header = header(EntryType::Symlink, 0o777, 0);
        self.layer
            .append_link(&mut header, path, target)
            .with_context(|| format!("cannot add {path} to the image"))
    }

    fn entry(
        &mut self,
        path: &str,
        kind: EntryType,
        mode: u32,
        size: u64,
        data: impl Read,
    ) -> Result<()> {
        let mut header = header(kind, mode, size);
        self.layer
            .append_data(&mut header, path, data)
            .with_context(|| format!("cannot add {path} to the image"))
    }

    /// Writes the image with these names as an archive.
    pub fn write(self, names: &[String], to: &Path) -> Result<()> {
        let layer = self
            .layer
            .into_inner()
            .context("cannot write the layer of the image")?;
        let config = json!({
            "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": self.config,
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", sha256(&layer))]},
        });
        let config = serde_json::to_vec(&config)?;
        let config_name = format!("{}.json", sha256(&config));
        let manifest = json!([{"Config": config_name, "RepoTags": names, "Layers": ["layer.tar"]}]);
        let mut archive = Builder::new(
            File::create(to).with_context(|| format!("cannot write {}", to.display()))?,
        );
        for (name, bytes) in [
            (config_name.as_str(), config),
            ("layer.tar", layer),
            ("manifest.json", serde_json::to_vec(&manifest)?),
        ] {
            let mut header = header(EntryType::Regular, 0o644, bytes.len() as u64);
            archive.append_data(&mut header, name, Cursor::new(bytes))?;
        }
        archive
            .into_inner()?
            .sync_all()
            .context("cannot sync the image archive")
    }
}

/// Returns a tar header without times and owners, so that equal contents give equal images.
fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(command: &str) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let mut image = ImageBuilder::new(&[command], "/");
        image.dir("tmp", 0o1777).unwrap();
        image.text("etc/passwd", "root:x:0:0::/:\n").unwrap();
        image.symlink("bin/sh", "busybox").unwrap();
        image
            .write(&["example/one:1".to_owned()], &dir.path().join("image.tar"))
            .unwrap();
        fs::read(dir.path().join("image.tar")).unwrap()
    }

    #[test]
    fn equal_contents_give_equal_images() {
        assert_eq!(archive("/a"), archive("/a"));
        assert_ne!(archive("/a"), archive("/b"));
    }
}
