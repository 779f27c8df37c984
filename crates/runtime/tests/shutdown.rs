//! A process of its own: a handler for SIGTERM keeps the process alive, and a hanging test must end.

use nix::sys::signal::{Signal, raise};

#[tokio::test]
async fn a_signal_cancels_the_token() {
    let token = evenkeel_runtime::shutdown().unwrap();
    assert!(!token.is_cancelled());
    raise(Signal::SIGTERM).unwrap();
    token.cancelled().await;
}
