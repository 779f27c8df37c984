//! Keeps a machine's services running: starts them, starts them again when they end, later and later while they
//! keep failing, and buries every orphan, as process 1 must.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::{Blueprint, Service, ServiceState, log_file, stop_mark};
use crate::command::Cmd;
use crate::files;

const FIRST_DELAY: Duration = Duration::from_millis(300);
const LONGEST_DELAY: Duration = Duration::from_secs(5);
/// A service that ran this long is taken to be well again.
const WELL_AFTER: Duration = Duration::from_secs(20);

/// One service and what became of it.
struct Watched<'a> {
    service: &'a Service,
    pid: Option<Pid>,
    started: Instant,
    next_start: Instant,
    delay: Duration,
    starts: u32,
    since: u64,
    stopped: bool,
}

/// Runs the blueprint's services for as long as the machine lives.
pub(super) fn run(blueprint: &Blueprint) -> Result<()> {
    let mut signals = SigSet::empty();
    // SIGHUP: look again which services are to be stopped.
    for signal in [Signal::SIGCHLD, Signal::SIGHUP, Signal::SIGTERM] {
        signals.add(signal);
    }
    signals.thread_block().context("cannot block signals")?;
    let events = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    let now = Instant::now();
    let mut watched: Vec<Watched<'_>> = blueprint
        .services
        .iter()
        .map(|service| Watched::new(service, now))
        .collect();
    let mut noted = String::new();
    loop {
        for one in &mut watched {
            one.stopped = stop_mark(&blueprint.machine_dir, &one.service.name).exists();
            // A full disk, say: the machine lives on and tries again.
            if let Err(error) = one.step(blueprint) {
                eprintln!("{}: {error:#}", one.service.name);
                one.ended();
            }
        }
        if let Err(error) = note(blueprint, &watched, &mut noted) {
            eprintln!("{error:#}");
        }
        let timeout = watched.iter().filter_map(Watched::wait).min();
        let timeout = timeout.map_or(PollTimeout::NONE, |wait| {
            PollTimeout::try_from(wait.max(Duration::from_millis(1))).unwrap_or(PollTimeout::MAX)
        });
        match poll(
            &mut [PollFd::new(events.as_fd(), PollFlags::POLLIN)],
            timeout,
        ) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error).context("cannot wait for signals"),
        }
        while let Ok(Some(_)) = events.read_signal() {}
        bury(&mut watched);
    }
}

impl<'a> Watched<'a> {
    fn new(service: &'a Service, now: Instant) -> Self {
        Self {
            service,
            pid: None,
            started: now,
            next_start: now,
            delay: FIRST_DELAY,
            starts: 0,
            since: 0,
            stopped: false,
        }
    }

    /// How long until it wants to be started.
    fn wait(&self) -> Option<Duration> {
        (self.pid.is_none() && !self.stopped)
            .then(|| self.next_start.saturating_duration_since(Instant::now()))
    }

    fn step(&mut self, blueprint: &Blueprint) -> Result<()> {
        match self.pid {
            Some(pid) if self.stopped => {
                // Its end is noticed like any other.
                let _ = kill(pid, Signal::SIGKILL);
            }
            None if !self.stopped && Instant::now() >= self.next_start => self.start(blueprint)?,
            _ => {}
        }
        Ok(())
    }

    fn start(&mut self, blueprint: &Blueprint) -> Result<()> {
        let log = log_file(&blueprint.machine_dir, &self.service.name)?;
        let programs = blueprint.lab_dir.join("programs");
        let path = format!(
            "{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            programs.display()
        );
        let (program, args) = self
            .service
            .argv
            .split_first()
            .context("a service without a program")?;
        let command = Cmd::new(program)
            .args(args)
            .env("PATH", path)
            .env("HOME", "/run");
        let both = log.try_clone()?;
        let child = command.spawn(|command| {
            command.stdin(Stdio::null()).stdout(log).stderr(both);
        })?;
        self.pid = Some(Pid::from_raw(i32::try_from(child.id())?));
        self.started = Instant::now();
        self.since = std::time::UNIX_EPOCH
            .elapsed()
            .map_or(0, |now| now.as_secs());
        self.starts += 1;
        Ok(())
    }

    fn ended(&mut self) {
        let ran = self.started.elapsed();
        self.delay = if ran > WELL_AFTER {
            FIRST_DELAY
        } else {
            (self.delay * 2).min(LONGEST_DELAY)
        };
        self.next_start = Instant::now()
            + if self.stopped {
                Duration::ZERO
            } else {
                self.delay
            };
        self.pid = None;
        // It was well for a while, or ended because it was told to: no sign of trouble.
        if ran > WELL_AFTER || self.stopped {
            self.starts = 0;
            self.delay = FIRST_DELAY;
        }
    }
}

/// Collects every process that ended: our services, and orphans that fell to us.
fn bury(watched: &mut [Watched<'_>]) {
    let mut by_pid: HashMap<Pid, usize> = watched
        .iter()
        .enumerate()
        .filter_map(|(index, one)| Some((one.pid?, index)))
        .collect();
    loop {
        let pid = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, _, _)) => pid,
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return,
            Ok(_) => continue,
            Err(_) => return,
        };
        if let Some(one) = by_pid.remove(&pid).and_then(|index| watched.get_mut(index)) {
            one.ended();
        }
    }
}

/// Writes down how the services are, for `lab status`, whenever that changed.
fn note(blueprint: &Blueprint, watched: &[Watched<'_>], noted: &mut String) -> Result<()> {
    let states: Vec<_> = watched
        .iter()
        .map(|one| ServiceState {
            name: one.service.name.clone(),
            running: one.pid.is_some(),
            starts: one.starts,
            since: one.since,
            stopped: one.stopped,
        })
        .collect();
    let text = serde_json::to_string(&states)?;
    if *noted != text {
        files::write(&blueprint.machine_dir.join("services.json"), &text)?;
        *noted = text;
    }
    Ok(())
}
