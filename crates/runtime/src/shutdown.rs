//! Graceful shutdown: a token that is cancelled on SIGTERM (sent by the kubelet) or SIGINT (Ctrl-C).

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Returns a token that is cancelled when the process receives one of these signals. Must be called
/// once, inside the async runtime.
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
        tracing::info!(signal = name, "shutdown requested");
        end.cancel();
    });
    Ok(token)
}
