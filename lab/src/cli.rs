//! The command line of `lab`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, CommandFactory, Parser, Subcommand};

use evenkeel_lab::machine::{self, ENTER_COMMAND, INIT_COMMAND, MOUNT_CGROUPS_COMMAND};
use evenkeel_lab::parts::etcd::EtcdVersion;
use evenkeel_lab::parts::{Programs, helm, images, kube};
use evenkeel_lab::patience::{self, Patience};
use evenkeel_lab::preflight::preflight;
use evenkeel_lab::up::{self, UpOptions};
use evenkeel_lab::{Lab, LabName, down, s3, status};

use crate::reference;

/// Run Kubernetes clusters on this machine and inject faults into them
#[derive(Parser)]
#[command(name = "lab", version, max_term_width = 110)]
struct Cli {
    /// The name of the lab; labs with different names are independent. The default depends on the checkout
    #[arg(long, global = true, env = "LAB", default_value_t = LabName::of_checkout(), hide_default_value = true, hide_env_values = true)]
    name: LabName,
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Subcommand)]
enum LabCommand {
    /// Bring the lab up: create it, or start and repair its machines
    Up {
        /// The number of nodes; deleted nodes count
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=20))]
        nodes: u8,
        /// Create links to lab, kubectl, etcdctl and etcdutl in this directory
        #[arg(long, value_name = "DIR")]
        links: Option<PathBuf>,
        /// Let the sizes of all volumes add up to this many times the free disk space
        #[arg(long, value_name = "TIMES", value_parser = clap::value_parser!(u8).range(1..))]
        overcommit: Option<u8>,
        /// Multiply all time limits of the lab by this number, 1 to 100, for a slow machine. The lab keeps the value
        #[arg(long, value_name = "TIMES", env = patience::PATIENCE_VARIABLE, hide_env_values = true)]
        patience: Option<Patience>,
    },
    /// Take the lab down and remove everything that belongs to it
    Down,
    /// Show the state of the lab and its problems; fails when there is a problem
    Status,
    /// List the labs on this machine
    List,
    /// Print the path of the kubeconfig
    Kubeconfig,
    /// Print the factor of the time limits
    Patience,
    /// Build the programs and images of a lab without bringing a lab up
    Parts,
    /// Check whether a lab can run on this machine
    Preflight,
    /// Build etcd images and import them into every node
    Etcd {
        /// Versions, for example 3.5.35
        #[arg(required = true)]
        versions: Vec<EtcdVersion>,
    },
    /// Build an image of programs and import it into every node
    Image {
        /// The name of the image, for example evenkeel-operator:0.1.0
        image: String,
        /// The paths of the programs; the image starts the first one and includes their shared libraries
        #[arg(required = true)]
        programs: Vec<PathBuf>,
    },
    /// Start an S3 server in namespace lab-s3, and print a BackupStore for it with its credentials and its CA
    S3 {
        /// Only build the image of the server and import it into every node
        #[arg(long)]
        image_only: bool,
    },
    /// Build Helm and print the path of the program
    Helm,
    /// Add or delete a node, or inject a fault into it
    #[command(subcommand)]
    Node(NodeCommand),
    /// Inject a fault into a pod
    #[command(subcommand)]
    Pod(PodCommand),
    /// Inject a fault into a volume of a pod
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// Stop or start the API server
    #[command(subcommand)]
    Api(ApiCommand),
    /// Cut the power of all machines at once and start them again
    PowerCycle,
    /// Run the tests of the CSI driver
    #[command(hide = true)]
    GoTest,
    /// Print the reference of this command as Markdown
    #[command(hide = true)]
    Reference,
    #[command(name = ENTER_COMMAND, hide = true)]
    Enter { blueprint: PathBuf },
    #[command(name = INIT_COMMAND, hide = true)]
    Init { blueprint: PathBuf },
    #[command(name = MOUNT_CGROUPS_COMMAND, hide = true)]
    MountCgroups { lab: LabName },
}

#[derive(Subcommand)]
enum NodeCommand {
    /// Add a node
    Add,
    /// Delete a node permanently, with its disks
    Delete { node: String },
    /// Cut the power of a node: kills all its processes, including containers
    Off { node: String },
    /// Start a node and wait until it is Ready
    On { node: String },
    /// Freeze all processes of a node, including containers
    Freeze { node: String },
    /// Thaw a frozen node
    Thaw { node: String },
    /// Disconnect a node from the network
    Cut { node: String },
    /// Connect a node to the network again
    Mend { node: String },
    /// Stop the kubelet of a node: the node becomes NotReady, while its containers keep running
    Deafen { node: String },
    /// Start the kubelet of a node again
    Undeafen { node: String },
}

