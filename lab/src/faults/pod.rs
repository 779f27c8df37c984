//! Faults of one pod: its processes, its network, its volumes.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::cgroup::{find_below, processes_below};
use crate::command::Cmd;
use crate::machine::Machine;
use crate::net;
use crate::state::Lab;

const FILLER: &str = ".lab-filler";

/// A pod that runs on a node of the lab.
#[derive(Debug)]
pub struct PodFaults<'a> {
    lab: &'a Lab,
    namespace: String,
    name: String,
    node: String,
    uid: String,
    containers: Vec<Container>,
    claims: Vec<String>,
    on_node_network: bool,
}

#[derive(Debug)]
struct Container {
    name: String,
    id: String,
}

impl<'a> PodFaults<'a> {
    pub(super) fn find(lab: &'a Lab, namespace: &str, name: &str) -> Result<Self> {
        let text = lab
            .kubectl()
            .args(["get", "pod", "-o", "json", "-n", namespace, name])
            .run()?;
        let pod: Value = serde_json::from_str(&text).context("kubectl printed no JSON")?;
        let words = |pointer: &str| {
            pod.pointer(pointer)
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let node = words("/spec/nodeName")
            .with_context(|| format!("{namespace}/{name} is on no node yet"))?;
        let list = |pointer: &str| {
            pod.pointer(pointer)
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default()
        };
        let statuses = list("/status/containerStatuses");
        // In the order of the specification: statuses are sorted by name.
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
            Some(Container {
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
            uid: words("/metadata/uid").context("a pod without a uid")?,
            containers: containers.collect(),
            claims: claims.collect(),
            on_node_network: pod
                .pointer("/spec/hostNetwork")
                .and_then(Value::as_bool)
                .unwrap_or(false),
        })
    }

    fn shown(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The processes of a container (the first, unless named), or those of them called `process`; numbers are the host's.
    pub fn processes(&self, container: Option<&str>, process: Option<&str>) -> Result<Vec<Pid>> {
        let found = self
            .containers
            .iter()
            .find(|one| container.is_none_or(|name| one.name == name));
        let found = found.with_context(|| {
            let names: Vec<_> = self
                .containers
                .iter()
                .map(|one| one.name.as_str())
                .collect();
            format!(
                "{} has no running container {}; it has: {}",
                self.shown(),
                container.unwrap_or("at all"),
                names.join(", ")
            )
        })?;
        let machine = Machine::of(self.lab, &self.node)?;
        let cgroup = find_below(&machine.cgroup().freezer_dir(), &found.id).with_context(|| {
            format!(
                "container {} of {} does not run now",
                found.name,
                self.shown()
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
                "container {} of {} has no process{}",
                found.name,
                self.shown(),
                process.map(|p| format!(" called {p}")).unwrap_or_default()
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
                        format!("cannot send {signal} to {pid} of {}", self.shown())
                    });
                }
            }
        }
        Ok(())
    }

    /// Kills processes with SIGKILL; see [`PodFaults::processes`] for which.
    pub fn kill(&self, container: Option<&str>, process: Option<&str>) -> Result<()> {
        self.signal(container, process, Signal::SIGKILL)
    }

    /// Stops processes where they are.
    pub fn freeze(&self, container: Option<&str>, process: Option<&str>) -> Result<()> {
        self.signal(container, process, Signal::SIGSTOP)
    }

    /// Lets stopped processes go on.
    pub fn thaw(&self, container: Option<&str>, process: Option<&str>) -> Result<()> {
        self.signal(container, process, Signal::SIGCONT)
    }

    /// Cuts the pod off the network: its node no longer carries its packets.
    pub fn cut(&self) -> Result<()> {
        self.set_link("down")
    }

    /// Carries the pod's packets again.
    pub fn mend(&self) -> Result<()> {
        self.set_link("up")
    }

