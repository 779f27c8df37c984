//! The lines about the operation on the status screen: what the operator does, how far it is, what it waits for, and what
//! it does next.

use evenkeel_api::conditions::Reason;
use jiff::Timestamp;

use crate::report::{
    ClusterReport, HealthState, MemberHealthState, MemberReport, OperationReport, ProblemReport,
    ReportSource,
};
use crate::terminal::{Severity, Terminal, format_elapsed};

/// The number of characters of a progress bar.
const BAR_WIDTH: usize = 20;
/// The shortest part of a text that counts as a repetition, in characters.
const MIN_REPETITION: usize = 12;

/// Renders the operation.
pub(crate) fn text(report: &ClusterReport, terminal: Terminal) -> String {
    let (severity, word, headline) = headline(report);
    let mut text = terminal.field_with_word("Operation", severity, &word, &headline);
    for line in details(report) {
        text.push_str(&terminal.field("", &line));
    }
    text
}

/// Returns the operation in a word, and its progress.
fn headline(report: &ClusterReport) -> (Severity, String, String) {
    let neutral = |word: &str, text: String| (Severity::Neutral, word.to_owned(), text);
    let age = &report.operator_status;
    if report.operator.running == Some(false) {
        return match &report.operation {
            Some(operation) => {
                let last = age
                    .age_seconds
                    .map(|age| format!(", reported {} ago", format_elapsed(age)));
                neutral(
                    "stopped",
                    format!(
                        "{}{}: no operator continues it{}",
                        name(operation),
                        progress(operation).unwrap_or_default(),
                        last.unwrap_or_default()
                    ),
                )
            }
            None => match pending(report) {
                Some(pending) => {
                    neutral("pending", format!("{pending} waits until an operator runs"))
                }
                None => neutral("none", String::new()),
            },
        };
    }
    if report.paused && report.health.state != HealthState::Deleting {
        return (
            Severity::Warning,
            "paused".to_owned(),
            format!(
                "spec.paused is set: the operator neither recovers nor changes members. To resume: `kubectl evenkeel resume {}`",
                report.name
            ),
        );
    }
    if let Some(operation) = &report.operation {
        let started = format!(
            "started {} ({} ago)",
            report.format_time(&operation.start_time),
            format_elapsed(report.seconds_since(&operation.start_time))
        );
        let text = match (operation.completed, operation.total) {
            (Some(completed), Some(total)) => {
                format!(
                    "{} {completed} of {total}, {started}",
                    bar(completed, total)
                )
            }
            _ => started,
        };
        return neutral(&name(operation), text);
    }
    let generation = age.generation.unwrap_or_default();
    if age.observed_generation.is_none() {
        return neutral("none", "the operator has not reported yet".to_owned());
    }
    if age.observed_generation < age.generation {
        return neutral(
            "pending",
            format!("the operator has not reconciled generation {generation} of the spec yet"),
        );
    }
    if let Some(wait) = waits(report).first() {
        return neutral("waiting", format!("for {wait}"));
    }
    if let Some(restart) = pending_restart(report) {
        return neutral(
            "pending",
            format!("{restart} has not been reported by the operator yet"),
        );
    }
    let is_invalid = report
        .problems
        .iter()
        .any(|problem| problem.reason == Reason::InvalidSpec.as_str());
    let applied = if is_invalid {
        format!("spec generation {generation} is not applied completely")
    } else if has_news(report) {
        "reported yet; members have changed since the operator's last report".to_owned()
    } else {
        format!("spec generation {generation} is applied")
    };
    neutral("none", applied)
}

/// Returns the change that no operator has begun.
fn pending(report: &ClusterReport) -> Option<String> {
    let age = &report.operator_status;
    let generation = age.generation.unwrap_or_default();
    let is_edited = age.observed_generation < age.generation;
    let edit = is_edited.then(|| format!("generation {generation} of the spec"));
    edit.or_else(|| pending_restart(report))
}

fn pending_restart(report: &ClusterReport) -> Option<String> {
    let time = report.restart_requested.as_deref()?;
    Some(match time.parse::<Timestamp>() {
        Ok(_) => format!("the restart requested at {}", report.format_time(time)),
        Err(_) => "the requested restart".to_owned(),
    })
}

