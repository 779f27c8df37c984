//! The end, asked for politely: one token that everything listens to, cancelled on SIGTERM (the kubelet) or SIGINT (a
//! person at a terminal).

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A token that is cancelled when the process is asked to end. Call it once, inside the runtime.
pub fn shutdown() -> io::Result<CancellationToken> {
    let (mut terminate, mut interrupt) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );
    let token = CancellationToken::new();
    let end = token.clone();
    tokio::spawn(async move {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        tracing::info!(signal = name, "asked to end");
        end.cancel();
    });
    Ok(token)
}
