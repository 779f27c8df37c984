//! Fault injection for one pod: its processes, its network and its volumes.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::cgroup::{find_cgroup, processes_below};
use crate::command::Cmd;
use crate::machine::Machine;
use crate::net;
use crate::state::Lab;

/// The file that fills a volume.
const FILLER_FILE: &str = ".lab-filler";

/// The fault injector for a pod that runs on a node of the lab.
#[derive(Debug)]
pub struct PodFaults<'a> {
    lab: &'a Lab,
    namespace: String,
    name: String,
    node: String,
    uid: String,
    containers: Vec<PodContainer>,
    claims: Vec<String>,
    uses_host_network: bool,
}

#[derive(Debug)]
struct PodContainer {
    name: String,
    id: String,
}

impl<'a> PodFaults<'a> {
    pub(super) fn find(lab: &'a Lab, namespace: &str, name: &str) -> Result<Self> {
        let text = lab
            .kubectl()
            .args(["get", "pod", "-o", "json", "-n", namespace, name])
            .run()?;
        let pod: Value =
            serde_json::from_str(&text).context("cannot parse the output of kubectl")?;
        let string = |pointer: &str| {
            pod.pointer(pointer)
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let node = string("/spec/nodeName")
            .with_context(|| format!("pod {namespace}/{name} is not scheduled to a node yet"))?;
        let list = |pointer: &str| {
            pod.pointer(pointer)
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default()
        };
        let statuses = list("/status/containerStatuses");
        // Keeps the order of the spec: the statuses are sorted by name.
        let specified = list("/spec/containers");
        let containers = specified.iter().filter_map(|container| {
            let status = statuses
                .iter()
                .find(|status| status["name"] == container["name"])?;
            let id = status["containerID"]
                .as_str()?
                .rsplit('/')
                .next()?
                .to_owned();
            Some(PodContainer {
                name: container["name"].as_str()?.to_owned(),
                id,
            })
        });
        let volumes = list("/spec/volumes");
        let claims = volumes.iter().filter_map(|volume| {
            volume
                .pointer("/persistentVolumeClaim/claimName")
                .and_then(Value::as_str)
                .map(str::to_owned)
        });
        Ok(Self {
            lab,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            node,
            uid: string("/metadata/uid").context("the pod has no uid")?,
            containers: containers.collect(),
            claims: claims.collect(),
            uses_host_network: pod
                .pointer("/spec/hostNetwork")
                .and_then(Value::as_bool)
                .unwrap_or(false),
        })
    }

    fn display_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Returns the host pids of the processes in a container, by default the first one; with `process`, only those with
    /// that name.
    pub fn processes(&self, container: Option<&str>, process: Option<&str>) -> Result<Vec<Pid>> {
        let selected = self
            .containers
            .iter()
            .find(|candidate| container.is_none_or(|name| candidate.name == name));
        let selected = selected.with_context(|| {
            let names: Vec<_> = self
                .containers
                .iter()
                .map(|candidate| candidate.name.as_str())
                .collect();
            format!(
                "pod {} has no running container{}; its containers are: {}",
                self.display_name(),
                container.map(|name| format!(" {name}")).unwrap_or_default(),
                names.join(", ")
            )
        })?;
        let machine = Machine::of(self.lab, &self.node)?;
        let cgroup =
            find_cgroup(&machine.cgroup().freezer_dir(), &selected.id).with_context(|| {
                format!(
                    "container {} of pod {} is not running",
                    selected.name,
                    self.display_name()
                )
            })?;
        let mut pids = processes_below(&cgroup);
        if let Some(process) = process {
            pids.retain(|pid| {
                fs::read_to_string(format!("/proc/{pid}/comm"))
                    .is_ok_and(|comm| comm.trim() == process)
            });
        }
        if pids.is_empty() {
            bail!(
                "container {} of pod {} has no process{}",
                selected.name,
                self.display_name(),
                process
                    .map(|name| format!(" named {name}"))
                    .unwrap_or_default()
            );
        }
        Ok(pids)
    }

    fn signal(&self, container: Option<&str>, process: Option<&str>, signal: Signal) -> Result<()> {
        for pid in self.processes(container, process)? {
            match kill(pid, signal) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(error) => {
                    return Err(error).with_context(|| {
                        format!(
                            "cannot send {signal} to process {pid} of pod {}",
                            self.display_name()
                        )
                    });
                }
            }
        }
        Ok(())
    }

    /// Kills processes with SIGKILL. The arguments select them as in [`PodFaults::processes`].
    pub fn kill(&self, container: Option<&str>, process: Option<&str>) -> Result<()> {
        self.signal(container, process, Signal::SIGKILL)
    }

    /// Stops processes with SIGSTOP. The arguments select them as in [`PodFaults::processes`].
    pub fn freeze(&self, container: Option<&str>, process: Option<&str>) -> Result<()> {
        self.signal(container, process, Signal::SIGSTOP)
    }

    /// Continues stopped processes with SIGCONT. The arguments select them as in [`PodFaults::processes`].
    pub fn thaw(&self, container: Option<&str>, process: Option<&str>) -> Result<()> {
        self.signal(container, process, Signal::SIGCONT)
    }

