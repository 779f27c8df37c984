//! The cgroups of the machines of a lab. The cgroup of a machine holds all its processes and is the root of its cgroup
//! namespace. The lab uses it to freeze and kill a machine and to find its processes from the host.
//!
//! cgroup v1 has one hierarchy per controller, and a machine has a directory in each. cgroup v2 has one hierarchy.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::patience::Patience;
use crate::progress::format_duration;
use crate::state::{Lab, LabName};

const CGROUP_ROOT: &str = "/sys/fs/cgroup";
/// Time limit for killing the processes of a machine.
const KILL_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for freezing or thawing a cgroup.
const FREEZE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for enabling a controller.
const ENABLE_CONTROLLER_TIMEOUT: Duration = Duration::from_secs(3);
/// Time limit for removing an empty cgroup.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between two attempts of an operation on a cgroup.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// The cgroup that contains the cgroups of all labs.
pub const LABS_CGROUP: &str = "evenkeel-lab";

/// The cgroup layout of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CgroupLayout {
    /// cgroup v1: one hierarchy per controller, each mounted below `/sys/fs/cgroup`; a v2 hierarchy may exist as well.
    Separate(Vec<CgroupHierarchy>),
    /// cgroup v2: one hierarchy for all controllers.
    Unified,
}

/// A mounted hierarchy of a v1 layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupHierarchy {
    /// The mount point.
    pub mount: PathBuf,
    /// The file system type: `cgroup` or `cgroup2`.
    pub kind: String,
    /// The mount options that name controllers, separated by commas.
    pub controllers: String,
}

impl CgroupLayout {
    /// Reads the layout from the mounts of this process.
    pub fn detect() -> Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")
            .context("cannot read /proc/self/mountinfo")?;
        Self::from_mountinfo(&mounts)
    }

    fn from_mountinfo(mountinfo: &str) -> Result<Self> {
        let mut hierarchies = Vec::new();
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
            if kind == "cgroup2" && mount == CGROUP_ROOT {
                return Ok(Self::Unified);
            }
            let controllers = after
                .nth(1)
                .unwrap_or_default()
                .split(',')
                .filter(|o| !matches!(*o, "rw" | "ro"));
            hierarchies.push(CgroupHierarchy {
                mount: mount.into(),
                kind: kind.to_owned(),
                controllers: controllers.collect::<Vec<_>>().join(","),
            });
        }
        if hierarchies.is_empty() {
            bail!("no cgroup file system is mounted below {CGROUP_ROOT}");
        }
        Ok(Self::Separate(hierarchies))
    }

    /// Returns the mount point of each hierarchy.
    pub fn roots(&self) -> Vec<PathBuf> {
        match self {
            Self::Separate(hierarchies) => hierarchies
                .iter()
                .map(|hierarchy| hierarchy.mount.clone())
                .collect(),
            Self::Unified => vec![PathBuf::from(CGROUP_ROOT)],
        }
    }

    /// Returns the mount point of the hierarchy that freezes and lists processes.
    fn freezer(&self) -> PathBuf {
        match self {
            Self::Separate(_) => Path::new(CGROUP_ROOT).join("freezer"),
            Self::Unified => PathBuf::from(CGROUP_ROOT),
        }
    }
}

/// The cgroup of one machine, in every hierarchy.
#[derive(Clone, Debug)]
pub struct Cgroup {
    layout: CgroupLayout,
    path: PathBuf,
    patience: Patience,
}

