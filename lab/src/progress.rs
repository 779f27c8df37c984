//! Progress output of long operations: a progress bar on a terminal, plain lines elsewhere. Plain output has a new line
//! at least every ten seconds.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Interval between two lines of plain output.
const LINE_INTERVAL: Duration = Duration::from_secs(8);

/// The progress of a long operation. Dropping it ends the output without a success line.
#[derive(Debug)]
pub struct Progress {
    title: String,
    started: Instant,
    output: ProgressOutput,
}

#[derive(Debug)]
enum ProgressOutput {
    Bar(ProgressBar),
    Lines {
        state: Arc<LineState>,
        ticker: Option<JoinHandle<()>>,
    },
}

#[derive(Debug, Default)]
struct LineState {
    done: AtomicU64,
    total: AtomicU64,
    message: Mutex<String>,
    is_finished: AtomicBool,
}

impl Progress {
    /// Starts the output; `hint` describes the operation, for example "about 6 minutes the first time".
    pub fn start(title: &str, hint: &str) -> Self {
        let started = Instant::now();
        let output = if std::io::stderr().is_terminal() {
            bar(title, hint)
        } else {
            lines(title, hint, started)
        };
        Self {
            title: title.to_owned(),
            started,
            output,
        }
    }

    /// Shows how many units are done.
    pub fn set_position(&self, done: u64, total: u64) {
        match &self.output {
            ProgressOutput::Bar(bar) => {
                // The first position switches from the spinner to a bar.
                if bar.length() != Some(total) {
                    style(
                        bar,
                        "{spinner} {prefix} {bar:24} {pos}/{len}  {elapsed}  {wide_msg}",
                    );
                }
                bar.set_length(total);
                bar.set_position(done);
            }
            ProgressOutput::Lines { state, .. } => {
                state.done.store(done, Ordering::Relaxed);
                state.total.store(total, Ordering::Relaxed);
            }
        }
    }

    /// Shows the current step of the operation.
    pub fn set_message(&self, message: &str) {
        match &self.output {
            ProgressOutput::Bar(bar) => bar.set_message(message.to_owned()),
            ProgressOutput::Lines { state, .. } => message.clone_into(&mut lock(&state.message)),
        }
    }

    /// Ends the output with a success line.
    pub fn finish(mut self) {
        let line = format!(
            "✓ {} ({})",
            self.title,
            format_duration(self.started.elapsed())
        );
        self.end();
        eprintln!("{line}");
    }

    fn end(&mut self) {
        match &mut self.output {
            ProgressOutput::Bar(bar) => bar.finish_and_clear(),
            ProgressOutput::Lines { state, ticker } => {
                state.is_finished.store(true, Ordering::Relaxed);
                if let Some(ticker) = ticker.take() {
                    ticker.thread().unpark();
                    // The thread only prints, so a panic in it is ignored.
                    let _ = ticker.join();
                }
            }
        }
    }
}

/// Ends the output of a failed operation; the caller reports the error.
impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

fn bar(title: &str, hint: &str) -> ProgressOutput {
    let bar = ProgressBar::new(0);
    style(&bar, "{spinner} {prefix}  {elapsed}  {wide_msg}");
    bar.set_prefix(title.to_owned());
    bar.set_message(hint.to_owned());
    bar.enable_steady_tick(Duration::from_millis(120));
    ProgressOutput::Bar(bar)
}

/// Sets the template; keeps the default style when the template is invalid.
fn style(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}

fn lines(title: &str, hint: &str, started: Instant) -> ProgressOutput {
    eprintln!("… {title}{}{hint}", if hint.is_empty() { "" } else { ": " });
    let state = Arc::new(LineState::default());
    let (shared, title) = (Arc::clone(&state), title.to_owned());
    let ticker = std::thread::spawn(move || {
        let mut next = Instant::now() + LINE_INTERVAL;
        while !shared.is_finished.load(Ordering::Relaxed) {
            std::thread::park_timeout(next.saturating_duration_since(Instant::now()));
            if Instant::now() >= next && !shared.is_finished.load(Ordering::Relaxed) {
                next += LINE_INTERVAL;
                let (done, total) = (
                    shared.done.load(Ordering::Relaxed),
                    shared.total.load(Ordering::Relaxed),
                );
                let count = if total > 0 {
                    format!(" {done}/{total}")
                } else {
                    String::new()
                };
                eprintln!(
                    "  {title}{count} {} {}",
                    format_duration(started.elapsed()),
                    lock(&shared.message)
                );
            }
        }
    });
    ProgressOutput::Lines {
        state,
        ticker: Some(ticker),
    }
}

fn lock(message: &Mutex<String>) -> std::sync::MutexGuard<'_, String> {
    message.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Formats a duration for messages: seconds, or minutes and seconds from one minute on.
pub fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds >= 60 {
        format!("{} min {} s", seconds / 60, seconds % 60)
    } else {
        format!("{:.1} s", duration.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_minutes_from_one_minute_on() {
        assert_eq!(format_duration(Duration::from_millis(1250)), "1.2 s");
        assert_eq!(format_duration(Duration::from_secs(59)), "59.0 s");
        assert_eq!(format_duration(Duration::from_secs(61)), "1 min 1 s");
    }
}
