//! The cgroup check of `lab preflight`: runs the cgroup operations of a machine start with the same code, on the layout
//! of this host.

use anyhow::{Context, Result, bail};
use nix::sched::{CloneFlags, unshare};

use super::init::detach_from_host;
use crate::cgroup::{self, Cgroup, CgroupLayout};
use crate::command::Cmd;
use crate::patience::Patience;
use crate::state::LabName;

/// The internal subcommand of `lab` that calls [`mount_cgroups`].
pub const MOUNT_CGROUPS_COMMAND: &str = "__mount_cgroups";
/// The name of the machine in this check.
const CHECK_MACHINE: &str = "preflight";

/// Creates the cgroup of a machine, lets a process enter and mount it, and removes it again.
pub fn check_cgroups() -> Result<()> {
    let name: LabName = format!("{CHECK_MACHINE}-{}", std::process::id()).parse()?;
    let cgroup = Cgroup::of(&name, CHECK_MACHINE)?;
    let result = cgroup.create().and_then(|()| enter_and_mount(&name));
    let removed = cgroup
        .kill()
        .and_then(|()| cgroup.remove())
        .and_then(|()| Cgroup::remove_lab(&name));
    result.and(removed)
}

fn enter_and_mount(name: &LabName) -> Result<()> {
    let program = std::env::current_exe().context("cannot determine the path of this program")?;
    let (succeeded, output) = Cmd::new(program)
        .arg(MOUNT_CGROUPS_COMMAND)
        .arg(name.to_string())
        .attempt()?;
    if !succeeded {
        bail!("{}", output.trim().trim_start_matches("lab: "));
    }
    Ok(())
}

/// Enters the cgroup of the check and mounts it in new mount and cgroup namespaces. The calling process must exit
/// afterwards.
pub fn mount_cgroups(name: &LabName) -> Result<()> {
    let layout = CgroupLayout::detect()?;
    Cgroup::of(name, CHECK_MACHINE)?.enter()?;
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWCGROUP)
        .context("cannot create a mount and a cgroup namespace")?;
    detach_from_host()?;
    cgroup::mount_inside(&layout, Patience::of(name))
}