#[derive(Args)]
struct PodArgs {
    /// The pod: NAMESPACE/NAME, or NAME for the namespace `default`
    pod: String,
}

#[derive(Args)]
struct ProcessArgs {
    #[command(flatten)]
    pod: PodArgs,
    /// The container; the default is the first one
    #[arg(long)]
    container: Option<String>,
    /// The name of the processes; the default is all processes of the container
    #[arg(long)]
    process: Option<String>,
}

#[derive(Args)]
struct VolumeArgs {
    #[command(flatten)]
    pod: PodArgs,
    /// The PersistentVolumeClaim; required when the pod has several
    #[arg(long)]
    claim: Option<String>,
}

#[derive(Subcommand)]
enum PodCommand {
    /// Disconnect a pod from the network
    Cut(PodArgs),
    /// Connect a pod to the network again
    Mend(PodArgs),
    /// Kill processes of a pod (SIGKILL)
    Kill(ProcessArgs),
    /// Stop processes of a pod (SIGSTOP)
    Freeze(ProcessArgs),
    /// Continue stopped processes of a pod (SIGCONT)
    Thaw(ProcessArgs),
}

#[derive(Subcommand)]
enum VolumeCommand {
    /// Remove all files on the volume
    Wipe(VolumeArgs),
    /// Fill the volume to the last block
    Fill(VolumeArgs),
    /// Remove the file that `fill` has created
    Free(VolumeArgs),
}

#[derive(Subcommand)]
enum ApiCommand {
    /// Stop the API server until `lab api start`
    Stop,
    /// Start the API server again
    Start,
}

impl PodArgs {
    /// Returns the namespace and the name.
    fn namespace_and_name(&self) -> (&str, &str) {
        self.pod.split_once('/').unwrap_or(("default", &self.pod))
    }
}

/// Returns the definition of the command line, for the reference.
pub(crate) fn definition() -> clap::Command {
    Cli::command()
}

