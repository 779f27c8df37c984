//! The programs and images of a lab. They are built from Go modules with pinned checksums or unpacked from Debian
//! packages, once, and stored in the [cache](crate::cache).

pub mod debian;
pub mod etcd;
pub mod go;
pub mod helm;
pub mod image;
pub mod images;
pub mod kube;
pub mod versitygw;

use std::path::PathBuf;

use anyhow::Result;

use crate::files;
use crate::state::Lab;

/// Returns the directory `lab` of the checkout from which this program was built.
pub(crate) fn sources() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The cache entries with the programs of a lab.
#[derive(Debug)]
pub struct Programs {
    kube: PathBuf,
    etcd: PathBuf,
    debian: PathBuf,
}

impl Programs {
    /// Returns all programs; builds those that are missing in the cache.
    pub fn get() -> Result<Self> {
        debian::install_tools()?;
        let debian = debian::runtime()?;
        let kube = kube::get()?;
        let etcd = etcd::get(etcd::EtcdVersion::DEFAULT)?;
        Ok(Self { kube, etcd, debian })
    }

    /// Links the programs, including `lab` itself, into the directory of a lab.
    pub fn install(&self, lab: &Lab) -> Result<()> {
        let dir = lab.programs();
        std::fs::create_dir_all(dir.join("cni"))?;
        let lab_program = std::env::current_exe()?;
        let mut programs = vec![(lab_program, "lab".to_owned())];
        programs.extend(
            kube::COMPONENTS
                .iter()
                .map(|name| (self.kube.join("kube"), (*name).to_owned())),
        );
        programs.extend(
            etcd::PROGRAMS
                .iter()
                .map(|name| (self.etcd.join(name), (*name).to_owned())),
        );
        programs.extend(debian::PROGRAMS.iter().map(|path| {
            let name = path.rsplit('/').next().unwrap_or(path);
            (self.debian.join(path), name.to_owned())
        }));
        programs.extend(debian::CNI_PLUGINS.iter().map(|name| {
            (
                self.debian.join("usr/lib/cni").join(name),
                format!("cni/{name}"),
            )
        }));
        for (from, name) in programs {
            files::link(&from, &dir.join(name))?;
        }
        Ok(())
    }

    /// Creates symbolic links to `lab`, `kubectl` and the etcd tools in a directory.
    pub fn link(&self, dir: &std::path::Path) -> Result<()> {
        std::fs::create_dir_all(dir)?;
        let links = [
            (std::env::current_exe()?, "lab"),
            (self.kube.join("kubectl"), "kubectl"),
            (self.etcd.join("etcdctl"), "etcdctl"),
            (self.etcd.join("etcdutl"), "etcdutl"),
        ];
        for (target, name) in links {
            let link = dir.join(name);
            // When this program is itself in that directory, the link would replace it and point to itself.
            if std::fs::canonicalize(&link).is_ok_and(|existing| existing == target) {
                continue;
            }
            files::remove(&link)?;
            std::os::unix::fs::symlink(target, link)?;
        }
        Ok(())
    }
}
