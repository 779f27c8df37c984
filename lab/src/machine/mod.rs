//! A machine of the lab: the control plane or a node. It is one process tree in namespaces of its own (network, pid,
//! mount, uts, ipc, cgroup), whose first process is an init of ours that keeps the machine's services running. So
//! killing one process is a power cut, and one cgroup holds all that the machine is.
//!
//! `enter` builds the namespaces from outside, `init` lays the inside out, `supervise` keeps the services running;
//! `rehearse` tries the part of it that hosts refuse.

mod enter;
mod init;
mod rehearse;
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

pub use enter::enter;
pub use init::init;
pub use rehearse::{MOUNT_CGROUPS, mount_cgroups, rehearse_cgroups};

/// The word by which the `lab` program is asked to [`enter`]; not for people.
pub const ENTER: &str = "__enter";
/// The word by which the `lab` program is asked to be a machine's [`init`]; not for people.
pub const INIT: &str = "__init";

/// A program that a machine keeps running.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Service {
    /// Its name, and its log's.
    pub name: String,
    /// The program, and its arguments.
    pub argv: Vec<String>,
}

/// What a machine is to be, handed to its init.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Blueprint {
    lab: String,
    machine: String,
    lab_dir: PathBuf,
    machine_dir: PathBuf,
    services: Vec<Service>,
}

/// One machine of a lab, running or not.
#[derive(Debug)]
pub struct Machine<'a> {
    lab: &'a Lab,
    name: String,
    cgroup: Cgroup,
}

impl<'a> Machine<'a> {
    /// The machine of this name: a node's, or [`state::CONTROL`].
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

    /// Its cgroup.
    pub fn cgroup(&self) -> &Cgroup {
        &self.cgroup
    }

    /// Powers it on with these services, unless it runs already. Those in `held` stay stopped until
    /// [`set_stopped`](Self::set_stopped) releases them.
    pub fn start(&self, services: Vec<Service>, held: &[&str]) -> Result<()> {
        if self.init_pid().is_some() {
            return Ok(());
        }
        self.cgroup.kill()?;
        self.cgroup.make()?;
        for stale in ["stopped", "services.json", "init.pid", "logs/init.log"] {
            files::remove(&self.dir().join(stale))?;
        }
        for service in held {
            files::write(&stop_mark(&self.dir(), service), "")?;
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
        let log = log_file(&self.dir(), "init")?;
        let status = Cmd::new(self.lab.programs().join("lab"))
            .arg(ENTER)
            .arg(&path)
            .spawn(|command| {
                // A process group of its own: Ctrl-C at the terminal must not reach a machine that is being started.
                command
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(log)
                    .process_group(0);
            })?
            .wait()?;
        // The services' first note says that the inside is laid out.
        let noted = self.dir().join("services.json");
        while status.success() && !noted.exists() && self.init_pid().is_some() {
            std::thread::sleep(Duration::from_millis(5));
        }
        if !noted.exists() {
            let said = fs::read_to_string(self.dir().join("logs/init.log")).unwrap_or_default();
            bail!("cannot start the machine {}: {}", self.name, said.trim());
        }
        Ok(())
    }

    /// The process that is this machine's init now.
    pub fn init_pid(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.dir().join("init.pid")).ok()?;
        let pid: i32 = text.trim().parse().ok()?;
        // The number may be anybody's by now: it counts only while that process is in the machine's cgroup.
        self.cgroup
            .processes()
            .into_iter()
            .find(|candidate| candidate.as_raw() == pid)
    }

    /// When it was last powered on, in seconds since 1970.
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

    /// Cuts its power: every process it has is gone when this returns.
    pub fn kill(&self) -> Result<()> {
        if let Some(init) = self.init_pid() {
            // With the init the kernel kills the whole pid namespace; should it be gone already, so are they.
            let _ = kill(init, Signal::SIGKILL);
        }
        self.cgroup.kill()?;
        self.cgroup.remove()
    }

    /// Stops one of its services until it is started again, or lets it run again; returns when that is so.
    pub fn set_stopped(&self, service: &str, stopped: bool) -> Result<()> {
        let mark = stop_mark(&self.dir(), service);
        if stopped {
            files::write(&mark, "")?
        } else {
            files::remove(&mark)?
        }
        let init = self
            .init_pid()
            .with_context(|| format!("the machine {} is off", self.name))?;
        kill(init, Signal::SIGHUP)
            .with_context(|| format!("cannot signal the machine {}", self.name))?;
        let what = format!(
            "{service} on {} to be {}",
            self.name,
            if stopped { "stopped" } else { "started" }
        );
        self.lab
            .patience()
            .wait_for(Duration::from_secs(90), &what, || {
                Ok(self.services().iter().any(|one| {
                    one.name == service && one.stopped == stopped && one.running != stopped
                }))
            })
    }

    /// Ends one of its services, and starts it again.
    pub fn restart(&self, service: &str) -> Result<()> {
        self.set_stopped(service, true)?;
        self.set_stopped(service, false)
    }

    /// What its init noted of each service: the process, and how often it was started.
    pub fn services(&self) -> Vec<ServiceState> {
        let text = fs::read_to_string(self.dir().join("services.json")).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// A path as this machine sees it, for use from outside while it runs.
    pub fn path_inside(&self, path: &str) -> Result<PathBuf> {
        let init = self
            .init_pid()
            .with_context(|| format!("the machine {} is off", self.name))?;
        Ok(PathBuf::from(format!("/proc/{init}/root{path}")))
    }
}

/// What a machine's init notes of a service.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServiceState {
    /// Its name.
    pub name: String,
    /// Whether it runs.
    pub running: bool,
    /// How often in a row it had to be started, without running well in between.
    pub starts: u32,
    /// When it was last started, in seconds since 1970.
    pub since: u64,
    /// Whether it was stopped on purpose.
    pub stopped: bool,
}

impl Blueprint {
    fn read(path: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_str(&text)
            .with_context(|| format!("{} is not a blueprint", path.display()))
    }

    fn lab_name(&self) -> Result<LabName> {
        self.lab.parse()
    }

    fn is_control(&self) -> bool {
        self.machine == state::CONTROL
    }

    fn netns(&self) -> Result<PathBuf> {
        Ok(net::netns_path(&self.lab_name()?, &self.machine))
    }
}

fn stop_mark(machine_dir: &Path, service: &str) -> PathBuf {
    machine_dir.join("stopped").join(service)
}

/// Opens a log for appending; one that grew large in the service's last life is set aside first.
fn log_file(machine_dir: &Path, name: &str) -> Result<fs::File> {
    const LARGE: u64 = 32 << 20;
    let dir = machine_dir.join("logs");
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let path = dir.join(format!("{name}.log"));
    if fs::metadata(&path).is_ok_and(|file| file.len() > LARGE) {
        fs::rename(&path, path.with_extension("log.old"))?;
    }
    fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .with_context(|| format!("cannot write {}", path.display()))
}
