//! Creates the namespaces of a machine and starts its init in them.

use std::path::Path;

use anyhow::{Context, Result};
use nix::sched::{CloneFlags, setns, unshare};

use super::{Blueprint, INIT_COMMAND};
use crate::cgroup::Cgroup;
use crate::command::Cmd;
use crate::{files, net};

/// Starts a machine from its blueprint. This moves the calling process into the cgroup and namespaces of the machine,
/// so the process must exit afterwards.
pub fn enter(path: &Path) -> Result<()> {
    let blueprint = Blueprint::read(path)?;
    Cgroup::of(&blueprint.lab_name()?, &blueprint.machine)?.enter()?;
    // The process must be in the cgroup before `unshare`: the current cgroup becomes the root of a new cgroup namespace.
    setns(
        net::open_netns(&blueprint.netns()?)?,
        CloneFlags::CLONE_NEWNET,
    )
    .context("cannot enter the network namespace of the machine")?;
    unshare(
        CloneFlags::CLONE_NEWPID
            | CloneFlags::CLONE_NEWNS
            | CloneFlags::CLONE_NEWUTS
            | CloneFlags::CLONE_NEWIPC
            | CloneFlags::CLONE_NEWCGROUP,
    )
    .context("cannot create the namespaces of the machine")?;
    let program = std::env::current_exe().context("cannot determine the path of this program")?;
    // The first child is process 1 of the new pid namespace. It outlives this process, which does not wait for it.
    let init = Cmd::new(program)
        .arg(INIT_COMMAND)
        .arg(path)
        .spawn(|_| {})?;
    files::write(
        &blueprint.machine_dir.join("init.pid"),
        &init.id().to_string(),
    )
}