    /// The node's end of the pod's cable is switched. At the pod's end its routes would be lost.
    fn set_link(&self, state: &str) -> Result<()> {
        if self.on_node_network {
            bail!(
                "{} is on its node's own network: cut the node",
                self.shown()
            );
        }
        // Any process of the pod will do: its first container, which does nothing, is there as long as the cable is.
        let machine = Machine::of(self.lab, &self.node)?;
        let pod = find_below(&machine.cgroup().freezer_dir(), &self.uid);
        let pid = pod.and_then(|pod| processes_below(&pod).into_iter().next());
        let pid = pid.with_context(|| format!("nothing of {} runs now", self.shown()))?;
        let netns = format!("--net=/proc/{pid}/ns/net");
        let inside = Cmd::new("nsenter")
            .arg(netns)
            .args(["ip", "-j", "link", "show", "eth0"])
            .run()?;
        let links: Value = serde_json::from_str(&inside)?;
        let peer = links[0]["link_index"]
            .as_u64()
            .with_context(|| format!("{} has no cable to its node", self.shown()))?;
        let node = net::netns(self.lab.name(), &self.node);
        let outside: Value =
            serde_json::from_str(&Cmd::new("ip").args(["-n", &node, "-j", "link"]).run()?)?;
        let links = outside.as_array().context("ip printed no list")?;
        let port = links
            .iter()
            .find(|link| link["ifindex"].as_u64() == Some(peer));
        let port = port
            .and_then(|link| link["ifname"].as_str())
            .context("the node's end of the cable is gone")?;
        net::batch(Some(&node), &format!("link set {port} {state}\n"))
    }

    /// The directory of the pod's volume (the only one, unless the claim is named), as seen from outside.
    pub fn volume(&self, claim: Option<&str>) -> Result<PathBuf> {
        let claim = match (claim, self.claims.as_slice()) {
            (Some(claim), claims) if claims.iter().any(|one| one == claim) => claim,
            (None, [only]) => only,
            (_, []) => bail!("{} has no volume with a claim", self.shown()),
            (Some(claim), claims) => {
                bail!(
                    "{} has no claim {claim}; it has: {}",
                    self.shown(),
                    claims.join(", ")
                )
            }
            (None, claims) => bail!(
                "name one of the claims of {}: {}",
                self.shown(),
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
        let inside = format!(
            "/var/lib/kubelet/pods/{}/volumes/kubernetes.io~csi/{volume}/mount",
            self.uid
        );
        let path = machine.path_inside(&inside)?;
        if !path.is_dir() {
            bail!(
                "the volume of claim {claim} is not mounted for {}",
                self.shown()
            );
        }
        Ok(path)
    }

    /// Removes everything on the pod's volume.
    pub fn wipe_volume(&self, claim: Option<&str>) -> Result<()> {
        for entry in fs::read_dir(self.volume(claim)?)? {
            crate::files::remove(&entry?.path())?;
        }
        Ok(())
    }

    /// Fills the pod's volume to its last block.
    pub fn fill_volume(&self, claim: Option<&str>) -> Result<()> {
        fill(&self.volume(claim)?.join(FILLER))
    }

    /// Takes away what filled the pod's volume.
    pub fn free_volume(&self, claim: Option<&str>) -> Result<()> {
        crate::files::remove(&self.volume(claim)?.join(FILLER))
    }
}

/// Takes all space there is: in large pieces that cost nothing to reserve, then in ever smaller ones.
fn fill(path: &Path) -> Result<()> {
    let mut file = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .context("cannot make the filler")?;
    let mut piece: i64 = 1 << 30;
    let mut end = i64::try_from(file.metadata()?.len())?;
    while piece >= 4096 {
        match fallocate(&file, FallocateFlags::empty(), end, piece) {
            Ok(()) => end += piece,
            Err(Errno::ENOSPC) => piece /= 2,
            Err(error) => return Err(error).context("cannot fill the volume"),
        }
    }
    // The file system keeps some blocks back from reservations; writing gets those.
    loop {
        match file.write_all(&[0; 4096]) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(()),
            Err(error) => return Err(error).context("cannot fill the volume"),
        }
    }
}
