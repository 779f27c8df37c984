//! The plan as text of 80 columns.

use jiff::Timestamp;

use super::report::{PlanReport, PlanStep, PlanVolumeDeletion};
use crate::terminal::{Terminal, WIDTH, format_elapsed, format_time, wrap};

/// The width of the labels.
const LABEL_WIDTH: usize = 13;
/// The width of a step's number.
const NUMBER_WIDTH: usize = 5;
/// The largest width of the steps beside which their reasons are printed.
const MAX_STEP_WIDTH: usize = 40;

/// Formats the plan. `show_all` lists the actions of each step and all deletions of volumes.
pub(super) fn text(report: &PlanReport, show_all: bool, terminal: Terminal) -> String {
    let mut screen = Screen {
        terminal,
        text: String::new(),
    };
    match (&report.edits[..], report.exists) {
        (_, false) => screen.row("Edit", &[format!("create EtcdCluster {}", report.name)]),
        ([], true) => screen.row("Edit", &["none".to_owned()]),
        (edits, true) => screen.row("Edit", edits),
    }
    if let Some(rejection) = &report.rejection {
        screen.row("Rejected", std::slice::from_ref(rejection));
    }
    let volumes: Vec<_> = report
        .volume_deletions
        .iter()
        .filter(|volume| show_all || volume.caused_by_plan)
        .collect();
    if report.steps.is_empty() && volumes.is_empty() {
        let effects = if report.waiting_for.is_empty() {
            "none: the operator has nothing to do"
        } else {
            "none: the operator waits"
        };
        screen.row("Effects", &[effects.to_owned()]);
    } else {
        screen.row("Effects", &report.effects.summary);
    }
    if !report.steps.is_empty() {
        screen.steps(report, show_all);
    }
    screen.row("Volumes", &volume_lines(&volumes, report.now));
    screen.row("Ends", std::slice::from_ref(&report.final_summary));
    screen.rows("Waits for", &report.waiting_for);
    screen.rows("Note", &report.notes);
    screen.rows("Assumes", &report.assumptions);
    screen.row("Based on", &[sources(report)]);
    screen.text
}

struct Screen {
    terminal: Terminal,
    text: String,
}

impl Screen {
    /// Adds lines after one label. A line that is continued is indented further.
    fn row(&mut self, label: &str, lines: &[String]) {
        let mut label = label;
        for line in lines {
            for (index, part) in hanging(&self.terminal.commands(line), WIDTH - LABEL_WIDTH)
                .into_iter()
                .enumerate()
            {
                let label = if index == 0 { label } else { "" };
                let label = self.terminal.bold(&format!("{label:<LABEL_WIDTH$}"));
                self.text.push_str(&format!("{label}{part}\n"));
            }
            label = "";
        }
    }

    /// Adds lines with a label each.
    fn rows(&mut self, label: &str, lines: &[String]) {
        for line in lines {
            self.row(label, std::slice::from_ref(line));
        }
    }

    fn steps(&mut self, report: &PlanReport, show_all: bool) {
        self.text.push_str(&self.terminal.bold("Steps"));
        self.text.push('\n');
        let lengths = report.steps.iter().map(|step| length(&step.description));
        let column = lengths.filter(|length| *length <= MAX_STEP_WIDTH).max();
        let column = NUMBER_WIDTH + column.unwrap_or(MAX_STEP_WIDTH) + 2;
        let mut after_seconds = 0;
        let mut last_reason = "";
        for step in &report.steps {
            if step.after_seconds != after_seconds {
                after_seconds = step.after_seconds;
                let heading = at(step.time.unwrap_or(report.now), report.now);
                let heading = self.terminal.bold(&heading);
                self.text.push_str(&format!("  {heading}\n"));
            }
            // A reason that several steps share is printed once.
            let reason = if step.reason == last_reason {
                ""
            } else {
                &step.reason
            };
            last_reason = &step.reason;
            self.step(step, reason, column);
            if show_all {
                self.actions(report, step.number);
            }
        }
    }