    /// Disconnects the pod from the network.
    pub fn cut(&self) -> Result<()> {
        self.set_link("down")
    }

    /// Connects the pod to the network again.
    pub fn mend(&self) -> Result<()> {
        self.set_link("up")
    }

    /// Sets the node end of the veth pair of the pod up or down. At the pod end this would delete the routes of the pod.
    fn set_link(&self, state: &str) -> Result<()> {
        if self.uses_host_network {
            bail!(
                "pod {} uses the network of its node; cut the node instead",
                self.display_name()
            );
        }
        // Any process of the pod is in its network namespace; the pause container runs as long as the veth pair exists.
        let machine = Machine::of(self.lab, &self.node)?;
        let pod = find_cgroup(&machine.cgroup().freezer_dir(), &self.uid);
        let pid = pod.and_then(|pod| processes_below(&pod).into_iter().next());
        let pid =
            pid.with_context(|| format!("pod {} has no running process", self.display_name()))?;
        let netns = format!("--net=/proc/{pid}/ns/net");
        let pod_link = Cmd::new("nsenter")
            .arg(netns)
            .args(["ip", "-j", "link", "show", "eth0"])
            .run()?;
        let pod_link: Value = serde_json::from_str(&pod_link)?;
        let peer_index = pod_link[0]["link_index"]
            .as_u64()
            .with_context(|| format!("pod {} has no veth pair to its node", self.display_name()))?;
        let node = net::netns(self.lab.name(), &self.node);
        let node_links: Value =
            serde_json::from_str(&Cmd::new("ip").args(["-n", &node, "-j", "link"]).run()?)?;
        let node_links = node_links
            .as_array()
            .context("cannot parse the output of ip")?;
        let port = node_links
            .iter()
            .find(|link| link["ifindex"].as_u64() == Some(peer_index));
        let port = port
            .and_then(|link| link["ifname"].as_str())
            .context("the node end of the veth pair is missing")?;
        net::ip_batch(Some(&node), &format!("link set {port} {state}\n"))
    }

    /// Returns the directory of the volume of a claim as a path on the host; `claim` may be `None` when the pod has one
    /// claim.
    pub fn volume(&self, claim: Option<&str>) -> Result<PathBuf> {
        let claim = match (claim, self.claims.as_slice()) {
            (Some(claim), claims) if claims.iter().any(|name| name == claim) => claim,
            (None, [only]) => only,
            (_, []) => bail!("pod {} has no PersistentVolumeClaim", self.display_name()),
            (Some(claim), claims) => {
                bail!(
                    "pod {} has no claim {claim}; its claims are: {}",
                    self.display_name(),
                    claims.join(", ")
                )
            }
            (None, claims) => bail!(
                "select one of the claims of pod {} with --claim: {}",
                self.display_name(),
                claims.join(", ")
            ),
        };
        let get = self.lab.kubectl().args([
            "get",
            "pvc",
            "-n",
            &self.namespace,
            claim,
            "-o",
            "jsonpath={.spec.volumeName}",
        ]);
        let volume = get.run()?;
        let machine = Machine::of(self.lab, &self.node)?;
        let path_in_machine = format!(
            "/var/lib/kubelet/pods/{}/volumes/kubernetes.io~csi/{volume}/mount",
            self.uid
        );
        let path = machine.path_inside(&path_in_machine)?;
        if !path.is_dir() {
            bail!(
                "the volume of claim {claim} is not mounted for pod {}",
                self.display_name()
            );
        }
        Ok(path)
    }

    /// Removes all files on the volume of the pod.
    pub fn wipe_volume(&self, claim: Option<&str>) -> Result<()> {
        for entry in fs::read_dir(self.volume(claim)?)? {
            crate::files::remove(&entry?.path())?;
        }
        Ok(())
    }

    /// Fills the volume of the pod to its last block.
    pub fn fill_volume(&self, claim: Option<&str>) -> Result<()> {
        fill(&self.volume(claim)?.join(FILLER_FILE))
    }

    /// Removes the file that fills the volume of the pod.
    pub fn free_volume(&self, claim: Option<&str>) -> Result<()> {
        crate::files::remove(&self.volume(claim)?.join(FILLER_FILE))
    }
}

/// Extends a file until the file system is full: first with `fallocate` in decreasing sizes, then by writing blocks.
fn fill(path: &Path) -> Result<()> {
    let mut file = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .context("cannot create the filler file")?;
    let mut size: i64 = 1 << 30;
    let mut end = i64::try_from(file.metadata()?.len())?;
    while size >= 4096 {
        match fallocate(&file, FallocateFlags::empty(), end, size) {
            Ok(()) => end += size,
            Err(Errno::ENOSPC) => size /= 2,
            Err(error) => return Err(error).context("cannot fill the volume"),
        }
    }
    // The file system withholds some blocks from `fallocate`; writing uses them.
    loop {
        match file.write_all(&[0; 4096]) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(()),
            Err(error) => return Err(error).context("cannot fill the volume"),
        }
    }
}
