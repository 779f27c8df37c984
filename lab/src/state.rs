//! The state of a lab on disk: its record (number, nodes and settings) and the paths of its files.
//!
//! A lab writes only below `/var/lib/evenkeel/labs/<name>`; removing that directory removes the lab. Its programs are
//! hard links to files of the cache or copies of them, so a running lab survives the removal of the cache.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::addresses::{Addresses, MAX_LABS};
use crate::command::Cmd;
use crate::files;
use crate::patience::Patience;

/// The directory that holds the files of all labs.
const LABS_DIR: &str = "/var/lib/evenkeel/labs";
/// The name of the machine that runs the control plane.
pub const CONTROL_PLANE: &str = "control";

/// The name of a lab. It is part of the names of namespaces, cgroups and firewall tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabName(String);

impl LabName {
    /// Returns the default name in this checkout. It depends on the path of the checkout, so two checkouts use
    /// different labs.
    pub fn of_checkout() -> Self {
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .unwrap_or(Path::new("/"));
        // The Makefile derives the same name with cksum(1).
        Self(format!(
            "dev-{:04x}",
            cksum(checkout.as_os_str().as_encoded_bytes()) % 0x1_0000
        ))
    }
}

/// Computes the POSIX cksum: a CRC over the bytes followed by their count.
fn cksum(bytes: &[u8]) -> u32 {
    let mut length = bytes.len();
    let length_bytes = std::iter::from_fn(|| {
        let byte = u8::try_from(length & 0xff).ok().filter(|_| length > 0);
        length >>= 8;
        byte
    });
    let crc = bytes
        .iter()
        .copied()
        .chain(length_bytes)
        .fold(0_u32, |crc, byte| {
            (0..8).fold(crc ^ (u32::from(byte) << 24), |crc, _| {
                if crc & 0x8000_0000 == 0 {
                    crc << 1
                } else {
                    (crc << 1) ^ 0x04c1_1db7
                }
            })
        });
    !crc
}

impl std::str::FromStr for LabName {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let is_valid = (1..=24).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
            && !text.ends_with('-');
        if !is_valid {
            bail!(
                "`{text}` cannot name a lab: use 1 to 24 characters of a-z, 0-9 and -, begin with a letter and do not end with -"
            );
        }
        Ok(Self(text.to_owned()))
    }
}

impl std::fmt::Display for LabName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// One node of a lab, as recorded. Its number determines its addresses and is never reused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// The name of the node: `node-1`, `node-2`, ….
    pub name: String,
    /// The number that determines the addresses of the node.
    pub number: u8,
}

/// The record of a lab, stored as `lab.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabRecord {
    /// The number that determines the addresses of the lab.
    pub number: u8,
    /// The highest node number ever used.
    pub last_node: u8,
    /// The current nodes.
    pub nodes: Vec<Node>,
    /// The factor by which volumes may overcommit the free disk space.
    #[serde(default = "default_overcommit")]
    pub overcommit: u8,
    /// The factor of the time limits.
    #[serde(default)]
    pub patience: Patience,
}

fn default_overcommit() -> u8 {
    1
}

/// One lab on this machine.
#[derive(Clone, Debug)]
pub struct Lab {
    name: LabName,
    dir: PathBuf,
    record: LabRecord,
}