    fn step(&mut self, step: &PlanStep, reason: &str, column: usize) {
        let text_width =
            if reason.is_empty() || length(&step.description) + NUMBER_WIDTH + 2 > column {
                WIDTH - NUMBER_WIDTH
            } else {
                column - NUMBER_WIDTH - 2
            };
        let mut lines: Vec<String> = wrap(&step.description, text_width)
            .into_iter()
            .enumerate()
            .map(|(index, line)| {
                let number = if index == 0 {
                    step.number.to_string()
                } else {
                    String::new()
                };
                format!("{number:>3}  {line}")
            })
            .collect();
        if !reason.is_empty() {
            let mut reasons = wrap(reason, WIDTH - column).into_iter();
            if let [only] = &mut lines[..]
                && length(only) + 2 <= column
            {
                let first = reasons.next().unwrap_or_default();
                *only = format!("{only:<column$}{first}");
            }
            lines.extend(reasons.map(|reason| format!("{:column$}{reason}", "")));
        }
        for line in lines {
            self.text.push_str(&format!("{line}\n"));
        }
    }

    fn actions(&mut self, report: &PlanReport, step: usize) {
        const INDENT: usize = NUMBER_WIDTH + 2;
        let actions = report.actions.iter();
        for action in actions.filter(|action| action.step == Some(step)) {
            for (index, line) in hanging(&action.description, WIDTH - INDENT - 2)
                .into_iter()
                .enumerate()
            {
                let bullet = if index == 0 { "- " } else { "  " };
                self.text
                    .push_str(&format!("{:INDENT$}{bullet}{line}\n", ""));
            }
        }
    }
}

/// Wraps a text, with all lines but the first indented.
fn hanging(text: &str, width: usize) -> Vec<String> {
    const INDENT: usize = 2;
    let mut lines = wrap(text, width);
    if lines.len() > 1 {
        let rest = lines[1..].join(" ");
        lines.truncate(1);
        lines.extend(
            wrap(&rest, width - INDENT)
                .into_iter()
                .map(|line| format!("{:INDENT$}{line}", "")),
        );
    }
    lines
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// Returns one line for all volumes that are deleted at the same time.
fn volume_lines(volumes: &[&PlanVolumeDeletion], now: Timestamp) -> Vec<String> {
    let mut times: Vec<_> = volumes.iter().map(|volume| volume.after_seconds).collect();
    times.sort_unstable();
    times.dedup();
    let line = |after: i64| {
        let same = volumes
            .iter()
            .filter(|volume| volume.after_seconds == after);
        let names: Vec<_> = same.clone().map(|volume| volume.claim.as_str()).collect();
        let (noun, verb, at_once) = match names.len() {
            1 => ("PersistentVolumeClaim", "is", "when its pod is gone"),
            _ => ("PersistentVolumeClaims", "are", "when their pods are gone"),
        };
        let when = match same.clone().next() {
            Some(volume) if after > 0 => at(volume.time, now),
            _ => at_once.to_owned(),
        };
        format!("{noun} {} {verb} deleted {when}", names.join(", "))
    };
    times.into_iter().map(line).collect()
}

/// Returns an absolute time and the remaining time.
fn at(time: Timestamp, now: Timestamp) -> String {
    let remaining = format_elapsed(time.as_second() - now.as_second());
    format!("at {} (in {remaining})", format_time(time, now))
}

fn sources(report: &PlanReport) -> String {
    match report.facts_age_seconds {
        Some(seconds) => format!(
            "live objects; etcd as recorded with the last decision, {} ago",
            format_elapsed(seconds)
        ),
        None if report.exists => {
            "live objects; no decision of the operator is recorded yet".to_owned()
        }
        None => "the manifest; the cluster does not exist yet".to_owned(),
    }
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;
