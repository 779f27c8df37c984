//! From outside to inside: puts a process into a machine's cgroup and namespaces, and leaves the machine's init there.

use std::path::Path;

use anyhow::{Context, Result};
use nix::sched::{CloneFlags, setns, unshare};

use super::{Blueprint, INIT};
use crate::cgroup::Cgroup;
use crate::command::Cmd;
use crate::{files, net};

/// Starts a machine from its blueprint. The calling process is given up for it: it must do nothing else afterwards.
pub fn enter(path: &Path) -> Result<()> {
    let blueprint = Blueprint::read(path)?;
    Cgroup::of(&blueprint.lab_name()?, &blueprint.machine)?.enter()?;
    // Only now: what is root of the cgroup namespace is decided when it is made.
    setns(
        net::open_netns(&blueprint.netns()?)?,
        CloneFlags::CLONE_NEWNET,
    )
    .context("cannot enter the machine's network namespace")?;
    unshare(
        CloneFlags::CLONE_NEWPID
            | CloneFlags::CLONE_NEWNS
            | CloneFlags::CLONE_NEWUTS
            | CloneFlags::CLONE_NEWIPC
            | CloneFlags::CLONE_NEWCGROUP,
    )
    .context("cannot make the machine's namespaces")?;
    let program = std::env::current_exe().context("cannot find this program")?;
    // The first child is process 1 of the new pid namespace. It is not waited for: it outlives this process.
    let init = Cmd::new(program).arg(INIT).arg(path).spawn(|_| {})?;
    files::write(
        &blueprint.machine_dir.join("init.pid"),
        &init.id().to_string(),
    )
}