/// The lock of a lab, held while the lab is changed. Dropping the value releases the lock.
#[derive(Debug)]
pub struct LabLock(#[expect(dead_code, reason = "held for its lock, never read")] File);

impl Lab {
    /// Returns the lab with this name, or `None` when no such lab exists.
    pub fn find(name: &LabName) -> Result<Option<Self>> {
        let dir = Path::new(LABS_DIR).join(&name.0);
        let path = dir.join("lab.json");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        let record = serde_json::from_str(&text).with_context(|| {
            format!(
                "cannot parse {}; `lab down --name {name}` removes this lab",
                path.display()
            )
        })?;
        Ok(Some(Self {
            name: name.clone(),
            dir,
            record,
        }))
    }

    /// Returns the lab with this name; fails when it does not exist.
    pub fn open(name: &LabName) -> Result<Self> {
        Self::find(name)?.with_context(|| {
            format!("there is no lab `{name}` on this machine; `lab up --name {name}` creates it")
        })
    }

    /// Returns the lab with this name. Creates the record of a new lab when it does not exist, with a number that no
    /// other lab and no route of this machine uses.
    pub fn find_or_create(name: &LabName) -> Result<Self> {
        let _shared_lock = Self::lock_shared()?;
        if let Some(lab) = Self::find(name)? {
            return Ok(lab);
        }
        let taken: Vec<u8> = Self::all()?.iter().map(|lab| lab.record.number).collect();
        let routes = Cmd::new("ip")
            .args(["-4", "route", "show", "table", "all"])
            .run()?;
        let number = (0..MAX_LABS)
            .find(|n| {
                !taken.contains(n) && !routes.contains(&format!("10.{}.", 200 + u16::from(*n)))
            })
            .with_context(|| {
                format!("all {MAX_LABS} address ranges are in use; take a lab down (`lab list` lists them)")
            })?;
        let dir = Path::new(LABS_DIR).join(&name.0);
        let record = LabRecord {
            number,
            last_node: 0,
            nodes: Vec::new(),
            overcommit: default_overcommit(),
            patience: Patience::default(),
        };
        let lab = Self {
            name: name.clone(),
            dir,
            record,
        };
        fs::create_dir_all(&lab.dir)?;
        // The directory holds private keys.
        fs::set_permissions(&lab.dir, fs::Permissions::from_mode(0o700))?;
        lab.save()?;
        Ok(lab)
    }

    /// Returns all labs of this machine, sorted by name. Omits a lab whose record cannot be parsed.
    pub fn all() -> Result<Vec<Self>> {
        let mut labs = Vec::new();
        let entries = match fs::read_dir(LABS_DIR) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(labs),
            Err(error) => return Err(error).with_context(|| format!("cannot list {LABS_DIR}")),
        };
        for entry in entries {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if let Some(lab) = name
                .parse()
                .ok()
                .and_then(|name| Self::find(&name).ok().flatten())
            {
                labs.push(lab);
            }
        }
        labs.sort_by(|a, b| a.name.0.cmp(&b.name.0));
        Ok(labs)
    }

    /// Locks the lab for changes; waits until other `lab` commands release the lock.
    pub fn lock(name: &LabName) -> Result<LabLock> {
        fs::create_dir_all(LABS_DIR)
            .with_context(|| format!("cannot create directory {LABS_DIR}"))?;
        lock_file(&Self::lock_path(name))
    }

    /// Returns the directory that holds the files of all labs.
    pub(crate) fn labs_dir() -> &'static Path {
        Path::new(LABS_DIR)
    }

    fn lock_path(name: &LabName) -> PathBuf {
        Path::new(LABS_DIR).join(format!(".{name}.lock"))
    }

    /// Removes every file of a locked lab; the lock file last.
    pub(crate) fn remove_files(name: &LabName, _lock: LabLock) -> Result<()> {
        files::remove(&Self::dir_of(name))?;
        files::remove(&Self::lock_path(name))
    }

    /// Locks the state that all labs share.
    pub(crate) fn lock_shared() -> Result<LabLock> {
        fs::create_dir_all(LABS_DIR)
            .with_context(|| format!("cannot create directory {LABS_DIR}"))?;
        lock_file(&Path::new(LABS_DIR).join(".numbers.lock"))
    }

    /// Returns the directory of a lab; does not need its record.
    pub fn dir_of(name: &LabName) -> PathBuf {
        Path::new(LABS_DIR).join(&name.0)
    }

    /// Adds a node to the record, with a number that was never used before.
    pub(crate) fn record_node(&mut self) -> Result<Node> {
        if self.record.last_node == crate::addresses::MAX_NODES {
            bail!(
                "lab {} has used all {} node numbers; take it down and bring it up again",
                self.name,
                self.record.last_node
            );
        }
        self.record.last_node += 1;
        let number = self.record.last_node;
        let node = Node {
            name: format!("node-{number}"),
            number,
        };
        self.record.nodes.push(node.clone());
        self.save()?;
        Ok(node)
    }

    /// Removes a node from the record.
    pub(crate) fn remove_node(&mut self, name: &str) -> Result<()> {
        self.record.nodes.retain(|node| node.name != name);
        self.save()
    }

    /// Records the overcommit factor; a running node uses the new factor after its next start.
    pub(crate) fn record_overcommit(&mut self, factor: u8) -> Result<()> {
        self.record.overcommit = factor;
        self.save()
    }

    /// Records the factor of the time limits. Commands use it at once, running machines after their next start.
    pub(crate) fn record_patience(&mut self, patience: Patience) -> Result<()> {
        self.record.patience = patience;
        self.save()
    }

    fn save(&self) -> Result<()> {
        files::write(
            &self.dir.join("lab.json"),
            &serde_json::to_string_pretty(&self.record)?,
        )
    }

    /// Returns the name of the lab.
    pub fn name(&self) -> &LabName {
        &self.name
    }

    /// Returns the addresses of the lab.
    pub fn addresses(&self) -> Result<Addresses> {
        Addresses::of(self.record.number)
            .with_context(|| format!("lab {} has an invalid number in its record", self.name))
    }

    /// Returns the number that determines the addresses of the lab.
    pub fn number(&self) -> u8 {
        self.record.number
    }

    /// Returns the highest node number ever used.
    pub fn last_node(&self) -> u8 {
        self.record.last_node
    }

    /// Returns the factor by which volumes may overcommit the free disk space.
    pub fn overcommit(&self) -> u8 {
        self.record.overcommit
    }

    /// Returns the factor of the time limits.
    pub fn patience(&self) -> Patience {
        self.record.patience
    }

    /// Returns the current nodes.
    pub fn nodes(&self) -> &[Node] {
        &self.record.nodes
    }

    /// Returns the node with this name; the error lists the existing nodes.
    pub fn node(&self, name: &str) -> Result<&Node> {
        self.record
            .nodes
            .iter()
            .find(|node| node.name == name)
            .with_context(|| {
                let names: Vec<_> = self
                    .record
                    .nodes
                    .iter()
                    .map(|node| node.name.as_str())
                    .collect();
                format!(
                    "lab {} has no node `{name}`; it has {}",
                    self.name,
                    names.join(", ")
                )
            })
    }

    /// Returns the directory that holds all files of the lab.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the path of the kubeconfig of the administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    /// Returns the directory of the programs that the lab runs.
    pub fn programs(&self) -> PathBuf {
        self.dir.join("programs")
    }

    /// Returns the directory of the keys and certificates.
    pub fn pki(&self) -> PathBuf {
        self.dir.join("pki")
    }

    /// Returns the directory of a machine: a node or [`CONTROL_PLANE`].
    pub fn machine_dir(&self, machine: &str) -> PathBuf {
        self.dir.join("machines").join(machine)
    }

    /// Returns a `kubectl` command that acts as the administrator of this lab.
    pub fn kubectl(&self) -> Cmd {
        let command = Cmd::new(self.programs().join("kubectl"))
            .arg("--kubeconfig")
            .arg(self.kubeconfig());
        // A cache in ~/.kube would outlive the lab and would be used for another lab with the same address.
        command
            .arg("--cache-dir")
            .arg(self.dir.join("kubectl-cache"))
    }
}

