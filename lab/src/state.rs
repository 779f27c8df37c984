//! What a lab is, on disk: its record (number and nodes) and where each of its files lies.
//!
//! `/var/lib/evenkeel/labs/<name>` holds everything a lab writes; removing it removes the lab. Programs are hard
//! links or copies of what the cache holds, so that a lab runs on when the cache is cleaned.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::addresses::{Addresses, LABS};
use crate::command::Cmd;
use crate::files;
use crate::patience::Patience;

const HOME: &str = "/var/lib/evenkeel/labs";
/// The name that the control plane's machine has beside the nodes.
pub const CONTROL: &str = "control";

/// The name of a lab: it becomes part of names of namespaces, cgroups and rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabName(String);

impl LabName {
    /// The name that a checkout's own lab has, made of where the checkout is: two checkouts do not share a lab.
    pub fn of_checkout() -> Self {
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .unwrap_or(Path::new("/"));
        // The sum that cksum(1) prints, so that the Makefile comes to the same name.
        Self(format!(
            "dev-{:04x}",
            cksum(checkout.as_os_str().as_encoded_bytes()) % 0x1_0000
        ))
    }
}

/// POSIX' cksum: a CRC of the bytes and then of their number.
fn cksum(bytes: &[u8]) -> u32 {
    let mut length = bytes.len();
    let number = std::iter::from_fn(|| {
        let byte = u8::try_from(length & 0xff).ok().filter(|_| length > 0);
        length >>= 8;
        byte
    });
    let crc = bytes
        .iter()
        .copied()
        .chain(number)
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
        let fits = (1..=24).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
            && !text.ends_with('-');
        if !fits {
            bail!(
                "`{text}` cannot name a lab: use up to 24 of a-z, 0-9 and -, beginning with a letter"
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

/// One node of the record. Its number gives its addresses and is never used again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// `node-1` and so on.
    pub name: String,
    /// What its addresses follow from.
    pub number: u8,
}

/// What is written down about a lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// What the lab's addresses follow from.
    pub number: u8,
    /// The number of the newest node that ever was.
    pub last_node: u8,
    /// The nodes that are.
    pub nodes: Vec<Node>,
    /// How many times the free space of this machine may be promised to volumes.
    #[serde(default = "once")]
    pub overcommit: u8,
    /// The factor of the lab's time limits.
    #[serde(default)]
    pub patience: Patience,
}

fn once() -> u8 {
    1
}

/// One lab on this machine.
#[derive(Clone, Debug)]
pub struct Lab {
    name: LabName,
    dir: PathBuf,
    record: Record,
}

/// The lock of a lab, held while it is changed; closing the file gives it up.
#[derive(Debug)]
pub struct Held(#[expect(dead_code, reason = "held for its lock, never read")] File);

impl Lab {
    /// The lab of this name, if it was ever brought up and not taken down since.
    pub fn find(name: &LabName) -> Result<Option<Self>> {
        let dir = Path::new(HOME).join(&name.0);
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
                "{} is damaged; `lab down --name {name}` removes what is left of that lab",
                path.display()
            )
        })?;
        Ok(Some(Self {
            name: name.clone(),
            dir,
            record,
        }))
    }

    /// The lab of this name, which must exist.
    pub fn open(name: &LabName) -> Result<Self> {
        Self::find(name)?.with_context(|| {
            format!("there is no lab `{name}` here; `lab up --name {name}` makes it")
        })
    }

    /// The lab of this name; where there is none, one is recorded under a number that no other lab and no route of
    /// this machine uses.
    pub fn find_or_create(name: &LabName) -> Result<Self> {
        let _one_at_a_time = Self::hold_shared()?;
        if let Some(lab) = Self::find(name)? {
            return Ok(lab);
        }
        let taken: Vec<u8> = Self::all()?.iter().map(|lab| lab.record.number).collect();
        let routes = Cmd::new("ip")
            .args(["-4", "route", "show", "table", "all"])
            .run()?;
        let number = (0..LABS)
            .find(|n| {
                !taken.contains(n) && !routes.contains(&format!("10.{}.", 200 + u16::from(*n)))
            })
            .with_context(|| {
                format!("all {LABS} address ranges for labs are in use; take one down (`lab list`)")
            })?;
        let dir = Path::new(HOME).join(&name.0);
        let record = Record {
            number,
            last_node: 0,
            nodes: Vec::new(),
            overcommit: once(),
            patience: Patience::default(),
        };
        let lab = Self {
            name: name.clone(),
            dir,
            record,
        };
        fs::create_dir_all(&lab.dir)?;
        // Everybody's keys are in it.
        fs::set_permissions(&lab.dir, fs::Permissions::from_mode(0o700))?;
        lab.save()?;
        Ok(lab)
    }

    /// All labs recorded on this machine. One whose record is damaged is passed over: it cannot be used anyway.
    pub fn all() -> Result<Vec<Self>> {
        let mut labs = Vec::new();
        let entries = match fs::read_dir(HOME) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(labs),
            Err(error) => return Err(error).with_context(|| format!("cannot list {HOME}")),
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

    /// Holds the lab for changes; waits for whoever holds it now.
    pub fn hold(name: &LabName) -> Result<Held> {
        fs::create_dir_all(HOME).with_context(|| format!("cannot make {HOME}"))?;
        lock(&Self::lock_of(name))
    }

    /// Where all labs' files are.
    pub(crate) fn home() -> &'static Path {
        Path::new(HOME)
    }

    fn lock_of(name: &LabName) -> PathBuf {
        Path::new(HOME).join(format!(".{name}.lock"))
    }

    /// Removes every file of a lab that is held; its lock last.
    pub(crate) fn remove_files(name: &LabName, _held: Held) -> Result<()> {
        files::remove(&Self::dir_of(name))?;
        files::remove(&Self::lock_of(name))
    }

    /// Held while something is changed that all labs share.
    pub(crate) fn hold_shared() -> Result<Held> {
        fs::create_dir_all(HOME).with_context(|| format!("cannot make {HOME}"))?;
        lock(&Path::new(HOME).join(".numbers.lock"))
    }

    /// Where the labs' files are, whether or not the lab's record can be read.
    pub fn dir_of(name: &LabName) -> PathBuf {
        Path::new(HOME).join(&name.0)
    }

    /// Records a new node under a number that was never used.
    pub(crate) fn record_node(&mut self) -> Result<Node> {
        if self.record.last_node == crate::addresses::NODES {
            bail!(
                "lab {} has had {} nodes; take it down and up again to have more",
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

    /// Strikes a node from the record.
    pub(crate) fn forget_node(&mut self, name: &str) -> Result<()> {
        self.record.nodes.retain(|node| node.name != name);
        self.save()
    }

    /// Records how often free space may be promised; nodes that run learn of it when they next start.
    pub(crate) fn record_overcommit(&mut self, times: u8) -> Result<()> {
        self.record.overcommit = times;
        self.save()
    }

    /// Records the factor of the time limits. Commands follow it at once, machines that run when they next start.
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

    /// Its name.
    pub fn name(&self) -> &LabName {
        &self.name
    }

    /// Its addresses.
    pub fn addresses(&self) -> Result<Addresses> {
        Addresses::of(self.record.number)
            .with_context(|| format!("lab {} has an impossible number", self.name))
    }

    /// The number its addresses follow from.
    pub fn number(&self) -> u8 {
        self.record.number
    }

    /// The number of the newest node it ever had.
    pub fn last_node(&self) -> u8 {
        self.record.last_node
    }

    /// How many times the free space of this machine may be promised to volumes.
    pub fn overcommit(&self) -> u8 {
        self.record.overcommit
    }

    /// The factor of its time limits.
    pub fn patience(&self) -> Patience {
        self.record.patience
    }

    /// Its nodes.
    pub fn nodes(&self) -> &[Node] {
        &self.record.nodes
    }

    /// The node of this name.
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

    /// Everything it writes is below this directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    /// The programs it runs.
    pub fn programs(&self) -> PathBuf {
        self.dir.join("programs")
    }

    /// Keys and certificates.
    pub fn pki(&self) -> PathBuf {
        self.dir.join("pki")
    }

    /// The directory of one of its machines: a node, or [`CONTROL`].
    pub fn machine_dir(&self, machine: &str) -> PathBuf {
        self.dir.join("machines").join(machine)
    }

    /// The administrator's `kubectl` on this lab.
    pub fn kubectl(&self) -> Cmd {
        let command = Cmd::new(self.programs().join("kubectl"))
            .arg("--kubeconfig")
            .arg(self.kubeconfig());
        // Not in the user's ~/.kube: it would outlive the lab, and be another lab's of the same address.
        command
            .arg("--cache-dir")
            .arg(self.dir.join("kubectl-cache"))
    }
}

fn lock(path: &Path) -> Result<Held> {
    loop {
        let file =
            File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        if file.try_lock().is_err() {
            eprintln!("  another `lab` command is at work on this; waiting for it to end");
            file.lock()
                .with_context(|| format!("cannot lock {}", path.display()))?;
        }
        // `lab down` removes the file it held: a lock on a file that nobody else finds any more is none.
        let own = file.metadata()?.ino();
        if fs::metadata(path).is_ok_and(|there| there.ino() == own) {
            return Ok(Held(file));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkout_names_its_lab_as_the_makefile_does() {
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
    fn a_record_of_before_patience_was_settable_is_read() {
        let old = r#"{"number": 3, "last_node": 1, "nodes": [{"name": "node-1", "number": 1}], "overcommit": 20}"#;
        let mut record: Record = serde_json::from_str(old).unwrap();
        assert_eq!(record.patience, Patience::default());
        record.patience = "5".parse().unwrap();
        let again: Record = serde_json::from_str(&serde_json::to_string(&record).unwrap()).unwrap();
        assert_eq!(again, record);
    }

    #[test]
    fn names_that_would_break_a_namespace_or_a_path_are_refused() {
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
            assert!(bad.parse::<LabName>().is_err(), "{bad:?} was taken");
        }
        for good in ["a", "dev-1f3a", "test2"] {
            assert_eq!(good.parse::<LabName>().unwrap().to_string(), good);
        }
    }
}
