//! The cgroups of a lab's machines. A machine's cgroup is the root of all it sees, holds every process it has, and
//! so is also how the machine is frozen and how its processes are found from outside.
//!
//! Version 1 has one tree per controller, and a machine has a directory in each. Version 2 has a single tree.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::patience::Patience;
use crate::progress::human;
use crate::state::{Lab, LabName};

const ROOT: &str = "/sys/fs/cgroup";
/// All labs' cgroups are below this one.
pub const PARENT: &str = "evenkeel-lab";

/// How this machine's cgroups are arranged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One tree per controller (each a directory below `/sys/fs/cgroup`); possibly an empty unified one beside them.
    Separate(Vec<Tree>),
    /// One tree for all.
    Unified,
}

/// One mounted hierarchy of version 1 (or the unified one that may stand beside them).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// Where it is mounted.
    pub mount: PathBuf,
    /// The file system's type: `cgroup` or `cgroup2`.
    pub kind: String,
    /// Its mount options that name controllers.
    pub controllers: String,
}

impl Layout {
    /// Reads it off this process' mounts.
    pub fn here() -> Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")
            .context("cannot read /proc/self/mountinfo")?;
        Self::of(&mounts)
    }

    fn of(mountinfo: &str) -> Result<Self> {
        let mut trees = Vec::new();
        for line in mountinfo.lines() {
            let Some((before, after)) = line.split_once(" - ") else {
                continue;
            };
            let mut after = after.split(' ');
            let kind = after.next().unwrap_or_default();
            if kind != "cgroup" && kind != "cgroup2" {
                continue;
            }
            let mount = before.split(' ').nth(4).unwrap_or_default();
            if kind == "cgroup2" && mount == ROOT {
                return Ok(Self::Unified);
            }
            let controllers = after
                .nth(1)
                .unwrap_or_default()
                .split(',')
                .filter(|o| !matches!(*o, "rw" | "ro"));
            trees.push(Tree {
                mount: mount.into(),
                kind: kind.to_owned(),
                controllers: controllers.collect::<Vec<_>>().join(","),
            });
        }
        if trees.is_empty() {
            bail!("no cgroups are mounted below {ROOT}");
        }
        Ok(Self::Separate(trees))
    }

    /// Where each tree begins.
    pub fn roots(&self) -> Vec<PathBuf> {
        match self {
            Self::Separate(trees) => trees.iter().map(|tree| tree.mount.clone()).collect(),
            Self::Unified => vec![PathBuf::from(ROOT)],
        }
    }

    /// The tree in which processes are frozen and looked up.
    fn freezer(&self) -> PathBuf {
        match self {
            Self::Separate(_) => Path::new(ROOT).join("freezer"),
            Self::Unified => PathBuf::from(ROOT),
        }
    }
}

/// The cgroup of one machine, in every tree.
#[derive(Clone, Debug)]
pub struct Cgroup {
    layout: Layout,
    path: PathBuf,
    patience: Patience,
}

impl Cgroup {
    /// The cgroup of a machine of a lab.
    pub fn of(lab: &LabName, machine: &str) -> Result<Self> {
        let path = Path::new(PARENT).join(lab.to_string()).join(machine);
        Ok(Self {
            layout: Layout::here()?,
            path,
            patience: Patience::of(lab),
        })
    }

    fn dirs(&self) -> Vec<PathBuf> {
        self.layout
            .roots()
            .iter()
            .map(|root| root.join(&self.path))
            .collect()
    }

    /// Where a pod's or container's cgroups are found by their names.
    pub fn freezer_dir(&self) -> PathBuf {
        self.layout.freezer().join(&self.path)
    }

    /// Makes the cgroup, anew: what a dead machine left below it would delay its kubelet by more than a minute.
    pub fn make(&self) -> Result<()> {
        self.remove()?;
        // Another lab's end must not take the common parent away between two of these.
        let _one_at_a_time = Lab::hold_shared()?;
        for root in self.layout.roots() {
            let mut dir = root;
            for part in &self.path {
                let parent = dir.clone();
                dir.push(part);
                fs::create_dir_all(&dir)
                    .with_context(|| format!("cannot make the cgroup {}", dir.display()))?;
                inherit_cpuset(&parent, &dir)?;
            }
        }
        if self.layout == Layout::Unified {
            let mut dir = PathBuf::from(ROOT);
            for part in &self.path {
                delegate(&dir, self.patience)?;
                dir.push(part);
            }
        }
        Ok(())
    }

    /// Moves the calling process into it.
    pub fn enter(&self) -> Result<()> {
        for dir in self.dirs() {
            fs::write(dir.join("cgroup.procs"), std::process::id().to_string())
                .with_context(|| format!("cannot enter the cgroup {}", dir.display()))?;
        }
        Ok(())
    }

    /// Every process in it, or below it.
    pub fn processes(&self) -> Vec<Pid> {
        processes_below(&self.freezer_dir())
    }