fn lock_file(path: &Path) -> Result<LabLock> {
    loop {
        let file =
            File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        if file.try_lock().is_err() {
            eprintln!(
                "  waiting for another `lab` command to release {}",
                path.display()
            );
            file.lock()
                .with_context(|| format!("cannot lock {}", path.display()))?;
        }
        // `lab down` removes the lock file while it holds the lock. A lock on a removed file excludes no other command.
        let locked_inode = file.metadata()?.ino();
        if fs::metadata(path).is_ok_and(|current| current.ino() == locked_inode) {
            return Ok(LabLock(file));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_name_is_the_same_as_in_the_makefile() {
        // printf %s /a/checkout | cksum
        assert_eq!(cksum(b"/a/checkout"), 336_819_178);
        assert!(
            LabName::of_checkout()
                .to_string()
                .parse::<LabName>()
                .is_ok()
        );
    }

    #[test]
    fn a_record_without_patience_is_read() {
        let old = r#"{"number": 3, "last_node": 1, "nodes": [{"name": "node-1", "number": 1}], "overcommit": 20}"#;
        let mut record: LabRecord = serde_json::from_str(old).unwrap();
        assert_eq!(record.patience, Patience::default());
        record.patience = "5".parse().unwrap();
        let reread: LabRecord =
            serde_json::from_str(&serde_json::to_string(&record).unwrap()).unwrap();
        assert_eq!(reread, record);
    }

    #[test]
    fn a_name_that_is_unsafe_in_a_path_is_rejected() {
        for bad in [
            "",
            "A",
            "1a",
            "a/b",
            "..",
            "a b",
            "a-",
            "abcdefghijklmnopqrstuvwxyz",
        ] {
            assert!(bad.parse::<LabName>().is_err(), "{bad:?} was accepted");
        }
        for good in ["a", "dev-1f3a", "test2"] {
            assert_eq!(good.parse::<LabName>().unwrap().to_string(), good);
        }
    }
}