/// Returns whether the answers show something to which the operator reacts with an operation.
fn has_news(report: &ClusterReport) -> bool {
    let is_restarting = |member: &MemberReport| member.health == MemberHealthState::Restarting;
    let is_found_now = |problem: &ProblemReport| problem.source == ReportSource::Live;
    report.members.iter().any(is_restarting) || report.problems.iter().any(is_found_now)
}

/// Returns the lines below the headline.
fn details(report: &ClusterReport) -> Vec<String> {
    if report.operator.running == Some(false) {
        return Vec::new();
    }
    let mut lines = Vec::new();
    let mut waits = waits(report);
    match &report.operation {
        Some(operation) => {
            let reason = match operation.reason.as_str() {
                "" => String::new(),
                reason => format!(" ({reason})"),
            };
            lines.push(format!("now: {}{reason}", operation.message));
            waits.retain(|wait| !operation.message.contains(wait.as_str()));
            let age = &report.operator_status;
            if age.observed_generation < age.generation {
                lines.push(format!(
                    "generation {} of the spec is not reconciled yet",
                    age.generation.unwrap_or_default()
                ));
            }
        }
        // The headline has the first wait.
        None if !waits.is_empty() => {
            waits.remove(0);
        }
        None => {}
    }
    lines.extend(waits.into_iter().map(|wait| format!("waiting for: {wait}")));
    // Without advice, the line "You can" has the next action.
    let is_shown = !report.problems.is_empty()
        && report
            .problems
            .iter()
            .all(|problem| problem.advice.is_empty())
        && !report.paused;
    if !is_shown && let Some(next) = next_action(report) {
        lines.push(format!("next: {next}"));
    }
    let age = &report.operator_status;
    if !age.contradictions.is_empty() && !lines.is_empty() {
        let seconds = age
            .age_seconds
            .map(|age| format!(" of {} ago", format_elapsed(age)));
        lines.push(format!(
            "This is the operator's view{}. The members answer otherwise: see the note.",
            seconds.unwrap_or_default()
        ));
    }
    lines
}

/// Returns the waits, without what the problems say already.
fn waits(report: &ClusterReport) -> Vec<String> {
    if report.paused {
        return Vec::new();
    }
    let messages: Vec<_> = report
        .problems
        .iter()
        .map(|one| one.message.as_str())
        .collect();
    let is_repeated = |part: &str| {
        let part = part.trim_end_matches('.');
        part.chars().count() >= MIN_REPETITION
            && messages.iter().any(|message| message.contains(part))
    };
    let shorten = |wait: &String| match wait.split_once(": ") {
        Some((before, after)) if is_repeated(after) => before.to_owned(),
        _ => wait.clone(),
    };
    let waits = report.waiting_for.iter().filter(|wait| !is_repeated(wait));
    waits.map(shorten).collect()
}

/// Describes the next action with its time.
pub(crate) fn next_action(report: &ClusterReport) -> Option<String> {
    let next = report.next_action.as_ref()?;
    let message = match next.message.strip_prefix("operator ") {
        Some(rest) => format!("the operator {rest}"),
        None => next.message.clone(),
    };
    let Some(time) = &next.time else {
        return Some(message);
    };
    let remaining = next.remaining_seconds.unwrap_or_default();
    let when = if remaining > 0 {
        format!("in {}", format_elapsed(remaining))
    } else {
        "now".to_owned()
    };
    Some(format!(
        "at {} ({when}) {message}",
        report.format_time(time)
    ))
}

fn name(operation: &OperationReport) -> String {
    operation.r#type.to_lowercase()
}

/// Returns the progress of an operation in a few words, such as ` 1 of 3`.
pub(crate) fn progress(operation: &OperationReport) -> Option<String> {
    let (completed, total) = operation.completed.zip(operation.total)?;
    Some(format!(" {completed} of {total}"))
}

fn bar(completed: i32, total: i32) -> String {
    let part = |number: i32| usize::try_from(number).unwrap_or_default();
    let filled = BAR_WIDTH * part(completed).min(part(total)) / part(total).max(1);
    format!("[{}{}]", "#".repeat(filled), "-".repeat(BAR_WIDTH - filled))
}
