//! Supervises the services of a machine: starts them, restarts them with exponential backoff when they end, and reaps
//! orphaned processes, as process 1 must.

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

use super::{Blueprint, MachineService, ServiceState, open_log, stop_file};
use crate::command::Cmd;
use crate::files;

/// Delay before the first restart of a service.
const FIRST_RESTART_DELAY: Duration = Duration::from_millis(300);
/// Upper limit of the delay before a restart.
const MAX_RESTART_DELAY: Duration = Duration::from_secs(5);
/// A service that ran this long counts as stable: its delay and start count are reset.
const STABLE_AFTER: Duration = Duration::from_secs(20);

/// A service and its state.
struct SupervisedService<'a> {
    service: &'a MachineService,
    pid: Option<Pid>,
    started: Instant,
    next_start: Instant,
    delay: Duration,
    starts: u32,
    since: u64,
    stopped: bool,
}

/// Runs the services of the blueprint until the machine is killed.
pub(super) fn run(blueprint: &Blueprint) -> Result<()> {
    let mut signals = SigSet::empty();
    // SIGHUP requests a check of the stop files.
    for signal in [Signal::SIGCHLD, Signal::SIGHUP, Signal::SIGTERM] {
        signals.add(signal);
    }
    signals.thread_block().context("cannot block signals")?;
    let signal_fd = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    let now = Instant::now();
    let mut services: Vec<SupervisedService<'_>> = blueprint
        .services
        .iter()
        .map(|service| SupervisedService::new(service, now))
        .collect();
    let mut written = String::new();
    loop {
        for supervised in &mut services {
            supervised.stopped =
                stop_file(&blueprint.machine_dir, &supervised.service.name).exists();
            // An error, for example a full disk, must not end the init. The start is retried.
            if let Err(error) = supervised.start_or_stop(blueprint) {
                eprintln!(
                    "failed to start service {}: {error:#}",
                    supervised.service.name
                );
                supervised.on_end();
            }
        }
        if let Err(error) = write_states(blueprint, &services, &mut written) {
            eprintln!("failed to write services.json: {error:#}");
        }
        let timeout = services
            .iter()
            .filter_map(SupervisedService::time_to_start)
            .min();
        let timeout = timeout.map_or(PollTimeout::NONE, |wait| {
            PollTimeout::try_from(wait.max(Duration::from_millis(1))).unwrap_or(PollTimeout::MAX)
        });
        match poll(
            &mut [PollFd::new(signal_fd.as_fd(), PollFlags::POLLIN)],
            timeout,
        ) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error).context("cannot wait for signals"),
        }
        while let Ok(Some(_)) = signal_fd.read_signal() {}
        reap(&mut services);
    }
}

impl<'a> SupervisedService<'a> {
    fn new(service: &'a MachineService, now: Instant) -> Self {
        Self {
            service,
            pid: None,
            started: now,
            next_start: now,
            delay: FIRST_RESTART_DELAY,
            starts: 0,
            since: 0,
            stopped: false,
        }
    }

    /// Returns the time until the next start, or `None` when the service runs or is stopped.
    fn time_to_start(&self) -> Option<Duration> {
        (self.pid.is_none() && !self.stopped)
            .then(|| self.next_start.saturating_duration_since(Instant::now()))
    }

    fn start_or_stop(&mut self, blueprint: &Blueprint) -> Result<()> {
        match self.pid {
            Some(pid) if self.stopped => {
                // `reap` handles the end of the process.
                let _ = kill(pid, Signal::SIGKILL);
            }
            None if !self.stopped && Instant::now() >= self.next_start => self.start(blueprint)?,
            _ => {}
        }
        Ok(())
    }

    fn start(&mut self, blueprint: &Blueprint) -> Result<()> {
        let log = open_log(&blueprint.machine_dir, &self.service.name)?;
        let programs = blueprint.lab_dir.join("programs");
        let path = format!(
            "{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            programs.display()
        );
        let (program, args) = self
            .service
            .argv
            .split_first()
            .context("the service has an empty command line")?;
        let command = Cmd::new(program)
            .args(args)
            .env("PATH", path)
            .env("HOME", "/run");
        let stderr = log.try_clone()?;
        let child = command.spawn(|command| {
            command.stdin(Stdio::null()).stdout(log).stderr(stderr);
        })?;
        self.pid = Some(Pid::from_raw(i32::try_from(child.id())?));
        self.started = Instant::now();
        self.since = std::time::UNIX_EPOCH
            .elapsed()
            .map_or(0, |now| now.as_secs());
        self.starts += 1;
        Ok(())
    }

    /// Schedules the next start after the process has ended.
    fn on_end(&mut self) {
        let was_stable = self.started.elapsed() > STABLE_AFTER;
        self.delay = if was_stable {
            FIRST_RESTART_DELAY
        } else {
            (self.delay * 2).min(MAX_RESTART_DELAY)
        };
        self.next_start = Instant::now()
            + if self.stopped {
                Duration::ZERO
            } else {
                self.delay
            };
        self.pid = None;
        // An end after a stable run, or after a stop, does not count as a failure.
        if was_stable || self.stopped {
            self.starts = 0;
            self.delay = FIRST_RESTART_DELAY;
        }
    }
}

/// Reaps all processes that have ended: services and adopted orphans.
fn reap(services: &mut [SupervisedService<'_>]) {
    let mut by_pid: HashMap<Pid, usize> = services
        .iter()
        .enumerate()
        .filter_map(|(index, supervised)| Some((supervised.pid?, index)))
        .collect();
    loop {
        let pid = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, _, _)) => pid,
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return,
            Ok(_) => continue,
            Err(_) => return,
        };
        if let Some(supervised) = by_pid
            .remove(&pid)
            .and_then(|index| services.get_mut(index))
        {
            supervised.on_end();
        }
    }
}

/// Writes the states of the services for `lab status` when they differ from the text written last.
fn write_states(
    blueprint: &Blueprint,
    services: &[SupervisedService<'_>],
    written: &mut String,
) -> Result<()> {
    let states: Vec<_> = services
        .iter()
        .map(|supervised| ServiceState {
            name: supervised.service.name.clone(),
            running: supervised.pid.is_some(),
            starts: supervised.starts,
            since: supervised.since,
            stopped: supervised.stopped,
        })
        .collect();
    let text = serde_json::to_string(&states)?;
    if *written != text {
        files::write(&blueprint.machine_dir.join("services.json"), &text)?;
        *written = text;
    }
    Ok(())
}