    /// Stops every process where it is, or lets them go on; returns when that is so.
    pub fn freeze(&self, frozen: bool) -> Result<()> {
        set_frozen(
            &self.freezer_dir(),
            self.layout == Layout::Unified,
            frozen,
            self.patience,
        )
    }

    /// Whether it is frozen now.
    pub fn is_frozen(&self) -> bool {
        let dir = self.freezer_dir();
        match self.layout {
            Layout::Separate(_) => {
                fs::read_to_string(dir.join("freezer.state")).is_ok_and(|s| s.trim() != "THAWED")
            }
            Layout::Unified => {
                fs::read_to_string(dir.join("cgroup.freeze")).is_ok_and(|s| s.trim() == "1")
            }
        }
    }

    /// Kills every process in it and returns when none is left.
    pub fn kill(&self) -> Result<()> {
        let deadline = Instant::now() + self.patience.times(Duration::from_secs(30));
        loop {
            let left = self.processes();
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!(
                    "{} processes of {} do not die: {left:?}; {}",
                    left.len(),
                    self.path.display(),
                    self.patience.advice()
                );
            }
            for pid in left {
                // One that ended meanwhile is what was wanted.
                let _ = kill(pid, Signal::SIGKILL);
            }
            if self.is_frozen() {
                self.freeze(false)?;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Removes it and all below it. Only empty cgroups can be removed: kill first.
    pub fn remove(&self) -> Result<()> {
        for dir in self.dirs() {
            remove_tree(&dir, self.patience)?;
        }
        Ok(())
    }

    /// Removes the lab's own cgroup, and the one of all labs when this was the last.
    pub fn remove_lab(lab: &LabName) -> Result<()> {
        let _one_at_a_time = Lab::hold_shared()?;
        for root in Layout::here()?.roots() {
            remove_tree(&root.join(PARENT).join(lab.to_string()), Patience::of(lab))?;
            // Another lab's cgroup in it keeps it, as it should.
            let _ = fs::remove_dir(root.join(PARENT));
        }
        Ok(())
    }
}

/// Inside a machine: makes its cgroup the root of what it sees, where a kubelet expects it. The mount namespace must
/// be the machine's own and must not pass changes on to the host's.
pub fn mount_inside(layout: &Layout, patience: Patience) -> Result<()> {
    use nix::mount::{MntFlags, MsFlags, mount, umount2};
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    match layout {
        Layout::Separate(trees) => {
            mount(Some("tmpfs"), ROOT, Some("tmpfs"), flags, Some("mode=755"))
                .context("cannot cover the cgroups")?;
            for tree in trees {
                fs::create_dir_all(&tree.mount)?;
                let data = (tree.kind == "cgroup").then_some(tree.controllers.as_str());
                mount(
                    Some("cgroup"),
                    &tree.mount,
                    Some(tree.kind.as_str()),
                    flags,
                    data,
                )
                .with_context(|| {
                    format!("cannot mount the cgroup tree {}", tree.mount.display())
                })?;
            }
        }
        Layout::Unified => {
            // Version 2 has one superblock, and the kernel refuses to mount a file system over itself (EBUSY): the
            // host's view goes first. verified: Linux 6.1 of Debian 12.
            umount2(ROOT, MntFlags::MNT_DETACH)
                .context("cannot unmount the host's view of the cgroups")?;
            mount(Some("cgroup2"), ROOT, Some("cgroup2"), flags, None::<&str>)
                .context("cannot mount the cgroups")?;
            // A cgroup with processes of its own cannot hand controllers down: the init moves one below.
            let own = Path::new(ROOT).join("init");
            fs::create_dir_all(&own)?;
            fs::write(own.join("cgroup.procs"), "0")
                .context("cannot move init into its own cgroup")?;
            delegate(Path::new(ROOT), patience)?;
        }
    }
    Ok(())
}

/// Freezes or thaws one cgroup given by its directory.
fn set_frozen(dir: &Path, unified: bool, frozen: bool, patience: Patience) -> Result<()> {
    let (file, word, state) = match (unified, frozen) {
        (true, true) => ("cgroup.freeze", "1", "frozen 1"),
        (true, false) => ("cgroup.freeze", "0", "frozen 0"),
        (false, true) => ("freezer.state", "FROZEN", "FROZEN"),
        (false, false) => ("freezer.state", "THAWED", "THAWED"),
    };
    let seen = dir.join(if unified { "cgroup.events" } else { file });
    let limit = patience.times(Duration::from_secs(10));
    let deadline = Instant::now() + limit;
    loop {
        // Version 1 forgets a request while processes are being born: it is repeated until it holds.
        fs::write(dir.join(file), word)
            .with_context(|| format!("cannot write {word} to {}", dir.join(file).display()))?;
        if fs::read_to_string(&seen)?
            .lines()
            .any(|line| line.trim() == state)
        {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!(
                "{} did not become {state} within {}; {}",
                dir.display(),
                human(limit),
                patience.advice()
            );
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Every process in this cgroup directory or below it.
pub fn processes_below(dir: &Path) -> Vec<Pid> {
    let mut found: Vec<Pid> = fs::read_to_string(dir.join("cgroup.procs"))
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.parse().ok().map(Pid::from_raw))
        .collect();
    for child in children(dir) {
        found.extend(processes_below(&child));
    }
    found
}

/// The directory below `dir` whose name contains `part`, as cgroups of pods and containers do with their ids.
pub fn find_below(dir: &Path, part: &str) -> Option<PathBuf> {
    for child in children(dir) {
        if child
            .file_name()
            .is_some_and(|name| name.to_string_lossy().contains(part))
        {
            return Some(child);
        }
        if let Some(found) = find_below(&child, part) {
            return Some(found);
        }
    }
    None
}

fn children(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect()
}

/// A cpuset begins empty in version 1, and admits nobody until it has processors and memory.
fn inherit_cpuset(parent: &Path, dir: &Path) -> Result<()> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let (from, to) = (parent.join(file), dir.join(file));
        if to.exists() && from.exists() && fs::read_to_string(&to)?.trim().is_empty() {
            fs::write(&to, fs::read_to_string(&from)?.trim())
                .with_context(|| format!("cannot write {}", to.display()))?;
        }
    }
    Ok(())
}

/// Hands the controllers that a kubelet needs of a version 2 cgroup down to its children.
fn delegate(dir: &Path, patience: Patience) -> Result<()> {
    let known = fs::read_to_string(dir.join("cgroup.controllers"))?;
    for controller in to_hand_down(&known).with_context(|| format!("in {}", dir.display()))? {
        hand_down(dir, controller, patience)?;
    }
    Ok(())
}

/// Returns the controllers of `known` that a kubelet uses; fails where one is missing that the limits of pods need.
fn to_hand_down(known: &str) -> Result<Vec<&'static str>> {
    let has = |controller: &&str| known.split_whitespace().any(|one| one == *controller);
    if let Some(missing) = ["cpu", "memory", "pids"].iter().find(|one| !has(one)) {
        bail!(
            "the cgroup controller {missing} is missing: the kernel has it switched off (its command line takes \
             cgroup_enable={missing}), or this machine is a container that was not given it"
        );
    }
    Ok(["cpu", "cpuset", "io", "memory", "pids"]
        .into_iter()
        .filter(has)
        .collect())
}

/// A cgroup with processes of its own refuses. In a machine's that passes: the process that made it is about to end.
fn hand_down(dir: &Path, controller: &str, patience: Patience) -> Result<()> {
    let deadline = Instant::now() + patience.times(Duration::from_secs(3));
    loop {
        match fs::write(dir.join("cgroup.subtree_control"), format!("+{controller}")) {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() > deadline => {
                return Err(error).with_context(|| {
                    format!(
                        "cannot hand the controller {controller} of {} down",
                        dir.display()
                    )
                });
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Removes a cgroup depth first. The kernel lets go of an emptied one a moment after its last process.
fn remove_tree(dir: &Path, patience: Patience) -> Result<()> {
    if !dir.exists() {
        return Ok(());
    }
    for child in children(dir) {
        remove_tree(&child, patience)?;
    }
    let deadline = Instant::now() + patience.times(Duration::from_secs(10));
    loop {
        match fs::remove_dir(dir) {
            Ok(()) => return Ok(()),
            Err(_) if !dir.exists() => return Ok(()),
            Err(error) if Instant::now() > deadline => {
                return Err(error)
                    .with_context(|| format!("cannot remove the cgroup {}", dir.display()));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separate_trees_are_told_from_a_unified_one() {
        let v1 = "30 24 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                  31 24 0:27 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
                  32 24 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let Layout::Separate(trees) = Layout::of(v1).unwrap() else {
            panic!("taken for unified")
        };
        assert_eq!(trees.len(), 3);
        assert_eq!(
            (trees[0].kind.as_str(), trees[0].controllers.as_str()),
            ("cgroup", "cpu")
        );
        assert_eq!(trees[1].controllers, "xattr,name=systemd");
        let v2 = "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(Layout::of(v2).unwrap(), Layout::Unified);
        assert!(Layout::of("").is_err());
    }

    #[test]
    fn controllers_that_the_limits_of_pods_need_are_named() {
        let all = to_hand_down("cpuset cpu io memory hugetlb pids rdma misc\n").unwrap();
        assert_eq!(all, ["cpu", "cpuset", "io", "memory", "pids"]);
        assert_eq!(to_hand_down("cpuset cpu memory pids").unwrap().len(), 4);
        let why = to_hand_down("cpuset cpu io pids").unwrap_err().to_string();
        assert!(
            why.contains("memory") && why.contains("cgroup_enable=memory"),
            "{why}"
        );
    }
}
