//! Fault injection for nodes, pods, volumes and the control plane. A fault acts on processes, network links and disks
//! from the host, so the affected components see the same symptoms as with a real fault.

mod pod;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::command::Cmd;
use crate::machine::Machine;
use crate::parts::images;
use crate::state::{CONTROL_PLANE, Lab};
use crate::{net, node, up};

pub use pod::PodFaults;

impl Lab {
    /// Cuts the power of a node: kills all its processes and discards writes that its volumes have not yet flushed.
    pub fn power_off(&self, node: &str) -> Result<()> {
        let node = self.node(node)?;
        let machine = Machine::of(self, &node.name)?;
        // Without this, the kernel would flush and unmount the file systems cleanly when the mount namespace ends.
        for mount in volume_mounts(&machine)? {
            let _ = Cmd::new("xfs_io")
                .args(["-x", "-c", "shutdown"])
                .arg(mount)
                .attempt()?;
        }
        machine.kill()
    }

    /// Starts a node again; [`Lab::wait_until_ready`] waits until it is Ready.
    pub fn power_on(&self, node: &str) -> Result<()> {
        node::start(self, self.node(node)?)
    }

    /// Waits until a node is Ready and its CSI driver is registered.
    pub fn wait_until_ready(&self, node: &str) -> Result<()> {
        up::wait_until_ready(self, self.node(node)?)
    }

    /// Freezes all processes of a node, including containers, as on a machine that hangs.
    pub fn freeze(&self, node: &str) -> Result<()> {
        Machine::of(self, &self.node(node)?.name)?
            .cgroup()
            .freeze(true)
    }

    /// Thaws a frozen node.
    pub fn thaw(&self, node: &str) -> Result<()> {
        Machine::of(self, &self.node(node)?.name)?
            .cgroup()
            .freeze(false)
    }

    /// Disconnects a node from the network.
    pub fn cut(&self, node: &str) -> Result<()> {
        net::set_cut(self, self.node(node)?, true)
    }

    /// Connects a node to the network again.
    pub fn mend(&self, node: &str) -> Result<()> {
        net::set_cut(self, self.node(node)?, false)
    }

    /// Stops the kubelet of a node: Kubernetes marks the node NotReady, while its containers keep running and stay
    /// reachable.
    pub fn deafen(&self, node: &str) -> Result<()> {
        Machine::of(self, &self.node(node)?.name)?.set_stopped("kubelet", true)
    }

    /// Starts the kubelet of a node again; [`Lab::wait_until_ready`] waits until the node is Ready.
    pub fn undeafen(&self, node: &str) -> Result<()> {
        Machine::of(self, &self.node(node)?.name)?.set_stopped("kubelet", false)
    }

    /// Stops the API server until [`Lab::start_api`].
    pub fn stop_api(&self) -> Result<()> {
        Machine::of(self, CONTROL_PLANE)?.set_stopped("kube-apiserver", true)
    }

    /// Starts the API server again and waits until it is ready.
    pub fn start_api(&self) -> Result<()> {
        let control = Machine::of(self, CONTROL_PLANE)?;
        control.set_stopped("kube-apiserver", false)?;
        up::wait_for_api(self, |_| {})?;
        // The running components reconnect only after up to a minute. With the short time limits of the lab, all nodes
        // would become NotReady and their pods would be evicted before that. A restarted component connects at once.
        for service in ["kube-controller-manager", "kube-scheduler"] {
            control.restart(service)?;
        }
        Ok(())
    }

    /// Cuts the power of all machines, starts them again, and waits until the nodes are Ready.
    pub fn power_cycle(&self) -> Result<()> {
        for node in self.nodes() {
            self.power_off(&node.name)?;
        }
        Machine::of(self, CONTROL_PLANE)?.kill()?;
        up::start_control(self)?;
        up::start_nodes(self, self.nodes(), &images::default_archives()?)
    }

    /// Reverts the faults of running machines: thaws them, starts stopped services, connects the network.
    pub fn heal(&self) -> Result<()> {
        for name in self
            .nodes()
            .iter()
            .map(|node| node.name.as_str())
            .chain([CONTROL_PLANE])
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
            // An error means that the node has no port yet; its start creates one.
            if net::is_cut(self, node).unwrap_or(false) {
                self.mend(&node.name)?;
            }
        }
        Ok(())
    }

    /// Returns the fault injector for a pod.
    pub fn pod(&self, namespace: &str, name: &str) -> Result<PodFaults<'_>> {
        PodFaults::find(self, namespace, name)
    }
}

/// Returns the mount points of the pod volumes of a machine, as paths on the host.
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