pub(crate) fn run() -> Result<ExitCode> {
    let Cli { name, command } = Cli::parse();
    match command {
        LabCommand::Up {
            nodes,
            links,
            overcommit,
            patience,
        } => {
            check_requirements(Lab::find(&name)?.is_none())?;
            let options = UpOptions {
                name: &name,
                nodes,
                links: links.as_deref(),
                overcommit,
                patience,
            };
            let lab = up::up(&options)?;
            eprintln!("  {}", up::how_to_use(&lab));
        }
        LabCommand::Down => {
            down::down(&name)?;
            eprintln!("✓ lab {name} is down");
        }
        LabCommand::Status => return show_status(&name),
        LabCommand::List => {
            for lab in Lab::all()? {
                println!(
                    "{}\t{}\t{} nodes",
                    lab.name(),
                    lab.addresses()?.all(),
                    lab.nodes().len()
                );
            }
        }
        LabCommand::Kubeconfig => println!("{}", Lab::open(&name)?.kubeconfig().display()),
        LabCommand::Patience => println!("{}", Lab::open(&name)?.patience()),
        LabCommand::Parts => build_parts()?,
        LabCommand::Preflight => check_requirements(true)?,
        LabCommand::Etcd { versions } => load_etcd(&name, &versions)?,
        LabCommand::Helm => println!("{}", helm::get()?.display()),
        LabCommand::Image { image, programs } => load_programs(&name, &image, &programs)?,
        LabCommand::S3 { image_only } => start_s3(&name, image_only)?,
        LabCommand::Node(command) => on_node(&name, &command)?,
        LabCommand::Pod(command) => on_pod(&name, &command)?,
        LabCommand::Volume(command) => on_volume(&name, &command)?,
        LabCommand::Api(ApiCommand::Stop) => Lab::open(&name)?.stop_api()?,
        LabCommand::Api(ApiCommand::Start) => Lab::open(&name)?.start_api()?,
        LabCommand::PowerCycle => Lab::open(&name)?.power_cycle()?,
        LabCommand::GoTest => return kube::test(),
        LabCommand::Reference => print!("{}", reference::markdown(definition())),
        LabCommand::Enter { blueprint } => machine::enter(&blueprint)?,
        LabCommand::Init { blueprint } => machine::init(&blueprint)?,
        LabCommand::MountCgroups { lab } => machine::mount_cgroups(&lab)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn build_parts() -> Result<()> {
    Programs::get()?;
    images::default_archives()?;
    Ok(())
}

fn check_requirements(is_new_lab: bool) -> Result<()> {
    let failed: Vec<_> = preflight(is_new_lab)
        .into_iter()
        .filter(|requirement| requirement.failure.is_some())
        .collect();
    for requirement in &failed {
        eprintln!(
            "✗ {}: {} (needs {})",
            requirement.name,
            requirement.failure.as_deref().unwrap_or_default(),
            requirement.provided_by
        );
    }
    if failed.is_empty() {
        return Ok(());
    }
    bail!(
        "a lab cannot run on this machine: {} requirements are not met",
        failed.len()
    )
}

fn show_status(name: &LabName) -> Result<ExitCode> {
    let status = status::status(&Lab::open(name)?)?;
    for line in &status.lines {
        println!("{line}");
    }
    for problem in &status.problems {
        println!("✗ {problem}");
    }
    if status.problems.is_empty() {
        println!("✓ all is well");
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ExitCode::FAILURE)
}

fn load_etcd(name: &LabName, versions: &[EtcdVersion]) -> Result<()> {
    let lab = Lab::open(name)?;
    for version in versions {
        let archive = images::load_etcd(&lab, *version)?;
        eprintln!("  names of the image: {}", archive.names.join(", "));
    }
    Ok(())
}

fn load_programs(name: &LabName, image: &str, programs: &[PathBuf]) -> Result<()> {
    let lab = Lab::open(name)?;
    let programs: Vec<_> = programs.iter().map(PathBuf::as_path).collect();
    images::load_programs(&lab, image, &programs)
}

fn start_s3(name: &LabName, image_only: bool) -> Result<()> {
    let lab = Lab::open(name)?;
    if image_only {
        return images::load_versitygw(&lab);
    }
    let server = s3::up(&lab)?;
    eprintln!(
        "✓ S3 server at {} (from this machine: {}), bucket {}",
        server.endpoint, server.direct, server.bucket
    );
    print!("{}", server.store_manifest("s3"));
    Ok(())
}

fn on_node(name: &LabName, command: &NodeCommand) -> Result<()> {
    let lab = Lab::open(name)?;
    match command {
        NodeCommand::Add => println!("{}", up::add_node(name)?.name),
        NodeCommand::Delete { node } => up::delete_node(name, node)?,
        NodeCommand::Off { node } => lab.power_off(node)?,
        NodeCommand::On { node } => {
            lab.power_on(node)?;
            lab.wait_until_ready(node)?;
        }
        NodeCommand::Freeze { node } => lab.freeze(node)?,
        NodeCommand::Thaw { node } => lab.thaw(node)?,
        NodeCommand::Cut { node } => lab.cut(node)?,
        NodeCommand::Mend { node } => lab.mend(node)?,
        NodeCommand::Deafen { node } => lab.deafen(node)?,
        NodeCommand::Undeafen { node } => lab.undeafen(node)?,
    }
    Ok(())
}

fn on_pod(name: &LabName, command: &PodCommand) -> Result<()> {
    let lab = Lab::open(name)?;
    let pod = match command {
        PodCommand::Cut(pod) | PodCommand::Mend(pod) => pod,
        PodCommand::Kill(process) | PodCommand::Freeze(process) | PodCommand::Thaw(process) => {
            &process.pod
        }
    };
    let (namespace, pod) = pod.namespace_and_name();
    let faults = lab.pod(namespace, pod)?;
    match command {
        PodCommand::Cut(_) => faults.cut(),
        PodCommand::Mend(_) => faults.mend(),
        PodCommand::Kill(p) => faults.kill(p.container.as_deref(), p.process.as_deref()),
        PodCommand::Freeze(p) => faults.freeze(p.container.as_deref(), p.process.as_deref()),
        PodCommand::Thaw(p) => faults.thaw(p.container.as_deref(), p.process.as_deref()),
    }
}

fn on_volume(name: &LabName, command: &VolumeCommand) -> Result<()> {
    let lab = Lab::open(name)?;
    let (VolumeCommand::Wipe(volume) | VolumeCommand::Fill(volume) | VolumeCommand::Free(volume)) =
        command;
    let (namespace, pod) = volume.pod.namespace_and_name();
    let (faults, claim) = (lab.pod(namespace, pod)?, volume.claim.as_deref());
    match command {
        VolumeCommand::Wipe(_) => faults.wipe_volume(claim),
        VolumeCommand::Fill(_) => faults.fill_volume(claim),
        VolumeCommand::Free(_) => faults.free_volume(claim),
    }
}
