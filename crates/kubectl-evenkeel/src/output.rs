//! Answers in the form that was asked for.

use serde::Serialize;

use crate::args::Output;
use crate::error::Trouble;

/// Prints something for people, or the same for programs.
pub(crate) fn print<T: Serialize>(
    output: Output,
    what: &T,
    text: impl FnOnce() -> String,
) -> Result<(), Trouble> {
    use std::io::Write;
    let shown = match output {
        Output::Text => text(),
        Output::Json => serde_json::to_string_pretty(what).map_err(|why| unsaid(&why))? + "\n",
        Output::Yaml => serde_saphyr::to_string(what).map_err(|why| unsaid(&why))?,
    };
    // Whoever reads no further, such as `head`, has seen enough.
    match std::io::stdout().write_all(shown.as_bytes()) {
        Err(why) if why.kind() != std::io::ErrorKind::BrokenPipe => Err(unsaid(&why)),
        _ => Ok(()),
    }
}

fn unsaid(why: &dyn std::error::Error) -> Trouble {
    Trouble::new(format!("cannot print it: {why}"))
}
