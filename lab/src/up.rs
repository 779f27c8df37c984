//! Brings a lab up: programs, control plane, nodes, images. Every operation checks the current state first, so a
//! second run, or a run after a crash, a reboot or Ctrl-C, continues from the state it finds.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::command::Cmd;
use crate::machine::Machine;
use crate::parts::images::{self, ImageArchive};
use crate::parts::{Programs, kube};
use crate::patience::Patience;
use crate::progress::{Progress, format_duration};
use crate::state::{CONTROL_PLANE, Lab, LabName, Node};
use crate::{control, inotify, net, node};

/// Time limit for the API server to become ready.
const API_SERVER_TIMEOUT: Duration = Duration::from_secs(120);
/// Time limit for the API server to accept the objects in `addons.yaml`.
const ADDONS_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for containerd to start and import the images.
const IMAGE_IMPORT_TIMEOUT: Duration = Duration::from_secs(90);
/// Time limit for a node to become Ready.
const NODE_READY_TIMEOUT: Duration = Duration::from_secs(120);

/// The options of [`up`].
#[derive(Debug)]
pub struct UpOptions<'a> {
    /// The name of the lab.
    pub name: &'a LabName,
    /// The total number of nodes the lab has ever had after this call; existing and deleted nodes count.
    pub nodes: u8,
    /// The directory for links to `lab`, `kubectl` and the etcd tools.
    pub links: Option<&'a Path>,
    /// The factor by which volumes may overcommit the free disk space; `None` keeps the recorded factor.
    pub overcommit: Option<u8>,
    /// The factor of the time limits; `None` keeps the recorded factor.
    pub patience: Option<Patience>,
}

/// Brings a lab up from any state.
pub fn up(options: &UpOptions<'_>) -> Result<Lab> {
    let started = Instant::now();
    let _lock = Lab::lock(options.name)?;
    let programs = Programs::get()?;
    let archives = images::default_archives()?;
    if let Some(links) = options.links {
        programs.link(links)?;
    }
    let mut lab = Lab::find_or_create(options.name)?;
    if let Some(factor) = options.overcommit {
        lab.record_overcommit(factor)?;
    }
    if let Some(patience) = options.patience {
        lab.record_patience(patience)?;
    }
    inotify::raise_limit()?;
    if Machine::of(&lab, CONTROL_PLANE)?.init_pid().is_none() {
        programs.install(&lab)?;
    }
    // Compares with the highest node number ever used, not with the current count: a deleted node is not recreated.
    while lab.last_node() < options.nodes {
        lab.record_node()?;
    }
    lab.heal()?;
    start_control(&lab)?;
    eprintln!(
        "  Kubernetes {} is ready; the nodes are starting. To use it: {}",
        kube::VERSION,
        how_to_use(&lab)
    );
    let progress = Progress::start("Nodes", "starting, importing images");
    start_nodes(&lab, lab.nodes(), &archives)?;
    progress.finish();
    eprintln!(
        "✓ lab {} is up after {}",
        lab.name(),
        format_duration(started.elapsed())
    );
    Ok(lab)
}

/// Returns the shell command that selects the lab for `kubectl`.
pub fn how_to_use(lab: &Lab) -> String {
    format!("export KUBECONFIG={}", lab.kubeconfig().display())
}

/// Starts the control plane, waits until the API server is ready, and applies the add-ons.
pub(crate) fn start_control(lab: &Lab) -> Result<()> {
    let progress = Progress::start("Control plane", "starting");
    control::start(lab)?;
    wait_for_api(lab, |line| progress.set_message(line))?;
    control::start_api_clients(lab)?;
    apply_addons(lab)?;
    progress.finish();
    Ok(())
}

/// Waits until the API server is ready; passes the last line of each unsuccessful answer to `on_message`.
pub(crate) fn wait_for_api(lab: &Lab, on_message: impl Fn(&str)) -> Result<()> {
    lab.patience()
        .wait_for(API_SERVER_TIMEOUT, "the API server to be ready", || {
            let (ready, output) = lab.kubectl().args(["get", "--raw", "/readyz"]).attempt()?;
            on_message(&last_line(&output));
            Ok(ready)
        })
        .with_context(|| {
            format!(
                "failed to start the API server; its log is {}",
                log_path(lab, CONTROL_PLANE, "kube-apiserver")
            )
        })
}

/// Returns the last line of an answer, cut to the width of a progress line: a server that is not ready lists all its checks.
fn last_line(output: &str) -> String {
    let line = output.lines().last().unwrap_or_default();
    line.chars().take(100).collect()
}

fn apply_addons(lab: &Lab) -> Result<()> {
    let addresses = lab.addresses()?;
    let objects = include_str!("addons.yaml")
        .replace("@DNS@", &addresses.dns().to_string())
        .replace("@CONTROL@", &addresses.control().to_string());
    // In its first seconds a new cluster rejects some of the objects, for example while namespace kube-system is missing.
    let mut output = String::new();
    lab.patience()
        .wait_for(
            ADDONS_TIMEOUT,
            "the API server to accept the add-ons of the lab",
            || {
                let apply =
                    lab.kubectl()
                        .args(["apply", "--server-side", "--force-conflicts", "-f", "-"]);
                let (accepted, answer) = apply.input(objects.clone()).attempt()?;
                output = answer;
                Ok(accepted)
            },
        )
        .with_context(|| output.clone())
}

