//! One run of the agent: it reads a request, executes its task within the deadline, and writes the outcome.

use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use evenkeel_archive::ArchiveStore;
use evenkeel_archive::check::check;
use evenkeel_archive::prune::prune;
use evenkeel_archive::reader::read_manifest;
use evenkeel_archive::tasks::{
    BackupSummary, FailureReason, Outcome, Request, Task, TaskFailure, TaskResult,
};
use jiff::Timestamp;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::etcd::drill::drill;
use crate::etcd::snapshot::{SnapshotLimits, snapshot};
use crate::fetch::fetch;
use crate::install::install;
use crate::list;
use crate::spool::blocking;
use crate::{AgentFailure, StopCause, StopSignal};

/// The largest outcome in bytes: Kubernetes cuts termination messages there.
const MAX_OUTCOME_BYTES: usize = 4096;
/// The largest request in bytes: annotations have at most 256 KiB.
const MAX_REQUEST_BYTES: u64 = 1 << 20;

/// The program that runs inside pods: executes one task for backups or restores, and writes its outcome.
#[derive(Debug, Parser)]
#[command(name = "evenkeel-agent", version)]
pub struct AgentOptions {
    /// The file with the request, as JSON.
    #[arg(long, value_name = "FILE")]
    pub request: PathBuf,
    /// The file that the outcome is written to, as JSON.
    #[arg(long, value_name = "FILE", default_value = "/dev/termination-log")]
    pub result: PathBuf,
    /// A directory for temporary data, as large as the data of a backup.
    #[arg(long, value_name = "DIRECTORY", default_value = "/work")]
    pub work: PathBuf,
    /// Log filter, such as `info` or `debug,h2=warn`.
    #[arg(long, value_name = "FILTER", default_value = "info")]
    pub log: String,
}

/// Runs the agent. The exit code is 0 if the task is done, and 1 otherwise.
pub fn run(options: &AgentOptions) -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(&options.log))
        .with_writer(std::io::stderr)
        .json()
        .flatten_event(true)
        .init();
    let outcome = match execute_request(options) {
        Ok(result) => {
            tracing::info!("task done");
            Outcome::Succeeded(result)
        }
        Err(failure) => {
            tracing::error!(reason = ?failure.reason, problem = failure.message, "task failed");
            Outcome::Failed(failure.into())
        }
    };
    let is_done = matches!(outcome, Outcome::Succeeded(_));
    match write_outcome(options, outcome) {
        Ok(()) if is_done => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
        Err(error) => {
            tracing::error!(%error, "failed to write the outcome");
            ExitCode::FAILURE
        }
    }
}

fn execute_request(options: &AgentOptions) -> Result<TaskResult, AgentFailure> {
    let request = read_request(options)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| {
            AgentFailure::new(FailureReason::Other, format!("failed to start: {error}"))
        })?;
    let result = runtime.block_on(execute_until_stopped(request, options));
    // A blocked thread does not delay the end.
    runtime.shutdown_background();
    result
}

fn read_request(options: &AgentOptions) -> Result<Request, AgentFailure> {
    let path = &options.request;
    let invalid = |problem: String| {
        AgentFailure::new(
            FailureReason::InvalidRequest,
            format!(
                "The request in {} is invalid: {problem}. Use the agent of the operator's version.",
                path.display()
            ),
        )
    };
    let mut bytes = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take(MAX_REQUEST_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(|error| invalid(error.to_string()))?;
    if bytes.len() as u64 > MAX_REQUEST_BYTES {
        return Err(invalid(format!(
            "it has more than {MAX_REQUEST_BYTES} bytes"
        )));
    }
    serde_json::from_slice(&bytes).map_err(|error| invalid(error.to_string()))
}

async fn execute_until_stopped(
    request: Request,
    options: &AgentOptions,
) -> Result<TaskResult, AgentFailure> {
    let (stopper, stop) = StopSignal::new();
    let failed = |error: std::io::Error| {
        AgentFailure::new(
            FailureReason::Other,
            format!("failed to wait for signals: {error}"),
        )
    };
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let seconds = request.deadline_seconds;
    let stopping = async {
        let cause = tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(seconds)) => StopCause::Deadline(seconds),
            _ = terminate.recv() => StopCause::Terminated,
            _ = interrupt.recv() => StopCause::Terminated,
        };
        tracing::warn!(?cause, "task is stopped");
        stopper.send_replace(Some(cause));
        std::future::pending().await
    };
    tokio::select! {
        result = execute(request, options, &stop) => result,
        never = stopping => never,
    }
}

