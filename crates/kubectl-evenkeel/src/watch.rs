//! Repeats the output of a verb until the user ends it.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use crate::error::CliError;

/// The time between two outputs.
const INTERVAL: Duration = Duration::from_secs(2);
/// Clears the terminal, and moves the cursor to its first line.
const CLEAR_SCREEN: &str = "\x1b[2J\x1b[H";

/// Shows an output every two seconds. Returns when the reader has closed the output; Ctrl-C ends the process. An error at the
/// first time ends it, later errors are printed: the API server may be away for a moment.
pub(crate) async fn repeat(
    mut show: impl AsyncFnMut() -> Result<u8, CliError>,
) -> Result<u8, CliError> {
    let mut separator = if std::io::stdout().is_terminal() {
        CLEAR_SCREEN
    } else {
        ""
    };
    let mut is_first = true;
    loop {
        let mut stdout = std::io::stdout();
        let is_open = stdout
            .write_all(separator.as_bytes())
            .and_then(|()| stdout.flush());
        if is_open.is_err() {
            return Ok(0);
        }
        match show().await {
            Ok(_) => {}
            Err(error) if is_first => return Err(error),
            Err(error) => eprintln!("{error}"),
        }
        is_first = false;
        if separator.is_empty() {
            separator = "\n";
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
