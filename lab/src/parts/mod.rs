//! The genuine parts a lab is made of, and where they come from: Go modules pinned by their checksums, and Debian
//! packages. Each part is made once and kept in the [cache](crate::cache).

pub mod debian;
pub mod etcd;
pub mod go;
pub mod helm;
pub mod image;
pub mod images;
pub mod kube;

use std::path::PathBuf;

use anyhow::Result;

use crate::files;
use crate::state::Lab;

/// The directory of the lab's sources in the checkout this program was built from.
pub(crate) fn sources() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// All programs of a lab, in the cache.
#[derive(Debug)]
pub struct Programs {
    kube: PathBuf,
    etcd: PathBuf,
    debian: PathBuf,
}

impl Programs {
    /// Makes, or finds, every program.
    pub fn get() -> Result<Self> {
        debian::install_tools()?;
        let debian = debian::runtime()?;
        let kube = kube::get()?;
        let etcd = etcd::get(etcd::Version::DEFAULT)?;
        Ok(Self { kube, etcd, debian })
    }

    /// Puts them where a lab expects its programs, the program `lab` itself among them.
    pub fn place(&self, lab: &Lab) -> Result<()> {
        let dir = lab.programs();
        std::fs::create_dir_all(dir.join("cni"))?;
        let own = std::env::current_exe()?;
        let mut pairs = vec![(own, "lab".to_owned())];
        pairs.extend(
            kube::COMPONENTS
                .iter()
                .map(|name| (self.kube.join("kube"), (*name).to_owned())),
        );
        pairs.extend(
            etcd::PROGRAMS
                .iter()
                .map(|name| (self.etcd.join(name), (*name).to_owned())),
        );
        pairs.extend(debian::PROGRAMS.iter().map(|path| {
            let name = path.rsplit('/').next().unwrap_or(path);
            (self.debian.join(path), name.to_owned())
        }));
        pairs.extend(debian::CNI.iter().map(|name| {
            (
                self.debian.join("usr/lib/cni").join(name),
                format!("cni/{name}"),
            )
        }));
        for (from, name) in pairs {
            files::link(&from, &dir.join(name))?;
        }
        Ok(())
    }

    /// Puts links to what people use into a directory of theirs.
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
            // This program may be in that directory itself: a link to itself would be the end of it.
            if std::fs::canonicalize(&link).is_ok_and(|there| there == target) {
                continue;
            }
            files::remove(&link)?;
            std::os::unix::fs::symlink(target, link)?;
        }
        Ok(())
    }
}
