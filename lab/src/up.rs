//! Bringing a lab up: parts, control plane, nodes, images. Each step looks before it acts, so that a second run, or
//! one after a crash, a reboot or Ctrl-C, goes on where things are.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::command::Cmd;
use crate::machine::Machine;
use crate::parts::images::{self, Archive};
use crate::parts::{Programs, kube};
use crate::patience::Patience;
use crate::progress::{Stage, human};
use crate::state::{CONTROL, Lab, LabName, Node};
use crate::{control, net, node, watches};

/// What is wanted of a lab.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// Its name.
    pub name: &'a LabName,
    /// How many nodes it is given; ones that it has, and ones deleted from it, count.
    pub nodes: u8,
    /// Where links to the programs for people are put.
    pub links: Option<&'a Path>,
    /// How many times free space may be promised to volumes; as before where nothing is said.
    pub overcommit: Option<u8>,
    /// The factor of its time limits; as before where nothing is said.
    pub patience: Option<Patience>,
}

/// Brings a lab up, from whatever state it is in.
pub fn up(wanted: &Wanted<'_>) -> Result<Lab> {
    let began = Instant::now();
    let _held = Lab::hold(wanted.name)?;
    let programs = Programs::get()?;
    let archives = images::basic()?;
    if let Some(links) = wanted.links {
        programs.link(links)?;
    }
    let mut lab = Lab::find_or_create(wanted.name)?;
    if let Some(times) = wanted.overcommit {
        lab.record_overcommit(times)?;
    }
    if let Some(patience) = wanted.patience {
        lab.record_patience(patience)?;
    }
    watches::allow()?;
    if Machine::of(&lab, CONTROL)?.init_pid().is_none() {
        programs.place(&lab)?;
    }
    // Counted by the newest number, not by what is left: a node that was deleted for good stays deleted.
    while lab.last_node() < wanted.nodes {
        lab.record_node()?;
    }
    lab.heal()?;
    start_control(&lab)?;
    eprintln!(
        "  Kubernetes {} answers. While the nodes come up: {}",
        kube::VERSION,
        how_to_use(&lab)
    );
    let stage = Stage::begin("Nodes", "starting, loading images");
    start_nodes(&lab, lab.nodes(), &archives)?;
    stage.done();
    eprintln!(
        "✓ lab {} is up after {}",
        lab.name(),
        human(began.elapsed())
    );
    Ok(lab)
}

/// The one line that lets a person use the lab.
pub fn how_to_use(lab: &Lab) -> String {
    format!("export KUBECONFIG={}", lab.kubeconfig().display())
}

/// Powers the control plane on and waits until it answers and has what the lab adds to it.
pub(crate) fn start_control(lab: &Lab) -> Result<()> {
    let stage = Stage::begin("Control plane", "starting");
    control::start(lab)?;
    wait_for_api(lab, |said| stage.say(said))?;
    control::start_clients(lab)?;
    apply_addons(lab)?;
    stage.done();
    Ok(())
}

/// Waits until the API server answers; `say` hears its last words meanwhile.
pub(crate) fn wait_for_api(lab: &Lab, say: impl Fn(&str)) -> Result<()> {
    lab.patience()
        .wait_for(Duration::from_secs(120), "the API server to answer", || {
            let (ready, said) = lab.kubectl().args(["get", "--raw", "/readyz"]).attempt()?;
            say(&first_words(&said));
            Ok(ready)
        })
        .with_context(|| format!("its log is {}", log_of(lab, CONTROL, "kube-apiserver")))
}

/// The last line of an answer, cut to fit a line of progress: a server that is not ready lists all its checks.
fn first_words(said: &str) -> String {
    said.lines()
        .last()
        .unwrap_or_default()
        .chars()
        .take(100)
        .collect()
}

fn apply_addons(lab: &Lab) -> Result<()> {
    let addresses = lab.addresses()?;
    let objects = include_str!("addons.yaml")
        .replace("@DNS@", &addresses.dns().to_string())
        .replace("@CONTROL@", &addresses.control().to_string());
    // The very first seconds of a new cluster refuse some of it: kube-system is not there yet, say.
    let mut said = String::new();
    lab.patience()
        .wait_for(
            Duration::from_secs(30),
            "the lab's own objects to be accepted",
            || {
                let apply =
                    lab.kubectl()
                        .args(["apply", "--server-side", "--force-conflicts", "-f", "-"]);
                let (accepted, answer) = apply.input(objects.clone()).attempt()?;
                said = answer;
                Ok(accepted)
            },
        )
        .with_context(|| said.clone())
}

