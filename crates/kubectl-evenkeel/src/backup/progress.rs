//! The progress of a backup or of a listing: a spinner or a bar on a terminal, one line per change elsewhere. Both go to
//! standard error.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use crate::terminal::{clean, format_bytes};

/// The interval at which the spinner turns.
const TICK: Duration = Duration::from_millis(120);

/// The current step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ProgressStep {
    /// The phase and the message.
    pub(super) text: String,
    /// The progress of the agent, if its log can be read.
    pub(super) agent: Option<AgentProgress>,
}

/// The last line about progress in the log of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AgentProgress {
    /// The message of the line.
    pub(super) message: String,
    /// The bytes that were transferred.
    pub(super) done: Option<u64>,
    /// The bytes in total.
    pub(super) total: Option<u64>,
}

impl AgentProgress {
    /// Finds the last line about progress in a log of JSON lines. Other lines are ignored.
    pub(super) fn of_log(log: &str) -> Option<Self> {
        log.lines().rev().find_map(Self::of_line)
    }

    fn of_line(line: &str) -> Option<Self> {
        let line: Value = serde_json::from_str(line).ok()?;
        let number = |names: [&str; 2]| {
            let mut values = names.iter().map(|name| line.get(name));
            values.find_map(|value| value?.as_u64())
        };
        let (done, total) = (
            number(["done", "bytes"]),
            number(["total", "database_bytes"]),
        );
        if done.is_none() && total.is_none() {
            return None;
        }
        Some(Self {
            message: line.get("message")?.as_str()?.to_owned(),
            done,
            total,
        })
    }

    /// Returns the progress in words.
    fn text(&self) -> String {
        let message = &self.message;
        match (self.done, self.total) {
            (Some(done), Some(total)) => format!(
                "{message}, {} of {}",
                format_bytes(done),
                format_bytes(total)
            ),
            (Some(done), None) => format!("{message}, {}", format_bytes(done)),
            (None, Some(total)) => format!("{message}, database of {}", format_bytes(total)),
            (None, None) => message.clone(),
        }
    }
}

impl ProgressStep {
    /// Returns the step with the progress of the agent.
    fn full_text(&self) -> String {
        match &self.agent {
            Some(agent) => format!("{} ({})", self.text, agent.text()),
            None => self.text.clone(),
        }
    }
}

/// The display. Dropping it removes the spinner.
#[derive(Debug)]
pub(super) enum ProgressDisplay {
    /// A terminal: the spinner or bar.
    Terminal(ProgressBar),
    /// No terminal: the last line.
    Lines(String),
}

impl ProgressDisplay {
    /// Starts the display; `title` names the operation.
    pub(super) fn start(title: &str) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self::Lines(String::new());
        }
        let bar = ProgressBar::new_spinner().with_prefix(title.to_owned());
        set_style(&bar, "{spinner} {prefix}  {elapsed}  {wide_msg}");
        bar.enable_steady_tick(TICK);
        Self::Terminal(bar)
    }

    /// Shows the current step.
    pub(super) fn show(&mut self, step: &ProgressStep) {
        match self {
            Self::Terminal(bar) => {
                let agent = step.agent.as_ref();
                if let Some((done, total)) = agent.and_then(|it| it.done.zip(it.total)) {
                    set_style(bar, "{spinner} {prefix} {bar:20} {elapsed}  {wide_msg}");
                    bar.set_length(total.max(1));
                    bar.set_position(done.min(total));
                }
                bar.set_message(clean(&step.full_text()));
            }
            Self::Lines(last) => {
                if let Some(line) = next_line(last, step) {
                    eprintln!("{}", clean(&line));
                    *last = line;
                }
            }
        }
    }
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        if let Self::Terminal(bar) = self {
            bar.finish_and_clear();
        }
    }
}

/// Returns the line about a step, unless it is the last one. Bytes change all the time, so lines do not have them.
fn next_line(last: &str, step: &ProgressStep) -> Option<String> {
    (step.text != last).then(|| step.text.clone())
}

fn set_style(bar: &ProgressBar, template: &str) {
    // The template is constant, and the default style is as good for a template that is invalid.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_with_bytes_is_the_progress() {
        let log = "not JSON\n\
            {\"timestamp\":\"t\",\"level\":\"INFO\",\"message\":\"snapshot in progress\",\"done\":1048576,\"total\":4194304}\n\
            {\"timestamp\":\"t\",\"level\":\"INFO\",\"message\":\"unrelated\",\"member\":\"a\"}\n";
        let progress = AgentProgress::of_log(log).unwrap();
        assert_eq!(progress.text(), "snapshot in progress, 1 MiB of 4 MiB");
        let log = "{\"message\":\"snapshot in progress\",\"database_bytes\":4194304}";
        let progress = AgentProgress::of_log(log).unwrap();
        assert_eq!(progress.text(), "snapshot in progress, database of 4 MiB");
        let log = "{\"message\":\"snapshot received\",\"bytes\":4194304}";
        let progress = AgentProgress::of_log(log).unwrap();
        assert_eq!(progress.text(), "snapshot received, 4 MiB");
        assert_eq!(
            AgentProgress::of_log("{\"message\":\"task done\"}\n[]\n"),
            None
        );
    }

    #[test]
    fn only_a_changed_step_is_a_new_line() {
        let mut step = ProgressStep {
            text: "Running".to_owned(),
            agent: None,
        };
        assert_eq!(next_line("", &step).as_deref(), Some("Running"));
        step.agent = AgentProgress::of_log("{\"message\":\"m\",\"bytes\":5}");
        assert_eq!(next_line("Running", &step), None);
        assert_eq!(step.full_text(), "Running (m, 5 B)");
    }
}
