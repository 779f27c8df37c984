//! Prints results as text, JSON or YAML.

use std::io::{ErrorKind, Write};

use serde::Serialize;

use crate::args::OutputFormat;
use crate::error::CliError;
use crate::terminal::Terminal;

/// How results are printed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutputOptions {
    /// The format.
    pub(crate) format: OutputFormat,
    /// The terminal, for text.
    pub(crate) terminal: Terminal,
}

impl OutputOptions {
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
                serde_saphyr::to_string(value).map_err(|error| print_error(&error))?
            }
        };
        // A reader such as `head` closes the pipe early, which is not an error.
        match std::io::stdout().write_all(rendered.as_bytes()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(print_error(&error)),
            _ => Ok(()),
        }
    }
}

fn print_error(error: &dyn std::error::Error) -> CliError {
    CliError::new(format!("failed to write the output: {error}"))
}
