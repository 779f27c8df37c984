//! Waits for the end of a restore or of its undo, and shows the progress.

use std::time::Duration;

use evenkeel_api::{Restore, RestorePhase};
use kube::{Api, ResourceExt};
use tokio::time::{Instant, sleep};

use super::super::create::WaitTimes;
use super::super::progress::{ProgressDisplay, ProgressStep};
use super::report::RestoreReport;
use crate::connection::{Connection, request};
use crate::error::{CliError, EXIT_UNREACHABLE};
use crate::terminal::format_elapsed;

/// The phase that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// Clients are served from the restored data.
    Complete,
    /// Clients are served from the old data again.
    Undone,
}

/// Returns the API of the namespace's Restores.
pub(super) fn api(connection: &Connection) -> Api<Restore> {
    Api::namespaced(connection.client.clone(), &connection.namespace)
}

/// Waits until a restore has reached its goal, or never will.
pub(super) async fn wait(
    connection: &Connection,
    created: &Restore,
    goal: Goal,
    limit: Duration,
    times: WaitTimes,
) -> Result<RestoreReport, CliError> {
    let name = created.name_any();
    let started = Instant::now();
    let mut last_answer = started;
    let mut display = ProgressDisplay::start(&name);
    let mut last = created.clone();
    let action = format!("read Restore {name}");
    loop {
        match request(&action, api(connection).get_opt(&name)).await {
            Ok(Some(restore)) => {
                last_answer = Instant::now();
                last = restore;
            }
            Ok(None) => {
                return Err(CliError::new(format!(
                    "Restore {name} was deleted while this command waited for it"
                ))
                .help(format!(
                    "`kubectl evenkeel status {}` shows the state of the cluster",
                    created.spec.cluster.name
                )));
            }
            Err(error) => {
                let is_outage = error.exit_code == EXIT_UNREACHABLE;
                if !is_outage || last_answer.elapsed() > times.outage {
                    return Err(error);
                }
            }
        }
        let report = RestoreReport::new(&last);
        if is_reached(&last, goal)? {
            return Ok(report);
        }
        if started.elapsed() > limit {
            return Err(timed_out(&report, limit));
        }
        display.show(&ProgressStep {
            text: step_text(&report),
            agent: None,
        });
        sleep(times.interval).await;
    }
}

/// Returns whether the goal is reached, or an error if it never will be.
fn is_reached(restore: &Restore, goal: Goal) -> Result<bool, CliError> {
    let report = RestoreReport::new(restore);
    let phase = super::report::phase(restore);
    match (phase, goal) {
        (RestorePhase::Complete, Goal::Complete) | (RestorePhase::Undone, Goal::Undone) => Ok(true),
        (RestorePhase::NotNeeded, _) => Err(not_reached(&report, "is not needed")),
        (RestorePhase::Undoing | RestorePhase::Undone, Goal::Complete) => {
            Err(not_reached(&report, "is being undone or was undone"))
        }
        (RestorePhase::Complete, Goal::Undone) if report.reason == "UndoNotPossible" => {
            Err(not_reached(&report, "cannot be undone"))
        }
        // The status describes an older spec.
        (RestorePhase::Complete | RestorePhase::Undoing, Goal::Undone)
        | (
            RestorePhase::Pending
            | RestorePhase::Preparing
            | RestorePhase::Replacing
            | RestorePhase::Starting
            | RestorePhase::Unknown,
            _,
        ) => Ok(false),
    }
}

fn not_reached(restore: &RestoreReport, what: &str) -> CliError {
    let (name, cluster) = (&restore.name, &restore.cluster);
    let message = restore.message.trim_end_matches('.');
    CliError::new(format!("Restore {name} {what}: {message}")).help(format!(
        "`kubectl evenkeel restores {cluster}` shows all restores"
    ))
}

fn timed_out(restore: &RestoreReport, limit: Duration) -> CliError {
    let seconds = i64::try_from(limit.as_secs()).unwrap_or(i64::MAX);
    let cluster = &restore.cluster;
    CliError::new(format!(
        "Restore {} has not ended within {}: {}",
        restore.name,
        format_elapsed(seconds),
        step_text(restore).trim_end_matches('.')
    ))
    .help(format!(
        "the restore continues without this command; `kubectl evenkeel restores {cluster}` shows its state, and `kubectl evenkeel \
         why {cluster}` what it waits for"
    ))
}

/// Returns the phase and the message.
fn step_text(restore: &RestoreReport) -> String {
    match (restore.phase.as_str(), restore.message.as_str()) {
        (phase, "") => phase.to_owned(),
        (phase, message) => format!("{phase}: {message}"),
    }
}

/// The text for a wait that the user has interrupted.
pub(super) fn interrupted(restore: &Restore) -> String {
    format!(
        "Restore {} continues without this command. `kubectl evenkeel restores {}` shows its state.\n",
        restore.name_any(),
        restore.spec.cluster.name
    )
}

#[cfg(test)]
#[path = "wait_tests.rs"]
mod tests;
