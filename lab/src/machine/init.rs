//! Process 1 of a machine: sets up the mounts of the machine, then supervises its services.
//!
//! A machine sees the files of the host, but has its own `/run` and `/var`, so that the kubelet and containerd use
//! their default paths without touching files of the host.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::mount::{MsFlags, mount, umount};
use nix::unistd::{sethostname, setsid};

use super::{Blueprint, supervise};
use crate::cgroup::{self, CgroupLayout};
use crate::patience::Patience;

/// Time limit for the parent process to write the pid file of the init.
const PID_FILE_TIMEOUT: Duration = Duration::from_secs(10);
/// Kernel settings that a kubelet sets for the whole host. The machine mounts files with these values over them, so the
/// kubelet finds nothing to change and the settings of the host stay untouched.
const KUBELET_SYSCTLS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// Runs the init of the machine that the blueprint describes. Returns only on an error.
pub fn init(path: &Path) -> Result<()> {
    let blueprint = Blueprint::read(path)?;
    let patience = Patience::of(&blueprint.lab_name()?);
    wait_for_pid_file(&blueprint, patience)?;
    let layout = CgroupLayout::detect()?;
    // A new session, so that closing the terminal does not end the machine.
    setsid().context("cannot create a session")?;
    sethostname(&blueprint.machine).context("cannot set the host name")?;
    set_up_mounts(&blueprint, &layout, patience)?;
    supervise::run(&blueprint)
}

/// Waits until the parent process has written the pid file. The parent is in the same mount namespace, so it must write
/// the file before the machine mounts its own `/var`.
fn wait_for_pid_file(blueprint: &Blueprint, patience: Patience) -> Result<()> {
    let pid_file = blueprint.machine_dir.join("init.pid");
    let deadline = Instant::now() + patience.times(PID_FILE_TIMEOUT);
    while !pid_file.exists() {
        if Instant::now() > deadline {
            anyhow::bail!(
                "timed out while waiting for the pid file {}; {}",
                pid_file.display(),
                patience.advice()
            );
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn set_up_mounts(blueprint: &Blueprint, layout: &CgroupLayout, patience: Patience) -> Result<()> {
    detach_from_host()?;
    let proc_flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(
        Some("proc"),
        "/proc",
        Some("proc"),
        proc_flags,
        None::<&str>,
    )
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
    mount_var(blueprint)?;
    if !blueprint.is_control_plane() {
        mount_sysctls(blueprint)?;
    }
    // Mounts propagate between the namespaces of the machine from now on: containers must see the volumes that the CSI
    // driver mounts.
    remount("/", MsFlags::MS_REC | MsFlags::MS_SHARED)
}

/// Mounts the `/var` of the machine. The directory of the lab stays at its path below `/var`.
fn mount_var(blueprint: &Blueprint) -> Result<()> {
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
    let temporary = Path::new("/run/lab");
    fs::create_dir_all(temporary)?;
    bind(&blueprint.lab_dir, temporary)?;
    bind(&var, Path::new("/var"))?;
    fs::create_dir_all(&blueprint.lab_dir)?;
    bind(temporary, &blueprint.lab_dir)?;
    umount(temporary).context("cannot unmount /run/lab")?;
    fs::remove_dir(temporary)?;
    Ok(())
}

/// Stops mounts of this namespace from propagating to the host. Mounts of the host still propagate to this namespace, so
/// that an unmount on the host also takes effect here.
pub(super) fn detach_from_host() -> Result<()> {
    remount("/", MsFlags::MS_REC | MsFlags::MS_SLAVE)
}

fn mount_sysctls(blueprint: &Blueprint) -> Result<()> {
    let dir = blueprint.machine_dir.join("settings");
    fs::create_dir_all(&dir)?;
    for (setting, value) in KUBELET_SYSCTLS {
        let real = Path::new("/proc/sys").join(setting);
        if real.exists() {
            let replacement = dir.join(setting.replace('/', "."));
            fs::write(&replacement, format!("{value}\n"))?;
            bind(&replacement, &real)?;
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
    .with_context(|| format!("cannot bind-mount {} at {}", from.display(), to.display()))
}

fn remount(path: &str, flags: MsFlags) -> Result<()> {
    mount(None::<&str>, path, None::<&str>, flags, None::<&str>)
        .with_context(|| format!("cannot change the mount propagation of {path}"))
}
