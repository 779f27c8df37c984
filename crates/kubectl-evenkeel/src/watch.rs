//! Repeats the output of a verb until the user ends it.

use std::time::Duration;

use crate::error::CliError;

/// The time between two outputs.
const INTERVAL: Duration = Duration::from_secs(2);

/// Shows an output every two seconds, until Ctrl-C. An error at the first time ends it, later errors are printed: the API
/// server may be away for a moment. The output itself redraws the screen, so that the last one stays while the next one is
/// being queried.
pub(crate) async fn repeat(
    mut show: impl AsyncFnMut() -> Result<u8, CliError>,
) -> Result<u8, CliError> {
    let ended = tokio::signal::ctrl_c();
    tokio::pin!(ended);
    let mut is_first = true;
    loop {
        let shown = tokio::select! {
            _ = &mut ended => return Ok(0),
            shown = show() => shown,
        };
        match shown {
            Ok(_) => {}
            Err(error) if is_first => return Err(error),
            Err(error) => eprintln!("{error}"),
        }
        is_first = false;
        tokio::select! {
            _ = &mut ended => return Ok(0),
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}
