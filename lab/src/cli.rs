//! What people can ask `lab` for.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, CommandFactory, Parser, Subcommand};

use evenkeel_lab::machine::{self, ENTER, INIT, MOUNT_CGROUPS};
use evenkeel_lab::parts::etcd::Version;
use evenkeel_lab::parts::{Programs, helm, images, kube};
use evenkeel_lab::patience::{self, Patience};
use evenkeel_lab::preflight::preflight;
use evenkeel_lab::up::{self, Wanted};
use evenkeel_lab::{Lab, LabName, down, status};

use crate::reference;

/// A real Kubernetes on this machine, and its faults.
#[derive(Parser)]
#[command(name = "lab", version, max_term_width = 110)]
struct Cli {
    /// The lab's name; labs of different names do not touch each other. Each checkout has a default of its own
    #[arg(long, global = true, env = "LAB", default_value_t = LabName::of_checkout(), hide_default_value = true, hide_env_values = true)]
    name: LabName,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Bring the lab up, from whatever state it is in
    Up {
        /// How many nodes it has
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=20))]
        nodes: u8,
        /// Put links to lab, kubectl and etcdctl into this directory
        #[arg(long, value_name = "DIR")]
        links: Option<PathBuf>,
        /// Promise the machine's free space to volumes this many times; for many volumes that nobody fills
        #[arg(long, value_name = "TIMES", value_parser = clap::value_parser!(u8).range(1..))]
        overcommit: Option<u8>,
        /// Multiply all time limits of the lab by this number, 1 to 100; for a slow machine. Remembered
        #[arg(long, value_name = "TIMES", env = patience::VARIABLE, hide_env_values = true)]
        patience: Option<Patience>,
    },
    /// Take the lab down and leave nothing behind
    Down,
    /// Tell what runs and what is wrong; fails when something is
    Status,
    /// List the labs on this machine
    List,
    /// Print the path of the lab's kubeconfig
    Kubeconfig,
    /// Print the factor of the lab's time limits
    Patience,
    /// Make all that a lab is made of, and bring no lab up
    Parts,
    /// Find out whether a lab can run here, by trying
    Preflight,
    /// Make etcd images and load them into every node
    Etcd {
        /// Versions, such as 3.5.35
        #[arg(required = true)]
        versions: Vec<Version>,
    },
    /// Make an image of a program of this machine and load it into every node
    Image {
        /// What it is called, such as evenkeel-operator:0.1.0
        image: String,
        /// The program; the libraries it needs come along
        program: PathBuf,
    },
    /// Make Helm, and print the path of the program
    Helm,
    /// Do something to a node
    #[command(subcommand)]
    Node(NodeVerb),
    /// Do something to a pod
    #[command(subcommand)]
    Pod(PodVerb),
    /// Do something to a pod's volume
    #[command(subcommand)]
    Volume(VolumeVerb),
    /// Stop or start the API server
    #[command(subcommand)]
    Api(ApiVerb),
    /// Cut everything's power at once, and bring it back
    PowerCycle,
    /// Run the tests of the lab's own Go code
    #[command(hide = true)]
    GoTest,
    /// Print this command's reference as Markdown
    #[command(hide = true)]
    Reference,
    #[command(name = ENTER, hide = true)]
    Enter { blueprint: PathBuf },
    #[command(name = INIT, hide = true)]
    Init { blueprint: PathBuf },
    #[command(name = MOUNT_CGROUPS, hide = true)]
    MountCgroups { lab: LabName },
}

#[derive(Subcommand)]
enum NodeVerb {
    /// Add a node
    Add,
    /// Remove a node for good, with its disks
    Delete { node: String },
    /// Cut its power: its containers die with it
    Off { node: String },
    /// Power it on and wait until it is Ready
    On { node: String },
    /// Stop everything on it where it is
    Freeze { node: String },
    /// Let everything on it go on
    Thaw { node: String },
    /// Pull its network cable
    Cut { node: String },
    /// Put its network cable back
    Mend { node: String },
    /// Stop its kubelet: lost for Kubernetes, while its containers run on
    Deafen { node: String },
    /// Start its kubelet again
    Undeafen { node: String },
}

