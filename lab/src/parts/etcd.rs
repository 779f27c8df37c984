//! The etcd versions of the lab: `etcd`, `etcdctl` and `etcdutl`, built from pinned Go modules or unpacked from Debian
//! packages.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::cache::{self, CacheKey};
use crate::command::Cmd;
use crate::parts::debian::{self, PinnedPackage};
use crate::parts::go::{GoBuild, GoToolchain};
use crate::parts::sources;
use crate::progress::Progress;

/// The programs of an etcd version.
pub const PROGRAMS: [&str; 3] = ["etcd", "etcdctl", "etcdutl"];

/// Versions built from the Go modules pinned in `lab/etcd/<version>`.
const MODULE_VERSIONS: [&str; 4] = ["3.5.16", "3.5.35", "3.6.16", "3.7.3"];
/// The version that is unpacked from packages of Debian testing.
const PACKAGED_VERSION: &str = "3.5.30";
/// The packages of [`PACKAGED_VERSION`].
const PACKAGES: [PinnedPackage; 2] = [
    PinnedPackage {
        name: "etcd-server",
        sha256: "11a4f7e350c5020b83edff5160a6063d4e56ac9cd014d21ce8916378bf96de79",
    },
    PinnedPackage {
        name: "etcd-client",
        sha256: "1e66ad2aba4cba6842a1ac35d5c525e750102b8fb42748225bcb2e34d6595931",
    },
];

/// An etcd version that the lab can provide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EtcdVersion(&'static str);

impl EtcdVersion {
    /// The version that every lab has as an image and uses as its datastore.
    pub const DEFAULT: Self = Self("3.6.16");

    /// Returns all versions, oldest first.
    pub fn all() -> Vec<Self> {
        let mut all = MODULE_VERSIONS.to_vec();
        all.push(PACKAGED_VERSION);
        all.sort_unstable();
        all.into_iter().map(Self).collect()
    }

    /// Returns the version number without `v`.
    pub fn as_str(self) -> &'static str {
        self.0
    }
}

impl std::str::FromStr for EtcdVersion {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let number = text.strip_prefix('v').unwrap_or(text);
        match Self::all().into_iter().find(|version| version.0 == number) {
            Some(version) => Ok(version),
            None => {
                let known: Vec<_> = Self::all().iter().map(|version| version.0).collect();
                bail!(
                    "etcd version {text} is not available; available versions: {}",
                    known.join(", ")
                )
            }
        }
    }
}

impl std::fmt::Display for EtcdVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

/// Returns the directory with the programs of a version; builds or unpacks them when they are missing in the cache.
pub fn get(version: EtcdVersion) -> Result<PathBuf> {
    if version.0 == PACKAGED_VERSION {
        let pins = PACKAGES.map(|package| (package.name, package.sha256));
        let key = CacheKey::default().text(&format!("{pins:?}"));
        return cache::get_or_build(&format!("etcd-{version}"), key, |dir| unpack(version, dir));
    }
    let module = sources().join("etcd").join(version.0);
    let key = CacheKey::default().tree(&module)?;
    cache::get_or_build(&format!("etcd-{version}"), key, |dir| {
        build(version, &module, dir)
    })
}

fn build(version: EtcdVersion, module: &Path, dir: &Path) -> Result<()> {
    let go = GoToolchain::get()?;
    let progress = Progress::start(
        &format!("etcd {version}"),
        "built from source, about a minute the first time",
    );
    for (package, program) in ["server", "etcdctl", "etcdutl"].into_iter().zip(PROGRAMS) {
        let package = format!("go.etcd.io/etcd/{package}/v3");
        go.build(
            &GoBuild {
                module,
                package: &package,
                linker_flags: "",
                output: &dir.join(program),
            },
            &progress,
        )?;
    }
    progress.finish();
    Ok(())
}

/// Unpacks the packages. These programs need the C library, which images include; see [`libraries`].
fn unpack(version: EtcdVersion, dir: &Path) -> Result<()> {
    let progress = Progress::start(
        &format!("etcd {version}"),
        "unpacking packages of Debian testing",
    );
    debian::unpack_from_testing(&PACKAGES, dir)?;
    for program in PROGRAMS {
        let packaged = dir.join("usr/bin").join(program);
        if !packaged.exists() {
            bail!("the Debian packages of etcd {version} do not contain {program}");
        }
        fs::rename(packaged, dir.join(program))?;
    }
    progress.finish();
    Ok(())
}

/// Returns the paths of the shared libraries of a program on this host; empty for a static program.
pub fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let (is_dynamic, output) = Cmd::new("ldd").arg(program).attempt()?;
    if !is_dynamic {
        return Ok(Vec::new());
    }
    let paths = output
        .split_whitespace()
        .filter(|word| word.starts_with('/'));
    let mut libraries: Vec<PathBuf> = paths
        .map(|word| PathBuf::from(word.trim_end_matches(':')))
        .collect();
    libraries.sort();
    libraries.dedup();
    Ok(libraries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_parsed_and_an_unknown_one_is_rejected() {
        assert_eq!(
            "v3.6.16".parse::<EtcdVersion>().unwrap(),
            EtcdVersion::DEFAULT
        );
        let error = "3.4.30".parse::<EtcdVersion>().unwrap_err().to_string();
        assert!(
            error.contains("3.5.16, 3.5.30, 3.5.35, 3.6.16, 3.7.3"),
            "{error}"
        );
    }

    #[test]
    fn every_module_version_is_pinned_in_its_go_mod() {
        for version in MODULE_VERSIONS {
            let module =
                fs::read_to_string(sources().join("etcd").join(version).join("go.mod")).unwrap();
            assert!(
                module.contains(&format!("go.etcd.io/etcd/server/v3 v{version}")),
                "{version}"
            );
        }
    }
}
