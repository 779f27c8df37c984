//! etcd in the versions that the lab knows: `etcd`, `etcdctl` and `etcdutl`, each built from pinned Go modules, or,
//! where no module can be had, unpacked from Debian's packages.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::cache::{self, Key};
use crate::command::Cmd;
use crate::parts::go::{Build, Go};
use crate::parts::{debian, sources};
use crate::progress::Stage;

/// What a version consists of.
pub const PROGRAMS: [&str; 3] = ["etcd", "etcdctl", "etcdutl"];

/// Versions built from the Go modules pinned in `lab/etcd/<version>`.
const MODULES: [&str; 4] = ["3.5.16", "3.5.35", "3.6.16", "3.7.3"];
/// The one that only Debian has: testing's packages, by checksum.
const PACKAGED: &str = "3.5.30";
const PACKAGES: [(&str, &str); 2] = [
    (
        "etcd-server",
        "11a4f7e350c5020b83edff5160a6063d4e56ac9cd014d21ce8916378bf96de79",
    ),
    (
        "etcd-client",
        "1e66ad2aba4cba6842a1ac35d5c525e750102b8fb42748225bcb2e34d6595931",
    ),
];

/// A version that the lab can make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(&'static str);

impl Version {
    /// The one that `lab up` makes, and that serves as the lab's own datastore.
    pub const DEFAULT: Self = Self("3.6.16");

    /// All that can be made, oldest first.
    pub fn all() -> Vec<Self> {
        let mut all = MODULES.to_vec();
        all.push(PACKAGED);
        all.sort_unstable();
        all.into_iter().map(Self).collect()
    }

    /// Its digits.
    pub fn as_str(self) -> &'static str {
        self.0
    }
}

impl std::str::FromStr for Version {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let wanted = text.strip_prefix('v').unwrap_or(text);
        match Self::all().into_iter().find(|version| version.0 == wanted) {
            Some(version) => Ok(version),
            None => {
                let known: Vec<_> = Self::all().iter().map(|version| version.0).collect();
                bail!(
                    "the lab cannot make etcd {text}; it can make {}",
                    known.join(", ")
                )
            }
        }
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

/// Makes a version, or finds it; returns the directory of its programs.
pub fn get(version: Version) -> Result<PathBuf> {
    if version.0 == PACKAGED {
        let key = Key::default().text(&format!("{PACKAGES:?}"));
        return cache::get(&format!("etcd-{version}"), key, |dir| unpack(version, dir));
    }
    let module = sources().join("etcd").join(version.0);
    let key = Key::default().tree(&module)?;
    cache::get(&format!("etcd-{version}"), key, |dir| {
        build(version, &module, dir)
    })
}

fn build(version: Version, module: &Path, dir: &Path) -> Result<()> {
    let go = Go::get()?;
    let stage = Stage::begin(
        &format!("etcd {version}"),
        "built from source, about a minute the first time",
    );
    for (package, program) in ["server", "etcdctl", "etcdutl"].into_iter().zip(PROGRAMS) {
        let package = format!("go.etcd.io/etcd/{package}/v3");
        go.build(
            &Build {
                module,
                package: &package,
                linker: "",
                output: &dir.join(program),
            },
            &stage,
        )?;
    }
    stage.done();
    Ok(())
}

/// Debian's programs are linked to the C library, which therefore comes along; see [`libraries`].
fn unpack(version: Version, dir: &Path) -> Result<()> {
    let stage = Stage::begin(
        &format!("etcd {version}"),
        "unpacking Debian testing's packages",
    );
    debian::unpack_from_testing(&PACKAGES, dir)?;
    for program in PROGRAMS {
        let packaged = dir.join("usr/bin").join(program);
        if !packaged.exists() {
            bail!("Debian's packages of etcd {version} have no {program}");
        }
        fs::rename(packaged, dir.join(program))?;
    }
    stage.done();
    Ok(())
}

/// The shared libraries a program needs, as paths on this machine; none for a static one.
pub fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let (linked, said) = Cmd::new("ldd").arg(program).attempt()?;
    if !linked {
        return Ok(Vec::new());
    }
    let paths = said.split_whitespace().filter(|word| word.starts_with('/'));
    let mut found: Vec<PathBuf> = paths
        .map(|word| PathBuf::from(word.trim_end_matches(':')))
        .collect();
    found.sort();
    found.dedup();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_taken_with_or_without_v_and_an_unknown_one_names_the_known() {
        assert_eq!("v3.6.16".parse::<Version>().unwrap(), Version::DEFAULT);
        let error = "3.4.30".parse::<Version>().unwrap_err().to_string();
        assert!(
            error.contains("3.5.16, 3.5.30, 3.5.35, 3.6.16, 3.7.3"),
            "{error}"
        );
    }

    #[test]
    fn every_version_has_its_pinned_modules() {
        for version in MODULES {
            let module =
                fs::read_to_string(sources().join("etcd").join(version).join("go.mod")).unwrap();
            assert!(
                module.contains(&format!("go.etcd.io/etcd/server/v3 v{version}")),
                "{version}"
            );
        }
    }
}