/// Starts nodes and waits until each is Ready and has its images: in parallel, or one after the other on a slow machine.
pub(crate) fn start_nodes(lab: &Lab, nodes: &[Node], archives: &[ImageArchive]) -> Result<()> {
    let at_once = if lab.patience().is_slow() {
        1
    } else {
        nodes.len().max(1)
    };
    nodes
        .chunks(at_once)
        .try_for_each(|nodes| start_in_parallel(lab, nodes, archives))
}

fn start_in_parallel(lab: &Lab, nodes: &[Node], archives: &[ImageArchive]) -> Result<()> {
    for node in nodes {
        node::start(lab, node)?;
    }
    std::thread::scope(|scope| {
        let starting: Vec<_> = nodes
            .iter()
            .map(|node| scope.spawn(move || prepare_node(lab, node, archives)))
            .collect();
        for thread in starting {
            thread
                .join()
                .map_err(|_| anyhow::anyhow!("the thread that prepares a node panicked"))??;
        }
        Ok(())
    })
}

fn prepare_node(lab: &Lab, node: &Node, archives: &[ImageArchive]) -> Result<()> {
    let mut last = None;
    let condition = format!("containerd on {} to import the images", node.name);
    lab.patience()
        .wait_for(IMAGE_IMPORT_TIMEOUT, &condition, || {
            Ok(match images::load(lab, node, archives) {
                Ok(()) => true,
                Err(error) => {
                    last = Some(error);
                    false
                }
            })
        })
        .with_context(|| {
            format!(
                "failed to import images: {last:?}; the log of containerd is {}",
                log_path(lab, &node.name, "containerd")
            )
        })?;
    wait_until_ready(lab, node)
}

/// Waits until a node is Ready and its CSI driver is registered. Ignores a heartbeat that is older than the last
/// power-on: for 12 s after a power cut the API server still shows the Ready condition of the dead kubelet.
pub(crate) fn wait_until_ready(lab: &Lab, node: &Node) -> Result<()> {
    let machine = Machine::of(lab, &node.name)?;
    let ready = "jsonpath={range .status.conditions[?(@.type==\"Ready\")]}{.status} {.lastHeartbeatTime}{end}";
    lab.patience()
        .wait_for(
            NODE_READY_TIMEOUT,
            &format!("node {} to be Ready", node.name),
            || {
                let registered = machine
                    .path_inside("/run/lab-csi-registered")
                    .is_ok_and(|file| file.exists());
                let (_, output) = lab
                    .kubectl()
                    .args(["get", "node", &node.name, "-o", ready])
                    .attempt()?;
                let heartbeat = output.trim().strip_prefix("True ").and_then(unix_seconds);
                Ok(registered
                    && heartbeat
                        .zip(machine.powered_on())
                        .is_some_and(|(heartbeat, power_on)| heartbeat >= power_on))
            },
        )
        .with_context(|| {
            format!(
                "failed to start node {}; the log of its kubelet is {}",
                node.name,
                log_path(lab, &node.name, "kubelet")
            )
        })
}

/// Adds a node to a running lab.
pub fn add_node(name: &LabName) -> Result<Node> {
    let _lock = Lab::lock(name)?;
    let mut lab = Lab::open(name)?;
    let node = lab.record_node()?;
    let archives = images::archives(&lab)?;
    start_nodes(&lab, std::slice::from_ref(&node), &archives)?;
    Ok(node)
}

/// Deletes a node permanently: its machine, its disks, and its Node object.
pub fn delete_node(name: &LabName, node: &str) -> Result<()> {
    let _lock = Lab::lock(name)?;
    let mut lab = Lab::open(name)?;
    let node = lab.node(node)?.clone();
    Machine::of(&lab, &node.name)?.kill()?;
    lab.kubectl()
        .args(["delete", "node", &node.name, "--ignore-not-found"])
        .run()?;
    net::detach(&lab, &node)?;
    crate::files::remove(&lab.machine_dir(&node.name))?;
    control::remove_node_keys(&lab, &node.name)?;
    // The record is removed last, so that an interrupted deletion can be repeated.
    lab.remove_node(&node.name)?;
    control::restart_proxy(&lab)
}

/// Converts an RFC 3339 time to seconds since 1970.
fn unix_seconds(time: &str) -> Option<u64> {
    Cmd::new("date")
        .args(["-u", "+%s", "-d", time])
        .run()
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// Returns the path of the log of a service on a machine.
pub fn log_path(lab: &Lab, machine: &str, service: &str) -> String {
    lab.machine_dir(machine)
        .join("logs")
        .join(format!("{service}.log"))
        .display()
        .to_string()
}
