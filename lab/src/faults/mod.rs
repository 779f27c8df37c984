//! What can go wrong, on demand: to nodes, to pods and their volumes, to the control plane. Every fault works from
//! outside, on the processes, cables and disks themselves, so that what suffers it cannot tell it from the real thing.

mod pod;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::command::Cmd;
use crate::machine::Machine;
use crate::parts::images;
use crate::state::{CONTROL, Lab};
use crate::{net, node, up};

pub use pod::PodFaults;

impl Lab {
    /// Cuts a node's power: its containers die with it, and what its volumes had not yet written is lost.
    pub fn power_off(&self, node: &str) -> Result<()> {
        let node = self.node(node)?;
        let machine = Machine::of(self, &node.name)?;
        // Killed alone, a file system would still be unmounted in good order, as no power cut ever does.
        for mount in volume_mounts(&machine)? {
            let _ = Cmd::new("xfs_io")
                .args(["-x", "-c", "shutdown"])
                .arg(mount)
                .attempt()?;
        }
        machine.kill()
    }

    /// Powers a node on again; [`Lab::wait_until_ready`] tells when it serves.
    pub fn power_on(&self, node: &str) -> Result<()> {
        node::start(self, self.node(node)?)
    }

    /// Waits until Kubernetes says that a node is Ready, its volumes' driver included.
    pub fn wait_until_ready(&self, node: &str) -> Result<()> {
        up::wait_until_ready(self, self.node(node)?)
    }

    /// Stops everything on a node where it is, containers included, as a machine that hangs.
    pub fn freeze(&self, node: &str) -> Result<()> {
        Machine::of(self, &self.node(node)?.name)?
            .cgroup()
            .freeze(true)
    }

    /// Lets a frozen node go on.
    pub fn thaw(&self, node: &str) -> Result<()> {
        Machine::of(self, &self.node(node)?.name)?
            .cgroup()
            .freeze(false)
    }

    /// Pulls a node's network cable.
    pub fn cut(&self, node: &str) -> Result<()> {
        net::cut(self, self.node(node)?, true)
    }

    /// Puts a node's network cable back.
    pub fn mend(&self, node: &str) -> Result<()> {
        net::cut(self, self.node(node)?, false)
    }

    /// Stops a node's kubelet: for Kubernetes the node is lost, while its containers run on and are reached by each other.
    pub fn deafen(&self, node: &str) -> Result<()> {
        Machine::of(self, &self.node(node)?.name)?.set_stopped("kubelet", true)
    }

    /// Starts a node's kubelet again; [`Lab::wait_until_ready`] tells when Kubernetes has heard of it.
    pub fn undeafen(&self, node: &str) -> Result<()> {
        Machine::of(self, &self.node(node)?.name)?.set_stopped("kubelet", false)
    }

    /// Stops the API server until it is started again.
    pub fn stop_api(&self) -> Result<()> {
        Machine::of(self, CONTROL)?.set_stopped("kube-apiserver", true)
    }

    /// Starts the API server again and waits until it answers.
    pub fn start_api(&self) -> Result<()> {
        let control = Machine::of(self, CONTROL)?;
        control.set_stopped("kube-apiserver", false)?;
        up::wait_for_api(self, |_| {})?;
        // They ask again after up to a minute. Elsewhere a node is given as long; here it would have been taken for
        // lost by then, and its pods evicted, though it never missed a thing. Started anew they ask at once.
        for service in ["kube-controller-manager", "kube-scheduler"] {
            control.restart(service)?;
        }
        Ok(())
    }

    /// Cuts the power of everything at once and powers it on again, up to Ready nodes.
    pub fn power_cycle(&self) -> Result<()> {
        for node in self.nodes() {
            self.power_off(&node.name)?;
        }
        Machine::of(self, CONTROL)?.kill()?;
        up::start_control(self)?;
        up::start_nodes(self, self.nodes(), &images::basic()?)
    }

    /// Takes back what was done to machines that run: freezes, cuts, stopped services.
    pub fn heal(&self) -> Result<()> {
        for name in self
            .nodes()
            .iter()
            .map(|node| node.name.as_str())
            .chain([CONTROL])
        {
            let machine = Machine::of(self, name)?;
            if machine.init_pid().is_none() {
                continue;
            }
            if machine.cgroup().is_frozen() {
                machine.cgroup().freeze(false)?;
            }
            for service in machine.services().iter().filter(|service| service.stopped) {
                machine.set_stopped(&service.name, false)?;
            }
        }
        for node in self.nodes() {
            // One whose cable is not there yet gets a new one.
            if net::is_cut(self, node).unwrap_or(false) {
                self.mend(&node.name)?;
            }
        }
        Ok(())
    }

    /// The faults of one pod.
    pub fn pod(&self, namespace: &str, name: &str) -> Result<PodFaults<'_>> {
        PodFaults::find(self, namespace, name)
    }
}

/// Where the volumes of a machine's pods are mounted, as seen from outside.
fn volume_mounts(machine: &Machine<'_>) -> Result<Vec<PathBuf>> {
    let Some(init) = machine.init_pid() else {
        return Ok(Vec::new());
    };
    let mounts = fs::read_to_string(format!("/proc/{init}/mountinfo"))
        .with_context(|| format!("cannot read the mounts of process {init}"))?;
    let paths = mounts.lines().filter_map(|line| {
        let path = line.split(' ').nth(4)?;
        (path.starts_with("/var/lib/kubelet/pods/") && line.contains(" - xfs "))
            .then(|| PathBuf::from(format!("/proc/{init}/root{path}")))
    });
    Ok(paths.collect())
}
