//! A machine of the lab: the control plane or a node. A machine is a process tree in its own namespaces (network, pid,
//! mount, uts, ipc, cgroup) and its own cgroup. Its first process is an init that supervises the services of the
//! machine. Killing the init simulates a power cut.
//!
//! `enter` creates the namespaces, `init` sets up the mounts, `supervise` keeps the services running, and
//! `cgroup_check` tries the cgroup operations for `lab preflight`.

mod cgroup_check;
mod enter;
mod init;
mod supervise;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::cgroup::Cgroup;
use crate::command::Cmd;
use crate::net;
use crate::state::{Lab, LabName};
use crate::{files, state};

pub use cgroup_check::{MOUNT_CGROUPS_COMMAND, check_cgroups, mount_cgroups};
pub use enter::enter;
pub use init::init;

/// The internal subcommand of `lab` that calls [`enter`].
pub const ENTER_COMMAND: &str = "__enter";
/// The internal subcommand of `lab` that calls [`init`].
pub const INIT_COMMAND: &str = "__init";
/// Time limit for a service to start or stop.
const SERVICE_TIMEOUT: Duration = Duration::from_secs(90);
/// A log that is larger than this is rotated before its service starts.
const MAX_LOG_BYTES: u64 = 32 << 20;

/// A program that the init of a machine keeps running.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MachineService {
    /// The name of the service and of its log file.
    pub name: String,
    /// The program and its arguments.
    pub argv: Vec<String>,
}

/// The specification of a machine, stored as `blueprint.json` for its init.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Blueprint {
    lab: String,
    machine: String,
    lab_dir: PathBuf,
    machine_dir: PathBuf,
    services: Vec<MachineService>,
}

/// One machine of a lab, running or not.
#[derive(Debug)]
pub struct Machine<'a> {
    lab: &'a Lab,
    name: String,
    cgroup: Cgroup,
}

impl<'a> Machine<'a> {
    /// Returns the machine with this name: a node or [`state::CONTROL_PLANE`].
    pub fn of(lab: &'a Lab, name: &str) -> Result<Self> {
        Ok(Self {
            lab,
            name: name.to_owned(),
            cgroup: Cgroup::of(lab.name(), name)?,
        })
    }

    fn dir(&self) -> PathBuf {
        self.lab.machine_dir(&self.name)
    }

    /// Returns the cgroup of the machine.
    pub fn cgroup(&self) -> &Cgroup {
        &self.cgroup
    }

    /// Starts the machine with these services; does nothing when it runs already. The services in `held` stay stopped
    /// until [`set_stopped`](Self::set_stopped) releases them.
    pub fn start(&self, services: Vec<MachineService>, held: &[&str]) -> Result<()> {
        if self.init_pid().is_some() {
            return Ok(());
        }
        self.cgroup.kill()?;
        self.cgroup.create()?;
        for stale in ["stopped", "services.json", "init.pid", "logs/init.log"] {
            files::remove(&self.dir().join(stale))?;
        }
        for service in held {
            files::write(&stop_file(&self.dir(), service), "")?;
        }
        let blueprint = Blueprint {
            lab: self.lab.name().to_string(),
            machine: self.name.clone(),
            lab_dir: self.lab.dir().to_owned(),
            machine_dir: self.dir(),
            services,
        };
        let path = self.dir().join("blueprint.json");
        files::write(&path, &serde_json::to_string_pretty(&blueprint)?)?;
        let log = open_log(&self.dir(), "init")?;
        let status = Cmd::new(self.lab.programs().join("lab"))
            .arg(ENTER_COMMAND)
            .arg(&path)
            .spawn(|command| {
                // A separate process group, so that Ctrl-C at the terminal does not reach the machine.
                command
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(log)
                    .process_group(0);
            })?
            .wait()?;
        // The init writes this file after it has set up the mounts.
        let services_file = self.dir().join("services.json");
        while status.success() && !services_file.exists() && self.init_pid().is_some() {
            std::thread::sleep(Duration::from_millis(5));
        }
        if !services_file.exists() {
            let log = fs::read_to_string(self.dir().join("logs/init.log")).unwrap_or_default();
            bail!("failed to start machine {}: {}", self.name, log.trim());
        }
        Ok(())
    }

