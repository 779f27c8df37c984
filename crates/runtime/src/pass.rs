//! The end of a pass, as a pure function: after the execution of one plan, [`next`] chooses whether to observe again,
//! requeue or fail, and which errors the events and the status report.

use std::time::Duration;

use crate::decision_log::{DecisionOutcome, DecisionResult};
use crate::error::Error;
use crate::execute::{Execution, ExecutionEnd, PlanScope};

/// The delay before a declined action is retried.
pub(crate) const RETRY_DELAY: Duration = Duration::from_millis(500);
/// The delay before an action in progress continues. Other resources are reconciled in between.
pub(crate) const CONTINUE_DELAY: Duration = Duration::from_millis(20);
/// The number of consecutive declined attempts after which the status reports them and the retries slow down.
pub(crate) const RETRIES_BEFORE_REPORT: u32 = 20;
/// The delay between retries from then on.
pub(crate) const SLOW_RETRY_DELAY: Duration = Duration::from_secs(10);
/// The number of consecutive plans without progress after which the reconcile fails and backs off.
pub(crate) const MAX_NO_PROGRESS: usize = 3;

/// The state that one pass hands to the next within a reconcile.
#[derive(Debug, Default)]
pub(crate) struct PassState {
    /// Whether the next observation must be live.
    pub(crate) is_live: bool,
    /// The number of consecutive plans without progress.
    pub(crate) no_progress: usize,
    /// The part of the next plan to execute.
    pub(crate) scope: PlanScope,
    /// The most important error of independent actions in this reconcile.
    pub(crate) rejected: Option<Error>,
}

/// The conditions outside the execution on which the end of a pass depends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PassConditions {
    /// Whether the plan has the same actions as the previous plan of this reconcile.
    pub(crate) is_same_plan: bool,
    /// Whether this process still holds the lease.
    pub(crate) is_leader: bool,
    /// The name of the disruption, empty if the plan has none.
    pub(crate) disruption: &'static str,
    /// The number of consecutive attempts at the disruption that were declined, including this one.
    pub(crate) declined_attempts: u32,
    /// Whether the resource has failed in so many reconciles that the failure is not transient.
    pub(crate) is_failing_persistently: bool,
    /// Whether the status is written after a disruption, before the next pass.
    pub(crate) reports_progress: bool,
}

/// The end of a pass.
#[derive(Debug)]
pub(crate) struct PassEnd {
    /// The next step of the controller.
    pub(crate) next: Next,
    /// The reports that the controller publishes before that step.
    pub(crate) report: Report,
    /// The outcome for the decision log.
    pub(crate) outcome: DecisionOutcome,
}

/// The next step of the reconcile.
#[derive(Debug)]
pub(crate) enum Next {
    /// Observe and decide again.
    Continue(PassState),
    /// End the reconcile; start another after this delay.
    Requeue(Duration),
    /// End the reconcile with this error; the backoff of the resource applies.
    Fail(Error),
}

/// The reports at the end of a pass.
#[derive(Debug)]
pub(crate) enum Report {
    /// No report: another replica leads, and reports.
    Nothing,
    /// The events of the executed actions.
    Events,
    /// The events of the executed actions, and the status while the reconcile continues.
    Progress,
    /// The events of the executed actions, and the status.
    Status {
        /// The error for a WriteRejected event.
        event_error: Option<Error>,
        /// The error for the status.
        status_error: Option<Error>,
    },
}

