//! What a person sees while long work goes on: stages with a bar on a terminal, plain lines elsewhere, and never ten
//! seconds without a changed line.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

const EVERY: Duration = Duration::from_secs(8);

/// One piece of long work that is shown while it goes on.
#[derive(Debug)]
pub struct Stage {
    title: String,
    began: Instant,
    shown: Shown,
}

#[derive(Debug)]
enum Shown {
    Bar(ProgressBar),
    Lines {
        state: Arc<Lines>,
        ticker: Option<JoinHandle<()>>,
    },
}

#[derive(Debug, Default)]
struct Lines {
    done: AtomicU64,
    total: AtomicU64,
    note: Mutex<String>,
    over: AtomicBool,
}

impl Stage {
    /// Begins a stage; `hint` says what it takes, such as "about 6 minutes the first time".
    pub fn begin(title: &str, hint: &str) -> Self {
        let began = Instant::now();
        let shown = if std::io::stderr().is_terminal() {
            bar(title, hint)
        } else {
            lines(title, hint, began)
        };
        Self {
            title: title.to_owned(),
            began,
            shown,
        }
    }

    /// Shows how much of it is done.
    pub fn at(&self, done: u64, total: u64) {
        match &self.shown {
            Shown::Bar(bar) => {
                // Only now is there something to measure by.
                if bar.length() != Some(total) {
                    style(
                        bar,
                        "{spinner} {prefix} {bar:24} {pos}/{len}  {elapsed}  {wide_msg}",
                    );
                }
                bar.set_length(total);
                bar.set_position(done);
            }
            Shown::Lines { state, .. } => {
                state.done.store(done, Ordering::Relaxed);
                state.total.store(total, Ordering::Relaxed);
            }
        }
    }

    /// Shows what it is at.
    pub fn say(&self, note: &str) {
        match &self.shown {
            Shown::Bar(bar) => bar.set_message(note.to_owned()),
            Shown::Lines { state, .. } => note.clone_into(&mut lock(&state.note)),
        }
    }

    /// Ends it well.
    pub fn done(mut self) {
        let line = format!("✓ {} ({})", self.title, human(self.began.elapsed()));
        self.end();
        eprintln!("{line}");
    }

    fn end(&mut self) {
        match &mut self.shown {
            Shown::Bar(bar) => bar.finish_and_clear(),
            Shown::Lines { state, ticker } => {
                state.over.store(true, Ordering::Relaxed);
                if let Some(ticker) = ticker.take() {
                    ticker.thread().unpark();
                    // It only prints: should it have failed, nothing is lost.
                    let _ = ticker.join();
                }
            }
        }
    }
}

/// A stage that ends without being done has failed; the error itself is told by whoever reports it.
impl Drop for Stage {
    fn drop(&mut self) {
        self.end();
    }
}

fn bar(title: &str, hint: &str) -> Shown {
    let bar = ProgressBar::new(0);
    style(&bar, "{spinner} {prefix}  {elapsed}  {wide_msg}");
    bar.set_prefix(title.to_owned());
    bar.set_message(hint.to_owned());
    bar.enable_steady_tick(Duration::from_millis(120));
    Shown::Bar(bar)
}

/// Templates are ours and right; should one not be, the plain style serves as well.
fn style(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}

fn lines(title: &str, hint: &str, began: Instant) -> Shown {
    eprintln!("… {title}{}{hint}", if hint.is_empty() { "" } else { ": " });
    let state = Arc::new(Lines::default());
    let (watched, title) = (Arc::clone(&state), title.to_owned());
    let ticker = std::thread::spawn(move || {
        let mut next = Instant::now() + EVERY;
        while !watched.over.load(Ordering::Relaxed) {
            std::thread::park_timeout(next.saturating_duration_since(Instant::now()));
            if Instant::now() >= next && !watched.over.load(Ordering::Relaxed) {
                next += EVERY;
                let (done, total) = (
                    watched.done.load(Ordering::Relaxed),
                    watched.total.load(Ordering::Relaxed),
                );
                let count = if total > 0 {
                    format!(" {done}/{total}")
                } else {
                    String::new()
                };
                eprintln!(
                    "  {title}{count} {} {}",
                    human(began.elapsed()),
                    lock(&watched.note)
                );
            }
        }
    });
    Shown::Lines {
        state,
        ticker: Some(ticker),
    }
}

fn lock(note: &Mutex<String>) -> std::sync::MutexGuard<'_, String> {
    note.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A duration as people say it.
pub fn human(duration: Duration) -> String {
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
    fn durations_are_said_in_minutes_from_one_minute_on() {
        assert_eq!(human(Duration::from_millis(1250)), "1.2 s");
        assert_eq!(human(Duration::from_secs(59)), "59.0 s");
        assert_eq!(human(Duration::from_secs(61)), "1 min 1 s");
    }
}