/// Powers nodes on, side by side, or one by one on a slow machine, and waits until each is Ready with its images.
pub(crate) fn start_nodes(lab: &Lab, nodes: &[Node], archives: &[Archive]) -> Result<()> {
    let at_once = if lab.patience().is_slow() {
        1
    } else {
        nodes.len().max(1)
    };
    nodes
        .chunks(at_once)
        .try_for_each(|nodes| start_side_by_side(lab, nodes, archives))
}

fn start_side_by_side(lab: &Lab, nodes: &[Node], archives: &[Archive]) -> Result<()> {
    for node in nodes {
        node::start(lab, node)?;
    }
    std::thread::scope(|scope| {
        let starting: Vec<_> = nodes
            .iter()
            .map(|node| scope.spawn(move || prepare_node(lab, node, archives)))
            .collect();
        for one in starting {
            one.join()
                .map_err(|_| anyhow::anyhow!("preparing a node failed in an unforeseen way"))??;
        }
        Ok(())
    })
}

fn prepare_node(lab: &Lab, node: &Node, archives: &[Archive]) -> Result<()> {
    let mut last = None;
    let what = format!("containerd of {} to take images", node.name);
    lab.patience()
        .wait_for(Duration::from_secs(90), &what, || {
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
                "{last:?}; its log is {}",
                log_of(lab, &node.name, "containerd")
            )
        })?;
    wait_until_ready(lab, node)
}

/// Waits until a node is Ready, with its volumes' driver registered. What was said before the node was last powered on
/// does not count: for 12 s after a power cut the API server still has "Ready" from the kubelet that died.
pub(crate) fn wait_until_ready(lab: &Lab, node: &Node) -> Result<()> {
    let machine = Machine::of(lab, &node.name)?;
    let ready = "jsonpath={range .status.conditions[?(@.type==\"Ready\")]}{.status} {.lastHeartbeatTime}{end}";
    lab.patience()
        .wait_for(
            Duration::from_secs(120),
            &format!("{} to be Ready", node.name),
            || {
                let registered = machine
                    .path_inside("/run/lab-csi-registered")
                    .is_ok_and(|mark| mark.exists());
                let (_, said) = lab
                    .kubectl()
                    .args(["get", "node", &node.name, "-o", ready])
                    .attempt()?;
                let heartbeat = said.trim().strip_prefix("True ").and_then(seconds);
                Ok(registered
                    && heartbeat
                        .zip(machine.powered_on())
                        .is_some_and(|(beat, on)| beat >= on))
            },
        )
        .with_context(|| {
            format!(
                "its kubelet's log is {}",
                log_of(lab, &node.name, "kubelet")
            )
        })
}

/// Adds a node to a lab that runs.
pub fn add_node(name: &LabName) -> Result<Node> {
    let _held = Lab::hold(name)?;
    let mut lab = Lab::open(name)?;
    let node = lab.record_node()?;
    let archives = images::of(&lab)?;
    start_nodes(&lab, std::slice::from_ref(&node), &archives)?;
    Ok(node)
}

/// Removes a node for good: its machine, its disks, and its object in Kubernetes.
pub fn delete_node(name: &LabName, node: &str) -> Result<()> {
    let _held = Lab::hold(name)?;
    let mut lab = Lab::open(name)?;
    let node = lab.node(node)?.clone();
    Machine::of(&lab, &node.name)?.kill()?;
    lab.kubectl()
        .args(["delete", "node", &node.name, "--ignore-not-found"])
        .run()?;
    net::detach(&lab, &node)?;
    crate::files::remove(&lab.machine_dir(&node.name))?;
    control::forget_node_keys(&lab, &node.name)?;
    // Last of what names it: a deletion that was cut short can be repeated.
    lab.forget_node(&node.name)?;
    control::renew_proxy(&lab)
}

/// The seconds since 1970 of a time as Kubernetes writes it.
fn seconds(time: &str) -> Option<u64> {
    Cmd::new("date")
        .args(["-u", "+%s", "-d", time])
        .run()
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// Where a service of a machine writes.
pub fn log_of(lab: &Lab, machine: &str, service: &str) -> String {
    lab.machine_dir(machine)
        .join("logs")
        .join(format!("{service}.log"))
        .display()
        .to_string()
}