    /// Returns the pid of the init, or `None` when the machine is off.
    pub fn init_pid(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.dir().join("init.pid")).ok()?;
        let pid: i32 = text.trim().parse().ok()?;
        // The kernel may have reused the pid, so the process must be in the cgroup of the machine.
        self.cgroup
            .processes()
            .into_iter()
            .find(|candidate| candidate.as_raw() == pid)
    }

    /// Returns the time of the last start, in seconds since 1970.
    pub fn powered_on(&self) -> Option<u64> {
        let started = fs::metadata(self.dir().join("init.pid"))
            .ok()?
            .modified()
            .ok()?;
        Some(
            started
                .duration_since(std::time::UNIX_EPOCH)
                .ok()?
                .as_secs(),
        )
    }

    /// Kills all processes of the machine, as a power cut does, and removes its cgroup.
    pub fn kill(&self) -> Result<()> {
        if let Some(init) = self.init_pid() {
            // The kernel kills all processes of the pid namespace with its init. An error means that it has ended already.
            let _ = kill(init, Signal::SIGKILL);
        }
        self.cgroup.kill()?;
        self.cgroup.remove()
    }

    /// Stops a service, or starts it again, and waits until the init has done so. A stopped service stays stopped.
    pub fn set_stopped(&self, service: &str, stopped: bool) -> Result<()> {
        let stop_file = stop_file(&self.dir(), service);
        if stopped {
            files::write(&stop_file, "")?
        } else {
            files::remove(&stop_file)?
        }
        let init = self
            .init_pid()
            .with_context(|| format!("machine {} is off", self.name))?;
        kill(init, Signal::SIGHUP)
            .with_context(|| format!("cannot send SIGHUP to the init of machine {}", self.name))?;
        let condition = format!(
            "service {service} on {} to be {}",
            self.name,
            if stopped { "stopped" } else { "started" }
        );
        self.lab
            .patience()
            .wait_for(SERVICE_TIMEOUT, &condition, || {
                Ok(self.services().iter().any(|state| {
                    state.name == service && state.stopped == stopped && state.running != stopped
                }))
            })
    }

    /// Restarts a service.
    pub fn restart(&self, service: &str) -> Result<()> {
        self.set_stopped(service, true)?;
        self.set_stopped(service, false)
    }

    /// Returns the states of the services as last written by the init.
    pub fn services(&self) -> Vec<ServiceState> {
        let text = fs::read_to_string(self.dir().join("services.json")).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Translates a path inside the running machine to a path on the host.
    pub fn path_inside(&self, path: &str) -> Result<PathBuf> {
        let init = self
            .init_pid()
            .with_context(|| format!("machine {} is off", self.name))?;
        Ok(PathBuf::from(format!("/proc/{init}/root{path}")))
    }
}

/// The state of a service, written by the init of its machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServiceState {
    /// The name of the service.
    pub name: String,
    /// Whether the service has a process.
    pub running: bool,
    /// The number of consecutive starts without a stable run in between.
    pub starts: u32,
    /// The time of the last start, in seconds since 1970.
    pub since: u64,
    /// Whether the service is stopped by [`Machine::set_stopped`].
    pub stopped: bool,
}

impl Blueprint {
    fn read(path: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("cannot parse {}", path.display()))
    }

    fn lab_name(&self) -> Result<LabName> {
        self.lab.parse()
    }

    fn is_control_plane(&self) -> bool {
        self.machine == state::CONTROL_PLANE
    }

    fn netns(&self) -> Result<PathBuf> {
        Ok(net::netns_path(&self.lab_name()?, &self.machine))
    }
}

/// Returns the path of the file whose existence keeps a service stopped.
fn stop_file(machine_dir: &Path, service: &str) -> PathBuf {
    machine_dir.join("stopped").join(service)
}

/// Opens a log for appending; renames it to `*.log.old` first when it is larger than [`MAX_LOG_BYTES`].
fn open_log(machine_dir: &Path, name: &str) -> Result<fs::File> {
    let dir = machine_dir.join("logs");
    fs::create_dir_all(&dir)
        .with_context(|| format!("cannot create directory {}", dir.display()))?;
    let path = dir.join(format!("{name}.log"));
    if fs::metadata(&path).is_ok_and(|file| file.len() > MAX_LOG_BYTES) {
        fs::rename(&path, path.with_extension("log.old"))?;
    }
    fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .with_context(|| format!("cannot write {}", path.display()))
}
