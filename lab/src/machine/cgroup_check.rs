//! A rehearsal for `lab preflight`: what the start of a machine does to cgroups, by the same code, on the layout that
//! this host has.

use anyhow::{Context, Result, bail};
use nix::sched::{CloneFlags, unshare};

use super::init::detach_from_host;
use crate::cgroup::{self, Cgroup, Layout};
use crate::command::Cmd;
use crate::patience::Patience;
use crate::state::LabName;

/// The word by which the `lab` program is asked to [`mount_cgroups`]; not for people.
pub const MOUNT_CGROUPS: &str = "__mount_cgroups";
/// The name that the machine of a rehearsal has.
const MACHINE: &str = "preflight";

/// Makes the cgroup of a machine, has a process enter and mount it, and removes it again.
pub fn rehearse_cgroups() -> Result<()> {
    let name: LabName = format!("{MACHINE}-{}", std::process::id()).parse()?;
    let cgroup = Cgroup::of(&name, MACHINE)?;
    let tried = cgroup.make().and_then(|()| enter_and_mount(&name));
    let removed = cgroup
        .kill()
        .and_then(|()| cgroup.remove())
        .and_then(|()| Cgroup::remove_lab(&name));
    tried.and(removed)
}

fn enter_and_mount(name: &LabName) -> Result<()> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let (done, said) = Cmd::new(program)
        .arg(MOUNT_CGROUPS)
        .arg(name.to_string())
        .attempt()?;
    if !done {
        bail!("{}", said.trim().trim_start_matches("lab: "));
    }
    Ok(())
}

/// Enters the cgroup of a rehearsal, and mounts it in namespaces of its own. The calling process is given up for it: it
/// must do nothing else afterwards.
pub fn mount_cgroups(name: &LabName) -> Result<()> {
    let layout = Layout::here()?;
    Cgroup::of(name, MACHINE)?.enter()?;
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWCGROUP)
        .context("cannot make a mount and a cgroup namespace")?;
    detach_from_host()?;
    cgroup::mount_inside(&layout, Patience::of(name))
}