/// Chooses the next step after a plan was executed.
pub(crate) fn next(
    mut state: PassState,
    execution: &Execution,
    conditions: &PassConditions,
) -> PassEnd {
    state.rejected = more_important(state.rejected.take(), execution.rejected.as_ref());
    let is_full = state.scope == PlanScope::Full;
    // Rejections that take long must not postpone the disruption forever: it is decided again, and executed first.
    let disruption_first = is_full && execution.is_late && state.rejected.is_some();
    let is_repeated = is_full && conditions.is_same_plan;
    state.no_progress = if execution.done == 0 || is_repeated {
        state.no_progress + 1
    } else {
        0
    };
    let nothing_left = execution.done == 0 && is_full && !execution.is_late;
    let persistent = conditions.is_failing_persistently;
    let outcome = describe(execution, state.rejected.as_ref());
    let end = |next, report| PassEnd {
        next,
        report,
        outcome,
    };
    match &execution.end {
        ExecutionEnd::RetryLater(reason) => {
            let exhausted = (conditions.declined_attempts >= RETRIES_BEFORE_REPORT).then(|| {
                Error::RetriesExhausted {
                    action: conditions.disruption,
                    reason: reason.clone(),
                    times: RETRIES_BEFORE_REPORT,
                }
            });
            let delay = if exhausted.is_some() {
                SLOW_RETRY_DELAY
            } else {
                RETRY_DELAY
            };
            let status_error =
                exhausted.or_else(|| for_status(state.rejected.as_ref(), persistent));
            let event_error = state.rejected;
            end(
                Next::Requeue(delay),
                Report::Status {
                    event_error,
                    status_error,
                },
            )
        }
        ExecutionEnd::InProgress(_) => {
            let status_error = for_status(state.rejected.as_ref(), persistent);
            let event_error = state.rejected;
            end(
                Next::Requeue(CONTINUE_DELAY),
                Report::Status {
                    event_error,
                    status_error,
                },
            )
        }
        ExecutionEnd::Failed(error) => {
            // A rejection of an independent action is more important than a failure that may pass by itself.
            let rejected = state
                .rejected
                .filter(|other| other.is_rejected() && !error.is_rejected());
            let error = rejected.unwrap_or_else(|| error.clone());
            let report = failure_report(&error, conditions);
            end(Next::Fail(error), report)
        }
        ExecutionEnd::Completed if nothing_left && state.rejected.is_some() => {
            let error = state.rejected.unwrap_or(Error::NoProgress { plans: 1 });
            let report = failure_report(&error, conditions);
            end(Next::Fail(error), report)
        }
        ExecutionEnd::Completed | ExecutionEnd::Conflict
            if state.no_progress >= MAX_NO_PROGRESS =>
        {
            let plans = state.no_progress;
            let error = state.rejected.unwrap_or(Error::NoProgress { plans });
            let event_error = Some(error.clone()).filter(|error| error.is_rejected() || persistent);
            let status_error = for_status(Some(&error), persistent);
            end(
                Next::Fail(error),
                Report::Status {
                    event_error,
                    status_error,
                },
            )
        }
        ExecutionEnd::Completed | ExecutionEnd::Conflict => {
            state.is_live = true;
            state.scope = if disruption_first {
                PlanScope::DisruptionOnly
            } else {
                PlanScope::Full
            };
            let has_acted = matches!(execution.end, ExecutionEnd::Completed)
                && !conditions.disruption.is_empty()
                && conditions.is_leader;
            let report = if has_acted && conditions.reports_progress {
                Report::Progress
            } else {
                Report::Events
            };
            end(Next::Continue(state), report)
        }
    }
}

/// Returns the error to report of two errors in order of time: the first rejection, otherwise the first failure. A
/// failure may pass by itself, so people need not know of it.
pub(crate) fn more_important(first: Option<Error>, second: Option<&Error>) -> Option<Error> {
    match (first, second) {
        (Some(first), Some(second)) if !first.is_rejected() && second.is_rejected() => {
            Some(second.clone())
        }
        (Some(first), _) => Some(first),
        (None, second) => second.cloned(),
    }
}

fn failure_report(error: &Error, conditions: &PassConditions) -> Report {
    if !conditions.is_leader {
        return Report::Nothing;
    }
    Report::Status {
        event_error: Some(error.clone()),
        status_error: for_status(Some(error), conditions.is_failing_persistently),
    }
}

/// Returns the error as the status shows it. The status does not show an error that may pass by itself; an error that
/// lasts, such as a webhook that does not answer, is shown without details, because a text that varies is a change of
/// the resource and triggers another reconcile. The events have the details.
fn for_status(error: Option<&Error>, is_failing_persistently: bool) -> Option<Error> {
    let error = error?;
    if error.is_rejected() {
        return Some(error.clone());
    }
    is_failing_persistently.then(|| error.without_details())
}

/// Returns the outcome for the decision log.
fn describe(execution: &Execution, rejected: Option<&Error>) -> DecisionOutcome {
    let (result, text) = match (&execution.end, rejected) {
        (ExecutionEnd::Completed, Some(error)) => {
            (DecisionResult::Partial, format!("partially done: {error}"))
        }
        (ExecutionEnd::Completed, None) => (DecisionResult::Completed, "done".to_owned()),
        (ExecutionEnd::Conflict, _) => (
            DecisionResult::Conflict,
            "stopped: an object has changed since it was observed".to_owned(),
        ),
        (ExecutionEnd::InProgress(progress), _) => (
            DecisionResult::InProgress,
            format!("in progress: {progress}"),
        ),
        (ExecutionEnd::RetryLater(reason), _) => (
            DecisionResult::Declined,
            format!("declined for now: {reason}"),
        ),
        (ExecutionEnd::Failed(error), _) => (DecisionResult::Failed, format!("stopped: {error}")),
    };
    DecisionOutcome { result, text }
}

#[cfg(test)]
#[path = "pass_tests.rs"]
mod tests;