async fn execute(
    request: Request,
    options: &AgentOptions,
    stop: &StopSignal,
) -> Result<TaskResult, AgentFailure> {
    let Request {
        store,
        task,
        deadline_seconds,
    } = request;
    let open = || -> Result<ArchiveStore, AgentFailure> {
        let deadline = Duration::from_secs(deadline_seconds);
        Ok(ArchiveStore::open(&store, deadline)?)
    };
    // A snapshot that is stopped aborts its upload. The other tasks can be interrupted at any point.
    if let Task::SnapshotEtcd(task) = &task {
        let limits = SnapshotLimits::default();
        return snapshot(&open()?, task, &options.work, &limits, stop).await;
    }
    stop.limit(execute_task(task, open)).await
}

async fn execute_task(
    task: Task,
    open: impl Fn() -> Result<ArchiveStore, AgentFailure>,
) -> Result<TaskResult, AgentFailure> {
    match task {
        Task::CheckStore => {
            let checked = check(&open()?).await?;
            Ok(TaskResult::StoreChecked {
                conditional_writes: checked.conditional_writes,
            })
        }
        Task::SnapshotEtcd(_) => Err(AgentFailure::new(
            FailureReason::InvalidRequest,
            "A snapshot is not interrupted like other tasks.",
        )),
        Task::Fetch(task) => {
            fetch(&open()?, &task).await?;
            Ok(TaskResult::Done)
        }
        // Data is installed without a store.
        Task::Install(task) => {
            blocking(move || install(&task)).await??;
            Ok(TaskResult::Done)
        }
        Task::DrillEtcd(task) => drill(&open()?, &task).await,
        Task::Prune(task) => {
            let pruned = prune(&open()?, &task, Timestamp::now()).await?;
            Ok(TaskResult::Pruned {
                deleted: pruned.deleted,
                locked: pruned.locked,
                locked_until: pruned.locked_until.map(|until| until.to_string()),
            })
        }
        Task::ReadManifest { location } => {
            let manifest = read_manifest(&open()?, &location).await?;
            Ok(TaskResult::Backup {
                location,
                summary: BackupSummary::of(&manifest),
            })
        }
        Task::List => list::print(&open()?).await,
    }
}

fn write_outcome(options: &AgentOptions, outcome: Outcome) -> std::io::Result<()> {
    let text = encode(outcome)?;
    // The termination log is a mounted file, which cannot be replaced.
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .open(&options.result)?;
    file.write_all(text.as_bytes())
}

/// Returns the outcome as JSON of at most [`MAX_OUTCOME_BYTES`]. A long message is cut.
fn encode(mut outcome: Outcome) -> std::io::Result<String> {
    loop {
        let text = serde_json::to_string(&outcome)?;
        let excess = text.len().saturating_sub(MAX_OUTCOME_BYTES);
        if excess == 0 {
            return Ok(text);
        }
        outcome = Outcome::Failed(match outcome {
            Outcome::Failed(failure) => TaskFailure {
                // Escapes make the JSON longer than the message.
                message: cut(
                    &failure.message,
                    excess * failure.message.len() / text.len() + 1,
                ),
                reason: failure.reason,
            },
            Outcome::Succeeded(_) => TaskFailure {
                reason: FailureReason::Other,
                message: format!("The outcome has more than {MAX_OUTCOME_BYTES} bytes."),
            },
        });
    }
}

/// Cuts at least this many bytes off a message and marks the cut.
fn cut(message: &str, excess: usize) -> String {
    let mark = "…";
    let mut end = message.len().saturating_sub(excess + mark.len());
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    message.get(..end).unwrap_or_default().to_owned() + mark
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