impl Cgroup {
    /// Returns the cgroup of a machine, which may not exist yet.
    pub fn of(lab: &LabName, machine: &str) -> Result<Self> {
        let path = Path::new(LABS_CGROUP).join(lab.to_string()).join(machine);
        Ok(Self {
            layout: CgroupLayout::detect()?,
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

    /// Returns the directory below which pods and containers have their cgroups.
    pub fn freezer_dir(&self) -> PathBuf {
        self.layout.freezer().join(&self.path)
    }

    /// Creates an empty cgroup. Removes an existing one first: cgroups of dead pods delay the kubelet by more than a
    /// minute.
    pub fn create(&self) -> Result<()> {
        self.remove()?;
        // The lock prevents another `lab down` from removing the common parent meanwhile.
        let _shared_lock = Lab::lock_shared()?;
        for root in self.layout.roots() {
            let mut dir = root;
            for part in &self.path {
                let parent = dir.clone();
                dir.push(part);
                fs::create_dir_all(&dir)
                    .with_context(|| format!("cannot create cgroup {}", dir.display()))?;
                inherit_cpuset(&parent, &dir)?;
            }
        }
        if self.layout == CgroupLayout::Unified {
            let mut dir = PathBuf::from(CGROUP_ROOT);
            for part in &self.path {
                delegate_controllers(&dir, self.patience)?;
                dir.push(part);
            }
        }
        Ok(())
    }

    /// Moves the calling process into the cgroup.
    pub fn enter(&self) -> Result<()> {
        for dir in self.dirs() {
            fs::write(dir.join("cgroup.procs"), std::process::id().to_string())
                .with_context(|| format!("cannot enter cgroup {}", dir.display()))?;
        }
        Ok(())
    }

    /// Returns all processes in the cgroup and its descendants.
    pub fn processes(&self) -> Vec<Pid> {
        processes_below(&self.freezer_dir())
    }

    /// Freezes or thaws all processes and waits until the kernel confirms the state.
    pub fn freeze(&self, frozen: bool) -> Result<()> {
        set_frozen(
            &self.freezer_dir(),
            self.layout == CgroupLayout::Unified,
            frozen,
            self.patience,
        )
    }

    /// Returns whether the cgroup is frozen or being frozen.
    pub fn is_frozen(&self) -> bool {
        let dir = self.freezer_dir();
        match self.layout {
            CgroupLayout::Separate(_) => {
                fs::read_to_string(dir.join("freezer.state")).is_ok_and(|s| s.trim() != "THAWED")
            }
            CgroupLayout::Unified => {
                fs::read_to_string(dir.join("cgroup.freeze")).is_ok_and(|s| s.trim() == "1")
            }
        }
    }

    /// Kills all processes and waits until none is left.
    pub fn kill(&self) -> Result<()> {
        let deadline = Instant::now() + self.patience.times(KILL_TIMEOUT);
        loop {
            let left = self.processes();
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!(
                    "{} processes in cgroup {} are still alive after SIGKILL: {left:?}; {}",
                    left.len(),
                    self.path.display(),
                    self.patience.advice()
                );
            }
            for pid in left {
                // An error means that the process has ended meanwhile.
                let _ = kill(pid, Signal::SIGKILL);
            }
            if self.is_frozen() {
                self.freeze(false)?;
            }
            std::thread::sleep(RETRY_INTERVAL);
        }
    }

    /// Removes the cgroup and its descendants, which must have no processes; call [`Cgroup::kill`] first.
    pub fn remove(&self) -> Result<()> {
        for dir in self.dirs() {
            remove_tree(&dir, self.patience)?;
        }
        Ok(())
    }

    /// Removes the cgroup of a lab, and the common parent when this was the last lab.
    pub fn remove_lab(lab: &LabName) -> Result<()> {
        let _shared_lock = Lab::lock_shared()?;
        for root in CgroupLayout::detect()?.roots() {
            remove_tree(
                &root.join(LABS_CGROUP).join(lab.to_string()),
                Patience::of(lab),
            )?;
            // This fails while another lab has a cgroup in it.
            let _ = fs::remove_dir(root.join(LABS_CGROUP));
        }
        Ok(())
    }
}

/// Mounts the cgroup of a machine at `/sys/fs/cgroup`, where the kubelet expects it. The caller must be in the mount
/// and cgroup namespaces of the machine, and its mounts must not propagate to the host.
pub fn mount_inside(layout: &CgroupLayout, patience: Patience) -> Result<()> {
    use nix::mount::{MntFlags, MsFlags, mount, umount2};
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    match layout {
        CgroupLayout::Separate(hierarchies) => {
            mount(
                Some("tmpfs"),
                CGROUP_ROOT,
                Some("tmpfs"),
                flags,
                Some("mode=755"),
            )
            .context("cannot mount a tmpfs over /sys/fs/cgroup")?;
            for hierarchy in hierarchies {
                fs::create_dir_all(&hierarchy.mount)?;
                let data = (hierarchy.kind == "cgroup").then_some(hierarchy.controllers.as_str());
                mount(
                    Some("cgroup"),
                    &hierarchy.mount,
                    Some(hierarchy.kind.as_str()),
                    flags,
                    data,
                )
                .with_context(|| {
                    format!(
                        "cannot mount the cgroup hierarchy {}",
                        hierarchy.mount.display()
                    )
                })?;
            }
        }
        CgroupLayout::Unified => {
            // cgroup v2 has one superblock, and the kernel rejects a mount of a file system over itself (EBUSY), so
            // the mount of the host is unmounted first. verified: Linux 6.1 of Debian 12.
            umount2(CGROUP_ROOT, MntFlags::MNT_DETACH)
                .context("cannot unmount the cgroup file system of the host")?;
            mount(
                Some("cgroup2"),
                CGROUP_ROOT,
                Some("cgroup2"),
                flags,
                None::<&str>,
            )
            .context("cannot mount the cgroup file system")?;
            // A cgroup with processes of its own cannot delegate controllers, so init moves into a child cgroup.
            let init = Path::new(CGROUP_ROOT).join("init");
            fs::create_dir_all(&init)?;
            fs::write(init.join("cgroup.procs"), "0")
                .context("cannot move init into a child cgroup")?;
            delegate_controllers(Path::new(CGROUP_ROOT), patience)?;
        }
    }
    Ok(())
}

/// Freezes or thaws the cgroup at `dir` and waits until the kernel confirms the state.
fn set_frozen(dir: &Path, unified: bool, frozen: bool, patience: Patience) -> Result<()> {
    let (file, value, state) = match (unified, frozen) {
        (true, true) => ("cgroup.freeze", "1", "frozen 1"),
        (true, false) => ("cgroup.freeze", "0", "frozen 0"),
        (false, true) => ("freezer.state", "FROZEN", "FROZEN"),
        (false, false) => ("freezer.state", "THAWED", "THAWED"),
    };
    let state_file = dir.join(if unified { "cgroup.events" } else { file });
    let limit = patience.times(FREEZE_TIMEOUT);
    let deadline = Instant::now() + limit;
    loop {
        // cgroup v1 drops the request when a process forks at the same time, so the request is repeated.
        fs::write(dir.join(file), value)
            .with_context(|| format!("cannot write {value} to {}", dir.join(file).display()))?;
        if fs::read_to_string(&state_file)?
            .lines()
            .any(|line| line.trim() == state)
        {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!(
                "cgroup {} did not reach state {state} within {}; {}",
                dir.display(),
                format_duration(limit),
                patience.advice()
            );
        }
        std::thread::sleep(RETRY_INTERVAL);
    }
}

/// Returns all processes in the cgroup at `dir` and its descendants.
pub fn processes_below(dir: &Path) -> Vec<Pid> {
    let mut pids: Vec<Pid> = fs::read_to_string(dir.join("cgroup.procs"))
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.parse().ok().map(Pid::from_raw))
        .collect();
    for child in children(dir) {
        pids.extend(processes_below(&child));
    }
    pids
}

/// Returns the cgroup below `dir` whose name contains `id`, the uid of a pod or the id of a container.
pub fn find_cgroup(dir: &Path, id: &str) -> Option<PathBuf> {
    for child in children(dir) {
        if child
            .file_name()
            .is_some_and(|name| name.to_string_lossy().contains(id))
        {
            return Some(child);
        }
        if let Some(found) = find_cgroup(&child, id) {
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

/// Copies the cpuset of the parent. A new v1 cpuset is empty and rejects processes until it has CPUs and memory nodes.
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

/// Enables the controllers that a kubelet needs for the children of a v2 cgroup.
fn delegate_controllers(dir: &Path, patience: Patience) -> Result<()> {
    let available = fs::read_to_string(dir.join("cgroup.controllers"))?;
    for controller in
        delegated_controllers(&available).with_context(|| format!("in {}", dir.display()))?
    {
        enable_controller(dir, controller, patience)?;
    }
    Ok(())
}

/// Returns the available controllers that a kubelet uses; fails when a controller for the resource limits of pods is
/// missing.
fn delegated_controllers(available: &str) -> Result<Vec<&'static str>> {
    let has = |controller: &&str| available.split_whitespace().any(|name| name == *controller);
    if let Some(missing) = ["cpu", "memory", "pids"].iter().find(|name| !has(name)) {
        bail!(
            "the cgroup controller {missing} is missing: enable it with cgroup_enable={missing} on the kernel command \
             line, or, in a container, delegate it to the container"
        );
    }
    Ok(["cpu", "cpuset", "io", "memory", "pids"]
        .into_iter()
        .filter(has)
        .collect())
}

/// Enables a controller for the children of a cgroup. The kernel rejects this while the cgroup has processes of its
/// own; in the cgroup of a machine, the process that created it ends soon, so the write is retried.
fn enable_controller(dir: &Path, controller: &str, patience: Patience) -> Result<()> {
    let deadline = Instant::now() + patience.times(ENABLE_CONTROLLER_TIMEOUT);
    loop {
        match fs::write(dir.join("cgroup.subtree_control"), format!("+{controller}")) {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() > deadline => {
                return Err(error).with_context(|| {
                    format!(
                        "cannot enable controller {controller} for the children of cgroup {}",
                        dir.display()
                    )
                });
            }
            Err(_) => std::thread::sleep(RETRY_INTERVAL),
        }
    }
}

/// Removes a cgroup and its descendants. Retries, since the kernel releases a cgroup shortly after its last process.
fn remove_tree(dir: &Path, patience: Patience) -> Result<()> {
    if !dir.exists() {
        return Ok(());
    }
    for child in children(dir) {
        remove_tree(&child, patience)?;
    }
    let deadline = Instant::now() + patience.times(REMOVE_TIMEOUT);
    loop {
        match fs::remove_dir(dir) {
            Ok(()) => return Ok(()),
            Err(_) if !dir.exists() => return Ok(()),
            Err(error) if Instant::now() > deadline => {
                return Err(error)
                    .with_context(|| format!("cannot remove cgroup {}", dir.display()));
            }
            Err(_) => std::thread::sleep(RETRY_INTERVAL),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup_v1_and_v2_are_distinguished() {
        let v1 = "30 24 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                  31 24 0:27 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
                  32 24 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let CgroupLayout::Separate(hierarchies) = CgroupLayout::from_mountinfo(v1).unwrap() else {
            panic!("the v1 layout was parsed as unified")
        };
        assert_eq!(hierarchies.len(), 3);
        assert_eq!(
            (
                hierarchies[0].kind.as_str(),
                hierarchies[0].controllers.as_str()
            ),
            ("cgroup", "cpu")
        );
        assert_eq!(hierarchies[1].controllers, "xattr,name=systemd");
        let v2 = "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(
            CgroupLayout::from_mountinfo(v2).unwrap(),
            CgroupLayout::Unified
        );
        assert!(CgroupLayout::from_mountinfo("").is_err());
    }

    #[test]
    fn a_missing_controller_is_named() {
        let all = delegated_controllers("cpuset cpu io memory hugetlb pids rdma misc\n").unwrap();
        assert_eq!(all, ["cpu", "cpuset", "io", "memory", "pids"]);
        assert_eq!(
            delegated_controllers("cpuset cpu memory pids")
                .unwrap()
                .len(),
            4
        );
        let error = delegated_controllers("cpuset cpu io pids")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("memory") && error.contains("cgroup_enable=memory"),
            "{error}"
        );
    }
}
