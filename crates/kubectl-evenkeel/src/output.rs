//! Prints results as text, JSON or YAML.

use std::io::{ErrorKind, IsTerminal, Write};
use std::process::exit;

use serde::Serialize;

use crate::args::OutputFormat;
use crate::error::CliError;
use crate::terminal::Terminal;

/// Moves the cursor to the first line of the terminal.
const CURSOR_HOME: &str = "\x1b[H";
/// Clears the rest of a line.
const CLEAR_LINE: &str = "\x1b[K";
/// Clears everything below the cursor.
const CLEAR_BELOW: &str = "\x1b[J";

/// How results are printed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutputOptions {
    /// The format.
    pub(crate) format: OutputFormat,
    /// The terminal, for text.
    pub(crate) terminal: Terminal,
    /// Whether each result is followed by another one, until the user ends it.
    is_repeated: bool,
}

impl OutputOptions {
    /// Prints one result.
    pub(crate) fn new(format: OutputFormat, terminal: Terminal) -> Self {
        Self {
            format,
            terminal,
            is_repeated: false,
        }
    }

    /// Sets whether each result replaces the one before on the terminal. Elsewhere, results follow each other.
    pub(crate) fn redrawn(self, is_repeated: bool) -> Self {
        Self {
            is_repeated,
            ..self
        }
    }

    /// Prints a value in the chosen format; `text` renders it as text.
    pub(crate) fn print<T: Serialize>(
        self,
        value: &T,
        text: impl FnOnce(Terminal) -> String,
    ) -> Result<(), CliError> {
        let rendered = match self.format {
            OutputFormat::Text => text(self.terminal),
            OutputFormat::Json => {
                serde_json::to_string_pretty(value).map_err(|error| print_error(&error))? + "\n"
            }
            OutputFormat::Yaml => {
                let document = if self.is_repeated { "---\n" } else { "" };
                let yaml = serde_saphyr::to_string(value).map_err(|error| print_error(&error))?;
                format!("{document}{yaml}")
            }
        };
        let mut stdout = std::io::stdout();
        let rendered = match self.format {
            OutputFormat::Text if self.is_repeated && stdout.is_terminal() => redraw(&rendered),
            OutputFormat::Text if self.is_repeated => format!("{rendered}\n"),
            _ => rendered,
        };
        let written = stdout
            .write_all(rendered.as_bytes())
            .and_then(|()| stdout.flush());
        match written {
            // A reader such as `head` closes the pipe early, which is not an error.
            Err(error) if error.kind() == ErrorKind::BrokenPipe && self.is_repeated => exit(0),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            Err(error) => Err(print_error(&error)),
            Ok(()) => Ok(()),
        }
    }
}

/// Replaces the content of the terminal without clearing it first, which would flicker.
fn redraw(text: &str) -> String {
    let lines = text.lines().map(|line| format!("{line}{CLEAR_LINE}\n"));
    let lines: String = lines.collect();
    format!("{CURSOR_HOME}{lines}{CLEAR_BELOW}")
}

fn print_error(error: &dyn std::error::Error) -> CliError {
    CliError::new(format!("failed to write the output: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shorter_screen_leaves_nothing_of_the_longer_one() {
        assert_eq!(redraw("one\ntwo\n"), "\x1b[Hone\x1b[K\ntwo\x1b[K\n\x1b[J");
    }
}
