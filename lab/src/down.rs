//! Taking a lab down: processes, mounts, loop devices, namespaces, interfaces, routes, cgroups, rules and files. It
//! works from the lab's name alone, so that it also removes what a killed or half-made lab left behind.

use std::fs;
use std::time::Duration;

use anyhow::Result;

use crate::cgroup::{Cgroup, Layout, PARENT};
use crate::command::Cmd;
use crate::patience::Patience;
use crate::state::{Lab, LabName};
use crate::{net, watches};

/// Removes every trace of a lab; a lab that is not there is fine.
pub fn down(name: &LabName) -> Result<()> {
    let held = Lab::hold(name)?;
    for machine in machines(name)? {
        let cgroup = Cgroup::of(name, &machine)?;
        cgroup.kill()?;
        cgroup.remove()?;
    }
    Cgroup::remove_lab(name)?;
    release_disks(name)?;
    let number = Lab::find(name).ok().flatten().map(|lab| lab.number());
    net::remove(name, number)?;
    Lab::remove_files(name, held)?;
    watches::restore()
}

/// The machines that have a cgroup, whatever the record says.
fn machines(name: &LabName) -> Result<Vec<String>> {
    let layout = Layout::here()?;
    let mut found = Vec::new();
    for root in layout.roots() {
        let Ok(entries) = fs::read_dir(root.join(PARENT).join(name.to_string())) else {
            continue;
        };
        for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
            found.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// The mounts went with their namespaces, and the loop devices with their mounts, a moment later. One that was
/// attached by hand, or whose mount was caught half-way, is detached here.
fn release_disks(name: &LabName) -> Result<()> {
    let dir = format!("{}/", Lab::dir_of(name).display());
    let ours = || -> Result<Vec<String>> {
        let listed = Cmd::new("losetup")
            .args([
                "--list",
                "--noheadings",
                "--raw",
                "--output",
                "NAME,BACK-FILE",
            ])
            .run()?;
        Ok(listed
            .lines()
            .filter(|line| line.contains(&dir))
            .filter_map(|line| line.split(' ').next().map(str::to_owned))
            .collect())
    };
    Patience::of(name).wait_for(
        Duration::from_secs(90),
        "the loop devices to be free",
        || {
            let left = ours()?;
            for device in &left {
                // It may be gone by now; the next look tells.
                let _ = Cmd::new("losetup").args(["--detach", device]).attempt()?;
            }
            Ok(left.is_empty())
        },
    )
}