#[derive(Args)]
struct Pod {
    /// The pod, as NAMESPACE/NAME or NAME (in the namespace `default`)
    pod: String,
}

#[derive(Args)]
struct Process {
    #[command(flatten)]
    pod: Pod,
    /// The container; the first if not given
    #[arg(long)]
    container: Option<String>,
    /// Only processes of this name; all of the container's if not given
    #[arg(long)]
    process: Option<String>,
}

#[derive(Args)]
struct Volume {
    #[command(flatten)]
    pod: Pod,
    /// The claim, where the pod has several
    #[arg(long)]
    claim: Option<String>,
}

#[derive(Subcommand)]
enum PodVerb {
    /// Cut it off the network
    Cut(Pod),
    /// Put it back on the network
    Mend(Pod),
    /// Kill processes in it (SIGKILL)
    Kill(Process),
    /// Stop processes in it where they are
    Freeze(Process),
    /// Let stopped processes in it go on
    Thaw(Process),
}

#[derive(Subcommand)]
enum VolumeVerb {
    /// Remove everything on it
    Wipe(Volume),
    /// Fill it to the last block
    Fill(Volume),
    /// Take away what filled it
    Free(Volume),
}

#[derive(Subcommand)]
enum ApiVerb {
    /// Stop it until it is started again
    Stop,
    /// Start it again
    Start,
}

impl Pod {
    fn parts(&self) -> (&str, &str) {
        self.pod.split_once('/').unwrap_or(("default", &self.pod))
    }
}

/// The whole command line, for its reference.
pub(crate) fn command() -> clap::Command {
    Cli::command()
}

