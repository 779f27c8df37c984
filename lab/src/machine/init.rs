//! Process 1 of a machine: lays out what the machine sees of the file system, then keeps its services running.
//!
//! The host's files are all visible, but a node's `/run` and `/var` are its own, so that a kubelet and a containerd
//! with their ordinary paths touch nothing of the host's.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::mount::{MsFlags, mount, umount};
use nix::unistd::{sethostname, setsid};

use super::{Blueprint, supervise};
use crate::cgroup::{self, Layout};
use crate::patience::Patience;

/// Settings of the kernel that a kubelet would write for the whole host. It finds them as it wants them, in files of
/// the lab's own, and so leaves the real ones alone.
const KUBELET_WANTS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// Is the init of the machine that the blueprint describes. Returns only when it cannot go on.
pub fn init(path: &Path) -> Result<()> {
    let blueprint = Blueprint::read(path)?;
    let patience = Patience::of(&blueprint.lab_name()?);
    wait_until_noted(&blueprint, patience)?;
    let layout = Layout::here()?;
    // A session of its own, so that no terminal's end reaches the machine.
    setsid().context("cannot begin a session")?;
    sethostname(&blueprint.machine).context("cannot set the host name")?;
    lay_out(&blueprint, &layout, patience)?;
    supervise::run(&blueprint)
}

/// Waits until whoever started this has noted its number. It is in the same mount namespace: once `/var` is the machine's own,
/// the file would be looked for in vain.
fn wait_until_noted(blueprint: &Blueprint, patience: Patience) -> Result<()> {
    let noted = blueprint.machine_dir.join("init.pid");
    let deadline = Instant::now() + patience.times(Duration::from_secs(10));
    while !noted.exists() {
        if Instant::now() > deadline {
            anyhow::bail!(
                "nobody has noted {} in time; {}",
                noted.display(),
                patience.advice()
            );
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn lay_out(blueprint: &Blueprint, layout: &Layout, patience: Patience) -> Result<()> {
    detach_from_host()?;
    let plain = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), plain, None::<&str>)
        .context("cannot mount /proc")?;
    cgroup::mount_inside(layout, patience)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(
        Some("tmpfs"),
        "/run",
        Some("tmpfs"),
        flags,
        Some("mode=755"),
    )
    .context("cannot mount /run")?;
    fs::create_dir_all("/run/lock")?;
    own_var(blueprint)?;
    if !blueprint.is_control() {
        own_settings(blueprint)?;
    }
    // From now on mounts are shared among the machine's own namespaces: a volume that the CSI driver mounts must be
    // seen by containers.
    remount("/", MsFlags::MS_REC | MsFlags::MS_SHARED)
}

/// Gives the machine a `/var` of its own, in which the lab's directory stays where it was.
fn own_var(blueprint: &Blueprint) -> Result<()> {
    let var = blueprint.machine_dir.join("var");
    for dir in [
        "lib/kubelet",
        "lib/containerd",
        "lib/cni",
        "log",
        "tmp",
        "cache",
    ] {
        fs::create_dir_all(var.join(dir))?;
    }
    if !var.join("run").is_symlink() {
        std::os::unix::fs::symlink("/run", var.join("run"))?;
    }
    let aside = Path::new("/run/lab");
    fs::create_dir_all(aside)?;
    bind(&blueprint.lab_dir, aside)?;
    bind(&var, Path::new("/var"))?;
    fs::create_dir_all(&blueprint.lab_dir)?;
    bind(aside, &blueprint.lab_dir)?;
    umount(aside).context("cannot unmount /run/lab")?;
    fs::remove_dir(aside)?;
    Ok(())
}

/// Lets no mount of this namespace appear on the host. The other way stays open: what the host unmounts must not stay
/// busy here.
pub(super) fn detach_from_host() -> Result<()> {
    remount("/", MsFlags::MS_REC | MsFlags::MS_SLAVE)
}

fn own_settings(blueprint: &Blueprint) -> Result<()> {
    let dir = blueprint.machine_dir.join("settings");
    fs::create_dir_all(&dir)?;
    for (setting, value) in KUBELET_WANTS {
        let real = Path::new("/proc/sys").join(setting);
        if real.exists() {
            let own = dir.join(setting.replace('/', "."));
            fs::write(&own, format!("{value}\n"))?;
            bind(&own, &real)?;
        }
    }
    Ok(())
}

fn bind(from: &Path, to: &Path) -> Result<()> {
    mount(
        Some(from),
        to,
        None::<&str>,
        MsFlags::MS_BIND | MsFlags::MS_REC,
        None::<&str>,
    )
    .with_context(|| format!("cannot bind {} to {}", from.display(), to.display()))
}

fn remount(path: &str, flags: MsFlags) -> Result<()> {
    mount(None::<&str>, path, None::<&str>, flags, None::<&str>)
        .with_context(|| format!("cannot change how mounts below {path} spread"))
}
