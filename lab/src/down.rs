//! Takes a lab down: processes, mounts, loop devices, namespaces, interfaces, routes, cgroups, firewall rules and files.
//! It needs only the name of the lab, so it also removes the remains of a lab that was killed or only partly created.

use std::fs;
use std::time::Duration;

use anyhow::Result;

use crate::cgroup::{Cgroup, CgroupLayout, LABS_CGROUP};
use crate::command::Cmd;
use crate::patience::Patience;
use crate::state::{Lab, LabName};
use crate::{inotify, net};

/// Time limit for the loop devices of a lab to detach.
const LOOP_DETACH_TIMEOUT: Duration = Duration::from_secs(90);

/// Removes everything that belongs to a lab; does nothing when the lab does not exist.
pub fn down(name: &LabName) -> Result<()> {
    let lock = Lab::lock(name)?;
    for machine in machines(name)? {
        let cgroup = Cgroup::of(name, &machine)?;
        cgroup.kill()?;
        cgroup.remove()?;
    }
    Cgroup::remove_lab(name)?;
    detach_loop_devices(name)?;
    let number = Lab::find(name).ok().flatten().map(|lab| lab.number());
    net::remove(name, number)?;
    Lab::remove_files(name, lock)?;
    inotify::restore_limit()
}

/// Returns the machines that have a cgroup, including those missing in the record of the lab.
fn machines(name: &LabName) -> Result<Vec<String>> {
    let layout = CgroupLayout::detect()?;
    let mut machines = Vec::new();
    for root in layout.roots() {
        let Ok(entries) = fs::read_dir(root.join(LABS_CGROUP).join(name.to_string())) else {
            continue;
        };
        for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
            machines.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    machines.sort();
    machines.dedup();
    Ok(machines)
}

/// Waits until the loop devices of the lab are detached. The kernel removes mounts with their namespace and clears a
/// loop device shortly after its last unmount. A device that was attached manually, or whose mount was interrupted,
/// is detached here.
fn detach_loop_devices(name: &LabName) -> Result<()> {
    let dir = format!("{}/", Lab::dir_of(name).display());
    let attached = || -> Result<Vec<String>> {
        let output = Cmd::new("losetup")
            .args([
                "--list",
                "--noheadings",
                "--raw",
                "--output",
                "NAME,BACK-FILE",
            ])
            .run()?;
        Ok(output
            .lines()
            .filter(|line| line.contains(&dir))
            .filter_map(|line| line.split(' ').next().map(str::to_owned))
            .collect())
    };
    Patience::of(name).wait_for(
        LOOP_DETACH_TIMEOUT,
        "the loop devices of the lab to be detached",
        || {
            let devices = attached()?;
            for device in &devices {
                // A failure is checked by the next poll: the kernel may have cleared the device meanwhile.
                let _ = Cmd::new("losetup").args(["--detach", device]).attempt()?;
            }
            Ok(devices.is_empty())
        },
    )
}