pub(crate) fn run() -> Result<ExitCode> {
    let Cli { name, verb } = Cli::parse();
    match verb {
        Verb::Up {
            nodes,
            links,
            overcommit,
            patience,
        } => {
            check(Lab::find(&name)?.is_none())?;
            let wanted = Wanted {
                name: &name,
                nodes,
                links: links.as_deref(),
                overcommit,
                patience,
            };
            let lab = up::up(&wanted)?;
            eprintln!("  {}", up::how_to_use(&lab));
        }
        Verb::Down => {
            down::down(&name)?;
            eprintln!("✓ lab {name} is gone");
        }
        Verb::Status => return show_status(&name),
        Verb::List => {
            for lab in Lab::all()? {
                println!(
                    "{}\t{}\t{} nodes",
                    lab.name(),
                    lab.addresses()?.all(),
                    lab.nodes().len()
                );
            }
        }
        Verb::Kubeconfig => println!("{}", Lab::open(&name)?.kubeconfig().display()),
        Verb::Patience => println!("{}", Lab::open(&name)?.patience()),
        Verb::Parts => make_parts()?,
        Verb::Preflight => check(true)?,
        Verb::Etcd { versions } => load_etcd(&name, &versions)?,
        Verb::Helm => println!("{}", helm::get()?.display()),
        Verb::Image { image, program } => load_program(&name, &image, &program)?,
        Verb::Node(verb) => on_node(&name, &verb)?,
        Verb::Pod(verb) => on_pod(&name, &verb)?,
        Verb::Volume(verb) => on_volume(&name, &verb)?,
        Verb::Api(ApiVerb::Stop) => Lab::open(&name)?.stop_api()?,
        Verb::Api(ApiVerb::Start) => Lab::open(&name)?.start_api()?,
        Verb::PowerCycle => Lab::open(&name)?.power_cycle()?,
        Verb::GoTest => return kube::test(),
        Verb::Reference => print!("{}", reference::markdown(command())),
        Verb::Enter { blueprint } => machine::enter(&blueprint)?,
        Verb::Init { blueprint } => machine::init(&blueprint)?,
        Verb::MountCgroups { lab } => machine::mount_cgroups(&lab)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn make_parts() -> Result<()> {
    Programs::get()?;
    images::basic()?;
    Ok(())
}

fn check(new: bool) -> Result<()> {
    let refused: Vec<_> = preflight(new)
        .into_iter()
        .filter(|need| need.refused.is_some())
        .collect();
    for need in &refused {
        eprintln!(
            "✗ {}: {} (needs {})",
            need.what,
            need.refused.as_deref().unwrap_or_default(),
            need.needs
        );
    }
    if refused.is_empty() {
        return Ok(());
    }
    bail!(
        "a lab cannot run here: {} of what it needs cannot be had",
        refused.len()
    )
}

fn show_status(name: &LabName) -> Result<ExitCode> {
    let status = status::status(&Lab::open(name)?)?;
    for line in &status.lines {
        println!("{line}");
    }
    for trouble in &status.troubles {
        println!("✗ {trouble}");
    }
    if status.troubles.is_empty() {
        println!("✓ all is well");
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ExitCode::FAILURE)
}

fn load_etcd(name: &LabName, versions: &[Version]) -> Result<()> {
    let lab = Lab::open(name)?;
    for version in versions {
        let archive = images::load_etcd(&lab, *version)?;
        eprintln!("  as {}", archive.names.join(", "));
    }
    Ok(())
}

fn load_program(name: &LabName, image: &str, program: &std::path::Path) -> Result<()> {
    let lab = Lab::open(name)?;
    images::load_program(&lab, image, program)
}

fn on_node(name: &LabName, verb: &NodeVerb) -> Result<()> {
    let lab = Lab::open(name)?;
    match verb {
        NodeVerb::Add => println!("{}", up::add_node(name)?.name),
        NodeVerb::Delete { node } => up::delete_node(name, node)?,
        NodeVerb::Off { node } => lab.power_off(node)?,
        NodeVerb::On { node } => {
            lab.power_on(node)?;
            lab.wait_until_ready(node)?;
        }
        NodeVerb::Freeze { node } => lab.freeze(node)?,
        NodeVerb::Thaw { node } => lab.thaw(node)?,
        NodeVerb::Cut { node } => lab.cut(node)?,
        NodeVerb::Mend { node } => lab.mend(node)?,
        NodeVerb::Deafen { node } => lab.deafen(node)?,
        NodeVerb::Undeafen { node } => lab.undeafen(node)?,
    }
    Ok(())
}

fn on_pod(name: &LabName, verb: &PodVerb) -> Result<()> {
    let lab = Lab::open(name)?;
    let pod = match verb {
        PodVerb::Cut(pod) | PodVerb::Mend(pod) => pod,
        PodVerb::Kill(process) | PodVerb::Freeze(process) | PodVerb::Thaw(process) => &process.pod,
    };
    let (namespace, pod) = pod.parts();
    let faults = lab.pod(namespace, pod)?;
    match verb {
        PodVerb::Cut(_) => faults.cut(),
        PodVerb::Mend(_) => faults.mend(),
        PodVerb::Kill(p) => faults.kill(p.container.as_deref(), p.process.as_deref()),
        PodVerb::Freeze(p) => faults.freeze(p.container.as_deref(), p.process.as_deref()),
        PodVerb::Thaw(p) => faults.thaw(p.container.as_deref(), p.process.as_deref()),
    }
}

fn on_volume(name: &LabName, verb: &VolumeVerb) -> Result<()> {
    let lab = Lab::open(name)?;
    let (VolumeVerb::Wipe(volume) | VolumeVerb::Fill(volume) | VolumeVerb::Free(volume)) = verb;
    let (namespace, pod) = volume.pod.parts();
    let (faults, claim) = (lab.pod(namespace, pod)?, volume.claim.as_deref());
    match verb {
        VolumeVerb::Wipe(_) => faults.wipe_volume(claim),
        VolumeVerb::Fill(_) => faults.fill_volume(claim),
        VolumeVerb::Free(_) => faults.free_volume(claim),
    }
}
